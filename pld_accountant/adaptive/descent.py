"""Noisy gradient descent that uses each person's gradient until this person's budget is spent.

Each gradient is clipped to the smallest of its norm, the clipping norm and the person's headroom.  A person's last step
therefore spends the budget exactly [1]_.  The printed algorithm is corrected in three places:

1. The noise is added once a step, not once a person.
2. The standard deviation of the noise on the *sum* is noise_multiplier * max_grad_norm.
3. The sum is divided by a public constant, not by the number of present people.

References
----------
.. [1] Feldman and Zrnic, "Individual privacy accounting via a Renyi filter" (2021), Algorithm 3, Proposition 5.1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import validate
from ..filters.base import NoisySteps
from ..filters.integer_budget import NoisyStepFilter
from ..locked import held
from ..results import Guarantee
from .stopping import StoppingRule, count_step, noisy_count

__all__ = ["Descent", "descend"]

Gradient = Callable[[np.ndarray], Any]


@dataclass(frozen=True)
class Descent:
    """The releases of a run of `descend`; `guarantee` covers all of them.

    Attributes
    ----------
    parameters : ndarray
        After the last step.
    steps : int
        Steps taken.
    stopped : bool
        Whether a stopping rule ended the run.
    readings : list of (int, str, float)
        Step, rule and noisy sum of every evaluation of a stopping rule.
    guarantee : Guarantee
        The filter's.
    """

    parameters: np.ndarray
    steps: int
    stopped: bool
    guarantee: Guarantee
    readings: list[tuple[int, str, float]] = field(default_factory=list)


def descend(
    gradient: Gradient,
    start: Any,
    filter: NoisyStepFilter,
    *,
    learning_rate: float | Callable[[int], float],
    steps: int,
    normaliser: float | None = None,
    stopping: Sequence[StoppingRule] = (),
    rng: np.random.Generator | None = None,
    journal: str | os.PathLike[str] | None = None,
    allow_unproven: bool = False,
) -> Descent:
    """Noisy gradient descent under a filter.

    Parameters
    ----------
    gradient : callable
        From parameters, (p,), to the people's gradients: an array (num_examples, p) or, if that is too large, a pair
        (norms, weighted_sum).  norms is (num_examples,); weighted_sum is a function from weights (num_examples,) to
        the weighted sum of the gradients (p,).  Every step needs the gradient of everybody, sampled or not.
    start : array_like, (p,)
        Initial parameters; must not depend on the records.
    filter : GaussianFilter, ZCDPFilter, RenyiFilter or PotentialFilter
        Gives noise_multiplier, max_grad_norm and sample_rate.  It may have been used before.
    learning_rate : float or callable
        A number, or a function of the step's index (from 0).
    steps : int
        Steps, at most.
    normaliser : float, optional
        Public constant that divides the noisy sum; None: num_examples * sample_rate.
    stopping : sequence of StoppingRule, optional
        Each is evaluated after every `every`-th step and charged to the same budgets.  Nothing else ends the run
        early: whether all budgets are spent is private information.  A `PotentialFilter` books no steps of everybody,
        and takes no rules.
    rng : numpy.random.Generator, optional
        Source of noise and sampling; None: a new one from the system's entropy.  Its seed must be secret.
    journal : path, optional
        File to which the budgets are saved after each booking and before the release.
    allow_unproven : bool
        True: take a filter that is not proven for adaptive runs, which this run is.

    Returns
    -------
    Descent

    Raises
    ------
    ValueError
        For invalid arguments or gradients; earlier steps stay booked.  For a filter that is not proven for adaptive
        runs, unless `allow_unproven`.

    Notes
    -----
    The round-off of gradients, sums and noise is not accounted for.

    Examples
    --------
    >>> from pld_accountant.filters.gaussian import GaussianFilter
    >>> records = np.linspace(0, 2, 1001)
    >>> f = GaussianFilter(1.0, num_examples=1001, noise_multiplier=5.0, max_grad_norm=1.0)
    >>> run = descend(lambda p: p - records[:, None], [0.0], f, learning_rate=0.5, steps=60,
    ...               rng=np.random.default_rng(0))
    >>> bool(abs(run.parameters[0] - 1) < 0.1), run.steps, float(f.spent().max())
    (True, 60, 1.0)
    """
    if not isinstance(filter, NoisySteps):
        raise ValueError(f"filter must be one of noisy steps, such as GaussianFilter, got {type(filter).__name__}")
    if not (filter.guarantee.proven_adaptive or allow_unproven):
        raise ValueError(
            f"filter: {type(filter).__name__} is not proven for adaptive runs, and each step of this run depends on "
            "earlier releases; take a PotentialFilter, or say allow_unproven=True"
        )
    clip = filter.max_grad_norm
    if clip is None:
        raise ValueError("the filter must have a max_grad_norm: gradients are clipped to it")
    parameters = np.array(start, dtype=np.float64)
    if parameters.ndim != 1 or not np.isfinite(parameters).all():
        raise ValueError("start must be a finite vector")
    count = validate.count(steps, "steps")
    public = filter.num_examples * filter.sample_rate if normaliser is None else normaliser
    public = validate.positive(public, "normaliser")
    rng = validate.generator(rng)
    validate.function(gradient, "gradient")
    for rule in stopping:
        filter.headroom(**count_step(filter, rule.noise))  # raises if the filter cannot book it
        rule.begin()
    readings: list[tuple[int, str, float]] = []

    for step in range(count):
        rate = learning_rate(step) if callable(learning_rate) else learning_rate
        validate.nonnegative(rate, "learning_rate")
        norms, weighted_sum = _unpack(gradient(parameters), filter.num_examples, parameters.size)
        weights = _admit(norms, filter, rng)
        _keep(filter, journal)
        noise = rng.normal(0.0, filter.noise_multiplier * clip, parameters.size)
        parameters = parameters - rate / public * (weighted_sum(weights) + noise)
        for rule in stopping:
            if (step + 1) % rule.every == 0:
                _, answer = noisy_count(rule.contributions(parameters, filter), filter, rule.noise, rng)
                _keep(filter, journal)
                readings.append((step + 1, type(rule).__name__, answer()))
                if rule.decide(readings[-1][2]):
                    return Descent(parameters, step + 1, True, filter.guarantee, readings)
    return Descent(parameters, count, False, filter.guarantee, readings)


def _keep(filter: NoisyStepFilter, journal: str | os.PathLike[str] | None) -> None:
    if journal is not None:
        filter.save(journal)


def _admit(norms: np.ndarray, filter: NoisyStepFilter, rng: np.random.Generator) -> np.ndarray:
    """Book a step; return the factor of each person's gradient in the sum."""
    with held(filter):
        room = filter.headroom()
        spend = np.minimum(norms, room)
        # With one budget for all, the charge is that of every possible record, not of the present people.
        admitted = filter.admit(spend if filter.individual else float(room[0]))
    if filter.sample_rate < 1:
        admitted = admitted & (rng.random(norms.size) < filter.sample_rate)
    return np.divide(spend, norms, out=np.zeros(norms.size), where=admitted & (norms > 0))


def _unpack(given: Any, people: int, size: int) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Norms and weighted sum, from both forms of the result of a gradient function."""
    if isinstance(given, tuple):
        norms, weighted_sum = given
        norms = np.asarray(norms, dtype=np.float64)
        validate.array_shape(norms, (people,), "gradient norms")
        if not np.isfinite(norms).all():
            raise ValueError("gradient norms must be finite")
        return norms, lambda weights: np.asarray(weighted_sum(weights), dtype=np.float64).reshape(size)
    rows = np.asarray(given)
    validate.array_shape(rows, (people, size), "gradients")
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    if not np.isfinite(norms).all():
        raise ValueError("gradients must be finite")
    return norms, lambda weights: weights @ rows
