"""Buckets of relative norms: their edges, and the bucket of a norm.

A step whose clipped norm is r times the clipping norm, with noise multiplier sigma, is as private to the person as a
step with noise multiplier sigma / r.  Its *relative norm* s = r sigma_0 / sigma in (0, 1] is measured against the
smallest noise multiplier sigma_0 that the buckets count: sigma_0 / s = sigma / r.  Buckets are intervals of s.

A ledger divides a step between both edges of its bucket (`counting.interpolation`).  Steps that are counted whole count
at the upper edge for the upper bound, and at the lower edge for the lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .. import validate

__all__ = ["Buckets", "choose_group", "place_edges"]

_CELLS = 8192  # of the look-up table of buckets
_EVEN = 0.8  # share of the edges that are even in s; the others are even in log s
_SMALL = 2e-3  # below this relative norm, edges are even in s only
_CLIPPED = 1e-6  # width of the last bucket: several times the round-off of a norm that was clipped in float32


def place_edges(buckets: int) -> NDArray:
    """Upper edges of the buckets in relative norm s, ascending, the last one 1; shape (buckets,).

    The last bucket is narrow: clipped steps, usually the most expensive ones of a person, count nearly exactly even
    where they are counted whole.  The edge that it needs is the second lowest one's.

    For steps at relative norm s in a bucket of width h, interpolated bounds differ by at most

        epsilon'(s) h min(1, h z^2 / (8 s)).

    Here z is the number of standard deviations of one step that delta reaches.  Except at small norms the difference is
    quadratic in h, so edges even in s suffice whatever the slope of epsilon, which depends on delta and on future
    steps.  Small norms, below about z^2 h, need edges even in log s.
    """
    fine = np.unique(np.concatenate([np.linspace(0.0, 1.0, 8193), np.geomspace(_SMALL, 1.0, 8193)]))
    small = np.log(np.maximum(fine, _SMALL) / _SMALL) / np.log(1.0 / _SMALL)
    kept = np.delete(np.arange(1, buckets + 1), min(1, buckets - 2))
    edges = np.interp(kept / buckets, _EVEN * fine + (1.0 - _EVEN) * small, fine)
    edges[-1] = 1.0 - _CLIPPED
    return np.append(edges, 1.0)


@dataclass(frozen=True)
class Buckets:
    """The buckets of one sample rate.

    Attributes
    ----------
    sample_rate : float
    noise_multiplier : float
        The smallest noise multiplier that can be counted: relative norm 1.
    edges : ndarray, shape (buckets,)
        Upper edges in relative norm, ascending, the last one 1.

    Raises
    ------
    ValueError
        If an attribute is of another kind; the kernels rely on all of this.
    """

    sample_rate: float
    noise_multiplier: float
    edges: NDArray

    def __post_init__(self) -> None:
        validate.sample_rate(self.sample_rate)
        # a new group starts at most at half of another one's noise multiplier
        validate.noise_multiplier(2.0 * self.noise_multiplier if self.noise_multiplier < 1.0 else self.noise_multiplier)
        edges = self.edges
        usable = edges.dtype == np.float64 and edges.ndim == 1 and edges.flags.c_contiguous and edges.size
        if not (usable and edges[0] > 0.0 and np.all(edges[1:] > edges[:-1]) and edges[-1] == 1.0):
            raise ValueError(f"edges must ascend from above 0 to 1, got {edges!r}")
        validate.buckets(max(edges.size, 2))

    @classmethod
    def make(cls, noise_multiplier: float, sample_rate: float, buckets: int) -> Buckets:
        """Buckets for steps with at least this noise multiplier and exactly this sample rate."""
        return cls(sample_rate, noise_multiplier, place_edges(buckets))

    def scale(self, noise_multiplier: float, max_grad_norm: float) -> float:
        """Relative norm of a norm of 1, at this clipping norm and noise multiplier."""
        return self.noise_multiplier / noise_multiplier / max_grad_norm

    def can_count(self, noise_multiplier: float, sample_rate: float) -> bool:
        """Whether these steps are counted here: their noise multiplier is at least the buckets' and at most twice it.

        Steps with a much larger one would share a few buckets.
        """
        own = self.noise_multiplier
        return sample_rate == self.sample_rate and own <= noise_multiplier <= 2.0 * own

    @property
    def size(self) -> int:
        return self.edges.size

    @property
    def sigma(self) -> NDArray:
        """Noise multiplier at each upper edge."""
        return self.noise_multiplier / self.edges

    @cached_property
    def first(self) -> NDArray:
        """Look-up table for `kernels.count`: the first bucket that can hold a relative norm of at least c / cells."""
        return np.searchsorted(self.edges, np.arange(_CELLS + 1) / _CELLS, side="left").astype(np.int16)


def choose_group(groups: list[Buckets], noise_multiplier: float, sample_rate: float) -> tuple[int, float]:
    """The index of the group that can count these steps, or -1, and the noise multiplier for a new group.

    For a smaller noise multiplier the new group starts at most at half the old one's: a schedule that falls or rises
    step by step makes few groups.
    """
    lowest = np.inf
    for number, group in enumerate(groups):
        if group.sample_rate == sample_rate:
            if group.can_count(noise_multiplier, sample_rate):
                return number, group.noise_multiplier
            if group.noise_multiplier > noise_multiplier:
                lowest = min(lowest, group.noise_multiplier)
    return -1, min(noise_multiplier, 0.5 * lowest)
