"""The privacy loss of the sampled Gaussian in the Gaussian's own variable.

Legend
    x       the Gaussian's own variable;  t = (2 x - 1) / (2 sigma^2)
    g(x)    1 - q + q e^t;  the loss is log g under removal, -log g under addition
    w(x)    q e^t / g, the share of the sampled part in g;  d log g / dx = w / sigma^2
"""

import math

import numpy as np

from ._jit import inline

LOG_SQRT_2PI = 0.9189385332046727
SQRT_HALF = math.sqrt(0.5)


@inline
def log_normal(x, sigma):
    """log of N(x; 0, sigma^2) / N(0; 0, sigma^2); squares are products, because Python's powers round differently."""
    u = x / sigma
    return -0.5 * u * u


@inline
def log_g_at(x, sigma, q):
    """log g(x), accurate where g is near 1 and where g overflows."""
    t = (2.0 * x - 1.0) / (2.0 * sigma * sigma)
    if q == 1.0:
        return t
    if t > 36.0 and t + math.log(q) > 0.0:
        return t + math.log(q) + math.log1p((1.0 - q) / q * math.exp(-t))
    y = q * math.expm1(t)
    # 1 + y would lose the digits of a small g
    return math.log1p(y) if y > -0.5 else math.log((1.0 - q) + q * math.exp(t))


@inline
def x_of_log_g(s, sigma, q):
    """Inverse of log g; -inf below the infimum log(1 - q)."""
    if q == 1.0:
        return sigma * sigma * s + 0.5
    if s > 36.0:
        t = s - math.log(q) + math.log1p(-(1.0 - q) * math.exp(-s))
    else:
        y = math.expm1(s) / q
        rest = math.exp(s) - (1.0 - q) if y < -0.5 and q > 0.5 else 0.0
        # `rest` is exact where 1 + y would lose its digits
        if rest > 0.0:
            t = math.log(rest / q)
        elif y > 1e290:
            # y itself overflows at the smallest rates
            t = math.log(math.expm1(s)) - math.log(q)
        else:
            t = math.log1p(y) if y > -1.0 else -np.inf
    return sigma * sigma * t + 0.5


@inline
def share_at(y):
    """w at y = t + log q - log(1 - q)."""
    return 1.0 / (1.0 + math.exp(-y)) if y > 0.0 else math.exp(y) / (1.0 + math.exp(y))


@inline
def sampled_share(x, sigma, q):
    """w(x), which grows from 0 to 1."""
    if q == 1.0:
        return 1.0
    return share_at((2.0 * x - 1.0) / (2.0 * sigma * sigma) + math.log(q) - math.log1p(-q))
