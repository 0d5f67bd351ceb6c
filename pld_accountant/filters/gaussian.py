"""Filters of full-batch Gaussian steps, for Gaussian DP and for zero-concentrated DP."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from .. import validate
from ..notions import gdp, zcdp
from ..results import Guarantee
from .integer_budget import SquareFilter, own_shares

__all__ = ["GaussianFilter", "ZCDPFilter"]


class GaussianFilter(SquareFilter):
    """Keeps everybody within mu-GDP over full-batch Gaussian steps.  The guarantee is tight.

    A step of clipped norm n costs (n / (noise_multiplier * max_grad_norm))**2 of mu**2.

    Parameters
    ----------
    mu : float
        The budget, above 0.
    num_examples : int
    noise_multiplier : float
        Standard deviation of the noise over max_grad_norm.
    max_grad_norm : float, optional
        Clipping norm.  None: nothing is clipped, and noise_multiplier is the standard deviation of the noise.
    individual : bool
        True: a budget for each person, charged with their own norms.  False: one budget for all, charged with the
        largest norm given; the first step that does not fit halts the filter.  The norms must then bound those of
        every *possible* record, as a public clipping norm does; the largest of the present people's does not.
    target : (epsilon, delta), optional
        The (epsilon, delta) for which the budget was chosen, and which it implies; the guarantee leads with it.
    shares : array_like, (num_examples,), optional
        The part of mu**2 that each person has, above 0 and at most 1; None: all of it.

    References
    ----------
    Koskela, Tobaben and Honkela (2023), Theorems 3.2 and 4.1, Algorithms 1 and 2.

    Examples
    --------
    >>> f = GaussianFilter(0.5, num_examples=2, noise_multiplier=4.0, max_grad_norm=1.0)
    >>> [f.admit([1.0, 0.5]).tolist() for step in range(5)][-2:]
    [[True, True], [False, True]]
    >>> f.spent(), f.headroom()
    (array([0.5      , 0.2795085]), array([0., 1.]))
    """

    def __init__(
        self,
        mu: float,
        *,
        num_examples: int,
        noise_multiplier: float,
        max_grad_norm: float | None = None,
        individual: bool = True,
        target: tuple[float, float] | None = None,
        shares: Any = None,
    ) -> None:
        self._mu = validate.positive(mu, "mu")
        super().__init__(
            {"mu": self._mu, **self._aim(target, self._epsilon)},
            num_examples=num_examples,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            individual=individual,
            shares=shares,
        )

    @classmethod
    def for_epsilon(cls, epsilon: Any, delta: float, **arguments: Any) -> GaussianFilter:
        """The filter with the largest mu that implies (epsilon, delta).

        Parameters
        ----------
        epsilon : float or array_like, (num_examples,)
            One for everybody, or one for each person.

        Examples
        --------
        >>> f = GaussianFilter.for_epsilon(0.8156, 1e-5, num_examples=1, noise_multiplier=100.0)
        >>> f"{f.mu:.5f}"
        '0.22258'
        """

        def mu(one: float) -> float:
            return gdp.mu(one, validate.delta(delta), rounding="down")

        largest, shares = own_shares(epsilon, lambda one: mu(one) ** 2)
        return cls(mu(largest), target=(largest, delta), **shares, **arguments)

    @property
    def mu(self) -> float:
        """The budget."""
        return self._mu

    def _share(self, noise_multiplier: Fraction) -> Fraction:
        return 1 / (noise_multiplier * Fraction(self._mu)) ** 2

    def spent(self) -> np.ndarray:
        """Each person's spent mu, rounded up, at most the budget: (num_examples,).  Sensitive."""
        return np.minimum(self._mu * np.sqrt(self._share_spent()) * (1 + 2.0**-51), self._mu)

    @property
    def remaining(self) -> np.ndarray:
        """Each person's remaining mu, sqrt(mu**2 - spent**2), rounded down: (num_examples,).  Sensitive."""
        return self._mu * np.sqrt(self._share_left()) * (1 - 2.0**-51)

    def _epsilon(self, delta: float, share: float = 1.0) -> float:
        return gdp.epsilon(validate.delta(delta), self._mu * math.sqrt(share))

    def epsilon(self, delta: float) -> Any:
        """The epsilon at `delta` that the budget implies; (num_examples,) if people have shares of it."""
        return self._by_share(lambda share: self._epsilon(delta, share))

    @property
    def guarantee(self) -> Guarantee:
        """mu-GDP, proven for adaptive steps."""
        return Guarantee(
            "adaptive, Gaussian DP",
            True,
            self._promise(f"mu-GDP with mu = {self._mu!r}")
            + ", for the adding or removing of one person."
            + self._parts()
            + self._condition(),
            f"Koskela, Tobaben and Honkela (2023), Theorem {'4.1' if self._individual else '3.2'}",
            self._asked,
        )


class ZCDPFilter(SquareFilter):
    """Keeps everybody within rho-zCDP over full-batch Gaussian steps.

    A step of clipped norm n costs (n / (noise_multiplier * max_grad_norm))**2 / 2.

    Parameters
    ----------
    rho : float
        The budget, above 0.
    num_examples, noise_multiplier, max_grad_norm, individual, target
        As in `GaussianFilter`.
    shares : array_like, (num_examples,), optional
        The part of rho that each person has, above 0 and at most 1; None: all of it.

    References
    ----------
    Feldman and Zrnic (2021), Theorems 4.3 and 4.5, Remark 4.4.

    Examples
    --------
    >>> f = ZCDPFilter(1.0, num_examples=2, noise_multiplier=1.0)
    >>> f.admit([1.0, 1.5]), f.spent(), f.headroom().round(6)
    (array([ True, False]), array([0.5, 0. ]), array([1.      , 1.414214]))
    """

    def __init__(
        self,
        rho: float,
        *,
        num_examples: int,
        noise_multiplier: float,
        max_grad_norm: float | None = None,
        individual: bool = True,
        target: tuple[float, float] | None = None,
        shares: Any = None,
    ) -> None:
        self._rho = validate.positive(rho, "rho")
        super().__init__(
            {"rho": self._rho, **self._aim(target, self._epsilon)},
            num_examples=num_examples,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            individual=individual,
            shares=shares,
        )

    @classmethod
    def for_epsilon(cls, epsilon: Any, delta: float, *, conversion: str = "best", **arguments: Any) -> ZCDPFilter:
        """The filter with the largest rho that implies (epsilon, delta), one epsilon for everybody or one each;
        `conversion` as in `zcdp_rho`.
        """

        def rho(one: float) -> float:
            return zcdp.zcdp_rho(one, validate.delta(delta), conversion=conversion)

        largest, shares = own_shares(epsilon, rho)
        return cls(rho(largest), target=(largest, delta), **shares, **arguments)

    @property
    def rho(self) -> float:
        """The budget."""
        return self._rho

    def _share(self, noise_multiplier: Fraction) -> Fraction:
        return 1 / (2 * noise_multiplier**2 * Fraction(self._rho))

    def spent(self) -> np.ndarray:
        """Each person's spent rho, rounded up, at most the budget: (num_examples,).  Sensitive."""
        return np.minimum(self._rho * self._share_spent() * (1 + 2.0**-51), self._rho)

    @property
    def remaining(self) -> np.ndarray:
        """Each person's remaining rho, rounded down: (num_examples,).  Sensitive."""
        return self._rho * self._share_left() * (1 - 2.0**-51)

    def _epsilon(self, delta: float, share: float = 1.0, conversion: str = "best") -> float:
        return zcdp.zcdp_epsilon(self._rho * share, validate.delta(delta), conversion=conversion)

    def epsilon(self, delta: float, *, conversion: str = "best") -> Any:
        """The epsilon at `delta` that the budget implies; (num_examples,) if people have shares of it."""
        return self._by_share(lambda share: self._epsilon(delta, share, conversion))

    @property
    def guarantee(self) -> Guarantee:
        """rho-zCDP, proven for adaptive steps."""
        return Guarantee(
            "adaptive, zCDP",
            True,
            self._promise(f"rho-zCDP, rho = {self._rho!r}")
            + ", for the adding or removing of one person."
            + self._parts()
            + self._condition(),
            f"Feldman and Zrnic (2021), Theorem {'4.5' if self._individual else '4.3'} and Remark 4.4",
            self._asked,
        )
