"""Koskela, Tobaben and Honkela (2023), Section 6 and Appendix E: losses of groups, and the effect of filtering.

Run ``python figures/koskela_groups.py --data DIR`` (some minutes on one core; each run is kept in the work folder).

The paper's hospital records need an agreement.  The data here are Adult, by sex, race and income, and MNIST (14 by 14
pixels), by digit.  Noise and steps are those of the paper: full batch, noise multiplier 10.61, a budget of 50 full
steps, that is mu = 0.666 and epsilon = 2.751 at delta = 1e-5.  Plain gradient descent replaces Adam.  The Gaussian
filter runs to step 100, twice as far as worst-case accounting.  Clipping norms go from half to five times the best.
"""

from __future__ import annotations

from typing import Any

import common
import datasets
import numpy as np
from common import COLOURS
from descents import Descent

import pld_accountant as pa
from pld_accountant.demo.network import Network
from pld_accountant.notions import gdp
from pld_accountant.report.histogram import bin_edges, histogram

DELTA, NOISE, BUDGET_STEPS, STEPS = 1e-5, 10.614652581338738, 50, 100
MULTIPLES = (0.5, 1.0, 1.5, 3.0, 5.0)
# Hidden units; best clipping norm; learning rate.  The best clipping norm is the smallest of 1, 2, 4, ... 32 whose test
# loss after 50 steps is within 3 % of the least; the test loss of Adult changes little from 4 to 40.
BEST = {"adult": ((16,), 4.0, 1.0), "mnist": ((32,), 8.0, 1.0)}
TITLES = {"adult": "Adult", "mnist": "MNIST"}
MU = float(np.sqrt(BUDGET_STEPS)) / NOISE


def descent(name: str, data: datasets.Data, clip: float, rate: float, seed: int = 0) -> dict[str, np.ndarray]:
    """Losses of every group, and each person's mu at the last step of worst-case accounting and at the end."""
    hidden = BEST[name][0]
    start, rng = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    network = Network((data.x.shape[1], *hidden, len(data.classes)))
    kinds = group_names(data)
    here, there = ([g[key] == kind for key, kind in kinds] for g in (data.groups, data.groups_test))

    def look(theta: np.ndarray, keep: Any) -> dict[str, Any]:
        train = network.losses(theta, data.x, data.y)
        test = network.losses(theta, data.x_test, data.y_test)
        return {
            "train loss": train.mean(),
            "test loss": test.mean(),
            "train loss of groups": [train[g].mean() for g in here],
            "test loss of groups": [test[g].mean() for g in there],
            "test accuracy": network.accuracy(theta, data.x_test, data.y_test),
            "active": keep.active.mean(),
        }

    keep = pa.GaussianFilter(MU, num_examples=len(data.y), noise_multiplier=NOISE, max_grad_norm=clip)
    run = Descent(network, data, keep, rate, look, every=2)
    theta = run.run(network.initial(start), BUDGET_STEPS, rng)
    middle = keep.spent()
    run.run(theta, STEPS, rng)
    return {**run.notes(), "mu at the stop": middle, "mu at the end": keep.spent()}


def group_names(data: datasets.Data) -> list[tuple[str, str]]:
    """(property, value) of every group, in order."""
    return [(key, str(kind)) for key, values in data.groups.items() for kind in np.unique(values)]


def runs_of(given: Any, name: str, data: datasets.Data) -> dict[float, dict[str, np.ndarray]]:
    """A run for each clipping norm."""
    _, best, rate = BEST[name]
    out = {}
    for multiple in MULTIPLES:
        settings = {"name": name, "clip": multiple * best, "rate": rate, "hidden": BEST[name][0], "seed": 0}
        path = given.work / f"groups-{name}-{multiple}.npz"
        out[multiple] = common.stage(path, settings, lambda c=multiple * best: descent(name, data, c, rate))
        losses = {k: round(float(out[multiple][k][BUDGET_STEPS // 2 - 1]), 4) for k in ("test loss", "test accuracy")}
        print(name, multiple, losses, flush=True)
    return out


def draw_groups(name: str, data: datasets.Data, run: dict[str, np.ndarray]) -> tuple[Any, dict[str, Any]]:
    """Epsilon of every group at the last step of worst-case accounting; losses there and at the end."""
    kinds = group_names(data)
    epsilon = gdp.epsilon(DELTA, run["mu at the stop"])
    stop, end = BUDGET_STEPS // 2 - 1, -1
    figure, (left, right) = common.panels(1, 2, height=0.9 + 0.26 * len(kinds), sharey=True, width_ratios=[1.05, 1])
    facts = {}
    rows = -np.arange(len(kinds), dtype=float)
    for row, (number, (key, kind)) in zip(rows, enumerate(kinds), strict=True):
        own = epsilon[data.groups[key] == kind]
        low, middle, high = np.quantile(own, (0.1, 0.5, 0.9))
        left.plot(
            [low, high],
            [row, row],
            color=COLOURS["Gaussian"],
            lw=5,
            alpha=0.35,
            solid_capstyle="butt",
            label="10 % to 90 % of people" if number == 0 else None,
        )
        left.plot(middle, row, "|", color=COLOURS["text"], ms=9, mew=1.6, label="Median" if number == 0 else None)
        left.plot(own.mean(), row, "o", color=COLOURS["Gaussian"], ms=5, label="Mean" if number == 0 else None)
        facts[f"{key}: {kind}"] = {"people": len(own), "mean epsilon": own.mean(), "quantiles": [low, middle, high]}
        for what, colour, shift in (("train", COLOURS["PLD"], 0.14), ("test", COLOURS["Renyi"], -0.14)):
            before, after = (run[f"{what} loss of groups"][at][number] for at in (stop, end))
            right.plot([before, after], [row + shift] * 2, color=colour, lw=1.4)
            right.plot(before, row + shift, "o", color=colour, ms=3.5, label=f"{what} loss" if number == 0 else None)
            right.plot(after, row + shift, ">" if after > before else "<", color=colour, ms=4.5, mew=0)
            facts[f"{key}: {kind}"][f"{what} loss before, after"] = [before, after]
    worst = gdp.epsilon(DELTA, MU)
    left.axvline(worst, color=COLOURS["worst case"], lw=1.2)
    left.set_xlim(0, 1.06 * worst)
    left.set_ylim(rows[-1] - 0.6, 0.6)
    left.set_yticks(rows, [kind if key != "class" else f"Digit {kind}" for key, kind in kinds])
    common.dress(left, rf"$\varepsilon$ after {BUDGET_STEPS} steps; line: worst case, {worst:.3f}")
    common.dress(right, f"Mean loss, step {BUDGET_STEPS} (dot) to {STEPS} (tip)")
    right.tick_params(left=False)
    common.legend(left, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, handlelength=1.2, columnspacing=1.0)
    common.legend(right, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, handlelength=1.2)
    facts["everybody"] = {
        "mean epsilon": epsilon.mean(),
        "worst case": worst,
        "train loss before, after": [run["train loss"][stop], run["train loss"][end]],
        "test loss before, after": [run["test loss"][stop], run["test loss"][end]],
        "test accuracy before, after": [run["test accuracy"][stop], run["test accuracy"][end]],
        "active at the end": run["active"][end],
    }
    return figure, facts


def draw_clipping(found: dict[str, dict[float, dict[str, np.ndarray]]]) -> tuple[Any, dict[str, Any]]:
    """Test loss over the steps under each clipping norm, and histograms of epsilon at one and five times the best."""
    figure, axes = common.panels(2, 2, height=5.4)
    shades = ["#9ecae1", "#6baed6", "#3182bd", "#08519c", "#08264f"]
    worst = float(gdp.epsilon(DELTA, MU))
    edges = bin_edges(worst, worst / 40, worst * (1 + 1e-6))
    facts: dict[str, Any] = {}
    for (upper, lower), (name, runs) in zip(axes.T, found.items(), strict=True):
        facts[name] = {}
        for (multiple, run), shade in zip(runs.items(), shades, strict=True):
            upper.plot(run["steps"], run["test loss"], color=shade, lw=1.6, label=f"{multiple:g}")
            facts[name][f"clipping norm x {multiple:g}"] = {
                "test loss at 50, 100": run["test loss"][[BUDGET_STEPS // 2 - 1, -1]],
                "train loss at 50, 100": run["train loss"][[BUDGET_STEPS // 2 - 1, -1]],
                "test accuracy at 50, 100": run["test accuracy"][[BUDGET_STEPS // 2 - 1, -1]],
                "active at 100": run["active"][-1],
                "mean epsilon at 50": gdp.epsilon(DELTA, run["mu at the stop"]).mean(),
            }
        upper.axvline(BUDGET_STEPS, color=COLOURS["quiet"], lw=0.9, ls=":")
        upper.set_xlim(0, STEPS)
        top = max(run["test loss"][4:].max() for run in runs.values())
        upper.set_ylim(None, top)
        common.dress(upper, "Steps (dotted: last step of the worst case)", "Mean test loss", TITLES[name])
        for multiple, colour, fill in ((1.0, COLOURS["PLD"], True), (5.0, COLOURS["Renyi"], False)):
            counts = histogram(gdp.epsilon(DELTA, runs[multiple]["mu at the stop"]), edges).counts
            heights = counts if fill else np.where(counts > 0, counts, np.nan)
            word = "Best clipping norm" if fill else "Five times the best"
            lower.stairs(
                heights, edges, fill=fill, color=colour, alpha=0.8 if fill else 1, lw=0 if fill else 1.7, label=word
            )
            facts[name][f"histogram at {multiple:g}"] = counts
        lower.set(yscale="log", ylim=(0.7, 3e5))
        lower.axvline(worst, color=COLOURS["worst case"], lw=1.2)
        lower.set_xlim(0, 1.03 * worst)
        common.dress(lower, rf"Individual $\varepsilon$ after {BUDGET_STEPS} steps", "People")
        common.legend(lower, loc="upper center")
    title = "Clipping norm as a multiple of the best"
    common.legend_above(figure, axes[0, 0], 5, title=title, title_fontsize=common.MEDIUM)
    facts["edges"] = edges
    return figure, facts


def main() -> None:
    """Run the missing descents, then draw."""
    given = common.arguments(__doc__)
    found = {}
    for name in ("adult", "mnist"):
        data = datasets.load(name, given.data)
        data = datasets.pooled(data) if name == "mnist" else data
        found[name] = runs_of(given, name, data)
        figure, facts = draw_groups(name, data, found[name][1.0])
        common.keep(given.out, f"koskela-groups-{name}", figure, facts)
    figure, facts = draw_clipping(found)
    common.keep(given.out, "koskela-clipping", figure, facts)


if __name__ == "__main__":
    main()
