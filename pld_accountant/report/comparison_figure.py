"""The picture of a comparison: three histograms over each other, and the ratios below them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from .comparison import Comparison
from .figures import COLOURS
from .histogram import aligned_histogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_comparison"]

_SIZE = (6.8, 5.95)  # inches, without the caption
_TEXT, _SMALL = 9.5, 7.5
_BINS = 50
_DOTS = 5000  # people drawn in the lower panel
_NAMES = {"PLD": "By PLD", "Gaussian": "By the Gaussian curve above PLD's", "Renyi": "By Renyi accounting"}


def draw_comparison(found: Comparison) -> Figure:
    """Draw how many people have which epsilon by each accounting, and what two of them are over the third.

    Returns
    -------
    matplotlib.figure.Figure
        `pictures.save_figure` writes it.
    """
    from matplotlib.figure import Figure

    caption = textwrap.fill(f"{found.gaussian_sentence} {found.individuals.guarantee}", 117, break_long_words=False)
    lines = 0.145 * (1 + caption.count("\n"))
    width, height = _SIZE[0], _SIZE[1] + lines
    figure = Figure(figsize=(width, height))
    left, across, base = 0.68 / width, 1 - 0.86 / width, 0.55 + lines
    upper = figure.add_axes((left, (base + 2.25) / height, across, 2.75 / height))
    lower = figure.add_axes((left, base / height, across, 2.0 / height), sharex=upper)
    _draw_histograms(upper, found)
    _draw_ratios(lower, found)
    figure.text(0.18 / width, 0.1 / height, caption, fontsize=_SMALL, color=COLOURS["quiet"], linespacing=1.35)
    return figure


def _draw_histograms(axes: Axes, found: Comparison) -> None:
    people = found.individuals
    kinds = {
        "PLD": (people.epsilon.upper, people.worst_case.upper),
        "Gaussian": (found.gaussian_epsilon, found.worst_case_gaussian),
        "Renyi": (people.rdp_epsilon, people.worst_case_rdp),
    }
    values = np.concatenate([part for part, _ in kinds.values()])
    top = float(np.max(values, initial=0.0, where=np.isfinite(values))) or 1.0
    for kind, (part, worst) in kinds.items():
        counted = aligned_histogram(part, worst, top, _BINS)
        if kind == "PLD":
            axes.stairs(counted.counts, counted.edges, fill=True, color=COLOURS[kind], alpha=0.8, label=_NAMES[kind])
        else:
            heights = np.where(counted.counts > 0, counted.counts, np.nan)
            axes.stairs(heights, counted.edges, color=COLOURS[kind], linewidth=1.6, label=_NAMES[kind])
    axes.set_xlim(0, 1.03 * top)
    axes.tick_params(labelbottom=False)
    _dress(axes, "Number of people")
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, borderpad=0.4, ncols=3, frameon=False,
        fontsize=_TEXT - 1, labelcolor=COLOURS["text"],
    )  # fmt: skip


def _draw_ratios(axes: Axes, found: Comparison) -> None:
    pld = found.individuals.epsilon.upper
    both = np.isfinite(pld) & (pld > 0)
    most = 1.0
    for kind, other in (("Renyi", found.individuals.rdp_epsilon), ("Gaussian", found.gaussian_epsilon)):
        who = np.flatnonzero(both & np.isfinite(other))
        who = who[np.linspace(0, len(who) - 1, min(len(who), _DOTS)).astype(int)] if len(who) else who
        ratio = other[who] / pld[who]
        most = max(most, float(ratio.max(initial=1.0)))
        axes.plot(pld[who], ratio, ".", color=COLOURS[kind], markersize=3, markeredgewidth=0, rasterized=True)
    axes.axhline(1, color=COLOURS["PLD"], linewidth=1.4)
    axes.set_ylim(1 - 0.06 * max(most - 1, 0.01), 1 + 1.08 * max(most - 1, 0.01))
    axes.set_xlabel(rf"Individual epsilon, at $\delta$ = {found.individuals.delta:g}; below, by PLD", fontsize=_TEXT)
    _dress(axes, "Epsilon over that by PLD")


def _dress(axes: Axes, words: str) -> None:
    axes.set_ylabel(words, fontsize=_TEXT, color=COLOURS["text"])
    axes.xaxis.label.set_color(COLOURS["text"])
    axes.tick_params(labelsize=_TEXT - 1, colors=COLOURS["text"], length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(COLOURS["quiet"])
