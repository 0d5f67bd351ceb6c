"""What the filters for adaptive sampled steps admit, and how an adversary breaks the naive rule: no data needed.

Run ``python figures/potential.py`` (two minutes).  Two pictures count full-norm steps at noise multiplier 2
and sample rate 0.005, delta = 1e-5.  The third one shows an adversary against the rule "go on while the epsilon of the
steps taken is within the budget": after 150 steps with noise multiplier 1 and rate 0.03 it looks at the realised loss,
and goes on with 150 more steps, or with 21,803 steps of noise multiplier 8.  Each of the two alone reaches delta =
1e-5; the better one at each loss reaches 1.21e-5.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import numpy as np
from common import COLOURS
from scipy.special import ndtr

import pld_accountant as pa
from pld_accountant.notions import gdp

DELTA = 1e-5
EPSILONS = (0.3, 0.45, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0)
STEP = {"num_examples": 1, "noise_multiplier": 2.0, "sample_rate": 0.005, "max_grad_norm": 1.0}
STYLES = {
    "pld": ("non-adaptive PLD (no filter)", COLOURS["text"], "-"),
    "potential": ("PotentialFilter (proven)", COLOURS["PLD"], "--"),
    "approximate": ("approximate filter (not proven)", "#8A3F68", ":"),
    "renyi": ("RenyiFilter (proven)", "#D55E00", "-."),
}


def most(fits: Any, guess: int) -> int:
    """The largest number of steps that fits."""
    low, high = 0, guess
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def counted() -> dict[str, list[int]]:
    """Full-norm steps for each epsilon."""
    steps: dict[str, list[int]] = {name: [] for name in STYLES}

    def within(epsilon: float, count: int) -> bool:
        return bool(pa.compose([(pa.SampledGaussian(2.0, 0.005), count)]).epsilon(DELTA).upper <= epsilon)

    def below(mu: float, count: int) -> bool:
        return bool(pa.compose([(pa.SampledGaussian(2.0, 0.005), count)]).mu(0.1 * DELTA).upper <= mu)

    for epsilon in EPSILONS:
        by_potential = int(pa.PotentialFilter(epsilon, DELTA, **STEP).admit([1.0], steps=10**9)[0])
        steps["potential"].append(by_potential)
        steps["renyi"].append(int(pa.RenyiFilter.for_epsilon(epsilon, DELTA, **STEP).admit([1.0], steps=10**9)[0]))
        steps["pld"].append(most(partial(within, epsilon), by_potential))
        steps["approximate"].append(most(partial(below, float(gdp.mu(epsilon, 0.9 * DELTA))), by_potential))
    return steps


N, CELL = 2**17, 2.5e-4
LOSSES = (np.arange(N) - N // 4) * CELL
EPSILON, RATE = 3.3634, 0.03


def transform(sigma: float) -> Any:
    """Fourier transform of the loss of one sampled Gaussian step, removal, in cells that keep its mean likelihood."""
    edges = LOSSES[:, None] + CELL * np.linspace(-0.5, 0.5, 9)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = sigma**2 * np.log((np.exp(edges) - (1 - RATE)) / RATE) + 0.5
    x = np.where(edges > np.log1p(-RATE), x, -np.inf)
    mass = -np.diff((1 - RATE) * ndtr(-x / sigma) + RATE * ndtr((1 - x) / sigma), axis=1)
    middle = 0.5 * (edges[:, 1:] + edges[:, :-1]) - LOSSES[:, None]
    whole = mass.sum(axis=1)
    lean = np.divide((mass * np.exp(-middle)).sum(axis=1), whole, out=np.ones(N), where=whole > 0)
    up = np.where(lean < 1, (1 - lean) / -np.expm1(-CELL), 0)
    down = np.where(lean > 1, (lean - 1) / np.expm1(CELL), 0)
    out = whole * (1 - up - down)
    out[1:] += (whole * up)[:-1]
    out[:-1] += (whole * down)[1:]
    return np.fft.rfft(np.roll(out, -(N // 4)))


def after(spectrum: Any) -> Any:
    """delta at EPSILON of a continuation, for each loss realised before it."""
    weight = np.maximum(-np.expm1(EPSILON - LOSSES), 0)
    value = np.fft.irfft(np.fft.rfft(np.roll(weight, -(N // 4))) * np.conj(spectrum), N)
    return np.clip(np.roll(value, N // 4), 1e-300, 1)


def adversary() -> dict[str, Any]:
    """What is left of delta after each realised loss, and the three means."""
    one = transform(1.0)
    first = np.clip(np.roll(np.fft.irfft(one**150, N), N // 4), 0, None)
    same, gentle = after(one**150), after(transform(8.0) ** 21803)
    shown = slice(N // 4 - int(3 / CELL), N // 4 + int(4 / CELL), 200)
    curves = {"same": same, "gentle": gentle, "adaptive": np.maximum(same, gentle)}
    return {
        "loss": LOSSES[shown],
        "curves": {name: (first * curve)[shown] / CELL for name, curve in curves.items()},
        "delta": {name: float(first @ curve) for name, curve in curves.items()},
    }


def main() -> None:
    """Draw the three pictures."""
    given = common.arguments(__doc__)
    steps, play = counted(), adversary()
    figure, (left, middle, right) = common.panels(1, 3, height=4.0)
    pld = np.array(steps["pld"])
    for name, (words, colour, line) in STYLES.items():
        count = np.array(steps[name])
        left.plot(EPSILONS, count / 1000, line, color=colour, lw=1.8, label=words)
        middle.plot(EPSILONS, count / pld, line, color=colour, lw=1.8)
    common.dress(left, r"$\varepsilon$ at $\delta = 10^{-5}$", title="Thousand steps admitted")
    common.dress(middle, r"$\varepsilon$ at $\delta = 10^{-5}$", title="Over non-adaptive PLD")
    middle.set_ylim(0.78, 1.01)
    common.legend_above(figure, left, 2)
    same, gentle, best = (1e6 * curve for curve in play["curves"].values())
    total = f"the better one: {play['delta']['adaptive']:.3g}"
    right.plot(play["loss"], same, "-", color=COLOURS["PLD"], lw=1.6, label="150 more, noise 1")
    right.plot(play["loss"], gentle, "-.", color="#D55E00", lw=1.6, label="21,803, noise 8")
    right.fill_between(play["loss"], best, color=COLOURS["quiet"], alpha=0.25, lw=0, label=total)
    right.set_xlim(-0.6, 4.2)
    right.set_ylim(0, 11.5)
    common.dress(right, "Realised loss after 150 steps", title=r"Naive rule: $10^6 \delta$ per nat")
    common.legend(right, loc="upper left")
    common.keep(
        given.out,
        "potential",
        figure,
        {"delta": DELTA, "epsilon": EPSILONS, "steps": steps, "naive rule": play["delta"]},
    )


if __name__ == "__main__":
    main()
