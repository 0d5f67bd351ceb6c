"""Pure and approximate DP to every other notion, and group privacy.

epsilon-DP implies everything that randomised response with this epsilon satisfies, which dominates every epsilon-DP
mechanism (Kairouz, Oh and Viswanath 2015, Theorem 2.1); so each number here is the smallest that epsilon alone implies.
Results are rounded to the side that a promise needs: what is implied up, what a target allows down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._rounding import ROUNDING, exp_up, in_range, plain

__all__ = [
    "dp_delta",
    "dp_epsilon",
    "group_dp",
    "member_dp",
    "mu_of_pure",
    "pure_epsilon",
    "pure_mu",
    "pure_rdp",
    "pure_rho",
]

_LARGEST_EPSILON = 700.0  # up to here, exp neither overflows nor underflows
_NDTR = 1e-12  # above the error of scipy's normal distribution function and its inverse, as in `gdp`


def _epsilons(epsilon: Any, name: str = "epsilon") -> np.ndarray:
    return in_range(epsilon, name, 0, _LARGEST_EPSILON)


def dp_delta(epsilon: Any, delta: Any, at: Any) -> Any:
    """The delta at another epsilon that (epsilon, delta)-DP implies.

    Parameters
    ----------
    epsilon : float or ndarray
        In [0, 700).
    delta : float or ndarray
        In [0, 1).
    at : float or ndarray
        The other epsilon, above -700 and below 700, negative or not; all three are broadcast.

    Returns
    -------
    float or ndarray
        delta + (1 - delta) (e^epsilon - e^at) / (1 + e^epsilon) for -epsilon <= at <= epsilon, delta above, and
        1 - (1 - delta) e^at below.

    Raises
    ------
    ValueError
        For arguments outside their ranges.

    **Error**: rounded up, by about 1e-13 relative.

    References
    ----------
    Murtagh and Vadhan (2016), Definition 2.3; Kairouz, Oh and Viswanath (2015), Theorem 2.1.

    Examples
    --------
    >>> f"{dp_delta(1.0, 1e-5, 0.5):.4f}"
    '0.2877'
    """
    e, d = _epsilons(epsilon), in_range(delta, "delta", 0, 1)
    a = in_range(at, "at", -_LARGEST_EPSILON, _LARGEST_EPSILON, open_low=True)
    middle = -np.expm1(np.minimum(a - e, 0)) / (1 + np.exp(-e))
    low = -np.expm1(np.minimum(a, 0))
    mass = np.where(a < -e, low, middle)
    least = np.where(a < e, 5e-324, 0.0)  # a subnormal mass may be rounded to 0
    return plain(np.minimum(d + (1 - d) * mass + 2.0**-46 * mass + 2.0**-50 * d + least, 1))


def dp_epsilon(epsilon: Any, delta: Any, at_delta: Any) -> Any:
    """The epsilon at another delta that (epsilon, delta)-DP implies: the inverse of `dp_delta`.

    Parameters
    ----------
    epsilon : float or ndarray
        In [0, 700).
    delta : float or ndarray
        In [0, 1).
    at_delta : float or ndarray
        In (0, 1); all three are broadcast.

    Returns
    -------
    float or ndarray
        At least 0; inf where `at_delta` is below `delta`.

    **Error**: rounded up, by about 1e-13 of its largest term.

    Examples
    --------
    >>> f"{dp_epsilon(1.0, 1e-5, 0.1):.4f} {dp_epsilon(1.0, 1e-5, 1e-6)}"
    '0.8529 inf'
    """
    e, d = _epsilons(epsilon), in_range(delta, "delta", 0, 1)
    goal = in_range(at_delta, "at_delta", 0, 1, open_low=True)
    share = np.maximum((goal - d) / (1 - d) * (1 - 2.0**-48) - 2.0**-52 * d, 0) * (1 + np.exp(-e))
    with np.errstate(divide="ignore"):
        found = e + np.log1p(-np.minimum(share, 1))
    found = np.maximum(found + 2.0**-48 * (1 + e), 0)
    return plain(np.where(goal < d, np.inf, np.where(share > 0, found, e)))


def pure_rdp(epsilon: Any, alpha: Any) -> Any:
    """The Renyi divergence of order alpha that epsilon-DP implies.

    Parameters
    ----------
    epsilon : float or ndarray
        In [0, 700).
    alpha : float or ndarray
        Above 1; broadcast.

    Returns
    -------
    float or ndarray
        log(cosh((alpha - 1/2) epsilon) / cosh(epsilon / 2)) / (alpha - 1), at most epsilon.

    **Error**: rounded up, by about 1e-13 relative plus 1e-15 / (alpha - 1).

    References
    ----------
    Steinke (2024), "Sharp RDP & zCDP from pure DP", differentialprivacy.org, Theorem 4; Mironov (2017), Proposition 5,
    for randomised response.

    Examples
    --------
    >>> f"{pure_rdp(1.0, 2.0):.6f}"
    '0.735326'
    """
    e, x = _epsilons(epsilon), in_range(alpha, "alpha", 1, open_low=True) - 1
    far, near = (x + 0.5) * e, 0.5 * e
    # log cosh(a) = a + log1p(exp(-2 a)) - log 2
    found = (x * e + np.log1p(np.exp(-2 * far)) - np.log1p(np.exp(-2 * near))) / x
    return plain(np.minimum(np.maximum(found, 0) * (1 + 2.0**-44) + 2.0**-50 / x, e))


def pure_rho(epsilon: Any) -> Any:
    """The smallest rho for which epsilon-DP implies rho-zCDP.

    Parameters
    ----------
    epsilon : float or ndarray
        In [0, 700).

    Returns
    -------
    float or ndarray
        epsilon tanh(epsilon / 2), at most epsilon^2 / 2.

    Notes
    -----
    `pure_rdp` divided by alpha is (g(y) - g(y0)) / (y - y0) epsilon^2 with g(y) = log cosh(sqrt(y)),
    y = ((alpha - 1/2) epsilon)^2 and y0 = (epsilon / 2)^2, because alpha (alpha - 1) = (alpha - 1/2)^2 - 1/4.  g is
    concave, since its slope tanh(sqrt(y)) / (2 sqrt(y)) falls; so the quotient is at most g'(y0), its limit at
    alpha = 1, and epsilon^2 g'(y0) = epsilon tanh(epsilon / 2).

    **Error**: rounded up, by about 1e-15 relative.

    References
    ----------
    Steinke (2024), "Sharp RDP & zCDP from pure DP", differentialprivacy.org, Theorem 5; Bun and Steinke (2016),
    Proposition 3.3, for epsilon^2 / 2.

    Examples
    --------
    >>> f"{pure_rho(0.1):.6f} {pure_rho(2.0):.4f}"
    '0.004996 1.5232'
    """
    e = _epsilons(epsilon)
    least = np.where(e > 0, 5e-324, 0.0)  # the product may underflow
    return plain(e * np.tanh(0.5 * e) * (1 + 4 * ROUNDING) + least)


def pure_mu(epsilon: Any) -> Any:
    """The smallest mu for which epsilon-DP implies mu-Gaussian DP.

    Parameters
    ----------
    epsilon : float or ndarray
        In [0, 700).

    Returns
    -------
    float or ndarray
        -2 Phi^-1(1 / (1 + e^epsilon)).

    Notes
    -----
    The trade-off function of randomised response has one corner, at (1, 1) / (1 + e^epsilon); the Gaussian one is
    convex and symmetric, so it lies below if it does there.

    **Error**: rounded up, by about a relative 1e-12.

    References
    ----------
    Dong, Roth and Su (2022), Section 2.

    Examples
    --------
    >>> f"{pure_mu(1.0):.5f}"
    '1.23204'
    """
    return plain(mu_of_pure(_epsilons(epsilon)))


def mu_of_pure(epsilon: np.ndarray) -> np.ndarray:
    """`pure_mu` of an array of numbers of at least 0 that need not be below 700."""
    from scipy import special

    far = -2 * special.ndtri_exp(-np.logaddexp(0.0, epsilon))
    # with x = tanh(epsilon / 2) it is 2 sqrt(2) erfinv(x), which keeps the digits of a small epsilon
    near = np.sqrt(8) * special.erfinv(np.tanh(0.5 * epsilon))
    return np.where(epsilon > 0, np.where(epsilon < 1, near, far) * (1 + _NDTR) + 1e-150, 0.0)


def pure_epsilon(*, rho: Any = None, mu: Any = None) -> Any:
    """The largest epsilon whose DP implies rho-zCDP, or mu-Gaussian DP: the inverse of `pure_rho`, or `pure_mu`.

    It is the epsilon to give a mechanism of pure DP that has to fit a budget.  The other way nothing is implied:
    neither zCDP nor Gaussian DP implies pure DP.

    Parameters
    ----------
    rho, mu : float or ndarray
        One of the two, at least 0.

    Returns
    -------
    float or ndarray
        At most 699.

    Raises
    ------
    ValueError
        For a negative number, or unless one of the two is given.

    **Error**: rounded down, by about 1e-12.

    Examples
    --------
    >>> f"{pure_epsilon(rho=0.02):.5f} {pure_epsilon(mu=1.23204):.5f}"
    '0.20033 1.00000'
    """
    from scipy import special

    if (rho is None) == (mu is None):
        raise ValueError("either rho or mu must be given")
    if mu is not None:
        half = 0.5 * in_range(mu, "mu", 0)
        found = special.log_ndtr(half) - special.log_ndtr(-half)
        return plain(np.clip(found * (1 - 4 * _NDTR) - _NDTR, 0, _LARGEST_EPSILON - 1))
    goal = in_range(rho, "rho", 0)
    # e tanh(e / 2) lies between e^2 / (2 + e) and both e and e^2 / 2
    low, high = np.maximum(goal, np.sqrt(2 * goal)), 0.5 * goal + np.sqrt(0.25 * goal * goal + 2 * goal)
    for _ in range(42):  # the two are less than a factor of two apart
        middle = 0.5 * (low + high)
        below = middle * np.tanh(0.5 * middle) <= goal
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return plain(np.clip(low * (1 - 2.0**-40), 0, _LARGEST_EPSILON - 1))


def group_dp(epsilon: Any, delta: Any, records: Any) -> tuple[Any, Any]:
    """The (epsilon, delta) of a person with several records that (epsilon, delta)-DP for one record implies.

    Parameters
    ----------
    epsilon : float or ndarray
        In [0, 700).
    delta : float or ndarray
        In [0, 1).
    records : int or ndarray of int
        At least 1; all three are broadcast.

    Returns
    -------
    epsilon, delta : float or ndarray
        records epsilon, and delta (e^(records epsilon) - 1) / (e^epsilon - 1), at most 1.

    Raises
    ------
    ValueError
        For arguments outside their ranges.

    Notes
    -----
    This holds for every mechanism and is loose for each one.  With Gaussian noise, `GroupGaussian` is much tighter.

    **Error**: rounded up, by about 1e-12 relative.

    References
    ----------
    Vadhan (2017), Lemma 2.2.

    Examples
    --------
    >>> group_dp(0.5, 0.0, 4)
    (2.0, 0.0)
    >>> f"{group_dp(0.5, 1e-6, 4)[1]:.3e}"
    '9.849e-06'
    """
    e, d, k = np.broadcast_arrays(_epsilons(epsilon), in_range(delta, "delta", 0, 1), _records(records))
    log_delta = np.log(np.maximum(d, 1e-320)) + _log_growth(e, k)
    # a product of few digits is exact
    exact = (e == e.astype(np.float32)) & (k < 2**29)
    total = np.where(exact, k * e, np.nextafter(k * e, np.inf))
    return plain(total), plain(np.where(d > 0, exp_up(log_delta + 2.0**-40), 0.0))


def member_dp(epsilon: Any, delta: Any, records: Any) -> tuple[Any, Any]:
    """The (epsilon, delta) for one record that gives a person with several records these: the inverse of `group_dp`.

    Parameters
    ----------
    epsilon : float or ndarray
        The person's, in [0, 700).
    delta : float or ndarray
        The person's, in [0, 1).
    records : int or ndarray of int
        At least 1; all three are broadcast.

    Returns
    -------
    epsilon, delta : float or ndarray
        Rounded down.

    Examples
    --------
    >>> "{:.2f} {:.3e}".format(*member_dp(2.0, 1e-5, 4))
    '0.50 1.015e-06'
    """
    e, d, k = np.broadcast_arrays(_epsilons(epsilon), in_range(delta, "delta", 0, 1), _records(records))
    each = e / k * (1 - 2.0**-50)
    log_delta = np.log(np.where(d > 0, d, 1.0)) - _log_growth(each, k)
    # a subnormal delta is rounded by more than its margin
    return plain(each), plain(np.where(d > 0, np.maximum(np.exp(log_delta - 2.0**-38) - 5e-324, 0.0), 0.0))


def _records(records: Any) -> np.ndarray:
    k = in_range(records, "records", 1, 2.0**53)
    if np.any(k != np.floor(k)):
        raise ValueError(f"records must be whole numbers, got {records!r}")
    return k


def _log_growth(epsilon: np.ndarray, records: np.ndarray) -> np.ndarray:
    """log of the sum of e^(i epsilon), i < records, which lies between 0 and log(records) + records epsilon."""
    small = np.maximum(epsilon, 1e-12)  # below it, the largest of the terms is close enough
    whole = records * small
    return np.where(
        epsilon < 1e-12,
        np.log(records) + records * epsilon,
        (records - 1) * small + np.log(-np.expm1(-whole)) - np.log(-np.expm1(-small)),
    )
