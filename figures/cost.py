"""The distance between the bounds of epsilon against their cost: no data needed.

Run ``python figures/cost.py`` (a second).  It draws benchmarks/results/cost.json, which ``python
benchmarks/cost.py`` measured and wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import COLOURS

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "cost.json"
# Name in the results: name in the picture, colour, marker, line.
STYLES = {
    "characteristic": ("Characteristic tables (this package)", COLOURS["PLD"], "o", "-"),
    "grid": ("Grid tables (this package)", "#56B4E9", "s", "--"),
    "prv-accountant": ("prv-accountant", "#8A3F68", "^", ":"),
    "dp-accounting": ("dp-accounting, both estimates", "#D55E00", "D", "-."),
}
PANELS = ("many steps", "few steps")


def distances(answers: list[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Setting, seconds, and the distance of the bounds over the upper bound; answers without bounds are omitted."""
    good = [one for one in answers if one.get("upper")]
    return {
        "setting": [one["setting"] for one in good],
        "seconds": [one["seconds"] for one in good],
        "distance": [(one["upper"] - one["lower"]) / one["upper"] for one in good],
    }


def draw(found: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> Any:
    """One panel for each composition."""
    figure, grid = common.panels(1, 2, height=3.8, sharex=True, sharey=True)
    for axes, name in zip(grid, PANELS, strict=True):
        for route, (words, colour, marker, line) in STYLES.items():
            row = found[name][route]
            axes.loglog(row["seconds"], row["distance"], line, color=colour, marker=marker, ms=4.5, lw=1.6, label=words)
        axes.minorticks_off()
        common.dress(axes, "Seconds of processor time", title=titles[name])
    grid[0].set_ylim(3e-12, 3)
    grid[0].set_yticks([10.0**-k for k in range(0, 13, 2)])
    grid[0].set_ylabel(r"Distance of the bounds over $\varepsilon$", fontsize=common.TEXT, color=COLOURS["text"])
    common.legend_above(figure, grid[0], 2)
    return figure


def main() -> None:
    """Draw both compositions."""
    given = common.arguments(__doc__, results=RESULTS)
    measured = json.loads(given.results.read_text())
    found, titles = {}, {}
    for name in PANELS:
        routes, [[sigma, q, steps]] = measured[name]["routes"], measured[name]["steps"]
        found[name] = {route: distances(routes.get(route, [])) for route in STYLES}
        titles[name] = f"{steps:,} steps, noise {sigma:g}, rate {q:g}"
    if not all(np.size(found[name]["characteristic"]["seconds"]) for name in PANELS):
        raise SystemExit(f"{given.results} holds no bounds")
    common.keep(given.out, "cost", draw(found, titles), {"delta": measured["delta"], **found})


if __name__ == "__main__":
    main()
