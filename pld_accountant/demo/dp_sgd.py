"""Differentially private stochastic gradient descent that shows every example's gradient norm at every step.

The loop knows no network: it is given a function from parameters to `Gradients`, so any model with
per-example norms serves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from .. import validate

__all__ = ["Gradients", "clipping_factors", "train", "train_watched"]


class Gradients(Protocol):
    """What a model offers of the gradients of all examples at one point."""

    @property
    def norms(self) -> np.ndarray:
        """The norm of every example's gradient, shape (n,)."""

    def weighted_sum(self, weights: np.ndarray) -> np.ndarray:
        """The sum of the gradients times `weights`."""


def clipping_factors(norms: np.ndarray, max_grad_norm: float | np.ndarray) -> np.ndarray:
    """What to multiply gradients by so that none is longer than `max_grad_norm`: min(1, max_grad_norm /
    norm).

    Parameters
    ----------
    max_grad_norm : float or ndarray of shape (n,)
        One clipping norm, or each example's own.

    Examples
    --------
    >>> clipping_factors(np.array([0.0, 2.0]), 1.0).tolist()
    [1.0, 0.5]
    """
    longest = np.maximum(norms, max_grad_norm)
    # 0 / 0 where both are 0: a gradient of 0 may be multiplied by anything.
    return np.divide(max_grad_norm, longest, out=np.ones_like(longest), where=longest > 0)


def train(
    gradients: Callable[[np.ndarray], Gradients],
    parameters: np.ndarray,
    *,
    steps: int,
    sample_rate: float,
    noise_multiplier: float,
    max_grad_norm: float,
    learning_rate: float,
    rng: np.random.Generator,
    on_step: Callable[[int, np.ndarray], None] | None = None,
) -> np.ndarray:
    """Run DP-SGD: Poisson sampling, clipping, Gaussian noise.

    Parameters
    ----------
    gradients : callable
        From parameters to the gradients of all examples.
    parameters : ndarray
        Where to begin, float32 or float64; left as it is.
    sample_rate : float in (0, 1]
        Each example takes part in a step with this probability, independently; 1 is full-batch gradient
        descent.
    noise_multiplier : float
        The noise added to the sum of clipped gradients has standard deviation ``noise_multiplier *
        max_grad_norm``.
    on_step : callable, optional
        Called before each update with the step's number and the norms of *all* examples' gradients, shape
        (n,), before clipping and whether sampled or not.  They are functions of the data: for accounting,
        not for release.

    Returns
    -------
    ndarray
        The parameters after the last step.

    Notes
    -----
    The sum is divided by the expected batch size, sample_rate times the number of examples, which has to be
    public; the realised batch size would itself need privacy.  The noise is numpy's: right in distribution,
    but neither cryptographic nor safe against attacks on floating point (Mironov 2012); meant for research.
    """
    rate = validate.sample_rate(sample_rate)
    deviation = validate.noise_multiplier(noise_multiplier) * validate.positive(max_grad_norm, "max_grad_norm")
    theta = np.asarray(parameters)
    for step in range(validate.count(steps, "steps")):
        found = gradients(theta)
        norms = found.norms
        if on_step is not None:
            on_step(step, norms)
        sampled = rng.random(len(norms)) < rate
        total = found.weighted_sum(sampled * clipping_factors(norms, max_grad_norm))
        theta = _descended(theta, total, deviation, learning_rate / (rate * len(norms)), rng)
    return theta


def _descended(
    theta: np.ndarray, total: np.ndarray, deviation: float, rate: float, rng: np.random.Generator
) -> np.ndarray:
    """One step against the noisy sum of gradients."""
    noisy = total + rng.normal(0.0, deviation, theta.shape)
    return theta - (rate * noisy).astype(theta.dtype)


def train_watched(
    gradients: Callable[[np.ndarray, np.ndarray], Gradients],
    parameters: np.ndarray,
    watched: np.ndarray,
    *,
    num_examples: int,
    steps: int,
    sample_rate: float,
    noise_multiplier: float,
    max_grad_norm: float,
    learning_rate: float,
    rng: np.random.Generator,
    on_step: Callable[[int, np.ndarray], None],
) -> np.ndarray:
    """As `train`, but only of the examples watched, and of those sampled, is a gradient computed.

    Parameters
    ----------
    gradients : callable
        From parameters and ascending row numbers to the gradients of these examples.
    watched : ndarray of int
        Ascending row numbers without repeats.
    num_examples : int
        How many examples there are; public.
    on_step : callable
        As in `train`, with the norms of the watched examples only, shape (len(watched),).

    Returns
    -------
    ndarray
        What `train` returns with the same `rng`, but for the rounding of sums.

    Notes
    -----
    The watched must be chosen without regard to the data; what is recorded bounds their losses, and nobody
    else's.
    """
    rate, people = validate.sample_rate(sample_rate), validate.count(num_examples, "num_examples", least=1)
    deviation = validate.noise_multiplier(noise_multiplier) * validate.positive(max_grad_norm, "max_grad_norm")
    theta = np.asarray(parameters)
    for step in range(validate.count(steps, "steps")):
        sampled = np.flatnonzero(rng.random(people) < rate)
        rows = np.union1d(sampled, watched)
        found = gradients(theta, rows)
        norms = found.norms
        on_step(step, norms[np.searchsorted(rows, watched)])
        taken = np.isin(rows, sampled, assume_unique=True)
        total = found.weighted_sum(taken * clipping_factors(norms, max_grad_norm))
        theta = _descended(theta, total, deviation, learning_rate / (rate * people), rng)
    return theta
