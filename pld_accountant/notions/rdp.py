"""From Renyi DP and zero-concentrated DP to (epsilon, delta), and back to the budgets that imply a target.

``"simple"`` is Mironov's conversion, ``"best"`` that of Canonne, Kamath and Steinke, which is never worse.
Every result is rounded to the side a promise needs: epsilon and delta up, budgets down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import validate

__all__ = ["rdp_budget", "rdp_delta", "rdp_epsilon", "zcdp_delta", "zcdp_epsilon", "zcdp_rho"]

_ROUNDING = 2.0**-50  # four roundings of each term of a sum
_LARGEST = 1e100  # beyond, products overflow


def _check(conversion: str) -> bool:
    if conversion not in ("best", "simple"):
        raise ValueError(f'conversion must be "best" or "simple", got {conversion!r}')
    return conversion == "best"


def _array(value: Any, name: str, low: float, high: float = _LARGEST, *, open_low: bool = False) -> np.ndarray:
    """A float64 array with every element in [low, high), or (low, high)."""
    a = validate.numbers(value, name) + 0.0  # no -0
    inside = ((a > low) if open_low else (a >= low)) & (a < high)
    if not np.all(inside):
        side = "(" if open_low else "["
        raise ValueError(f"{name} must lie in {side}{low:g}, {high:g}), got {a[~inside].flat[0]}")
    return a


def _exp_up(value: Any) -> np.ndarray:
    """exp, at most 1, rounded up also where it underflows."""
    return np.minimum(np.nextafter(np.exp(np.minimum(value, 0)), 2), 1)


def _plain(value: np.ndarray) -> Any:
    return value if np.ndim(value) else float(value)


def _increasing_root(f: Callable[[Any], Any], low: Any, high: Any) -> np.ndarray:
    """Bisection on a logarithmic scale; any point near the root gives a valid bound, so none is refined."""
    low, high = np.broadcast_arrays(low, high)
    for _ in range(60):
        middle = np.sqrt(low) * np.sqrt(high)
        above = f(middle) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return low


def _terms(x: Any, log_delta: Any, best: bool) -> tuple[np.ndarray, np.ndarray]:
    """The two terms that the conversion at order 1 + x adds to rho; the first is negative."""
    if best:
        return -np.log1p(1 / x), -(log_delta + np.log1p(x)) / x
    return np.zeros(np.broadcast(x, log_delta).shape), -log_delta / x


def rdp_epsilon(rho: Any, alpha: Any, delta: Any, *, conversion: str = "best") -> Any:
    """The epsilon at `delta` that (alpha, rho)-Renyi DP implies.

    Parameters
    ----------
    rho : float or ndarray
        Renyi divergence of order alpha, nats, at least 0.
    alpha : float or ndarray
        Above 1; broadcast against `rho`.  With several orders the smallest of the results may be taken.
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
    best = _check(conversion)
    rho = _array(rho, "rho", 0)
    x = _array(alpha, "alpha", 1, open_low=True) - 1
    a, b = _terms(x, np.log(_array(delta, "delta", 0, 1, open_low=True)), best)
    return _plain(np.maximum(rho + a + b + _ROUNDING * (rho - a + np.abs(b)), 0))


def rdp_delta(rho: Any, alpha: Any, epsilon: Any, *, conversion: str = "best") -> Any:
    """The delta at `epsilon` that (alpha, rho)-Renyi DP implies; at most 1, rounded up.

    Examples
    --------
    >>> f"{rdp_delta(420 * 21 / 2e4, 21, 0.8156232):.2e}"
    '1.00e-05'
    """
    best = _check(conversion)
    rho = _array(rho, "rho", 0)
    x = _array(alpha, "alpha", 1, open_low=True) - 1
    return _plain(_delta_at(rho, x, _array(epsilon, "epsilon", 0), best))


def _delta_at(rho: Any, x: Any, epsilon: Any, best: bool) -> np.ndarray:
    """delta at order 1 + x, rounded up."""
    a, b = x * rho, x * epsilon
    extra = x * np.log1p(1 / x) + np.log1p(x) if best else np.zeros_like(x)
    return _exp_up(a - b - extra + _ROUNDING * (a + b + extra + 1))


def rdp_budget(epsilon: Any, alpha: Any, delta: Any, *, conversion: str = "best") -> Any:
    """The largest rho for which (alpha, rho)-Renyi DP implies (epsilon, delta); 0 where none does.

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
    best = _check(conversion)
    epsilon = _array(epsilon, "epsilon", 0)
    x = _array(alpha, "alpha", 1, open_low=True) - 1
    return _plain(_budget_at(epsilon, x, np.log(_array(delta, "delta", 0, 1, open_low=True)), best))


def _budget_at(epsilon: Any, x: Any, log_delta: Any, best: bool) -> np.ndarray:
    """The budget at order 1 + x, rounded down."""
    a, b = _terms(x, log_delta, best)
    return np.maximum(epsilon - a - b - _ROUNDING * (epsilon - a + np.abs(b)), 0)


def _best_order(rho: Any, log_delta: Any) -> np.ndarray:
    """alpha - 1 that minimises alpha rho + conversion: the root of x**2 rho + log(1 + x) = log(1 / delta)."""
    goal, rho = -log_delta, np.maximum(rho, 1e-100)  # of a smaller rho the same order, whose bound holds as well
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
    best = _check(conversion)
    rho = _array(rho, "rho", 0)
    log_delta = np.log(_array(delta, "delta", 0, 1, open_low=True))
    if not best:
        return _plain((rho + 2 * np.sqrt(-rho * log_delta)) * (1 + _ROUNDING))
    x = _best_order(rho, log_delta)
    a, b = _terms(x, log_delta, best)
    main = rho * (1 + x)
    return _plain(np.where(rho > 0, np.maximum(main + a + b + _ROUNDING * (main - a + np.abs(b)), 0), 0.0))


def zcdp_delta(rho: Any, epsilon: Any, *, conversion: str = "best") -> Any:
    """The delta at `epsilon` that rho-zCDP implies, at the best real order; at most 1, rounded up.

    Examples
    --------
    >>> f"{zcdp_delta(0.021, 0.8):.4e}"
    '1.3647e-05'
    """
    best = _check(conversion)
    rho, epsilon = np.broadcast_arrays(_array(rho, "rho", 0), _array(epsilon, "epsilon", 0))
    out = np.zeros(rho.shape)
    some = rho > 0
    r, e = np.maximum(rho[some], 1e-80), epsilon[some]
    if not best:
        gap = np.maximum(e - r - _ROUNDING * (e + r), 0)
        with np.errstate(over="ignore"):
            out[some] = _exp_up(-np.square(gap / np.sqrt(r)) / 4 * (1 - _ROUNDING))
        return _plain(out)
    # (2 x + 1) rho - log(1 + 1 / x) = epsilon, and 1 / (x + 1) <= log(1 + 1 / x) <= 1 / x.
    root = np.hypot(e - r, np.sqrt(8 * r))
    high = np.where(e > r, (e - r + root) / (4 * r), 2 / (root - np.minimum(e - r, 0)))
    low = np.maximum((e + r + np.hypot(e + r, np.sqrt(8 * r))) / (4 * r) - 1, high * 1e-9)
    x = _increasing_root(lambda x: (2 * x + 1) * r - np.log1p(1 / x) - e, low, high)
    out[some] = _delta_at(r * (1 + x) * (1 + _ROUNDING), x, e, best)
    return _plain(out)


def zcdp_rho(epsilon: Any, delta: Any, *, conversion: str = "best") -> Any:
    """The largest rho (as far as the conversion knows) for which rho-zCDP implies (epsilon, delta).

    **Error**: rounded down, by about 1e-14 relative.

    References
    ----------
    Feldman and Zrnic (2021), Theorem 4.8, where the simple form is (sqrt(log(1/delta) + epsilon) -
    sqrt(log(1/delta)))**2.

    Examples
    --------
    >>> f"{zcdp_rho(1.0, 1e-5):.6f} {zcdp_rho(1.0, 1e-5, conversion='simple'):.6f}"
    '0.030557 0.020820'
    """
    best = _check(conversion)
    epsilon, delta = np.broadcast_arrays(_array(epsilon, "epsilon", 0), _array(delta, "delta", 0, 1, open_low=True))
    log_delta = np.log(delta)
    simple = (epsilon / (np.sqrt(epsilon - log_delta) + np.sqrt(-log_delta))) ** 2
    rho = simple * (1 - 8 * _ROUNDING)
    if not best:
        return _plain(rho)
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(8):  # Dinkelbach's iteration for the largest budget / alpha: increasing, quadratic
            x = _best_order(rho, log_delta)
            new = _budget_at(epsilon, x, log_delta, best) / (1 + x) * (1 - _ROUNDING)
            rho = np.where(epsilon > 0, np.maximum(new, rho), 0.0)
    return _plain(rho)


def log_c(theta: Any) -> np.ndarray:
    """log of theta^theta / (1 + theta)^(1 + theta)."""
    theta = np.asarray(theta, dtype=np.float64)
    return -np.log1p(theta) - theta * np.log1p(1.0 / theta)
