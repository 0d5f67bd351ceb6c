"""Buckets of noise ratios: where the edges lie, and which bucket a norm falls into.

A person whose clipped norm is s times the clipping norm has the noise multiplier sigma / s.  Buckets are intervals of s
in (0, 1]; a step counts as one at its bucket's upper edge for the upper bound, and at its lower edge for the lower
bound, or is interpolated between the two (`interpolation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Buckets", "choose_group", "place_edges"]

_CELLS = 8192
_EVEN = 0.8  # of the edges lie evenly in s, the others in log s
_SMALL = 2e-3  # smaller norms have few edges


def place_edges(buckets: int) -> NDArray:
    """Upper edges of the buckets in relative norm s, ascending, the last one 1; shape (buckets,).

    Interpolation leaves up to epsilon'(s) h min(1, h z^2 / (8 s)) between the bounds of somebody whose steps lie at s,
    h the width of the bucket there, z the standard deviations of one step that delta reaches.  As h counts twice but
    far out, it may be nearly the same for all s, whatever the slope of epsilon (which depends on delta and on steps
    that are yet to come); small norms, of less than z^2 h, ask for edges even in log s.
    """
    fine = np.unique(np.concatenate([np.linspace(0.0, 1.0, 8193), np.geomspace(_SMALL, 1.0, 8193)]))
    small = np.log(np.maximum(fine, _SMALL) / _SMALL) / np.log(1.0 / _SMALL)
    edges = np.interp(np.arange(1, buckets + 1) / buckets, _EVEN * fine + (1.0 - _EVEN) * small, fine)
    edges[-1] = 1.0
    return edges


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
    """

    sample_rate: float
    noise_multiplier: float
    edges: NDArray

    @classmethod
    def make(cls, noise_multiplier: float, sample_rate: float, buckets: int) -> Buckets:
        """Buckets for steps with at least that noise multiplier and just that sample rate."""
        return cls(sample_rate, noise_multiplier, place_edges(buckets))

    def scale(self, noise_multiplier: float, max_grad_norm: float) -> float:
        """Relative norm of a norm of 1, clipped there and hidden by that noise."""
        return self.noise_multiplier / noise_multiplier / max_grad_norm

    @property
    def size(self) -> int:
        return self.edges.size

    @property
    def sigma(self) -> NDArray:
        """Noise multiplier at each upper edge."""
        return self.noise_multiplier / self.edges

    @cached_property
    def first(self) -> NDArray:
        """Look-up table for `kernels.count`: the first bucket that can hold a relative norm of c / cells or more."""
        return np.searchsorted(self.edges, np.arange(_CELLS + 1) / _CELLS, side="left").astype(np.int16)


def choose_group(groups: list[Buckets], noise_multiplier: float, sample_rate: float) -> tuple[int, float]:
    """The group that can count these steps, or -1, and the noise multiplier to make a new one from.

    Buckets count every noise multiplier from their own upwards, but those of much larger ones come to lie in a few of
    them.  So a group serves up to twice its own, and a smaller one gets new buckets from at most half the old: a
    schedule that falls or rises step by step makes few groups.
    """
    lowest = np.inf
    for number, group in enumerate(groups):
        if group.sample_rate == sample_rate:
            if group.noise_multiplier <= noise_multiplier <= 2.0 * group.noise_multiplier:
                return number, group.noise_multiplier
            if group.noise_multiplier > noise_multiplier:
                lowest = min(lowest, group.noise_multiplier)
    return -1, min(noise_multiplier, 0.5 * lowest)
