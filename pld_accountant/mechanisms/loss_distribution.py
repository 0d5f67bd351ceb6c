"""`LossDistribution`: a mechanism given by its privacy loss distribution, such as another accountant's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import validate
from .base import Direction
from .discrete import MASS_SLACK, Discrete, DiscreteLaw, merged

__all__ = ["LossDistribution"]

_ROUNDING = 1e-9  # how far sums may be from 1: other accountants truncate tails and use transforms
_ROUND_OFF = 2.0**-50  # of masses that add up to 1
_MOST_LOSS = 700.0


@dataclass(frozen=True, init=False, repr=False)
class LossDistribution(Discrete):
    """A mechanism of which a discrete privacy loss distribution is known.

    Parameters
    ----------
    losses : sequence of float, shape (atoms,)
        Finite losses when the record is removed: log of the probability with the record over that without it.
    masses : sequence of float, shape (atoms,)
        Their probabilities with the record; the rest of 1 has an infinite loss.  A rest of at most 2^-50 counts as
        round-off.
    add : (losses, masses), optional
        The same when the record is added.  By default it follows from the pair: the losses change their signs, and
        their masses are those without the record, masses e^-loss; the rest is outcomes that need the record.

    Raises
    ------
    ValueError
        If losses and masses differ in length, a mass is negative, a loss is not between -700 and 700, the masses add up
        to more than 1 + 1e-9, or the masses times e^-loss do: then no pair of laws has these losses.

    Notes
    -----
    If the distribution is one of a pair that dominates the mechanism, such as a *pessimistic* estimate, upper bounds
    hold for the mechanism.  Lower bounds hold for the distribution as it is given.

    Masses that add up to more than 1, by rounding, are lowered at the smallest losses.

    References
    ----------
    Sommer, Meiser and Mohammadi (2019); Zhu, Dong and Wang (2022), Definition 7, for dominating pairs.

    Examples
    --------
    >>> from pld_accountant.composition import compose
    >>> answer = LossDistribution([-1.0986122886681098, 1.0986122886681098], [0.25, 0.75])
    >>> print(f"{compose([(answer, 2)]).delta(1.0).upper:.6f}")
    0.392607
    """

    _remove: tuple[tuple[float, ...], tuple[float, ...]]
    _add: tuple[tuple[float, ...], tuple[float, ...]] | None

    def __init__(self, losses: Any, masses: Any, *, add: tuple[Any, Any] | None = None) -> None:
        object.__setattr__(self, "_remove", _checked(losses, masses))
        if add is not None and len(add) != 2:
            raise ValueError(f"add must be losses and masses, got {add!r}")
        object.__setattr__(self, "_add", None if add is None else _checked(*add))

    def __repr__(self) -> str:
        return f"LossDistribution({len(self._remove[0])} losses)"

    @property
    def noise_multiplier(self) -> float:
        """1 over the largest finite loss, by which compositions sort."""
        largest = max(float(np.abs(self.law(d).losses).max(initial=0.0)) for d in ("remove", "add"))
        return 1.0 / max(largest, 1e-300)

    def law(self, direction: Direction) -> DiscreteLaw:
        """The losses in one direction."""
        if direction == "add" and self._add is None:
            losses, masses = (np.array(part) for part in self._remove)
            return _law(-losses[::-1], (masses * np.exp(-losses))[::-1], 2.0**-50)
        given = self._remove if direction == "remove" else self._add
        assert given is not None
        losses, masses = (np.array(part) for part in given)
        return _law(losses, masses)


def _checked(losses: Any, masses: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ascending losses and their masses above 0."""
    loss, mass = validate.numbers(losses, "losses"), validate.numbers(masses, "masses")
    if loss.ndim != 1 or loss.shape != mass.shape or not loss.size:
        raise ValueError(f"losses and masses must be lists of one length, got {loss.shape} and {mass.shape}")
    if not np.all(np.abs(loss) <= _MOST_LOSS):
        raise ValueError(f"losses must lie between {-_MOST_LOSS:g} and {_MOST_LOSS:g}")
    if not np.all((mass >= 0.0) & (mass <= 1.0 + _ROUNDING)):
        raise ValueError("masses must be probabilities")
    if not mass.sum() <= 1.0 + _ROUNDING:
        raise ValueError(f"masses must add up to at most 1, got {mass.sum():.17g}")
    if not mass @ np.exp(-loss) <= 1.0 + _ROUNDING:
        raise ValueError(f"masses times exp(-loss) must add up to at most 1, got {mass @ np.exp(-loss):.17g}")
    values, added, _ = merged(loss, mass)
    return tuple(values[added > 0.0].tolist()), tuple(added[added > 0.0].tolist())


def _law(losses: NDArray, masses: NDArray, round_off: float = 0.0) -> DiscreteLaw:
    """Masses that add up to 1 with that of the infinite loss; round_off: their relative error."""
    excess = math.fsum([*masses.tolist(), -1.0])
    if excess > 0.0:
        # take it from the smallest losses
        left = np.maximum(np.cumsum(masses) - excess, 0.0)
        masses = np.diff(left, prepend=0.0)
    infinite = max(-excess, 0.0)
    if infinite <= _ROUND_OFF:
        infinite, masses = 0.0, masses / masses.sum()
    kept = masses > 0.0
    other = float(masses[kept] @ np.exp(-losses[kept]))
    of_infinite = round_off + MASS_SLACK * infinite if infinite else 0.0
    excluded = other < 1.0 - 0.5 * MASS_SLACK
    return DiscreteLaw(losses[kept], masses[kept], infinite, excluded, infinite_error=of_infinite)
