"""Renyi divergence of one step of the sampled Gaussian, for any real order above 1.

With theta = alpha - 1 the divergence is K(theta) / theta, K the log-moment of the privacy loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import validate
from .sampled_gaussian import SampledGaussianSteps

__all__ = ["rdp"]


def rdp(alpha: Any, noise_multiplier: Any, sample_rate: float) -> NDArray:
    """Renyi divergence of order alpha of one step of the Poisson-sampled Gaussian; the larger of the two directions.

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
        In nats; the shape is that of `noise_multiplier` followed by that of `alpha`.

    Raises
    ------
    ValueError
        If an order is not above 1, a noise multiplier is not above 0, or the sample rate lies outside of (0, 1].

    **Error**: rounded up, by at most a relative 1e-12 plus 1e-14 / (alpha - 1).
    **Cost**: a few hundred exponentials an element.

    References
    ----------
    Mironov, Talwar and Zhang, "Renyi differential privacy of the sampled Gaussian mechanism" (2019), Section 3.3.  The
    series there equals E[g^alpha] over the normal variable; the trapezoidal rule computes it to machine precision.

    Examples
    --------
    >>> rdp([2, 32.5], 2.0, 0.005).round(9)
    array([7.10100e-06, 1.21222e-04])
    >>> float(rdp(8, 100.0, 1.0))
    0.0004...
    """
    orders, noise = validate.orders(alpha), validate.numbers(noise_multiplier, "noise_multiplier")
    rate = validate.sample_rate(sample_rate)
    if not np.all(noise > 0):
        raise ValueError(f"noise_multiplier must be above 0, got {noise_multiplier!r}")
    finite = np.isfinite(noise).reshape(-1)
    theta = orders.reshape(-1) - 1.0
    sigma = noise.reshape(-1)[finite]
    out = np.zeros((noise.size, orders.size))
    if sigma.size and theta.size:
        # removal has the larger divergence at every order (Mironov, Talwar and Zhang 2019, Section 3.2)
        steps = SampledGaussianSteps(sigma, np.full(sigma.shape, rate), "remove")
        out[finite] = steps.log_moments(theta, exact=True) / theta
    return out.reshape(noise.shape + orders.shape)
