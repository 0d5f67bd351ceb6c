"""The Laplace mechanism on everybody, and the family of such steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..notions.dp import mu_of_pure
from .base import DeltaSteps, Direction, StepFamily, noise_of_share
from .bounded_law import BoundedLaw, BoundedSteps

__all__ = ["Laplace", "LaplaceSteps"]

_UNIT = 2.0**-52
_SLACK = 2.0**-44  # relative width given to closed forms, above their round-off
_LEAST_LOG = -746.0


@dataclass(frozen=True)
class Laplace:
    """The Laplace mechanism on everybody: (1 / noise_multiplier, 0)-DP in one step.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by the L1 sensitivity (a person's largest contribution in the L1 norm); above 0.

    Raises
    ------
    ValueError
        For a noise multiplier out of range.

    Notes
    -----
    The dominating pair is (Lap(0, b), Lap(1, b)), b the noise multiplier, for the adding and the removing of a record
    alike.

    References
    ----------
    Zhu, Dong and Wang (2022), Table 1; Mironov (2017), Proposition 6, for the log-moments.

    Examples
    --------
    >>> Laplace(10)
    Laplace(noise_multiplier=10.0)
    """

    noise_multiplier: float
    symmetric: ClassVar = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", validate.noise_multiplier(self.noise_multiplier))

    def scaled(self, share: float) -> Laplace | None:
        """See `base.ScalableMechanism`."""
        share = validate.share(share)
        return Laplace(noise_of_share(self.noise_multiplier, share)) if share else None

    @staticmethod
    def steps(mechanisms: Sequence[Laplace], direction: Direction) -> LaplaceSteps:
        """The family with one row for each of these mechanisms."""
        return LaplaceSteps(np.array([m.noise_multiplier for m in mechanisms]), direction)


class LaplaceSteps(DeltaSteps, BoundedSteps):
    """Steps of the Laplace mechanism, one noise multiplier in each row.

    With c = 1 / b, the loss under P is c with mass 1/2, -c with mass exp(-c) / 2, and has the density
    exp((l - c) / 2) / 4 for -c < l < c.

    Parameters
    ----------
    noise_multiplier : ndarray, shape (size,)
    direction : {"remove", "add"}
        Without effect on the losses: the pair is symmetric.
    """

    whole = True

    def __init__(self, noise_multiplier: NDArray, direction: Direction) -> None:
        self._cap = 1.0 / np.asarray(noise_multiplier, dtype=np.float64)
        self.direction: Direction = direction

    @property
    def size(self) -> int:
        """Number of rows."""
        return self._cap.size

    def law(self, row: int) -> BoundedLaw:
        """See `LawSteps`."""
        return BoundedLaw(float(self._cap[row]), atoms=True)

    def log_moments(self, theta: NDArray, *, exact: bool = False) -> NDArray:
        """K(theta) = log((a e^(theta c) + (a - 1) e^(-a c)) / (2 a - 1)), a = 1 + theta, rounded up: (size, tilts).

        The weights a / (2 a - 1) and (a - 1) / (2 a - 1) add up to 1, so that K is log1p of a mean of expm1: the
        absolute error shrinks with c.
        """
        a, c = 1.0 + theta, self._cap[:, None]
        first, second = a / (2.0 * a - 1.0), theta / (2.0 * a - 1.0)
        up, down = first * np.expm1(np.minimum(theta * c, 600.0)), second * np.expm1(-a * c)
        near = np.log1p(up + down + 16.0 * _UNIT * (up - down)) * (1.0 + 4.0 * _UNIT)
        far = theta * c * (1.0 + 4.0 * _UNIT) + np.log(first) + 1e-12
        return np.minimum(np.where(theta * c < 600.0, near, far), theta * c * (1.0 + 4.0 * _UNIT))

    def epsilon_of_step(self, delta: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`."""
        epsilon = self._cap[row] + 2.0 * np.log1p(-delta)
        error = _SLACK * (self._cap[row] - 2.0 * np.log1p(-delta))
        return np.maximum(epsilon - error, 0.0), np.maximum(epsilon + error, 0.0)

    def log_delta_of_step(self, epsilon: NDArray, row: NDArray) -> tuple[NDArray, NDArray]:
        """delta(epsilon) = 1 - exp((epsilon - c) / 2) up to c, 0 beyond."""
        ends, cap = [], self._cap[row]
        for side in (-1.0, 1.0):
            exponent = 0.5 * (epsilon - cap) - side * _SLACK * (epsilon + cap)
            with np.errstate(divide="ignore"):
                value = np.log(np.maximum(-np.expm1(np.minimum(exponent, 0.0)), 0.0))
            ends.append(
                np.where(value > _LEAST_LOG, value + side * _SLACK * (1.0 - np.maximum(value, _LEAST_LOG)), value)
            )
        return ends[0], np.minimum(ends[1], 0.0)

    def largest_loss(self) -> NDArray:
        """c, rounded up."""
        return self._cap * (1.0 + 4.0 * _UNIT)

    def surely_lost(self, deviations: NDArray) -> NDArray:
        """c if Phi(-r) <= 1/2; else l with P(L >= l) = 1 - exp((l - c) / 2) / 2 = Phi(-r), and -c at least."""
        from scipy import special

        loss = self._cap[:, None] + 2.0 * np.minimum(np.log(2.0) + special.log_ndtr(deviations), 0.0)
        return np.maximum(loss, -self._cap[:, None]) - _SLACK * self._cap[:, None]

    def gaussian_mu(self) -> NDArray:
        """That of a mechanism that is (c, 0)-DP, rounded up."""
        return mu_of_pure(self._cap)

    def masses(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """See `base.StepFamily`; an atom at a knot belongs to the cell on its right, the last knot to the last cell."""
        p, u = self._between_atoms(row, knots)
        c, left = self._cap[row], knots[:-1]
        for at, mass in ((c, 0.5), (-c, 0.5 * np.exp(-c))):
            if knots[0] <= at <= knots[-1]:
                cell = min(int(np.searchsorted(knots, at, side="right")) - 1, p.size - 1)
                p[cell] += mass
                u[cell] += mass * -np.expm1(left[cell] - at)
        return p, np.clip(u, 0.0, p)

    def _between_atoms(self, row: int, knots: NDArray) -> tuple[NDArray, NDArray]:
        """p and u of the continuous part."""
        c, left, right = self._cap[row], knots[:-1], knots[1:]
        low, high = np.clip(left, -c, c), np.clip(right, -c, c)
        d, scale = high - low, 0.5 * np.exp(0.5 * (low - c))
        p = scale * np.expm1(0.5 * d)
        # relative to the left end of the continuous part: exp(low / 2) (e^(d / 2) + e^(-d / 2) - 2) / 2
        shift = -np.expm1(np.minimum(left - low, 0.0))
        return p, p * shift + (1.0 - shift) * scale * 4.0 * np.sinh(0.25 * d) ** 2

    def losses(self, row: int, reach: float, number: int) -> NDArray:
        """Losses even on [-c, c]."""
        return np.linspace(-self._cap[row], self._cap[row], number)

    def typical_loss(self, row: int) -> float:
        """c, where half of P lies."""
        return float(self._cap[row])

    def range_of_losses(self, row: int, reach: float) -> tuple[float, float]:
        """[-c, c]: all losses."""
        return -float(self._cap[row]), float(self._cap[row])

    def loss_roundoff(self, counts: NDArray, depth: int) -> tuple[float, float]:
        """See `base.StepFamily`; no loss is below -c, so that sum |l_i| <= |sum l_i| + 2 sum c_i."""
        rounding = 2.0**-53 * (4.0 * depth + 16.0)
        return rounding, 3.0 * rounding * float(counts @ self._cap)

    def truncated(self, reach: float) -> StepFamily:
        """The steps themselves: their losses are bounded."""
        return self
