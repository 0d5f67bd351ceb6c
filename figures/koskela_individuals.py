"""Koskela, Tobaben and Honkela (2023), Figure 1: individual privacy losses of DP-SGD on MNIST.

Run ``python figures/koskela_individuals.py --data DIR`` (half an hour on one core for the training, which is kept in
the work folder and resumed; then two minutes).

The parameters are those of the paper: 10,000 steps at rate 0.005, noise multiplier 2, clipping norm 5.  The gradient
norm of every digit is computed at every step, so the bounds hold for the norms of this run.  Pictures that need the
sequence of norms use the log of 1,000 digits drawn at random.
"""

from __future__ import annotations

from typing import Any

import common
import datasets
import numpy as np
import sampled
from common import COLOURS

import pld_accountant as pa
from pld_accountant.notions import gdp, rdp
from pld_accountant.report.figures import draw_histogram
from pld_accountant.report.histogram import bin_edges, histogram
from pld_accountant.report.individuals import Individuals, assess

DELTA, MIN_DELTA = 1e-5, 1e-10
REFRESH = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def ledger_of(log: np.ndarray, **options: Any) -> pa.Ledger:
    """A ledger of the watched digits."""
    return pa.Ledger.from_norms(log, **sampled.MNIST.accounting, **options)


def draw_curve(log: np.ndarray, mu: pa.Bounds) -> tuple[Any, dict[str, Any]]:
    """Figure 1a: the curve of the digit with the median mu, and the Gaussian curve above it."""
    person = int(np.argsort(mu.upper)[len(mu.upper) // 2])
    one, own = ledger_of(log[:, [person]]), float(mu.upper[person])
    ends = [one.epsilon(d).upper[0] for d in (1e-5, MIN_DELTA, 1e-20)]
    figure, (left, right) = common.panels(1, 2, height=3.2)
    epsilon = np.union1d(np.linspace(0, 1.02 * ends[1], 25), np.linspace(0, ends[2], 33))
    log_pld = np.log10(one.delta(epsilon, bounds="upper").upper[:, 0])
    log_gauss = gdp.log_delta(epsilon, own) / np.log(10)
    for axes, last in ((left, 1.02 * ends[1]), (right, ends[2])):
        axes.plot(epsilon, log_pld, color=COLOURS["PLD"], lw=2.2, label="This digit, by PLD")
        axes.plot(epsilon, log_gauss, color=COLOURS["Gaussian"], lw=1.6, ls="--", label=rf"Gaussian, $\mu$ = {own:.5f}")
        axes.plot(ends[1], np.log10(MIN_DELTA), "o", ms=5, color=COLOURS["text"])
        axes.set_xlim(0, last)
        axes.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:.0f}}}$")
        common.dress(axes, r"Privacy loss $\varepsilon$", r"$\delta$ at this $\varepsilon$")
    left.set_ylim(-10.4, 0)
    right.set_ylim(-20.8, 0)
    common.legend(left, loc="upper right")
    left.set_title("The Gaussian curve lies above", fontsize=common.TEXT, loc="left", color=COLOURS["text"])
    right.set_title("At smaller deltas it does not", fontsize=common.TEXT, loc="left", color=COLOURS["text"])
    text = rf"$\delta = 10^{{-10}}$ at $\varepsilon$ = {ends[1]:.3f}"
    common.label(right, ends[1] * 0.93, -10.6, text, ha="right", va="top")
    return figure, {
        "person": person,
        "mu": own,
        "min_delta": MIN_DELTA,
        "mu dominates up to epsilon": ends[1],
        "epsilon": epsilon,
        "log10 delta": log_pld,
        "log10 delta of Gaussian": log_gauss,
    }


def integer_orders(log: np.ndarray, levels: int = 400) -> np.ndarray:
    """Epsilon by Renyi accounting with orders 2 to 32 only, as in the paper's code; norms are rounded up to levels."""
    setting = sampled.MNIST
    level = np.ceil(np.minimum(log / setting.max_grad_norm, 1) * levels).astype(np.int64)
    orders = np.arange(2, 33)
    cost = np.zeros((levels + 1, orders.size))
    for k in range(1, levels + 1):
        step = pa.SampledGaussian(setting.noise_multiplier * levels / k, setting.sample_rate)
        cost[k] = pa.compose([(step, 1)]).rdp(orders)
    counts = np.stack([np.bincount(column, minlength=levels + 1) for column in level.T])
    return np.min(rdp.rdp_epsilon(counts @ cost, orders, DELTA), axis=1)


def draw_thousand(ledger: pa.Ledger, log: np.ndarray) -> tuple[Any, dict[str, Any]]:
    """Figure 1b: histograms of 1,000 digits by PLD, by Renyi, and by Renyi with the paper's orders."""
    upper, renyi, coarse = ledger.epsilon(DELTA).upper, ledger.rdp_epsilon(DELTA), integer_orders(log)
    worst = ledger.worst_case()
    mark = worst.epsilon(DELTA).upper
    edges = bin_edges(1.15 * mark, mark / 40, mark * (1 + 1e-6))
    figure, axes = common.panels(height=3.3)
    facts: dict[str, Any] = {"people": len(upper), "worst case": mark, "worst case by Renyi": worst.rdp_epsilon(DELTA)}
    axes.stairs(histogram(upper, edges).counts, edges, fill=True, color=COLOURS["PLD"], alpha=0.8, lw=0, label="By PLD")
    for values, name, colour, style in (
        (renyi, "By Renyi, every real order", COLOURS["Renyi"], "-"),
        (coarse, "By Renyi, orders 2 to 32 as in the paper", COLOURS["quiet"], "--"),
    ):
        heights = histogram(values, edges).counts
        axes.stairs(np.where(heights > 0, heights, np.nan), edges, color=colour, lw=1.6, ls=style, label=name)
    axes.axvline(mark, color=COLOURS["worst case"], lw=1.3, label=f"Worst case by PLD: {mark:.4f}")
    for name, values in (("PLD", upper), ("Renyi", renyi), ("Renyi, orders 2 to 32", coarse)):
        facts[name] = {f"quantile {p}": np.quantile(values, p) for p in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)}
        facts[name]["mean"] = values.mean()
        facts[name]["counts"] = histogram(values, edges).counts
    facts["edges"] = edges
    axes.set_xlim(0, 1.15 * mark)
    common.dress(axes, r"Individual privacy loss $\varepsilon$ at $\delta = 10^{-5}$", "Digits, of 1,000")
    common.legend(axes, loc="upper center")
    return figure, facts


def draw_everybody(individuals: Individuals, accuracy: float) -> tuple[Any, dict[str, Any]]:
    """Figure 1b for all 60,000 digits, drawn as by the command line."""
    upper, renyi = individuals.epsilon.upper, individuals.rdp_epsilon
    some = (0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1)
    facts = {
        "people": len(upper),
        "not certified": individuals.not_certified,
        "test accuracy": accuracy,
        "worst case": individuals.worst_case.upper,
        "worst case by Renyi": individuals.worst_case_rdp,
        "quantiles": some,
        "epsilon": np.quantile(upper, some),
        "epsilon by Renyi": np.quantile(renyi, some),
        "under half the worst case": float(np.mean(upper < individuals.worst_case.upper / 2)),
        "mean": upper.mean(),
        "largest distance of the bounds": float(np.max(individuals.epsilon.upper - individuals.epsilon.lower)),
    }
    return draw_histogram(individuals), facts


def draw_refreshed(log: np.ndarray) -> tuple[Any, dict[str, Any]]:
    """The change of the epsilons if norms are computed at every r-th step only and reused in between.

    These epsilons are estimates: a bound needs the norms of every step.
    """
    exact = ledger_of(log).epsilon(DELTA, bounds="upper").upper
    some = (0, 0.05, 0.5, 0.95, 1)
    rows = []
    for r in REFRESH[1:]:
        stale = np.repeat(log[::r], r, axis=0)[: len(log)]
        found = ledger_of(stale).epsilon(DELTA, bounds="upper").upper
        rows.append([*np.quantile(found / exact - 1, some), float(np.mean(found < exact * (1 - 1e-3)))])
    table = np.array(rows)
    figure, axes = common.panels(height=3.0)
    x, percent = np.array(REFRESH[1:]), 100 * table
    axes.fill_between(x, percent[:, 0], percent[:, 4], color=COLOURS["PLD"], alpha=0.15, lw=0, label="All 1,000 digits")
    axes.fill_between(x, percent[:, 1], percent[:, 3], color=COLOURS["PLD"], alpha=0.4, lw=0, label="5 % to 95 %")
    axes.plot(x, percent[:, 2], "o-", ms=4, lw=1.6, color=COLOURS["PLD"], label="Median")
    axes.axhline(0, color=COLOURS["worst case"], lw=0.9)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1, linscale=0.5)
    axes.set_xlim(1.85, 1080)
    ticks = (-100, -10, -1, 0, 1, 10, 100, 1000)
    axes.set_yticks(ticks, [f"{t} %" for t in ticks])
    axes.set_xticks(x, [f"{r:,}" for r in x])
    common.dress(axes, "Steps between two computations of the norms", r"Change of the individual $\varepsilon$")
    common.legend(axes, loc="upper left")
    common.label(axes, 980, -30, "below 0: understated loss", ha="right", va="center")
    return figure, {
        "steps between": x,
        "quantiles": some,
        "change": table[:, :5],
        "told too little by 0.1 % or more": table[:, 5],
    }


def draw_scatter(ledger: pa.Ledger, mu: pa.Bounds) -> tuple[Any, dict[str, Any]]:
    """Each person's epsilon by Renyi accounting and by the Gaussian curve above, against the epsilon by PLD."""
    upper, renyi = ledger.epsilon(DELTA).upper, ledger.rdp_epsilon(DELTA)
    # mu describes deltas down to MIN_DELTA; its (epsilon, delta) guarantee holds at delta + MIN_DELTA.
    curve = gdp.epsilon(DELTA - MIN_DELTA, mu.upper)
    figure, (left, right) = common.panels(1, 2, height=3.2)
    style = {"ls": "none", "marker": ".", "ms": 3.5, "alpha": 0.6, "mew": 0}
    for values, kind, name in ((renyi, "Renyi", "Renyi accounting"), (curve, "Gaussian", r"Gaussian curve of $\mu$")):
        left.plot(upper, 100 * (values / upper - 1), color=COLOURS[kind], label=name, **style)
    left.set_ylim(0, None)
    common.dress(left, r"Individual $\varepsilon$ by PLD", r"Excess of $\varepsilon$ over PLD (%)")
    common.legend(left, loc="upper right", markerscale=3)
    right.plot(upper, mu.upper, color=COLOURS["Gaussian"], **style)
    right.set_yscale("log")
    right.set_yticks([0.02, 0.05, 0.1, 0.2], ["0.02", "0.05", "0.1", "0.2"])
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
        axes.minorticks_off()
    common.dress(right, r"Individual $\varepsilon$ by PLD", r"$\mu$ of the Gaussian curve above")
    facts = {
        "more by Renyi, quantiles 0, 0.5, 1": np.quantile(renyi / upper - 1, (0, 0.5, 1)),
        "more by the Gaussian curve": np.quantile(curve / upper - 1, (0, 0.5, 1)),
        "epsilon": plain_column(upper),
        "epsilon by Renyi": plain_column(renyi),
        "epsilon by Gaussian curve": plain_column(curve),
        "mu": plain_column(mu.upper),
    }
    return figure, facts


def plain_column(values: np.ndarray) -> list[float]:
    """The values in five digits."""
    return [float(f"{v:.5g}") for v in values]


def main() -> None:
    """Train, or read the kept run, then draw."""
    given = common.arguments(__doc__)
    run = sampled.run(sampled.MNIST, datasets.load("mnist", given.data), given.work)
    ledger = ledger_of(run.log)
    mu = ledger.mu(MIN_DELTA)
    pictures = {
        "koskela-1a": lambda: draw_curve(run.log, mu),
        "koskela-1b": lambda: draw_thousand(ledger, run.log),
        "koskela-1b-everybody": lambda: draw_everybody(assess(run.ledger, DELTA, min_group=1), run.accuracy),
        "refreshed-norms": lambda: draw_refreshed(run.log),
        "scatter": lambda: draw_scatter(ledger, mu),
    }
    for name, draw in pictures.items():
        figure, facts = draw()
        common.keep(given.out, name, figure, facts)
        print(name, flush=True)


if __name__ == "__main__":
    main()
