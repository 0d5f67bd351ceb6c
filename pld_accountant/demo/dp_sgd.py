"""Differentially private stochastic gradient descent that reports every example's gradient norm at every step.

The loop takes a function from parameters to `Gradients`, so it works with every model that has per-example norms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from .. import validate

__all__ = ["Gradients", "clipping_factors", "train"]


class Gradients(Protocol):
    """The gradients of all examples at one point."""

    @property
    def norms(self) -> np.ndarray:
        """The norm of every example's gradient, shape (n,)."""

    def weighted_sum(self, weights: np.ndarray) -> np.ndarray:
        """The sum of the gradients times `weights`."""


def clipping_factors(norms: np.ndarray, max_grad_norm: float | np.ndarray) -> np.ndarray:
    """Factors that clip gradients to `max_grad_norm`: min(1, max_grad_norm / norm).

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
    # 0 / 0 if both are 0: every factor is right for a gradient of 0.
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
        Starting point, float32 or float64; not changed.
    sample_rate : float in (0, 1]
        Each example takes part in a step with this probability, independently; 1 is full-batch gradient
        descent.
    noise_multiplier : float
        The noise added to the sum of clipped gradients has standard deviation ``noise_multiplier *
        max_grad_norm``.
    on_step : callable, optional
        Called before each update with the step's number and the norms of *all* examples' gradients before clipping,
        shape (n,), also of examples that were not sampled.  Norms are functions of the data: use them for accounting
        only, do not release them.

    Returns
    -------
    ndarray
        The parameters after the last step.

    Notes
    -----
    The sum is divided by the expected batch size, sample_rate times the number of examples.  That number must be
    public.  The actual batch size is private.  The noise is numpy's: its distribution is right, but it is neither
    cryptographic nor safe against attacks on floating point (Mironov 2012).  Use it for research only.
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
    """The parameters after one step against the noisy sum of gradients."""
    noisy = total + rng.normal(0.0, deviation, theta.shape)
    return theta - (rate * noisy).astype(theta.dtype)
