"""Noisy gradient descent in which everybody's gradient is used until their own budget is spent.

Each person's gradient is clipped to the smallest of its norm, the clipping norm and what their budget still
pays for, so the last step that somebody takes part in spends the budget exactly [1]_.  Three slips of the
printed algorithm are put right: the noise is added once a step, not once a person; its standard deviation
on the *sum* is noise_multiplier * max_grad_norm; and the sum is divided by a public constant, never by the
number of people present.

References
----------
.. [1] Feldman and Zrnic, "Individual privacy accounting via a Renyi filter" (2021), Algorithm 3,
Proposition 5.1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import validate
from ..filters.integer_budget import NoisyStepFilter
from ..results import Guarantee
from .stopping import StoppingRule, noisy_count

__all__ = ["Descent", "descend"]

Gradient = Callable[[np.ndarray], Any]


@dataclass(frozen=True)
class Descent:
    """What a run of `descend` releases; all of it is covered by `guarantee`.

    Attributes
    ----------
    parameters : ndarray
        After the last step.
    steps : int
        Steps taken.
    stopped : bool
        Whether a stopping rule ended the run.
    readings : list of (int, str, float)
        Step, rule and noisy answer of every question asked.
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
) -> Descent:
    """Noisy gradient descent under a filter.

    Parameters
    ----------
    gradient : callable
        From parameters, (p,), to the people's gradients: an array (num_examples, p), or, where that is too
        large, a pair (norms, weighted_sum): norms (num_examples,) and a function from weights
        (num_examples,) to the weighted sum of the gradients (p,).  Everybody's is needed at every step,
        sampled or not.
    start : array_like, (p,)
        Parameters to begin with; must not depend on the records.
    filter : GaussianFilter, ZCDPFilter or RenyiFilter
        Brings noise_multiplier, max_grad_norm and sample_rate, and may have been used before.
    learning_rate : float or callable
        A number, or a function of the step's index (from 0).
    steps : int
        At most so many.
    normaliser : float, optional
        What the noisy sum is divided by, a public constant; None: num_examples * sample_rate.
    stopping : sequence of StoppingRule, optional
        Each asks after every `every`-th step, charged to the same budgets.  Nothing else ends the run
        early: that everybody's budget is spent is itself private.
    rng : numpy.random.Generator, optional
        Where noise and sampling come from; None: a new one from the system's entropy.  Its seed must be
        secret.
    journal : path, optional
        File to which the budgets are saved each time, after they are booked and before anything is released.

    Returns
    -------
    Descent

    Raises
    ------
    ValueError
        For arguments or gradients that cannot be used; what was booked before stays booked.

    Notes
    -----
    Round-off of gradients, sums and noise is not accounted for.

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
    clip = filter.max_grad_norm
    if clip is None:
        raise ValueError("the filter must have a max_grad_norm: gradients are clipped to it")
    parameters = np.array(start, dtype=np.float64)
    if parameters.ndim != 1 or not np.isfinite(parameters).all():
        raise ValueError("start must be a finite vector")
    count = validate.count(steps, "steps")
    public = filter.num_examples * filter.sample_rate if normaliser is None else normaliser
    public = validate.positive(public, "normaliser")
    rng = np.random.default_rng() if rng is None else rng
    readings: list[tuple[int, str, float]] = []

    for step in range(count):
        rate = learning_rate(step) if callable(learning_rate) else learning_rate
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
    """Book a step; the factor by which each person's gradient enters the sum."""
    room = filter.headroom()
    spend = np.minimum(norms, room)
    # For all together the charge is that of any possible record, not of the people at hand.
    admitted = filter.admit(spend if filter.individual else float(room[0]))
    if filter.sample_rate < 1:
        admitted = admitted & (rng.random(norms.size) < filter.sample_rate)
    return np.divide(spend, norms, out=np.zeros(norms.size), where=admitted & (norms > 0))


def _unpack(given: Any, people: int, size: int) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Norms and the weighted sum, from either form of a gradient function's result."""
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
