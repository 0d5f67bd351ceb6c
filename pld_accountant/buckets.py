"""Buckets of noise ratios: where the edges lie, and which bucket a norm falls into.

A person whose clipped norm is s times the clipping norm has the noise multiplier sigma / s.  Buckets are intervals of s
in (0, 1]; a step counts as one at its bucket's upper edge for the upper bound, and at its lower edge for the lower
bound, or as a lottery between the two (`lotteries`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .spectral import SpectralMaker

__all__ = ["Buckets", "choose_group", "place_edges"]

_GRID = 193
_CELLS = 8192
_SHARE = 0.92  # of the buckets go where they bound anybody's loss best, the rest to the small norms
_STEPS = (1e3, 1e4, 1e5)
_DELTA = 1e-5
_SMALL = (2e-3, 0.2)


def place_edges(noise_multiplier: float, sample_rate: float, buckets: int) -> NDArray:
    """Upper edges of the buckets in relative norm s, ascending, the last one 1.

    Most buckets share out evenly the largest slope, over some numbers of steps, of epsilon(s) / epsilon(1), s the norm
    of every step (by Renyi accounting, which is close and quick): then rounding costs nobody more than about 1 /
    (`_SHARE` buckets) of the worst case's epsilon.  The others are spread evenly in log s over small norms, where that
    alone would leave a large relative error.

    Returns
    -------
    ndarray, shape (buckets,)
    """
    s = np.linspace(0.0, 1.0, _GRID)
    theta = 2.0 ** np.arange(-6.0, 11.5, 0.5)
    maker = SpectralMaker(noise_multiplier / s[1:], np.full(_GRID - 1, sample_rate), "remove")
    k = maker.log_moments(theta)
    log_c = -np.log1p(theta) - theta * np.log1p(1.0 / theta)
    slope = np.zeros(_GRID - 1)
    for steps in _STEPS:
        epsilon = np.maximum(((steps * k - np.log(_DELTA) + log_c) / theta).min(axis=1), 0.0)
        if epsilon[-1] > 0.0:
            slope = np.maximum(slope, np.diff(np.concatenate([[0.0], epsilon])) / epsilon[-1])
    # Where the loss is flat the norms still need some edges.
    slope = slope / slope.sum() + 0.03 / slope.size if slope.sum() > 0.0 else np.full(slope.size, 1.0 / slope.size)
    even = np.concatenate([[0.0], np.cumsum(slope)])
    share = _SHARE if buckets >= 32 else 1.0
    fine = np.unique(np.concatenate([np.linspace(0.0, 1.0, 4097), np.geomspace(1e-4, 1.0, 4097)]))
    small = np.interp(np.log(np.maximum(fine, 1e-12)), np.log(_SMALL), (0.0, 1.0))
    rank = share * np.interp(fine, s, even / even[-1]) + (1.0 - share) * small
    edges = np.interp(np.arange(1, buckets + 1) / buckets, rank, fine)
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
        """Place the edges for a noise multiplier and a sample rate."""
        return cls(sample_rate, noise_multiplier, place_edges(noise_multiplier, sample_rate, buckets))

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
