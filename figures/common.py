"""Helpers of the figure scripts: arguments, panels in the package's style, kept stages, files."""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pld_accountant.files import store
from pld_accountant.report.figures import COLOURS, MEDIUM, SMALL, TEXT, WIDTH, dress, power_of_ten, write_figure
from pld_accountant.report.outputs import write_all

__all__ = [
    "COLOURS",
    "MEDIUM",
    "SMALL",
    "TEXT",
    "arguments",
    "dress",
    "keep",
    "label",
    "legend",
    "legend_above",
    "panels",
    "power_of_ten",
    "stage",
]

HERE = Path(__file__).parent
_BREAK = re.compile(r",\n\s*")


def arguments(description: str | None, **extra: Any) -> argparse.Namespace:
    """Parse ``--data``, ``--work``, ``--out``, and one more option for each name=default."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with mnist/, fashion-mnist/, adult/; default: fetch images")
    parser.add_argument("--work", type=Path, default=HERE / "work", help="folder for finished stages")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the figures")
    for name, value in extra.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"(default {value})")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    given.out.mkdir(parents=True, exist_ok=True)
    return given


def panels(rows: int = 1, columns: int = 1, *, height: float = 3.2, **options: Any) -> tuple[Figure, Any]:
    """A figure of the package's width, and its axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06, wspace=0.04, hspace=0.06)  # type: ignore[union-attr]
    return figure, figure.subplots(rows, columns, **options)


def legend(axes: Axes, **options: Any) -> None:
    """A legend without a frame."""
    axes.legend(frameon=False, fontsize=MEDIUM, labelcolor=COLOURS["text"], **options)


def legend_above(figure: Figure, axes: Axes, columns: int, **options: Any) -> None:
    """One legend above all panels, from the labels of one panel."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        fontsize=MEDIUM,
        labelcolor=COLOURS["text"],
        **options,
    )


def label(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    """Text beside a point, in the units of the axes."""
    axes.text(x, y, text, **{"fontsize": SMALL, "color": COLOURS["text"], **options})


def caption(figure: Figure, text: str) -> None:
    """A caption under the picture."""
    figure.supxlabel(textwrap.fill(text, 125), fontsize=SMALL, color=COLOURS["quiet"], x=0.01, ha="left")


def keep(folder: Path, name: str, figure: Figure, facts: Mapping[str, Any]) -> None:
    """Write a figure as PNG and PDF, and its numbers as JSON: all three files, or none."""
    write_all(
        {
            folder / f"{name}.png": lambda file: write_figure(figure, file, ".png"),
            folder / f"{name}.pdf": lambda file: write_figure(figure, file, ".pdf"),
            folder / f"{name}.json": lambda file: file.write(as_json(plain(facts)).encode()),
        }
    )


def as_json(facts: Any) -> str:
    """Indented JSON, each list of numbers on one line."""
    text = json.dumps(facts, indent=1, allow_nan=False)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: f"[{re.sub(_BREAK, ', ', found[1])}]", text) + "\n"


def plain(value: Any, digits: int = 8) -> Any:
    """Plain numbers, lists and strings; numbers in eight digits, more than a picture shows."""
    if isinstance(value, Mapping):
        return {str(k): plain(v, digits) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), digits)
    if isinstance(value, (list, tuple)):
        return [plain(v, digits) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.{digits}g}")
    return value.item() if isinstance(value, np.generic) else value


def stage(path: Path, settings: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The result of `make`: read from `path` if it was kept there for the same settings, else computed and kept.

    An interrupted script thereby resumes at its last stage; a script whose settings changed starts again.
    """
    wanted = json.loads(json.dumps(plain(settings, 17)))
    try:
        header, arrays = store.load(path, "figure stage", 1)
        if header["settings"] == wanted:
            return arrays
    except (FileNotFoundError, store.StoreError):
        pass
    arrays = {name: np.asarray(value) for name, value in make().items()}
    store.save(path, "figure stage", 1, {"settings": wanted}, arrays)
    return arrays
