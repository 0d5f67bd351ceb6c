"""Renyi differential privacy of the sampled Gaussian, for any real order, and what Renyi accounting reports.

With theta = alpha - 1 the Renyi divergence is K(theta) / theta, K the log-moment of the privacy loss that the tilted
tables are made of: Renyi accounting is the Chernoff bound of the same object.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..tables.characteristic import SpectralMaker
from ..tables.table import Maker
from ..threads import blocks

__all__ = ["best_epsilon", "optimal_epsilon", "rdp"]

_ORDERS_PER_OCTAVE = 16
_REFINED = 4  # and then as many times finer around the best one


def rdp(alpha: Any, noise_multiplier: Any, sample_rate: float) -> NDArray:
    """Renyi divergence of order alpha of one step of the Poisson-sampled Gaussian: the larger of both directions.

    Parameters
    ----------
    alpha : float or array_like
        Orders above 1, integer or not.
    noise_multiplier : float or array_like
        Noise multipliers above 0; inf gives 0.
    sample_rate : float
        In (0, 1].

    Returns
    -------
    ndarray
        In nats, of the shape of `noise_multiplier` followed by that of `alpha`.

    Raises
    ------
    ValueError
        For an order that is not above 1, a noise multiplier that is not above 0, or a sample rate outside of (0, 1].

    **Error**: rounded up, by at most a relative 1e-12 and 1e-14 / (alpha - 1).
    **Cost**: some hundred exponentials an element.

    References
    ----------
    Mironov, Talwar and Zhang, "Renyi differential privacy of the sampled Gaussian mechanism" (2019), Section 3.3; the
    series there equals E[g^alpha] over the normal variable, which the trapezoidal rule gives to machine precision.

    Examples
    --------
    >>> rdp([2, 32.5], 2.0, 0.005).round(9)
    array([7.10100e-06, 1.21222e-04])
    >>> float(rdp(8, 100.0, 1.0))
    0.0004...
    """
    orders, noise = validate.numbers(alpha, "alpha"), validate.numbers(noise_multiplier, "noise_multiplier")
    rate = validate.sample_rate(sample_rate)
    if not np.all((orders > 1) & (orders < np.inf)):
        raise ValueError(f"alpha must be finite and above 1, got {alpha!r}")
    if not np.all(noise > 0):
        raise ValueError(f"noise_multiplier must be above 0, got {noise_multiplier!r}")
    finite = np.isfinite(noise).reshape(-1)
    theta = orders.reshape(-1) - 1.0
    sigma = noise.reshape(-1)[finite]
    out = np.zeros((noise.size, orders.size))
    if sigma.size and theta.size:
        # removal has the larger divergence at every order (Mironov, Talwar and Zhang 2019, Section 3.2)
        out[finite] = SpectralMaker(sigma, np.full(sigma.shape, rate), "remove").log_moments(theta, exact=True) / theta
    return out.reshape(noise.shape + orders.shape)


def best_epsilon(counts: NDArray, maker: Maker, delta: float) -> NDArray:
    """The epsilon that Renyi accounting reports for each person, at the best order of a grid that is refined once.

    Parameters
    ----------
    counts : ndarray of integers, shape (people, buckets)
    maker : Maker
        In the direction of removal, whose Renyi divergence is the larger one at every order (Mironov, Talwar and Zhang
        2019, Section 3.2).
    delta : float

    Returns
    -------
    ndarray, shape (people,)
        Never below the optimum over all real orders.  Within a ten-thousandth of it where the divergence bends gently
        at that order; where it bends sharply (few steps, small sample rates) within 2 percent.

    References
    ----------
    Canonne, Kamath and Steinke (2020), Proposition 12, for the conversion.
    """
    log_delta = np.log(delta)
    coarse = 2.0 ** (0.5 * np.arange(-40, 72))
    out = np.zeros(len(counts))
    spans: list[tuple[int, int]] = []
    for block in blocks(len(counts)):
        best = np.argmin(_converted(counts[block], maker, coarse, log_delta), axis=1)
        spans.append((int(best.min()), int(best.max())))
    if not spans:
        return out
    low = max(min(s[0] for s in spans) - 1, 0)
    high = min(max(s[1] for s in spans) + 1, coarse.size - 1)
    steps = (high - low) * _ORDERS_PER_OCTAVE // 2
    fine = coarse[low] * 2.0 ** (np.arange(steps + 1) / _ORDERS_PER_OCTAVE)
    near = 2.0 ** (np.arange(-_REFINED, _REFINED + 1) / (_REFINED * _ORDERS_PER_OCTAVE))
    for block in blocks(len(counts)):
        best = np.argmin(_converted(counts[block], maker, fine, log_delta), axis=1)
        for at in np.unique(best):
            who = block.start + np.flatnonzero(best == at)
            out[who] = _converted(counts[who], maker, fine[at] * near, log_delta).min(axis=1)
    return np.maximum(out, 0.0)


def optimal_epsilon(counts: NDArray, maker: Maker, delta: float) -> float:
    """Like `best_epsilon` for one row of counts, with the order optimised over all real numbers above 1."""
    from scipy.optimize import minimize_scalar

    log_delta = float(np.log(delta))

    def value(log_theta: float) -> float:
        return float(_converted(counts[None], maker, np.exp([log_theta]), log_delta)[0, 0])

    coarse = np.log(2.0) * np.arange(-20.0, 36.0, 0.5)
    at = int(np.argmin(_converted(counts[None], maker, np.exp(coarse), log_delta)[0]))
    ends = coarse[max(at - 1, 0)], coarse[min(at + 1, coarse.size - 1)]
    found = minimize_scalar(value, bounds=ends, method="bounded", options={"xatol": 1e-6})
    return max(min(float(found.fun), value(coarse[at])), 0.0)


def _converted(counts: NDArray, maker: Maker, theta: NDArray, log_delta: float) -> NDArray:
    """epsilon at each order: rho + log((alpha - 1) / alpha) - (log delta + log alpha) / (alpha - 1)."""
    k = maker.log_moments(theta)
    log_c = -np.log1p(theta) - theta * np.log1p(1.0 / theta)
    return (counts.astype(np.float64) @ k - log_delta + log_c) / theta
