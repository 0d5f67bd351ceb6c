"""Zero-concentrated DP to (epsilon, delta), and back to the budget that implies a target.

rho-zCDP bounds the Renyi divergence of every order alpha > 1 by alpha * rho.  Each function takes the best real order.
``"simple"`` and ``"best"`` are the conversions of `rdp`.  Every result is rounded to the side that a promise needs:
epsilon and delta up, budgets down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._rounding import ROUNDING, exp_up, in_range, plain, uses_best
from .rdp import added, budget_at, delta_at

__all__ = ["zcdp_delta", "zcdp_epsilon", "zcdp_rho"]


def _increasing_root(f: Callable[[Any], Any], low: Any, high: Any) -> np.ndarray:
    """Bisection on a logarithmic scale; every point near the root gives a valid bound."""
    low, high = np.broadcast_arrays(low, high)
    for _ in range(60):
        middle = np.sqrt(low) * np.sqrt(high)
        above = f(middle) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return low


def _best_order(rho: Any, log_delta: Any) -> np.ndarray:
    """alpha - 1 that minimises alpha rho + conversion: the root of x**2 rho + log(1 + x) = log(1 / delta)."""
    goal, rho = -log_delta, np.maximum(rho, 1e-100)  # a smaller rho takes the same order, whose bound is valid too
    low = 2 * goal / (1 + np.sqrt(1 + 4 * rho * goal))  # log(1 + x) <= x
    with np.errstate(divide="ignore", over="ignore"):
        high = np.minimum(np.sqrt(goal / rho), np.expm1(goal))
    return _increasing_root(lambda x: x * x * rho + np.log1p(x) - goal, low, high)


def zcdp_epsilon(rho: Any, delta: Any, *, conversion: str = "best") -> Any:
    """The epsilon at `delta` that rho-zCDP implies, at the best real order.

    Parameters
    ----------
    rho : float or ndarray
        At least 0.
    delta : float or ndarray
        In (0, 1); broadcast.
    conversion : {"best", "simple"}
        "simple" is rho + 2 * sqrt(rho * log(1 / delta)).

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
    Bun and Steinke (2016), Proposition 1.3; Canonne, Kamath and Steinke (2020), Proposition 12.

    Examples
    --------
    >>> f"{zcdp_epsilon(0.021, 1e-5):.6f} {zcdp_epsilon(0.021, 1e-5, conversion='simple'):.4f}"
    '0.815623 1.0044'
    """
    best = uses_best(conversion)
    rho = in_range(rho, "rho", 0)
    log_delta = np.log(in_range(delta, "delta", 0, 1, open_low=True))
    if not best:
        return plain((rho + 2 * np.sqrt(rho) * np.sqrt(-log_delta)) * (1 + ROUNDING))
    x = _best_order(rho, log_delta)
    more, size = added(x, log_delta, best)
    main = rho * (1 + x)
    return plain(np.where(rho > 0, np.maximum(main + more + ROUNDING * (main + size), 0), 0.0))


def zcdp_delta(rho: Any, epsilon: Any, *, conversion: str = "best") -> Any:
    """The delta at `epsilon` that rho-zCDP implies, at the best real order; at most 1, rounded up.

    Examples
    --------
    >>> f"{zcdp_delta(0.021, 0.8):.4e}"
    '1.3647e-05'
    """
    best = uses_best(conversion)
    rho, epsilon = np.broadcast_arrays(in_range(rho, "rho", 0), in_range(epsilon, "epsilon", 0))
    out = np.zeros(rho.shape)
    some = rho > 0
    r, e = np.maximum(rho[some], 1e-80), epsilon[some]
    if not best:
        gap = np.maximum(e - r - ROUNDING * (e + r), 0)
        with np.errstate(over="ignore"):
            out[some] = exp_up(-np.square(gap / np.sqrt(r)) / 4 * (1 - ROUNDING))
        return plain(out)
    # (2 x + 1) rho - log(1 + 1 / x) = epsilon, and 1 / (x + 1) <= log(1 + 1 / x) <= 1 / x.
    root = np.hypot(e - r, np.sqrt(8 * r))
    high = np.where(e > r, (e - r + root) / (4 * r), 2 / (root - np.minimum(e - r, 0)))
    low = np.maximum((e + r + np.hypot(e + r, np.sqrt(8 * r))) / (4 * r) - 1, high * 1e-9)
    x = _increasing_root(lambda x: (2 * x + 1) * r - np.log1p(1 / x) - e, low, high)
    out[some] = delta_at(r * (1 + x) * (1 + ROUNDING), x, e, best)
    return plain(out)


def zcdp_rho(epsilon: Any, delta: Any, *, conversion: str = "best") -> Any:
    """The largest rho for which rho-zCDP implies (epsilon, delta) by this conversion.

    **Error**: rounded down, by about 1e-14 relative.

    References
    ----------
    Feldman and Zrnic (2021), Theorem 4.8; its simple form is (sqrt(log(1/delta) + epsilon) - sqrt(log(1/delta)))**2.

    Examples
    --------
    >>> f"{zcdp_rho(1.0, 1e-5):.6f} {zcdp_rho(1.0, 1e-5, conversion='simple'):.6f}"
    '0.030557 0.020820'
    """
    best = uses_best(conversion)
    epsilon, delta = np.broadcast_arrays(in_range(epsilon, "epsilon", 0), in_range(delta, "delta", 0, 1, open_low=True))
    log_delta = np.log(delta)
    simple = (epsilon / (np.sqrt(epsilon - log_delta) + np.sqrt(-log_delta))) ** 2
    rho = simple * (1 - 8 * ROUNDING)
    if not best:
        return plain(rho)
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(8):  # Dinkelbach's iteration for the largest budget / alpha: increasing, quadratic
            x = _best_order(rho, log_delta)
            new = budget_at(epsilon, x, log_delta, best) / (1 + x) * (1 - ROUNDING)
            rho = np.where(epsilon > 0, np.maximum(new, rho), 0.0)
    return plain(rho)
