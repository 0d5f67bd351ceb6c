"""Parts of one step's losses with soft ends, under removal, in float64; shares no code with the package."""

from __future__ import annotations

import numpy as np
from scipy import special

SOFT = [
    # sigma, q, theta, low, high, blur
    (0.4, 1e-5, 4.0, -np.inf, 2.6, 1.0 / 16.0),
    (0.4, 1e-5, 40.0, -np.inf, 2.0, 1.0 / 4.0),
    (0.4, 1e-5, 4.0, 2.6, 7.0, 1.0 / 16.0),
    (2.0, 0.005, 30.0, -np.inf, 20.0, 1.0 / 16.0),
    (2.0, 0.005, 30.0, 20.0, 40.0, 1.0 / 4.0),
    (2.0, 0.005, 1e3, 20.0, 40.0, 1.0 / 16.0),
    (1.0, 0.1, 0.5, -np.inf, 0.2, 1.0 / 4.0),
]
NAMES = [f"{s}-{q}-{t}-{low}-{blur}" for s, q, t, low, _, blur in SOFT]


def log_v(x, low, high, s):
    """log of P(low < x + s Z < high), by scipy."""
    more, less = (x - low) / s, (x - high) / s
    more, less = np.where(less > 0.0, -less, more), np.where(less > 0.0, -more, less)
    inside = special.log_ndtr(more)
    return inside + np.log1p(-np.exp(special.log_ndtr(less) - inside))


def tilted(law, x):
    """log of the tilted density of a part, not normalised, and the loss."""
    sigma, q, theta, low, high, blur = law
    log_g = np.logaddexp(np.log1p(-q), np.log(q) + (2.0 * x - 1.0) / (2.0 * sigma**2))
    log_density = (1.0 + theta) * log_g - 0.5 * (x / sigma) ** 2 - np.log(sigma * np.sqrt(2.0 * np.pi))
    return log_density + log_v(x, low, high, blur * sigma), log_g
