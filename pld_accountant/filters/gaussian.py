"""Filters of full-batch Gaussian steps, for Gaussian DP and for zero-concentrated DP."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from .. import validate
from ..notions import gdp, zcdp
from ..results import Guarantee
from .integer_budget import SquareFilter

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
        See `Filter`.
    target : (epsilon, delta), optional
        The (epsilon, delta) for which the budget was chosen, and which it implies; the guarantee leads with it.

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
    ) -> None:
        self._mu = validate.positive(mu, "mu")
        super().__init__(
            {"mu": self._mu, **self._aim(target, self.epsilon)},
            num_examples=num_examples,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            individual=individual,
        )

    @classmethod
    def for_epsilon(cls, epsilon: float, delta: float, **arguments: Any) -> GaussianFilter:
        """The filter with the largest mu that implies (epsilon, delta).

        Examples
        --------
        >>> f = GaussianFilter.for_epsilon(0.8156, 1e-5, num_examples=1, noise_multiplier=100.0)
        >>> f"{f.mu:.5f}"
        '0.22258'
        """
        target = validate.positive(epsilon, "epsilon"), validate.delta(delta)
        return cls(gdp.mu(*target, rounding="down"), target=target, **arguments)

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

    def epsilon(self, delta: float) -> float:
        """The epsilon at `delta` that the budget implies."""
        return gdp.epsilon(validate.delta(delta), self._mu)

    @property
    def guarantee(self) -> Guarantee:
        """mu-GDP, proven for adaptive steps."""
        return Guarantee(
            "adaptive, Gaussian DP",
            True,
            self._promise(f"mu-GDP with mu = {self._mu!r}")
            + ", for the adding or removing of one person."
            + self._condition(),
            f"Koskela, Tobaben and Honkela (2023), Theorem {'4.1' if self._individual else '3.2'}",
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
    ) -> None:
        self._rho = validate.positive(rho, "rho")
        super().__init__(
            {"rho": self._rho, **self._aim(target, self.epsilon)},
            num_examples=num_examples,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            individual=individual,
        )

    @classmethod
    def for_epsilon(cls, epsilon: float, delta: float, *, conversion: str = "best", **arguments: Any) -> ZCDPFilter:
        """The filter with the largest rho that implies (epsilon, delta); `conversion` as in `zcdp_rho`."""
        target = validate.positive(epsilon, "epsilon"), validate.delta(delta)
        return cls(zcdp.zcdp_rho(*target, conversion=conversion), target=target, **arguments)

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

    def epsilon(self, delta: float, *, conversion: str = "best") -> float:
        """The epsilon at `delta` that the budget implies."""
        return zcdp.zcdp_epsilon(self._rho, validate.delta(delta), conversion=conversion)

    @property
    def guarantee(self) -> Guarantee:
        """rho-zCDP, proven for adaptive steps."""
        return Guarantee(
            "adaptive, zCDP",
            True,
            self._promise(f"rho-zCDP, rho = {self._rho!r}")
            + ", for the adding or removing of one person."
            + self._condition(),
            f"Feldman and Zrnic (2021), Theorem {'4.5' if self._individual else '4.3'} and Remark 4.4",
        )
