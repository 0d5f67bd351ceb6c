"""Pictures: the histogram of individual epsilons, PLD against Renyi, with the worst case marked.

Every picture of the project takes its colours and sizes from here.  Figures are built as objects, without
pyplot, so that drawing in a library neither opens a window nor changes what the user set.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..files.store import atomic_file
from .histogram import Histogram, aligned_histogram, share_under
from .individuals import Individuals
from .outputs import FIGURE_ENDINGS
from .rounding import rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "draw_histogram", "save_figure", "write_figure"]

# One colour per notion, the same in every picture; told apart by people with any of the common colour
# blindnesses, and in grey (they differ in lightness).
COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "PLD": "#0072B2",
        "Renyi": "#E69F00",
        "Gaussian": "#009E73",
        "worst case": "#222222",
        "text": "#333333",
        "quiet": "#777777",
    }
)

_WIDTH, _ABOVE_CAPTION = 6.8, 3.75  # inches; the caption's lines come below
_TEXT, _SMALL = 9.5, 7.5
_DPI = 300
_BY_PLD = "By privacy loss distribution (PLD)"
_BY_RENYI = "By Renyi accounting"


def draw_histogram(individuals: Individuals, *, bins: int = 50) -> Figure:
    """Draw how many people have which epsilon, by PLD and by Renyi accounting, beside the worst case.

    Parameters
    ----------
    individuals : Individuals
    bins : int
        Bins between 0 and the largest epsilon shown; all have one width.

    Returns
    -------
    matplotlib.figure.Figure
        With what is proven in its caption; `save_figure` writes it.
    """
    from matplotlib.figure import Figure

    caption = _caption(individuals)
    lines = 0.145 * (1 + caption.count("\n"))
    height = _ABOVE_CAPTION + lines
    figure = Figure(figsize=(_WIDTH, height))
    below = 0.61 + lines
    axes = figure.add_axes((0.68 / _WIDTH, below / height, 1 - 0.86 / _WIDTH, 1 - (below + 0.52) / height))
    upper, worst = individuals.epsilon.upper, individuals.worst_case.upper
    values = np.concatenate([upper, individuals.rdp_epsilon])
    top = float(np.max(values, initial=0.0, where=np.isfinite(values))) or 1.0
    _draw_bars(axes, aligned_histogram(upper, worst, top, bins))
    _draw_outline(axes, aligned_histogram(individuals.rdp_epsilon, individuals.worst_case_rdp, top, bins))
    _draw_worst_case(axes, worst, "-", "PLD")
    _draw_worst_case(axes, individuals.worst_case_rdp, (0, (4, 2)), "Renyi")
    _draw_half(axes, upper, worst)
    _dress(axes, individuals)
    figure.text(
        0.18 / _WIDTH,
        0.1 / height,
        caption,
        fontsize=_SMALL,
        color=COLOURS["quiet"],
        va="bottom",
        linespacing=1.35,
    )
    return figure


def _draw_bars(axes: Axes, counted: Histogram) -> None:
    axes.stairs(counted.counts, counted.edges, fill=True, color=COLOURS["PLD"], alpha=0.8, linewidth=0, label=_BY_PLD)


def _draw_outline(axes: Axes, counted: Histogram) -> None:
    """An outline over the bars: two fills on each other would show a third colour that means nothing."""
    heights = np.where(counted.counts > 0, counted.counts, np.nan)  # NaN: no line along the axis where nobody is
    axes.stairs(heights, counted.edges, color=COLOURS["Renyi"], linewidth=1.8, label=_BY_RENYI)


def _draw_worst_case(axes: Axes, epsilon: float, style: Any, kind: str) -> None:
    if np.isfinite(epsilon):
        label = f"Worst case by {kind}: {rounded_up(epsilon)}"
        axes.axvline(epsilon, color=COLOURS["worst case"], linestyle=style, linewidth=1.4, label=label)


def _draw_half(axes: Axes, upper: np.ndarray, worst: float) -> None:
    """Mark the range under half the worst case with a bracket above the bars, and say how many people lie
    in it."""
    top = axes.get_ylim()[1]
    axes.set_ylim(0, 1.22 * top)
    if not (np.isfinite(worst) and worst > 0):
        return
    share = share_under(upper, worst / 2)
    colour = COLOURS["quiet"]
    axes.plot([0, 0, worst / 2, worst / 2], np.array([1.03, 1.06, 1.06, 1.03]) * top, color=colour, linewidth=0.9)
    text = f"{100 * share.fraction:.0f} % of people: less than half the worst case"
    axes.text(
        0.012 * axes.get_xlim()[1],
        1.085 * top,
        text,
        color=COLOURS["text"],
        fontsize=_SMALL + 1,
        va="bottom",
        ha="left",
    )


def _dress(axes: Axes, individuals: Individuals) -> None:
    """Words on the axes, and nothing drawn that carries no number."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0, axes.get_xlim()[1])
    label = r"Individual privacy loss $\varepsilon$ over the whole run, at $\delta$ = " + _power_of_ten(
        individuals.delta
    )
    axes.set_xlabel(label, fontsize=_TEXT, color=COLOURS["text"], labelpad=5)
    axes.set_ylabel("Number of people", fontsize=_TEXT, color=COLOURS["text"])
    axes.tick_params(labelsize=_TEXT - 1, colors=COLOURS["text"], length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(COLOURS["quiet"])
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    legend = axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0,
        borderpad=0.4,
        ncols=2,
        frameon=False,
        fontsize=_TEXT - 1,
    )
    for text in legend.get_texts():
        text.set_color(COLOURS["text"])


def _power_of_ten(value: float) -> str:
    mantissa, exponent = f"{value:.3e}".split("e")
    factor = f"{float(mantissa):g}"
    power = f"$10^{{{int(exponent)}}}$"
    return power if factor == "1" else f"{factor} $\\times$ {power}"


def _caption(individuals: Individuals) -> str:
    missing = individuals.not_certified
    sentences = [
        f"{individuals.num_examples:,} people, {individuals.steps:,} steps; by certified upper bounds.",
        f"{missing:,} without a certified bound are not shown." if missing else "",
        f"{individuals.guarantee}",
    ]
    return textwrap.fill(" ".join(s for s in sentences if s), 117, break_long_words=False)


def write_figure(figure: Figure, file: BinaryIO, ending: str) -> None:
    """Write a figure to an open file in the format of `ending`, ``.png`` or ``.pdf``."""
    import matplotlib

    # TrueType instead of Type 3 fonts: what journals ask for.  No date: the same picture is the same file.
    metadata = {"CreationDate": None} if ending == ".pdf" else {"Software": None}
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(file, format=ending[1:], dpi=_DPI, metadata=metadata)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Save a figure as PNG or PDF by its ending; the file is whole or not there.

    Raises
    ------
    ValueError
        If the ending is neither.
    OSError
    """
    ending = Path(path).suffix.lower()
    if ending not in FIGURE_ENDINGS:
        raise ValueError(f"a picture must end in {' or '.join(FIGURE_ENDINGS)}, got {os.fspath(path)}")
    with atomic_file(path) as file:
        write_figure(figure, file, ending)
