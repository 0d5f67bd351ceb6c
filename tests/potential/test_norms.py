"""The table of norms: the kernel and the Python function agree, and no norm is rounded down."""

import numpy as np
import pytest

from pld_accountant.kernels.charge import BUDGET, DUST, admit_places
from pld_accountant.potential.norms import NORMS, OCTAVES, PARTS

RNG = np.random.default_rng(1)
EDGES = np.concatenate([NORMS, np.nextafter(NORMS, 0), np.minimum(np.nextafter(NORMS, 2), 1.0)])
ODD = np.array([0.0, 5e-324, 1e-310, 1e-9, 2.0**-6, 1.0])
TRIED = np.concatenate([EDGES, ODD, RNG.uniform(0, 1, 5000), np.exp(RNG.uniform(-40, 0, 5000))])


def charged_place(norms, clip=1.0, inverse=1.0):
    """The place that the kernel charges: the charge of place i is (i + 1) 2^30 units."""
    charges = (np.arange(NORMS.size) + 1) << 30
    left, counts = np.full(norms.size, BUDGET), np.empty(norms.size, dtype=np.int64)
    assert admit_places(norms, clip, inverse, charges, OCTAVES, PARTS, DUST, 1, left, counts) == -1
    assert np.all(counts == 1)
    return ((BUDGET - left) >> 30) - 1


def test_norms_ascend_to_one():
    assert NORMS[0] == 2.0**-OCTAVES and NORMS[-1] == 1.0 and np.all(np.diff(NORMS) > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip", [1.0, 0.3, 7.25, 1e-200])
def test_the_kernel_rounds_up_by_one_place_at_most(dtype, clip):
    norms = (TRIED * clip).astype(dtype)
    place = charged_place(norms, clip, np.nextafter(1 / clip, np.inf))
    with np.errstate(under="ignore"):
        ratio = np.minimum(norms.astype(np.float64), clip) / clip
    least = np.where(ratio > 0, np.searchsorted(NORMS, ratio), -1)
    assert np.all((place >= least) | (ratio <= NORMS[np.maximum(place, 0)]) & (norms > 0))
    assert np.all(place <= least + 1)


def test_a_norm_above_the_clip_counts_as_the_clip():
    assert charged_place(np.array([1.5, 1e300]), 1.0).tolist() == [NORMS.size - 1] * 2


def test_a_remainder_that_buys_nothing_is_spent():
    charges = np.full(NORMS.size, BUDGET // 3)
    for steps in (1, 5):
        left, counts = np.full(1, BUDGET), np.empty(1, dtype=np.int64)
        for _ in range(5 // steps):
            admit_places(np.ones(1), 1.0, 1.0, charges, OCTAVES, PARTS, BUDGET // 3 - 1, steps, left, counts)
        assert left[0] == 0
