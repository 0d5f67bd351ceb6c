"""Koskela, Tobaben and Honkela (2023), Figures 3, 4 and 5: Renyi against Gaussian filtering, full-batch steps.

Run ``python figures/koskela_steps.py`` (seconds; needs no data).
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
from common import COLOURS

import pld_accountant as pa
from pld_accountant.notions import zcdp

NOISE, DELTA = 100.0, 1e-5


def curve(steps: int, epsilon: np.ndarray) -> dict[str, np.ndarray]:
    """log10 of delta at each epsilon after `steps` steps, by both accountings."""
    done = pa.compose([(pa.Gaussian(NOISE), steps)])
    renyi = [zcdp.zcdp_delta(steps / (2 * NOISE**2), e) for e in epsilon]
    return {
        "Gaussian": np.log10([done.delta(e).upper for e in epsilon]),
        "Renyi": np.log10(renyi),
    }


def growth(steps: np.ndarray) -> dict[str, np.ndarray]:
    """Epsilon after each number of steps."""
    runs = [pa.compose([(pa.Gaussian(NOISE), int(k))]) for k in steps]
    return {
        "Gaussian": np.array([run.epsilon(DELTA).upper for run in runs]),
        "Renyi": np.array([run.rdp_epsilon(DELTA) for run in runs]),
    }


def admitted(epsilon: float) -> dict[str, int]:
    """Number of full-norm steps that each filter admits within (epsilon, DELTA)."""
    kinds = {"Gaussian": pa.GaussianFilter, "Renyi": pa.RenyiFilter}
    return {
        kind: _count(make.for_epsilon(epsilon, DELTA, num_examples=1, noise_multiplier=NOISE, max_grad_norm=1.0))
        for kind, make in kinds.items()
    }


def _count(keep: Any) -> int:
    steps = 0
    while keep.admit([1.0])[0]:
        steps += 1
    return steps


def numbers() -> dict[str, Any]:
    """Numbers of the three figures at the points at which tests check them."""
    run = pa.compose([(pa.Gaussian(NOISE), 420)])
    shared = run.rdp_epsilon(DELTA)
    return {
        "figure 3": {
            "steps": 420,
            "mu": np.sqrt(420) / NOISE,
            "epsilon by Renyi": shared,
            "epsilon by Gaussian": run.epsilon(DELTA).upper,
            "steps within the Renyi epsilon": admitted(shared),
            "steps within the Gaussian epsilon": admitted(run.epsilon(DELTA).upper),
            "epsilon": [0.2, 0.4, 0.5, 0.6, 0.8],
            "log10 delta": curve(420, np.array([0.2, 0.4, 0.5, 0.6, 0.8])),
        },
        "figure 4": {"steps": [300, 500, 900], "epsilon": growth(np.array([300, 500, 900]))},
        "figure 5": {"steps": list(range(100, 601, 100)), "epsilon": growth(np.arange(100, 601, 100))},
    }


def draw_figure_3() -> tuple[Any, dict[str, Any]]:
    """Delta against epsilon after 420 steps, with both epsilons at one delta."""
    epsilon = np.linspace(0.05, 1.0, 96)
    found = curve(420, epsilon)
    figure, axes = common.panels(height=3.1)
    for kind in ("Renyi", "Gaussian"):
        axes.semilogy(epsilon, 10 ** found[kind], color=COLOURS[kind], lw=2, label=f"{kind} accounting")
    axes.axhline(DELTA, color=COLOURS["quiet"], lw=0.9, ls=":")
    run = pa.compose([(pa.Gaussian(NOISE), 420)])
    for kind, at, side in (
        ("Gaussian", run.epsilon(DELTA).upper, "right"),
        ("Renyi", run.rdp_epsilon(DELTA), "left"),
    ):
        axes.plot(at, DELTA, "o", color=COLOURS[kind], ms=5)
        shift = -0.012 if side == "right" else 0.012
        vertical = DELTA / 1.8 if side == "right" else DELTA * 1.25
        text = rf"$\varepsilon$ = {at:.4f}"
        common.label(axes, at + shift, vertical, text, ha=side, va="bottom" if shift > 0 else "top")
    common.label(axes, 0.055, DELTA * 1.25, r"$\delta = 10^{-5}$")
    axes.set(xlim=(0.05, 1.0), ylim=(1e-8, 1))
    common.dress(axes, r"Privacy loss $\varepsilon$", r"$\delta$ at this $\varepsilon$")
    common.legend(axes, loc="upper right")
    return figure, {"epsilon": epsilon, "log10 delta": found}


def draw_figure_4() -> tuple[Any, dict[str, Any]]:
    """Delta against epsilon after 300, 500 and 900 steps."""
    epsilon = np.linspace(0.1, 1.1, 101)
    figure, axes = common.panels(height=3.1)
    facts = {}
    for steps, style in ((300, "-"), (500, "--"), (900, ":")):
        found = facts[str(steps)] = curve(steps, epsilon)
        for kind in ("Renyi", "Gaussian"):
            name = f"{kind}, {steps} steps"
            axes.semilogy(epsilon, 10 ** found[kind], style, color=COLOURS[kind], lw=1.9, label=name)
    axes.set(xlim=(0.1, 1.1), ylim=(1e-9, 1))
    common.dress(axes, r"Privacy loss $\varepsilon$", r"$\delta$ at this $\varepsilon$")
    common.legend(axes, loc="lower left", ncols=1)
    return figure, {"epsilon": epsilon, "log10 delta": facts}


def draw_figure_5() -> tuple[Any, dict[str, Any]]:
    """Epsilon against steps, and the steps that the filters admit against their budget."""
    steps, budgets = np.arange(1, 601), np.linspace(0.1, 1.0, 19)
    found = growth(steps)
    counts = [admitted(float(e)) for e in budgets]
    shared = pa.compose([(pa.Gaussian(NOISE), 420)]).rdp_epsilon(DELTA)
    figure, (left, right) = common.panels(1, 2, height=3.1)
    for kind in ("Renyi", "Gaussian"):
        left.plot(steps, found[kind], color=COLOURS[kind], lw=2, label=f"{kind} accounting")
        right.plot(budgets, [c[kind] for c in counts], color=COLOURS[kind], lw=2, label=f"{kind} filter")
    for kind, count in admitted(shared).items():
        for axes, x, y in ((left, count, shared), (right, shared, count)):
            axes.plot(x, y, "o", color=COLOURS[kind], ms=5)
        below = kind == "Renyi"
        common.label(
            right,
            shared + (0.02 if below else -0.02),
            count,
            f"{count} steps",
            ha="left" if below else "right",
            va="top" if below else "bottom",
        )
    left.axhline(shared, color=COLOURS["quiet"], lw=0.9, ls=":")
    left.set(xlim=(0, 600), ylim=(0, 1.02))
    right.set(xlim=(0.1, 1.0), ylim=(0, None))
    right.axvline(shared, color=COLOURS["quiet"], lw=0.9, ls=":")
    common.label(left, 8, shared + 0.012, rf"$\varepsilon$ = {shared:.4f}")
    common.dress(left, "Steps", r"Privacy loss $\varepsilon$ at $\delta = 10^{-5}$")
    common.dress(right, r"Budget $\varepsilon$ at $\delta = 10^{-5}$", "Admitted steps")
    common.legend(left, loc="lower right")
    common.legend(right, loc="upper left")
    return figure, {
        "steps": steps,
        "epsilon": found,
        "budget": budgets,
        "admitted": {kind: [c[kind] for c in counts] for kind in ("Gaussian", "Renyi")},
        "at the Renyi epsilon of 420 steps": {"epsilon": shared, **admitted(shared)},
    }


def main() -> None:
    """Draw all three; the JSON of the first also holds the numbers that tests check."""
    given = common.arguments(__doc__)
    for number, draw in ((3, draw_figure_3), (4, draw_figure_4), (5, draw_figure_5)):
        figure, facts = draw()
        check = {"check": numbers()} if number == 3 else {}
        common.keep(given.out, f"koskela-{number}", figure, {**check, **facts})


if __name__ == "__main__":
    main()
