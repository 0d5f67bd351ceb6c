"""Epsilon of the worst case down to delta = 1e-100, beside other accountants: no data needed.

Run ``python figures/tails.py`` (seconds).  The answers of the other accountants come from
benchmarks/results/accuracy.json, written by ``python benchmarks/accuracy.py``.  Without this file, the picture shows
this package only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import COLOURS

import pld_accountant as pa

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "accuracy.json"
PART = (2.0, 0.005, 10_000)  # noise multiplier, sample rate, steps
EXPONENTS = (2, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)
# Name in the results: name in the picture, colour, marker, line.
STYLES = {
    "dp-accounting": ("dp-accounting (grid 1e-4)", "#D55E00", "s", "--"),
    "dp-accounting 1e-5": ("dp-accounting (grid 1e-5)", "#8C3A00", "D", ":"),
    "prv-accountant 0.1": ("prv-accountant (0.1)", "#CC79A7", "v", "--"),
    "prv-accountant 0.01": ("prv-accountant (0.01)", "#8A3F68", "^", ":"),
    "dp-accounting RDP": ("Renyi (dp-accounting)", COLOURS["Renyi"], "", "-"),
}
ENDS = {"inf": "inf", "raises ValueError": "an error"}


def others(path: Path) -> dict[str, Any]:
    """The benchmark's deltas; for each accountant its epsilons (None: no answer) and the status of the first None."""
    if not path.exists():
        return {"exponents": list(EXPONENTS), "peers": {}}
    rows = [row for row in json.loads(path.read_text())["tail"] if row["steps"] == [list(PART)]]
    answers = {name: [row["answers"].get(name, {"status": "missing"}) for row in rows] for name in STYLES}
    return {
        "exponents": [-round(np.log10(row["delta"])) for row in rows],
        "peers": {
            name: {
                "epsilon": [one.get("epsilon") for one in found],
                "ends with": next((one["status"] for one in found if one.get("epsilon") is None), None),
            }
            for name, found in answers.items()
            if any(one.get("epsilon") is not None for one in found)
        },
    }


def ours(exponents: list[int]) -> dict[str, np.ndarray]:
    """This package's bounds at these negative powers of ten."""
    run = pa.compose([(pa.SampledGaussian(*PART[:2]), PART[2])])
    found = [run.epsilon(10.0**-k) for k in exponents]
    return {side: np.array([getattr(one, side) for one in found]) for side in ("lower", "estimate", "upper")}


def draw(k: np.ndarray, bounds: dict[str, np.ndarray], peers: dict[str, Any]) -> Any:
    """Epsilon on the left, relative errors on the right; a cross at the last answer of an accountant."""
    figure, (left, right) = common.panels(1, 2, height=3.9)
    left.plot(k, bounds["upper"], color=COLOURS["PLD"], lw=3.2, label="This package, certified", zorder=1)
    width = (bounds["upper"] - bounds["lower"]) / bounds["estimate"]
    right.plot(k, np.maximum(width, 1e-14), color=COLOURS["PLD"], lw=2.4)
    common.label(right, 22, 1e-12, "distance of this\npackage's bounds", color=COLOURS["PLD"])
    ends: dict[str, list[tuple[float, float, str]]] = {}
    for name, found in peers.items():
        words, colour, marker, line = STYLES[name]
        epsilon = np.array([np.nan if e is None else e for e in found["epsilon"]])
        error = epsilon / bounds["estimate"] - 1.0
        style = {"color": colour, "ls": line, "lw": 1.3, "marker": marker, "ms": 3.5}
        left.plot(k, epsilon, label=words, **{**style, "ms": 2})
        right.plot(k, np.abs(error), **style)
        right.plot(k[error < 0], -error[error < 0], marker, color=colour, mfc="white", ms=5)
        last = np.flatnonzero(np.isfinite(epsilon))[-1]
        if last + 1 < k.size:
            left.plot(k[last], epsilon[last], "x", color=colour, ms=6, mew=1.8)
            right.plot(k[last] * 1.07, abs(error[last]), "x", color=colour, ms=6, mew=1.8)
            word = ENDS.get(found["ends with"], found["ends with"])
            ends.setdefault(name.split(maxsplit=1)[0], []).append((k[last], epsilon[last], word))
    if ends:
        arrow = {"arrowstyle": "-", "color": COLOURS["quiet"], "lw": 0.8, "relpos": (0.5, 0), "shrinkB": 6}
        look = {"fontsize": common.SMALL, "color": COLOURS["text"], "arrowprops": arrow, "textcoords": "axes fraction"}
        words = [f"{package}, below $10^{{-{max(points)[0]:.0f}}}$: {points[0][2]}" for package, points in ends.items()]
        left.annotate("\n".join(words), max(max(points) for points in ends.values())[:2], (0.03, 0.64), **look)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks([2, 5, 10, 20, 50, 100], [f"$10^{{-{j}}}$" for j in (2, 5, 10, 20, 50, 100)])
        axes.minorticks_off()
        axes.set_xlim(1.9, 105)
    left.set_ylim(0, None)
    right.set_yscale("log")
    right.set_ylim(1e-13, 1)
    common.dress(left, r"$\delta$", r"$\varepsilon$ of the worst case")
    common.dress(right, r"$\delta$", r"Error of $\varepsilon$, relative")
    common.legend_above(figure, left, 3)
    note = "Cross: last answer. Hollow: below the true value. " if peers else ""
    common.caption(figure, note + "Noise multiplier 2, sample rate 0.005, 10,000 steps.")
    return figure


def main() -> None:
    """Read the answers of the others, compute those of this package, draw both."""
    given = common.arguments(__doc__, results=RESULTS)
    found = others(given.results)
    bounds = ours(found["exponents"])
    facts = {
        "steps": PART,
        "log10 delta": [-k for k in found["exponents"]],
        "this package": {"lower": bounds["lower"], "upper": bounds["upper"]},
        "largest relative distance": np.max((bounds["upper"] - bounds["lower"]) / bounds["estimate"]),
        **found["peers"],
    }
    figure = draw(np.array(found["exponents"]), bounds, found["peers"])
    common.keep(given.out, "tails", figure, facts)


if __name__ == "__main__":
    main()
