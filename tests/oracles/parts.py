"""Parts of one step's losses under removal, in float64; shares no code with the package."""

from __future__ import annotations

import numpy as np

PARTS = [
    # sigma, q, theta, low, high
    (0.4, 1e-5, 4.0, -np.inf, 2.6),
    (0.4, 1e-5, 40.0, -np.inf, 2.0),
    (0.4, 1e-5, 4.0, 2.6, 7.0),
    (2.0, 0.005, 30.0, -np.inf, 20.0),
    (2.0, 0.005, 30.0, 20.0, 40.0),
    (2.0, 0.005, 1e3, 20.0, 40.0),
    (1.0, 0.1, 0.5, -np.inf, 0.2),
]
NAMES = [f"{s}-{q}-{t}-{low}" for s, q, t, low, _ in PARTS]


def tilted(law, x):
    """log of the tilted density of a part, not normalised, and the loss, at places in the part."""
    sigma, q, theta, _, _ = law
    log_g = np.logaddexp(np.log1p(-q), np.log(q) + (2.0 * x - 1.0) / (2.0 * sigma**2))
    return (1.0 + theta) * log_g - 0.5 * (x / sigma) ** 2 - np.log(sigma * np.sqrt(2.0 * np.pi)), log_g
