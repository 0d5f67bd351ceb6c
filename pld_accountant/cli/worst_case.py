"""The commands on the worst case: `epsilon-of`, `compose` and `calibrate`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options
from .options import example, user_errors
from .running import check_files, finish

if TYPE_CHECKING:
    from ..composition import Composition
    from ..results import Bounds

__all__ = ["calibrate", "compose", "epsilon_of"]

_GUARANTEE = (
    "It holds for every record whose gradient is clipped, in adaptive runs as well, if the noise multiplier, the "
    "sample rate and the number of steps are fixed beforehand and every batch is a Poisson sample."
)
_OF_STEPS = (
    "It holds for every record, in adaptive runs as well, if the mechanisms and their numbers are fixed beforehand, no "
    "record changes a query by more than its sensitivity, and every sample is drawn as its mechanism says. "
    "Neighbouring data sets are those of the mechanisms."
)


@options.command(
    "epsilon-of",
    short_help="The epsilon of the worst case, in one line.",
    epilog=example("epsilon-of --noise-multiplier 2 --sample-rate 0.005 --steps 10000 --delta 1e-5"),
)
@options.noise_multiplier
@options.sample_rate
@options.steps
@options.of_the_worst_case
def epsilon_of(noise_multiplier: float, sample_rate: float, steps: int, **question: Any) -> None:
    """The epsilon of the worst case, a person clipped at every step, in one line.

    A second line follows if the bounds are not certified on both sides.
    """
    from ..composition import compose
    from ..mechanisms.sampled_gaussian import SampledGaussian

    check_files([(question["json_file"], ())], ())
    with user_errors():
        composition = compose([(SampledGaussian(noise_multiplier, sample_rate), steps)])
    asked = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "steps": steps}
    _answer(composition, asked, _GUARANTEE, **question)


@options.command(
    short_help="The epsilon of any mechanisms together, in one line.",
    epilog=example('compose "500 * SampledGaussian(2, 0.01)" "10 * DiscreteGaussian(20)" --delta 1e-5'),
)
@click.argument("steps", nargs=-1)
@click.option(
    "--file", "file", type=options.INPUT, help="Further steps, one in a line; what follows a # in a line is left out."
)
@options.of_the_worst_case
def compose(steps: Sequence[str], file: Path | None, **question: Any) -> None:
    """The epsilon of any mechanisms together, for the worst case, in one line.

    STEPS are mechanisms as in Python, with a count before them: "10 * DiscreteGaussian(20)", or
    "PoissonSampled(Laplace(5), 0.1)" once.  The mechanisms and their parameters are those of the documentation.
    """
    from ..composition import compose as composed
    from ..mechanisms.text import parsed

    check_files([(question["json_file"], ())], (file,))
    with user_errors(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        given = [*steps, *(_lines(file) if file is not None else ())]
        if not given:
            raise click.UsageError("give at least one step, or a --file of steps")
        try:
            composition = composed([step for text in given for step in parsed(text)])
        except UserWarning as warning:
            raise ValueError(str(warning)) from None
    told = [{"mechanism": repr(mechanism), "count": n} for mechanism, n in composition.counts.items()]
    asked = {"neighbours": "those of the mechanisms", "steps": composition.steps, "mechanisms": told}
    _answer(composition, asked, _OF_STEPS, **question)


def _lines(file: Path) -> list[str]:
    """The steps of a file, one in a line; what follows a ``#`` is left out."""
    lines = [line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line]


def _answer(
    composition: Composition,
    asked: Mapping[str, Any],
    guarantee: str,
    *,
    delta: float,
    direction: str,
    seconds: float | None,
    json_file: Path | None,
    quiet: bool,
) -> None:
    """Print epsilon in one line, and a second one if it is not certified on both sides."""
    from ..results import Bounds, Method, Status
    from ..rounding import exact, finite_or_none, rounded_down, rounded_up

    bounds, renyi = composition.epsilon(delta, direction, seconds=seconds), composition.rdp_epsilon(delta)
    if bounds.upper > renyi:  # which knows the best order, and has no limit of time
        status = Status.CERTIFIED if bounds.lower > 0.0 else Status.RENYI_ONLY
        bounds = Bounds(bounds.lower, renyi, renyi, status, Method.RENYI)
    answer = f"epsilon <= {rounded_up(bounds.upper, 7)} at delta = {exact(delta)}"
    lower = f"certified; the true value is at least {rounded_down(bounds.lower, 7)}"
    text = f"{answer} ({lower}; Renyi accounting: {rounded_up(renyi, 7)})"
    if bounds.status != Status.CERTIFIED:
        text += f"\n{bounds.status.sentence}"
    facts = _facts(delta, direction, asked, bounds, guarantee)
    finish(facts | {"rdp_epsilon": finite_or_none(renyi)}, text, json_file, quiet)


@options.command(
    short_help="The noise, the steps or the sample rate that meet a target epsilon.",
    epilog=example("calibrate --target-epsilon 1 --delta 1e-5 --sample-rate 0.005 --steps 10000"),
)
@options.number("--target-epsilon")
@options.number("--noise-multiplier", required=False)
@options.number("--sample-rate", required=False)
@options.number("--steps", required=False)
@options.of_the_worst_case
def calibrate(
    target_epsilon: float,
    delta: float,
    noise_multiplier: float | None,
    sample_rate: float | None,
    steps: float | None,
    direction: str,
    seconds: float | None,
    json_file: Path | None,
    quiet: bool,
) -> None:
    """The smallest noise multiplier, the most steps or the largest sample rate for a target epsilon, in one line.

    Give two of --noise-multiplier, --sample-rate and --steps; the third is the answer.  It holds for the worst case and
    is rounded to the safe side.
    """
    from .. import calibration
    from ..composition import compose
    from ..mechanisms.sampled_gaussian import SampledGaussian
    from ..rounding import exact, rounded_down, rounded_up

    given = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "steps": steps}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1:
        raise click.UsageError("give two of --noise-multiplier, --sample-rate and --steps; the third is the answer")
    (wanted,) = missing
    check_files([(json_file, ())], ())
    known = {name: value for name, value in given.items() if value is not None}
    function = getattr(calibration, f"calibrate_{wanted}")
    with user_errors():
        found = function(target_epsilon, delta, **known, direction=direction, seconds=seconds)
    text = {"noise_multiplier": rounded_up, "sample_rate": rounded_down}.get(wanted, lambda n, _: str(n))(found, 7)
    sigma, rate, number = ({**known, wanted: float(text)}[name] for name in given)
    bounds = compose([(SampledGaussian(sigma, rate), int(number))]).epsilon(delta, direction, seconds=seconds)
    if seconds is not None and not bounds.upper <= target_epsilon:
        raise click.ClickException(f"{text} is not proven to keep the target in the time allowed: allow more --seconds")
    asked = {"noise_multiplier": sigma, "sample_rate": rate, "steps": int(number)}
    words = {"noise_multiplier": "noise multiplier", "sample_rate": "sample rate", "steps": "steps"}[wanted]
    answer = f"{words} {text}: epsilon <= {rounded_up(bounds.upper, 7)} at delta = {exact(delta)} (certified)"
    facts = {
        "calibrated": wanted,
        "target_epsilon": target_epsilon,
        **_facts(delta, direction, asked, bounds, _GUARANTEE),
    }
    finish(facts, answer, json_file, quiet)


def _facts(delta: float, direction: str, steps: Mapping[str, Any], bounds: Bounds, guarantee: str) -> dict[str, Any]:
    """The worst case for JSON: what was asked, and the bounds."""
    from ..report.provenance import provenance
    from ..report.summary import bounds_facts

    asked = {"delta": delta, "direction": direction, "neighbours": "add or remove one record", **steps}
    told = bounds_facts(bounds) | {"meaning": bounds.status.sentence}
    return {"provenance": provenance(), **asked, "guarantee": guarantee, "epsilon": told}
