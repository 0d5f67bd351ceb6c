"""Renyi DP to (epsilon, delta), and back to the budget that implies a target.

``"simple"`` is Mironov's conversion.  ``"best"`` is that of Canonne, Kamath and Steinke, which is never worse.
Every result is rounded to the side that a promise needs: epsilon and delta up, budgets down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._rounding import ROUNDING, exp_up, in_range, plain, uses_best

__all__ = [
    "added",
    "budget_at",
    "delta_at",
    "epsilon_of_log_moment",
    "log_c",
    "rdp_budget",
    "rdp_delta",
    "rdp_epsilon",
]


def log_c(theta: Any) -> Any:
    """The logarithm of the Chernoff constant c(theta) of the hockey-stick divergence.

    Parameters
    ----------
    theta : float or ndarray
        Order of the moment, above 0; the order of the Renyi divergence less 1.

    Returns
    -------
    float or ndarray
        Negative.

    Notes
    -----
    c(theta) is the smallest constant for which (1 - exp(-x))_+ <= c(theta) exp(theta x) at every real x.

    1. For x <= 0 the left side is 0.
    2. For x > 0 put u = exp(-x) in (0, 1).  Then c(theta) is the maximum of (1 - u) u**theta.
    3. The derivative vanishes at u = theta / (1 + theta), which gives

           c(theta) = (theta / (1 + theta))**theta / (1 + theta),
           log c(theta) = -log(1 + theta) - theta log(1 + 1 / theta).

    **Error**: nearest, about 2**-51 relative; not directed.

    References
    ----------
    Canonne, Kamath and Steinke (2020), proof of Proposition 12.

    Examples
    --------
    >>> round(float(np.exp(log_c(1.0))), 12)
    0.25
    """
    theta = np.asarray(theta, dtype=np.float64)
    return plain(-np.log1p(theta) - theta * np.log1p(1 / theta))


def epsilon_of_log_moment(k: Any, theta: Any, log_delta: Any) -> Any:
    """The epsilon at delta that a log-moment of the privacy loss implies.

    Parameters
    ----------
    k : float or ndarray
        log E_P[exp(theta L)] of the privacy loss L of the pair (P, Q), or an upper bound of it.
    theta : float or ndarray
        Order of the moment, above 0.
    log_delta : float or ndarray
        Natural logarithm of delta.  All three are broadcast.

    Returns
    -------
    float or ndarray
        (k - log_delta + log_c(theta)) / theta, in nats; may be negative.

    Notes
    -----
    By `log_c` with x = L - epsilon,

        delta(epsilon) = E_P[(1 - exp(epsilon - L))_+] <= c(theta) exp(k - theta epsilon).

    The returned epsilon makes the right side equal to delta.

    **Error**: an upper bound up to round-off, about 2**-51 of the largest of the three terms; not directed.

    References
    ----------
    Canonne, Kamath and Steinke (2020), Proposition 12, with alpha = 1 + theta and k = theta * rho.

    Examples
    --------
    >>> f"{epsilon_of_log_moment(20 * 420 * 21 / 2e4, 20, np.log(1e-5)):.4f}"
    '0.8156'
    """
    return plain((np.asarray(k, dtype=np.float64) - log_delta + log_c(theta)) / theta)


def added(x: Any, log_delta: Any, best: bool) -> tuple[np.ndarray, np.ndarray]:
    """The terms that the conversion at order 1 + x adds to rho, summed, and the sum of their sizes for the round-off.

    The best conversion adds (log_c(x) - log_delta) / x.
    """
    if best:
        first, second = -np.log1p(1 / x), np.log1p(x) / x
        return first - (log_delta + np.log1p(x)) / x, second - first - log_delta / x
    return np.asarray(-log_delta / x), np.asarray(-log_delta / x)


def delta_at(rho: Any, x: Any, epsilon: Any, best: bool) -> np.ndarray:
    """delta at order 1 + x, rounded up."""
    a, b = x * rho, x * epsilon
    extra = -np.asarray(log_c(x)) if best else np.zeros_like(x)
    return exp_up(a - b - extra + ROUNDING * (a + b + extra + 1))


def budget_at(epsilon: Any, x: Any, log_delta: Any, best: bool) -> np.ndarray:
    """The budget at order 1 + x, rounded down."""
    more, size = added(x, log_delta, best)
    return np.maximum(epsilon - more - ROUNDING * (epsilon + size), 0)


def rdp_epsilon(rho: Any, alpha: Any, delta: Any, *, conversion: str = "best") -> Any:
    """The epsilon at `delta` that (alpha, rho)-Renyi DP implies.

    Parameters
    ----------
    rho : float or ndarray
        Renyi divergence of order alpha, nats, at least 0.
    alpha : float or ndarray
        Above 1; broadcast against `rho`.  The smallest result over several orders is also valid.
    delta : float or ndarray
        In (0, 1).
    conversion : {"best", "simple"}

    Returns
    -------
    float or ndarray
        At least 0.

    Raises
    ------
    ValueError
        For arguments outside their ranges.

    **Error**: rounded up, by about 1e-15 relative to its largest term.

    References
    ----------
    Mironov (2017), Proposition 3; Canonne, Kamath and Steinke (2020), Proposition 12.

    Examples
    --------
    >>> f"{rdp_epsilon(420 * 21 / 2e4, 21, 1e-5):.4f}"
    '0.8156'
    """
    best = uses_best(conversion)
    rho = in_range(rho, "rho", 0)
    x = in_range(alpha, "alpha", 1, open_low=True) - 1
    more, size = added(x, np.log(in_range(delta, "delta", 0, 1, open_low=True)), best)
    return plain(np.maximum(rho + more + ROUNDING * (rho + size), 0))


def rdp_delta(rho: Any, alpha: Any, epsilon: Any, *, conversion: str = "best") -> Any:
    """The delta at `epsilon` that (alpha, rho)-Renyi DP implies; at most 1, rounded up.

    Examples
    --------
    >>> f"{rdp_delta(420 * 21 / 2e4, 21, 0.8156232):.2e}"
    '1.00e-05'
    """
    best = uses_best(conversion)
    rho = in_range(rho, "rho", 0)
    x = in_range(alpha, "alpha", 1, open_low=True) - 1
    return plain(delta_at(rho, x, in_range(epsilon, "epsilon", 0), best))


def rdp_budget(epsilon: Any, alpha: Any, delta: Any, *, conversion: str = "best") -> Any:
    """The largest rho for which (alpha, rho)-Renyi DP implies (epsilon, delta); 0 if there is none.

    Parameters
    ----------
    epsilon, alpha, delta, conversion
        As in `rdp_epsilon`; broadcast.

    **Error**: rounded down, by about 1e-15 relative to its largest term.

    Examples
    --------
    >>> f"{rdp_budget(0.8156232, 21, 1e-5):.4f} {rdp_budget(0.1, 1.5, 1e-5)}"
    '0.4410 0.0'
    """
    best = uses_best(conversion)
    epsilon = in_range(epsilon, "epsilon", 0)
    x = in_range(alpha, "alpha", 1, open_low=True) - 1
    return plain(budget_at(epsilon, x, np.log(in_range(delta, "delta", 0, 1, open_low=True)), best))
