"""What the figure scripts share: arguments, one style, stages that are kept, files that are whole."""

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
from pld_accountant.report.figures import COLOURS, write_figure
from pld_accountant.report.outputs import write_all

__all__ = ["COLOURS", "arguments", "dress", "keep", "label", "legend", "legend_above", "panels", "stage"]

HERE = Path(__file__).parent
WIDTH = 6.8  # inches, as of the README's picture
TEXT, SMALL = 9.5, 8.0
_BREAK = re.compile(r",\n\s*")


def arguments(description: str | None, **extra: Any) -> argparse.Namespace:
    """Parse ``--data``, ``--work`` and ``--out``, and what else is given as name=default."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with mnist/, fashion-mnist/, adult/; else fetched")
    parser.add_argument("--work", type=Path, default=HERE / "work", help="where finished stages are kept")
    parser.add_argument("--out", type=Path, default=HERE, help="where the figures go")
    for name, value in extra.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"(default {value})")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    given.out.mkdir(parents=True, exist_ok=True)
    return given


def panels(rows: int = 1, columns: int = 1, *, height: float = 3.2, **options: Any) -> tuple[Figure, Any]:
    """A figure of the project's width and its axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06, wspace=0.04, hspace=0.06)  # type: ignore[union-attr]
    return figure, figure.subplots(rows, columns, **options)


def dress(axes: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Words on the axes, and nothing drawn that carries no number."""
    colour = COLOURS["text"]
    axes.set_xlabel(x, fontsize=TEXT, color=colour)
    axes.set_ylabel(y, fontsize=TEXT, color=colour)
    if title:
        axes.set_title(title, fontsize=TEXT, color=colour, loc="left")
    axes.tick_params(labelsize=TEXT - 1, colors=colour, length=3)
    axes.tick_params(which="minor", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(COLOURS["quiet"])


def legend(axes: Axes, **options: Any) -> None:
    """A legend without a frame."""
    made = axes.legend(frameon=False, fontsize=SMALL + 0.5, **options)
    for text in made.get_texts():
        text.set_color(COLOURS["text"])


def legend_above(figure: Figure, axes: Axes, columns: int, **options: Any) -> None:
    """One legend for all panels, above them, of what one panel shows."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        fontsize=SMALL + 0.5,
        labelcolor=COLOURS["text"],
        **options,
    )


def label(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    """Words beside a point, in the units of the axes."""
    axes.text(x, y, text, **{"fontsize": SMALL, "color": COLOURS["text"], **options})


def caption(figure: Figure, text: str) -> None:
    """What a reader has to know, under the picture."""
    figure.supxlabel(textwrap.fill(text, 125), fontsize=SMALL - 0.5, color=COLOURS["quiet"], x=0.01, ha="left")


def keep(folder: Path, name: str, figure: Figure, facts: Mapping[str, Any]) -> None:
    """Write a figure as PNG and PDF and its numbers as JSON: all three, or none."""
    write_all(
        {
            folder / f"{name}.png": lambda file: write_figure(figure, file, ".png"),
            folder / f"{name}.pdf": lambda file: write_figure(figure, file, ".pdf"),
            folder / f"{name}.json": lambda file: file.write(as_json(plain(facts)).encode()),
        }
    )


def as_json(facts: Any) -> str:
    """Indented JSON with each list of numbers on one line."""
    text = json.dumps(facts, indent=1, allow_nan=False)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: f"[{re.sub(_BREAK, ', ', found[1])}]", text) + "\n"


def plain(value: Any, digits: int = 8) -> Any:
    """Numbers, lists and words only; numbers to eight digits, which is more than a picture shows."""
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
    """What `make` returns, from `path` if it was kept there for the same settings, else made and kept.

    An interrupted script so goes on where it was, and one whose settings changed begins anew.
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
