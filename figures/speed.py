"""People per second by size of the task, and seconds per person beside other accountants: no data needed.

Run ``python figures/speed.py`` (a second).  It draws benchmarks/results/people.json, which ``python
benchmarks/people.py`` measured and wrote: ``speed`` from its part "growth", ``speed-peers`` from "speed" and "peers".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import common
from common import COLOURS

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "people.json"
ASKED = {
    "upper": ("Upper bounds, tables at hand", "o-", COLOURS["PLD"], COLOURS["PLD"]),
    "upper_cold": ("Upper bounds, first time", "o:", COLOURS["PLD"], "white"),
    "all": ("Lower, estimate and upper", "s--", COLOURS["text"], COLOURS["text"]),
}
MILLION = {"upper": ("upper", "at_hand"), "upper_cold": ("upper", "cold"), "all": ("all", "at_hand")}  # in "speed"
PANELS = {"people": "People", "steps": "Steps", "buckets": "Buckets", "delta": r"$\delta$"}
# Name in the results: name in the picture.
ACCOUNTANTS = {
    "dp-accounting": "dp-accounting, grid 1e-4",
    "dp-accounting 1e-5": "dp-accounting, grid 1e-5",
    "prv-accountant 0.1": "prv-accountant, 0.1",
    "inverse FFT": "The papers' grid, one inverse FFT",
}


def delta_of(setting: Mapping[str, Any]) -> str:
    """delta of a setting, as mathematical text."""
    return r"$\delta$ = " + common.power_of_ten(setting["delta"])


def rates(measured: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """People per second for each varied size and each kind of bound, with the million people of the part "speed"."""
    grown, base = measured["growth"], measured["growth"]["base"]
    found = {}
    for key in PANELS:
        values = sorted(grown[key], key=float)
        people = [float(v) if key == "people" else base["people"] for v in values]
        rows = {ask: [n / grown[key][v][ask] for n, v in zip(people, values, strict=True)] for ask in ASKED}
        found[key] = {"value": [float(v) for v in values], **rows}
    speed, shown = measured.get("speed", {}), found["people"]
    same = all(speed.get(k) == base[k] for k in ("steps", "buckets", "delta"))
    if same and speed["people"] > shown["value"][-1]:
        shown["value"].append(speed["people"])
        for ask, (row, when) in MILLION.items():
            shown[ask].append(speed["people"] / speed[row][when])
    return found


def draw_growth(found: Mapping[str, Any], base: Mapping[str, Any]) -> Any:
    """One panel for each varied size."""
    figure, grid = common.panels(2, 2, height=4.6, sharey=True)
    for axes, (key, words) in zip(grid.flat, PANELS.items(), strict=True):
        for ask, (name, style, colour, inside) in ASKED.items():
            look = {"color": colour, "mfc": inside, "ms": 4.5, "lw": 1.6, "label": name}
            axes.loglog(found[key]["value"], found[key][ask], style, **look)
        if key == "buckets":
            axes.set_xticks(found[key]["value"], [f"{v:g}" for v in found[key]["value"]])
        axes.minorticks_off()
        common.dress(axes, words, "People a second" if key in ("people", "buckets") else "")
    grid.flat[0].set_ylim(0.5 * min(min(f[a]) for f in found.values() for a in ASKED), None)
    common.legend_above(figure, grid.flat[0], 3)
    sizes = f"{base['people']:,} people, {base['steps']:,} steps, {base['buckets']} buckets, {delta_of(base)}"
    common.caption(figure, f"Unless varied: {sizes}.")
    return figure


def compared(measured: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Seconds per person and the worst error of each accountant, this package first."""
    speed, peers = measured["speed"], measured["peers"]
    rows = {
        f"This package, {name}": {
            "seconds": speed[ask]["at_hand"] / speed["people"],
            "worst error": peers["ours_worst_error"],
        }
        for ask, name in (("upper", "upper bounds"), ("all", "all three"))
    }
    for name, words in ACCOUNTANTS.items():
        if "seconds_per_person" in peers[name]:
            rows[words] = {"seconds": peers[name]["seconds_per_person"], "worst error": peers[name]["worst_error"]}
    return rows


def draw_compared(rows: Mapping[str, Mapping[str, float]], measured: Mapping[str, Any]) -> Any:
    """Bars on a logarithmic scale; a short bar is a fast accountant."""
    figure, axes = common.panels(height=2.9)
    names, seconds = list(rows), [row["seconds"] for row in rows.values()]
    colours = [COLOURS["PLD"] if name.startswith("This") else COLOURS["quiet"] for name in names]
    axes.barh(names, seconds, color=colours, height=0.62)
    for i, row in enumerate(rows.values()):
        text = f" {row['seconds']:.2g} s, error {row['worst error']:.0e}".replace("e-0", "e-")
        common.label(axes, row["seconds"], i, text, va="center")
    axes.set_xscale("log")
    axes.set_xlim(1e-6, 2e3)
    axes.set_xticks([1e-6, 1e-4, 1e-2, 1])
    axes.minorticks_off()
    axes.invert_yaxis()
    common.dress(axes, "Seconds per person")
    speed, peers = measured["speed"], measured["peers"]
    common.caption(
        figure,
        f"{speed['steps']:,} steps of 40 different norms, {delta_of(speed)}. This package: {speed['people']:,} people, "
        f"{speed['buckets']} buckets, {measured['machine']['cores']} cores, tables at hand. Others: the same norms "
        f"of {peers['individuals']} people, one core. Errors are the largest relative errors, of this package's upper "
        "bounds.",
    )
    return figure


def main() -> None:
    """Draw both pictures, or the second only if the part "growth" is missing."""
    given = common.arguments(__doc__, results=RESULTS)
    measured = json.loads(given.results.read_text())
    if "growth" in measured:
        found = rates(measured)
        figure = draw_growth(found, measured["growth"]["base"])
        common.keep(given.out, "speed", figure, {"people per second": found, "base": measured["growth"]["base"]})
    rows = compared(measured)
    common.keep(given.out, "speed-peers", draw_compared(rows, measured), rows)


if __name__ == "__main__":
    main()
