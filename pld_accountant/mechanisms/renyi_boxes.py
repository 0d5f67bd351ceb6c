"""Black boxes of which only a Renyi guarantee is known: `ZeroConcentratedDP` and `RenyiDP`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import validate

__all__ = ["RenyiBox", "RenyiDP", "ZeroConcentratedDP"]

_UP = 1.0 + 2.0**-48
_LARGEST_ORDER = 2.0**53  # up to here, order - 1 is exact


class RenyiBox:
    """What is common to both: a bound of the log-moments of the loss, in both directions."""

    def log_moments(self, theta: NDArray) -> NDArray:
        """Upper bounds of (alpha - 1) D_alpha at alpha = 1 + theta, shape of theta; inf where nothing is known."""
        raise NotImplementedError

    def corners(self) -> Sequence[float]:
        """Values of theta where the bound of the log-moments has a corner."""
        return ()

    def largest_loss(self) -> float:
        """An upper bound of every loss: the divergence of order infinity."""
        return np.inf

    def gaussian(self) -> float:
        """The noise multiplier of a full-batch Gaussian mechanism that satisfies the guarantee; inf for no release."""
        return np.inf


@dataclass(frozen=True)
class ZeroConcentratedDP(RenyiBox):
    """A mechanism of which it is known that it satisfies rho-zCDP.

    Parameters
    ----------
    rho : float
        Above 0: the Renyi divergence of every order alpha > 1, in both directions, is at most xi + rho alpha.
    xi : float
        At least 0.

    Raises
    ------
    ValueError
        For a rho or a xi out of range.

    Notes
    -----
    In a composition its log-moments are added to those of all other steps, and the answer is their Renyi (Chernoff)
    bound, with status RENYI_ONLY: a dominating pair is not known from rho alone.

    References
    ----------
    Bun and Steinke (2016), Definition 1.1 and Lemma 2.3.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(ZeroConcentratedDP(0.021), 1)]).epsilon(1e-5).upper, 6)
    0.815623
    """

    rho: float
    xi: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", validate.positive(self.rho, "rho"))
        object.__setattr__(self, "xi", validate.nonnegative(self.xi, "xi"))

    def log_moments(self, theta: NDArray) -> NDArray:
        """theta (xi + rho (1 + theta)), rounded up."""
        return theta * (self.xi + self.rho * (1.0 + theta)) * _UP

    def gaussian(self) -> float:
        """1 / sqrt(2 rho), which has the divergence rho alpha."""
        return float((1.0 + 2.0**-50) / np.sqrt(2.0 * self.rho))


@dataclass(frozen=True)
class RenyiDP(RenyiBox):
    """A mechanism of which Renyi divergences at some orders are known.

    Parameters
    ----------
    orders : sequence of float
        Above 1 and at most 2^53, ascending; the last may be inf, whose divergence is the epsilon of pure DP.
    epsilons : sequence of float
        Upper bounds of the divergences of these orders in both directions, nats, at least 0.

    Raises
    ------
    ValueError
        If the two differ in length, the orders do not ascend from above 1 to at most 2^53, or a divergence is negative
        or not finite.

    Notes
    -----
    (alpha - 1) D_alpha is the log-moment of the loss, convex in alpha and 0 at alpha = 1.  Between known orders its
    chord is an upper bound.  D_alpha itself does not fall with alpha, so that of the next known order holds, too.

    In a composition the log-moments of all steps are added, and the answer is their Renyi bound (RENYI_ONLY).

    References
    ----------
    Mironov (2017), Definition 4 and Proposition 1; van Erven and Harremoes (2014), Theorem 3 and Corollary 2.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> round(compose([(RenyiDP([2, 8, 32], [0.05, 0.2, 0.8]), 2)]).epsilon(1e-5).upper, 4)
    1.6141
    """

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    def __init__(self, orders: Sequence[float], epsilons: Sequence[float]) -> None:
        at, known = validate.numbers(orders, "orders"), validate.numbers(epsilons, "epsilons")
        if at.ndim != 1 or not at.size or at.shape != known.shape:
            raise ValueError(f"orders and epsilons must be lists of one length, got {orders!r} and {epsilons!r}")
        if not (np.all(at > 1.0) and np.all(np.diff(at) > 0.0)):
            raise ValueError(f"orders must be above 1 and ascend, got {orders!r}")
        if np.any((at > _LARGEST_ORDER) & (at < np.inf)):
            raise ValueError(f"finite orders must be at most {_LARGEST_ORDER:g}, got {orders!r}")
        if not np.all((known >= 0.0) & (known < np.inf)):
            raise ValueError(f"epsilons must be finite and at least 0, got {epsilons!r}")
        object.__setattr__(self, "orders", tuple(at.tolist()))
        object.__setattr__(self, "epsilons", tuple(known.tolist()))

    def __repr__(self) -> str:
        return f"RenyiDP({len(self.orders)} orders, {self.orders[0]:g} to {self.orders[-1]:g})"

    def log_moments(self, theta: NDArray) -> NDArray:
        """The chords, or theta times the next divergence where that is smaller, rounded up."""
        at, known = np.array(self.orders) - 1.0, np.array(self.epsilons)  # exact for orders up to 2^53
        finite = np.isfinite(at)
        x, k = np.concatenate([[0.0], at[finite]]), np.concatenate([[0.0], at[finite] * known[finite]])
        chord = np.where(theta <= x[-1], np.interp(theta, x, k), np.inf)
        # D_alpha does not fall: the smallest of the later divergences holds
        later = np.append(np.minimum.accumulate(known[::-1])[::-1], np.inf)
        step = later[np.searchsorted(at, theta, side="left")]
        return np.minimum(chord, theta * step) * _UP

    def corners(self) -> Sequence[float]:
        """The finite orders less 1."""
        return [order - 1.0 for order in self.orders if order < np.inf]

    def largest_loss(self) -> float:
        """Finite if the divergence of order infinity is known."""
        return self.epsilons[-1] if self.orders[-1] == np.inf else np.inf
