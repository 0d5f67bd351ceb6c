"""Exact, capped and observed epsilons of the same people: no data needed.

Run ``python figures/training.py`` (a second).  It draws benchmarks/results/training.json, which ``python
benchmarks/training.py`` measured and wrote.
"""

from __future__ import annotations

import json
from pathlib import Path

import common
import numpy as np
from common import COLOURS

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "training.json"
# Name in the results: title, colour.
MODES = {
    "watched": ("exact norms (certified)", COLOURS["PLD"]),
    "caps": ("caps (certified)", "#56B4E9"),
    "observed": ("observed norms (estimates)", "#D55E00"),
}


def main() -> None:
    """Draw the three histograms."""
    given = common.arguments(__doc__, results=RESULTS)
    found = json.loads(given.results.read_text())
    worst, exact = found["worst_case"], np.array(found["people"]["watched"])
    figure, grid = common.panels(1, 3, height=3.0, sharey=True)
    facts = {}
    for axes, (name, (words, colour)) in zip(grid, MODES.items(), strict=True):
        values = np.array(found["people"][name])
        below = float(np.mean(values < exact))
        axes.hist(values, bins=np.linspace(0, 1.02 * worst, 46), color=colour)
        axes.axvline(worst, color=COLOURS["text"], ls="--", lw=1.2, label="worst case")
        axes.axvline(np.median(values), color="#8A3F68", lw=1.6, label=f"median {np.median(values):.3f}")
        note = "" if name == "watched" else f"\n{below:.0%} below the exact"
        common.dress(axes, r"$\varepsilon$ at $\delta = 10^{-5}$", title=words + note)
        common.legend(axes, loc="upper center", bbox_to_anchor=(0.58, 1.0))
        facts[name] = {"median": float(np.median(values)), "below_exact": below}
    grid[0].set_ylabel(f"People, of {exact.size}", fontsize=common.TEXT, color=COLOURS["text"])
    common.keep(given.out, "training", figure, {"worst_case": worst, "people": exact.size, **facts})


if __name__ == "__main__":
    main()
