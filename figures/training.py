"""Exact, capped and observed epsilons of the same people in three training runs of one seed: no data needed.

Run ``python figures/training.py`` (seconds).  It draws benchmarks/results/training.json, which ``python
benchmarks/training.py`` measured and wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import COLOURS

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "training.json"
BINS = 50
PANELS = {
    "watched": ("Exact norms: bounds", COLOURS["PLD"]),
    "caps": ("Caps: bounds", COLOURS["PLD"]),
    "observed": ("Sampled norms: estimates", COLOURS["Renyi"]),
}


def histograms(measured: Mapping[str, Any]) -> dict[str, Any]:
    """People per bin, the median, and the share of people below their own number in the exact run."""
    people = {name: np.array(measured["people"][name]) for name in PANELS}
    edges = np.linspace(0, max(values.max() for values in people.values()), BINS + 1)
    found: dict[str, Any] = {"edges": edges, "worst case": measured["worst_case"], **measured["run"]}
    for name, values in people.items():
        found[name] = {
            "people": np.histogram(values, edges)[0],
            "median": np.median(values),
            "below the exact run": np.mean(values < people["watched"]),
        }
    return found


def draw(found: Mapping[str, Any]) -> Any:
    """One panel for each mode."""
    figure, row = common.panels(1, len(PANELS), height=2.7, sharey=True)
    for axes, (name, (title, colour)) in zip(row, PANELS.items(), strict=True):
        shown = found[name]
        axes.stairs(shown["people"], found["edges"], fill=True, color=colour)
        axes.axvline(found["worst case"], color=COLOURS["worst case"], linestyle="--", lw=1, label="Worst case")
        axes.axvline(shown["median"], color=COLOURS["text"], lw=1, label=f"Median {shown['median']:.3f}")
        if name != "watched":
            share = f"{100 * shown['below the exact run']:.0f} % below\nthe exact run"
            common.label(axes, 0.62, 33, share, ha="center")
        common.dress(axes, r"$\varepsilon$", "People" if name == "watched" else "", title)
        common.legend(axes, loc="upper right", bbox_to_anchor=(0.94, 1.0), handlelength=1.3)
    return figure


def main() -> None:
    """Draw three panels."""
    given = common.arguments(__doc__)
    found = histograms(json.loads(RESULTS.read_text()))
    common.keep(given.out, "training", draw(found), found)


if __name__ == "__main__":
    main()
