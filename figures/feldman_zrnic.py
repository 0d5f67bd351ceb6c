"""Feldman and Zrnic (2021), Section 5: full-batch private gradient descent with and without individual filters.

Run ``python figures/feldman_zrnic.py --data DIR`` (twenty minutes on one core; each trial is kept in the work folder).

Noise, clipping norms, learning rates and numbers of steps are those of the paper.  The network has 32 hidden units, on
digits of 14 by 14 pixels; the paper's convolutional network takes hours a run.  The paper's epsilons 0.3, 0.5 and 1.0
come from an older conversion from Renyi divergence.  Here all methods share the epsilon that the best conversion gives
for these runs.

Nobody's budget is spent before the last step that unfiltered accounting allows.  Up to there, the unfiltered and the
filtered run are the same.  One trial therefore gives all four methods, with one start and the same noise.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any

import common
import datasets
import numpy as np
from common import COLOURS
from descents import Descent

import pld_accountant as pa
from pld_accountant.demo.network import Network

DELTA = 1e-5


@dataclass(frozen=True)
class Setting:
    """One private gradient descent; `extra` steps follow the last step that unfiltered accounting allows."""

    data: str
    hidden: tuple[int, ...]
    noise_multiplier: float
    max_grad_norm: float
    learning_rate: float
    steps: int
    extra: int

    @property
    def epsilon(self) -> float:
        """The epsilon of `steps` steps by Renyi accounting: the budget of every method."""
        return pa.compose([(pa.Gaussian(self.noise_multiplier), self.steps)]).rdp_epsilon(DELTA)

    def filters(self, people: int) -> tuple[pa.GaussianFilter, pa.RenyiFilter]:
        """Both filters within `epsilon`."""
        step = {"num_examples": people, "noise_multiplier": self.noise_multiplier, "max_grad_norm": self.max_grad_norm}
        gaussian = pa.GaussianFilter.for_epsilon(self.epsilon, DELTA, **step)
        # The paper's budget: the divergence of `steps` full steps, at the best order for this epsilon.
        return gaussian, pa.RenyiFilter.for_epsilon(self.epsilon, DELTA, **step)

    @property
    def gaussian_steps(self) -> int:
        """Full-norm steps that Gaussian accounting allows within the same epsilon."""
        return int(self.filters(1)[0].mu ** 2 * self.noise_multiplier**2)


# Noise, clipping norm, learning rate, steps, and the factor of the variant with too large a clipping norm.
PAPER = ((170, 10, 0.2, 112, 1.5), (130, 15, 0.15, 180, 1.5), (100, 10, 0.2, 420, 2.0))
PAPER_EPSILON = (0.3, 0.5, 1.0)
ADULT = (4.0, 0.5)  # clipping norm, learning rate: the best of eight pairs by the accuracy without a filter
VARIANTS = {
    "tuned": "Clipping norm as tuned",
    "clip": "Clipping norm too large",
    "noise": "Half the noise's variance",
}
LONG = "long"  # as tuned, with four times as many steps, for the picture over the steps


def setting(data: str, variant: str, row: int) -> Setting:
    """The setting of one epsilon, as tuned or deliberately worse."""
    noise, clip, rate, steps, factor = PAPER[row]
    hidden: tuple[int, ...] = (32,)
    if data == "adult":
        hidden, clip, rate = (16,), *ADULT
    extra = 35
    if variant == "clip":
        clip, extra = clip * factor, steps
    if variant == "noise":
        noise, steps, extra = noise / np.sqrt(2), steps // 2, steps // 2
    if variant == LONG:
        extra = 3 * steps
    return Setting(data, hidden, float(noise), float(clip), rate, steps, extra)


def trial(chosen: Setting, data: datasets.Data, seed: int) -> dict[str, np.ndarray]:
    """Accuracy and share of active people over the steps: the run of the Gaussian filter, and its Renyi branch."""
    start, rng = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    network = Network((data.x.shape[1], *chosen.hidden, len(data.classes)))

    def look(theta: np.ndarray, keep: Any) -> dict[str, Any]:
        return {"accuracy": network.accuracy(theta, data.x_test, data.y_test), "active": keep.active.mean()}

    gaussian, renyi = chosen.filters(len(data.y))
    trunk = Descent(network, data, gaussian, chosen.learning_rate, look)
    theta = trunk.run(network.initial(start), chosen.steps, rng, beside=renyi)
    branch = Descent(network, data, renyi, chosen.learning_rate, look, step=chosen.steps)
    branch.look(theta)
    branch.run(theta, chosen.steps + chosen.extra, copy.deepcopy(rng))
    middle = trunk.run(theta, chosen.gaussian_steps, rng)
    trunk.run(middle, chosen.gaussian_steps + chosen.extra, rng)
    return {
        f"{name} {what}": values
        for name, run in (("Gaussian", trunk), ("Renyi", branch))
        for what, values in run.notes().items()
    }


METHODS = ("Renyi, no filter", "Renyi filter", "Gaussian, no filter", "Gaussian filter")


def at_the_ends(chosen: Setting, runs: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """For each of the four methods: steps, mean and deviation of the accuracy after them, share of active people.

    The best look is the highest test accuracy after unfiltered accounting stops, as selected in the paper.  It is not
    private, and by construction it is at least the accuracy without a filter.
    """
    ends = {
        "Renyi, no filter": ("Gaussian", chosen.steps, 0),
        "Renyi filter": ("Renyi", chosen.steps, chosen.extra),
        "Gaussian, no filter": ("Gaussian", chosen.gaussian_steps, 0),
        "Gaussian filter": ("Gaussian", chosen.gaussian_steps, chosen.extra),
    }
    out = {}
    for method, (run, first, extra) in ends.items():
        steps = runs[0][f"{run} steps"]
        looks = (steps >= first) & (steps <= first + extra)
        last = int(np.flatnonzero(steps == first + extra)[0])
        accuracy = np.array([r[f"{run} accuracy"][last] for r in runs])
        out[method] = {
            "steps": first + extra,
            "accuracy": accuracy.mean(),
            "deviation": accuracy.std(ddof=1) if len(accuracy) > 1 else 0.0,
            "best look": np.mean([r[f"{run} accuracy"][looks].max() for r in runs]),
            "active": np.mean([r[f"{run} active"][last] for r in runs]),
        }
    return out


def all_trials(given: Any, name: str, trials: int) -> dict[str, dict[int, tuple[Setting, list]]]:
    """Every trial of a data set, read from the work folder if it was kept."""
    data = datasets.load(name, given.data)
    data = datasets.pooled(data) if name == "mnist" else data
    out: dict[str, dict[int, tuple[Setting, list]]] = {}
    for variant in (*VARIANTS, LONG):
        out[variant] = {}
        for row in range(len(PAPER)):
            chosen = setting(name, variant, row)
            runs = []
            for seed in range(1 if variant == LONG else trials):
                path = given.work / f"feldman-zrnic-{name}-{variant}-{row}-{seed}.npz"
                runs.append(common.stage(path, asdict(chosen), lambda c=chosen, s=seed: trial(c, data, s)))
            out[variant][row] = chosen, runs
            print(name, variant, row, {m: round(100 * v["accuracy"], 2) for m, v in at_the_ends(chosen, runs).items()})
    return out


_MARKS = {
    "Renyi, no filter": ("Renyi", "none"),
    "Renyi filter": ("Renyi", "full"),
    "Gaussian, no filter": ("Gaussian", "none"),
    "Gaussian filter": ("Gaussian", "full"),
}


def draw_accuracy(found: dict[str, dict[int, tuple[Setting, list]]], note: str) -> tuple[Any, dict[str, Any]]:
    """Accuracy of the four methods at three epsilons, for every variant."""
    figure, axes = common.panels(1, 3, height=3.8, sharey=True)
    facts: dict[str, Any] = {}
    for panel, variant in zip(axes, VARIANTS, strict=True):
        rows, facts[variant] = found[variant], {}
        for row, (chosen, runs) in rows.items():
            ends = at_the_ends(chosen, runs)
            facts[variant][f"epsilon {chosen.epsilon:.4f}"] = {"setting": asdict(chosen), **ends}
            for place, method in enumerate(METHODS):
                colour, fill = _MARKS[method]
                panel.errorbar(
                    row + 0.17 * (place - 1.5),
                    100 * ends[method]["accuracy"],
                    100 * ends[method]["deviation"],
                    fmt="o" if colour == "Gaussian" else "s",
                    ms=5,
                    color=COLOURS[colour],
                    mfc=COLOURS[colour] if fill == "full" else "white",
                    capsize=2,
                    lw=1.1,
                    label=method if row == 0 else None,
                )
                if fill == "full":
                    best = row + 0.17 * (place - 1.5) + 0.07, 100 * ends[method]["best look"]
                    panel.plot(*best, marker="_", ms=6, mew=1.6, color=COLOURS[colour])
        panel.set_xticks(range(3), [f"{rows[r][0].epsilon:.2f}" for r in rows])
        panel.set_xlim(-0.5, 2.5)
        panel.grid(axis="y", color="#e5e5e5", lw=0.7)
        panel.set_axisbelow(True)
        common.dress(panel, r"$\varepsilon$ at $\delta = 10^{-5}$", title=VARIANTS[variant])
    axes[0].set_ylabel("Test accuracy (%)", fontsize=common.TEXT, color=COLOURS["text"])
    common.legend_above(figure, axes[0], 4)
    common.caption(figure, note)
    return figure, facts


def draw_over_steps(found: dict[str, dict[int, tuple[Setting, list]]]) -> tuple[Any, dict[str, Any]]:
    """The paper's Figure 1: share of active people and accuracy, for many steps after unfiltered accounting stops."""
    figure, axes = common.panels(2, 3, height=4.8, sharex="col", sharey="row")
    facts = {}
    for (upper, lower), (chosen, (run, *_)) in zip(axes.T, found[LONG].values(), strict=True):
        about: dict[str, Any] = {"steps of Renyi": chosen.steps, "steps of Gaussian": chosen.gaussian_steps}
        for kind, first in (("Renyi", chosen.steps), ("Gaussian", chosen.gaussian_steps)):
            steps, active, accuracy = (run[f"{kind} {what}"] for what in ("steps", "active", "accuracy"))
            style = {"color": COLOURS[kind], "lw": 1.7, "label": f"{kind} filter"}
            upper.plot(np.append(first, steps[steps > first]), 100 * np.append(1, active[steps > first]), **style)
            lower.plot(steps, 100 * accuracy, **{**style, "zorder": 3 if kind == "Renyi" else 2})
            upper.axvline(first, color=COLOURS[kind], lw=0.9, ls=":")
            stop = f"Last step of {kind} accounting without a filter"
            lower.axvline(first, color=COLOURS[kind], lw=0.9, ls=":", label=stop)
            best = int(np.argmax(np.where(steps >= first, accuracy, 0)))
            about[kind] = {
                "best step": int(steps[best]),
                "best accuracy": accuracy[best],
                "accuracy without a filter": accuracy[steps == first][0],
                "accuracy at the end": accuracy[-1],
                "steps": steps,
                "active": active,
                "accuracy": accuracy,
            }
        upper.set_ylim(0, 103)
        stops = f"{chosen.steps}, {chosen.gaussian_steps} steps"
        common.dress(upper, title=rf"$\varepsilon$ = {chosen.epsilon:.2f}: {stops}")
        common.dress(lower, "Steps")
        facts[f"epsilon {chosen.epsilon:.4f}"] = about
    axes[1, 0].set_ylim(80, 92.5)
    for row, words in enumerate(("Active digits (%)", "Test accuracy (%)")):
        axes[row, 0].set_ylabel(words, fontsize=common.TEXT, color=COLOURS["text"])
    common.legend_above(figure, axes[1, 0], 2)
    return figure, facts


def main() -> None:
    """Run the missing trials, then draw."""
    given = common.arguments(__doc__, trials=3, adult_trials=5)
    note = (
        "Mean and standard deviation over {} trials after a fixed number of steps: the last step of unfiltered "
        "accounting, and with filters {} steps later. A dash beside a filter is the best test accuracy after "
        "unfiltered accounting stops, which is not private."
    )
    more = "35 (left) or as many again (others)"
    for name, trials in (("adult", given.adult_trials), ("mnist", given.trials)):
        found = all_trials(given, name, trials)
        figure, facts = draw_accuracy(found, note.format(trials, more))
        common.keep(given.out, f"feldman-zrnic-{name}", figure, {"trials": trials, "delta": DELTA, **facts})
    figure, facts = draw_over_steps(found)
    common.keep(given.out, "feldman-zrnic-steps", figure, facts)


if __name__ == "__main__":
    main()
