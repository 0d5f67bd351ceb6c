"""Pictures of many people's epsilons, and the one style that every picture of the project has.

`draw_histogram` shows PLD and Renyi accounting, `draw_comparison` also the Gaussian curve.  Figures are built as
objects, without pyplot: drawing neither opens a window nor changes the user's settings.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..files.atomic import atomic_file
from ..rounding import people_and_steps, rounded_up, scientific
from .comparison import Comparison
from .histogram import Histogram, hidden_people, is_far, largest, share_under, shown_histograms
from .individuals import Individuals
from .outputs import FIGURE_ENDINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "MEDIUM",
    "SMALL",
    "TEXT",
    "WIDTH",
    "draw_comparison",
    "draw_histogram",
    "dress",
    "power_of_ten",
    "save_figure",
    "write_figure",
]

# ---------------------------------------------------------------------- style

# One colour per notion, the same in every picture.  They differ in lightness, so they can be told apart in grey and
# with any of the common colour blindnesses.
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
WIDTH = 6.8  # inches, the text width of a page
TEXT, MEDIUM, SMALL = 9.5, 8.5, 7.5  # points: names of axes; ticks and legends; captions and words in the plot
_DPI = 300
_LEFT, _RIGHT = 0.68, 0.18  # inches beside the axes
_CAPTION_COLUMNS, _CAPTION_LINE = 117, 0.145  # characters a line, inches a line
_LEGEND_ROW = 0.19  # inches


def dress(axes: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Name the axes, and remove every line that carries no number."""
    colour = COLOURS["text"]
    axes.set_xlabel(x, fontsize=TEXT, color=colour)
    axes.set_ylabel(y, fontsize=TEXT, color=colour)
    if title:
        axes.set_title(title, fontsize=TEXT, color=colour, loc="left")
    axes.tick_params(labelsize=MEDIUM, colors=colour, length=3)
    axes.tick_params(which="minor", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(COLOURS["quiet"])


def power_of_ten(value: float) -> str:
    """A number in scientific notation, as mathematical text of matplotlib.

    Examples
    --------
    >>> power_of_ten(1e-5), power_of_ten(2.5e-7)
    ('$10^{-5}$', '2.5 $\\\\times$ $10^{-7}$')
    """
    factor, exponent = scientific(value)
    power = f"$10^{{{exponent}}}$"
    return power if factor == "1" else f"{factor} $\\times$ {power}"


def _legend(axes: Axes, columns: int) -> None:
    """A legend without a frame, above the axes."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0,
        borderpad=0.4,
        ncols=columns,
        frameon=False,
        fontsize=MEDIUM,
        labelcolor=COLOURS["text"],
    )


def _captioned(text: str, above: float) -> tuple[Figure, float]:
    """A figure with a caption at its foot and `above` inches over it; also the height of the caption in inches."""
    from matplotlib.figure import Figure

    caption = textwrap.fill(text, _CAPTION_COLUMNS, break_long_words=False)
    lines = _CAPTION_LINE * (1 + caption.count("\n"))
    height = above + lines
    figure = Figure(figsize=(WIDTH, height))
    style: dict[str, Any] = {"fontsize": SMALL, "color": COLOURS["quiet"], "va": "bottom", "linespacing": 1.35}
    figure.text(_RIGHT / WIDTH, 0.1 / height, caption, **style)
    return figure, lines


def _add_axes(figure: Figure, bottom: float, height: float, **options: Any) -> Axes:
    """Axes over the width of the figure; bottom and height in inches."""
    total = figure.get_figheight()
    box = (_LEFT / WIDTH, bottom / total, 1 - (_LEFT + _RIGHT) / WIDTH, height / total)
    return figure.add_axes(box, **options)


def _draw_bars(axes: Axes, counted: Histogram, kind: str, label: str) -> None:
    axes.stairs(counted.counts, counted.edges, fill=True, color=COLOURS[kind], alpha=0.8, linewidth=0, label=label)


def _draw_outline(axes: Axes, counted: Histogram, kind: str, label: str) -> None:
    """An outline: a second fill over the first would show a third colour that means nothing."""
    heights = np.where(counted.counts > 0, counted.counts, np.nan)  # NaN: no line along the axis in empty bins
    axes.stairs(heights, counted.edges, color=COLOURS[kind], linewidth=1.8, label=label)


# ---------------------------------------------------------------------- the histogram


def draw_histogram(individuals: Individuals, *, bins: int = 50) -> Figure:
    """Draw the number of people by epsilon, by PLD and by Renyi accounting, beside the worst case.

    Parameters
    ----------
    individuals : Individuals
    bins : int
        Bins of equal width between 0 and the largest epsilon shown; fewer if most have too few people to be shown.

    Returns
    -------
    matplotlib.figure.Figure
        The caption holds the guarantee.  `save_figure` writes the figure.
    """
    upper, worst = individuals.epsilon.upper, individuals.worst_case.upper
    top = largest(np.concatenate([upper, individuals.rdp_epsilon]))
    pairs = [(upper, worst), (individuals.rdp_epsilon, individuals.worst_case_rdp)]
    bars, outline = shown_histograms(pairs, top, bins, individuals.min_group)
    budget, at = individuals.guarantee.promise or (0.0, 0.0)
    promised = at == individuals.delta
    figure, lines = _captioned(_caption(individuals, bars.hidden), 3.75 + _LEGEND_ROW * promised)
    axes = _add_axes(figure, 0.61 + lines, 2.62)
    _draw_bars(axes, bars, "PLD", "By privacy loss distribution (PLD)")
    if np.isfinite(individuals.rdp_epsilon).any():
        _draw_outline(axes, outline, "Renyi", "By Renyi accounting")
    beyond = is_far(worst, top)
    for epsilon, style, kind in ((worst, "-", "PLD"), (individuals.worst_case_rdp, (0, (4, 2)), "Renyi")):
        _draw_line(axes, epsilon, style, f"Worst case by {kind}", beyond=beyond)
    inside = promised and not is_far(budget, top)
    if promised:
        _draw_line(axes, budget, ":", "Promised to everybody", beyond=not inside)
    axes.set_xlim(0, 1.02 * max(bars.edges[-1], budget * inside) if beyond else axes.get_xlim()[1])
    if not individuals.few:
        _draw_half(axes, upper, worst, individuals.min_group)
    delta = power_of_ten(individuals.delta)
    words = rf"Individual privacy loss $\varepsilon$ over the whole run, at $\delta$ = {delta}"
    dress(axes, words, "Number of people")
    _count_people(axes)
    _legend(axes, 2)
    return figure


def _count_people(axes: Axes) -> None:
    """Whole numbers of people along the y axis; large ones as 20k or 1.5M, which leave room for the axis's name."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if axes.get_ylim()[1] >= 10_000:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _draw_line(axes: Axes, epsilon: float, style: Any, name: str, *, beyond: bool = False) -> None:
    if np.isfinite(epsilon):
        label = f"{name}: {rounded_up(epsilon)}{', beyond the axis' if beyond else ''}"
        line = axes.plot([], []) if beyond else [axes.axvline(epsilon)]
        line[0].set(color=COLOURS["worst case"], linestyle=style, linewidth=1.4, label=label)


def _draw_half(axes: Axes, upper: np.ndarray, worst: float, least: int) -> None:
    """Mark the range below half the worst case with a bracket over the bars, and state the share of people in it."""
    top = axes.get_ylim()[1]
    axes.set_ylim(0, 1.22 * top)
    share = share_under(upper, worst / 2, least) if worst > 0 else None
    if share is None:
        return
    bracket = np.array([1.03, 1.06, 1.06, 1.03]) * top
    axes.plot([0, 0, worst / 2, worst / 2], bracket, color=COLOURS["quiet"], linewidth=0.9)
    text = f"{100 * share.fraction:.0f} % of people: less than half the worst case"
    style: dict[str, Any] = {"color": COLOURS["text"], "fontsize": MEDIUM, "va": "bottom", "ha": "left"}
    axes.text(0.012 * axes.get_xlim()[1], 1.085 * top, text, **style)


def _proven(individuals: Individuals) -> str:
    return f"{individuals.proven} [{individuals.guarantee.reference}]"


def _caption(individuals: Individuals, hidden: int) -> str:
    missing, loose = individuals.not_certified, individuals.renyi_only
    sentences = [
        f"{people_and_steps(individuals.num_examples, individuals.steps)}; by certified upper bounds.",
        hidden_people(hidden, individuals.min_group),
        f"{missing:,} without a certified bound are not shown." if missing else "",
        f"{loose:,} have only the Renyi bound." if loose else "",
        "" if individuals.guarantee.promise is None else "The worst cases are those without the filter.",
        _proven(individuals),
    ]
    return " ".join(s for s in sentences if s)


# ---------------------------------------------------------------------- the comparison

_DOTS = 5000  # people drawn in the lower panel
_NAMES = {"PLD": "By PLD", "Gaussian": "By the Gaussian curve above PLD's", "Renyi": "By Renyi accounting"}


def draw_comparison(found: Comparison, *, bins: int = 50) -> Figure:
    """Draw the number of people by epsilon for three accountings, and below it the ratios to PLD.

    Parameters
    ----------
    bins : int
        As in `draw_histogram`.

    Returns
    -------
    matplotlib.figure.Figure
        `save_figure` writes it.
    """
    kinds, least = found.by_kind, found.individuals.min_group
    top = largest(np.concatenate([values for values, _ in kinds.values()]))
    counted = dict(zip(kinds, shown_histograms(list(kinds.values()), top, bins, least), strict=True))
    notes = (found.gaussian_sentence, hidden_people(counted["PLD"].hidden, least), _proven(found.individuals))
    figure, lines = _captioned(" ".join(note for note in notes if note), 5.95)
    upper = _add_axes(figure, 0.55 + lines + 2.25, 2.75)
    lower = _add_axes(figure, 0.55 + lines, 2.0, sharex=upper)
    _draw_counts(upper, counted, top)
    _draw_ratios(lower, found, counted["PLD"])
    return figure


def _draw_counts(axes: Axes, counted: Mapping[str, Histogram], top: float) -> None:
    for kind, one in counted.items():
        draw = _draw_bars if kind == "PLD" else _draw_outline
        draw(axes, one, kind, _NAMES[kind])
    axes.set_xlim(0, 1.03 * top)
    axes.tick_params(labelbottom=False)
    dress(axes, "", "Number of people")
    _count_people(axes)
    _legend(axes, 3)


def _draw_ratios(axes: Axes, found: Comparison, bins: Histogram) -> None:
    """A dot for each person; if single people must not be shown, the median of each bin that is shown."""
    kinds = found.by_kind
    single = found.individuals.min_group == 1
    pld = kinds["PLD"][0]
    most = 1.0
    for kind in ("Renyi", "Gaussian"):
        other = kinds[kind][0]
        who = np.flatnonzero(np.isfinite(pld) & (pld > 0) & np.isfinite(other))
        if not single:
            places, ratio = _medians(pld[who], other[who] / pld[who], bins, found.individuals.min_group)
            most = max(most, float(ratio.max(initial=1.0)))
            axes.plot(places, ratio, "o", color=COLOURS[kind], markersize=4, markeredgewidth=0)
            continue
        who = who[np.linspace(0, len(who) - 1, min(len(who), _DOTS)).astype(int)] if len(who) else who
        ratio = other[who] / pld[who]
        most = max(most, float(ratio.max(initial=1.0)))
        axes.plot(pld[who], ratio, ".", color=COLOURS[kind], markersize=3, markeredgewidth=0, rasterized=True)
    axes.axhline(1, color=COLOURS["PLD"], linewidth=1.4)
    axes.set_ylim(1 - 0.06 * max(most - 1, 0.01), 1 + 1.08 * max(most - 1, 0.01))
    delta = power_of_ten(found.individuals.delta)
    name = "Epsilon over epsilon by PLD" if single else "Median ratio to epsilon by PLD"
    dress(axes, rf"Individual epsilon, at $\delta$ = {delta}; below, by PLD", name)


def _medians(epsilon: np.ndarray, ratio: np.ndarray, bins: Histogram, least: int) -> tuple[np.ndarray, np.ndarray]:
    """The middles of the bins with at least `least` people, and the median of the ratio in each."""
    place = np.searchsorted(bins.edges, epsilon, side="left") - 1
    shown = [b for b in range(len(bins.counts)) if np.count_nonzero(place == b) >= least]
    middles = (bins.edges[:-1] + bins.edges[1:]) / 2
    return middles[shown], np.array([np.median(ratio[place == b]) for b in shown])


# ---------------------------------------------------------------------- files


def write_figure(figure: Figure, file: BinaryIO, ending: str, about: str | None = None) -> None:
    """Write a figure to an open file in the format of `ending`, ``.png`` or ``.pdf``.

    Parameters
    ----------
    about : str, optional
        Text for the metadata: Description of a PNG, Subject of a PDF.
    """
    import matplotlib

    # Journals require TrueType fonts instead of Type 3.  Without a date, the same picture gives the same file.
    metadata: dict[str, str | None] = {"CreationDate": None} if ending == ".pdf" else {"Software": None}
    if about is not None:
        metadata["Subject" if ending == ".pdf" else "Description"] = about
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(file, format=ending[1:], dpi=_DPI, metadata=metadata)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Save a figure as PNG or PDF by its ending; the file is whole or absent.

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
