"""What the way of drawing batches is worth: balls in bins, Poisson sampling, and shuffled batches of one size.

Run ``python figures/batches.py`` (a minute).  Left: one epoch of 100 batches, epsilon at delta = 1e-6.  For records
that are shuffled and cut into batches of one size, only a lower bound is drawn: the event that the largest of the
released numbers exceeds a threshold, for a data set whose other records all oppose the one that is dropped (Chua et al.
2024, "How private are DP-SGD implementations?").  Right: ten epochs, epsilon of balls in bins over epsilon of Poisson
sampling at the same expected batch, both bounds.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
from common import COLOURS
from scipy.special import ndtr

import pld_accountant as pa

DELTA = 1e-6
BATCHES = 100
NOISE = (0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0)
NUMBERS = (3, 10, 30, 100, 300, 1000, 3000)
EPOCHS = 10
STYLES = {
    "none": ("one batch, known beforehand", COLOURS["quiet"], ":"),
    "cut": ("shuffled, cut into batches of one size: at least this", "#D55E00", "-."),
    "poisson": ("Poisson sampling", COLOURS["text"], "-"),
    "balls": ("balls in bins", COLOURS["PLD"], "--"),
}


def cut(sigma: float) -> float:
    """A lower bound of epsilon for one epoch of shuffled batches of one size; 0 if this event proves none."""
    c = np.linspace(-2.0, 2.0 + 9.0 * sigma, 4001)
    others = ndtr(c / sigma) ** (BATCHES - 1)
    with_record = 1.0 - ndtr((c - 2.0) / sigma) * others
    without = 1.0 - ndtr((c - 1.0) / sigma) * others
    # differences from 1 below 1e-10 are round-off
    some = (with_record - DELTA > 1e-10) & (without > 1e-10)
    return max(float(np.log((with_record[some] - DELTA) / without[some]).max()), 0.0)


def one_epoch() -> dict[str, list[float]]:
    """Epsilons for each noise multiplier; upper bounds, except for `cut`."""
    found: dict[str, list[float]] = {name: [] for name in STYLES}
    for sigma in NOISE:
        found["none"].append(float(pa.compose([(pa.Gaussian(sigma), 1)]).epsilon(DELTA).upper))
        found["cut"].append(cut(sigma))
        poisson = pa.compose([(pa.SampledGaussian(sigma, 1 / BATCHES), BATCHES)])
        found["poisson"].append(float(poisson.epsilon(DELTA).upper))
        found["balls"].append(float(pa.compose([(pa.RandomAllocation(sigma, BATCHES), 1)]).epsilon(DELTA).upper))
    return found


def ratios(sigma: float) -> dict[str, list[float]]:
    """Lower and upper epsilon of balls in bins, over that of Poisson sampling, for each number of batches."""
    found: dict[str, list[float]] = {"lower": [], "upper": []}
    for t in NUMBERS:
        poisson = pa.compose([(pa.SampledGaussian(sigma, 1 / t), EPOCHS * t)]).epsilon(DELTA)
        balls = pa.compose([(pa.RandomAllocation(sigma, t), EPOCHS)]).epsilon(DELTA)
        found["lower"].append(float(balls.lower / poisson.upper))
        found["upper"].append(float(balls.upper / poisson.lower))
    return found


def main() -> None:
    """Draw the two pictures."""
    given = common.arguments(__doc__)
    figure, (left, right) = common.panels(1, 2, height=4.0)
    epsilons = one_epoch()
    for name, (words, colour, line) in STYLES.items():
        left.plot(NOISE, epsilons[name], line, color=colour, lw=1.8, label=words)
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xticks([0.3, 0.5, 1.0, 2.0], ["0.3", "0.5", "1", "2"])
    left.minorticks_off()
    title = rf"$\varepsilon$ of an epoch of {BATCHES} batches, $\delta = 10^{{-6}}$"
    common.dress(left, "Noise multiplier", title=title)
    common.legend_above(figure, left, 2)
    facts: dict[str, Any] = {"delta": DELTA, "noise": NOISE, "epsilon": epsilons, "batches": NUMBERS, "ratio": {}}
    for sigma, colour in ((0.5, "#8A3F68"), (1.0, COLOURS["PLD"]), (2.0, "#D55E00")):
        found = ratios(sigma)
        facts["ratio"][str(sigma)] = found
        right.fill_between(NUMBERS, found["lower"], found["upper"], color=colour, alpha=0.35, lw=0)
        right.plot(NUMBERS, found["upper"], color=colour, lw=1.6, label=f"noise multiplier {sigma:g}")
    right.axhline(1.0, color=COLOURS["quiet"], lw=1.0, ls=":")
    right.set_xscale("log")
    common.dress(right, "Batches of an epoch", title=f"Balls in bins over Poisson, {EPOCHS} epochs")
    common.legend(right)
    common.keep(given.out, "batches", figure, facts)


if __name__ == "__main__":
    main()
