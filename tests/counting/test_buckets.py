"""Where the edges of the buckets lie."""

import numpy as np
import pytest

from pld_accountant.counting.buckets import Buckets, place_edges


@pytest.mark.parametrize("buckets", [2, 3, 31, 32, 256, 4096])
def test_edges_ascend_to_one(buckets):
    edges = place_edges(buckets)
    assert edges.shape == (buckets,)
    assert edges[0] > 0.0
    assert np.all(np.diff(edges) > 0.0)
    assert edges[-1] == 1.0


def test_no_interval_is_left_wide():
    edges = place_edges(256)
    assert np.diff(edges, prepend=0.0).max() < 1.25 / 256
    # and small norms have edges of their own
    assert np.sum(edges < 0.05) > 30
    ratio = edges[1:] / edges[:-1]
    assert ratio[edges[1:] > 0.01].max() < 1.15


def test_noise_at_an_edge():
    group = Buckets.make(1.5, 0.01, 64)
    assert group.size == 64
    assert group.sigma[-1] == 1.5
    assert np.all(np.diff(group.sigma) < 0.0)
    assert group.sigma == pytest.approx(1.5 / group.edges, rel=1e-15)


@pytest.mark.parametrize("buckets", [2, 256, 4096])
def test_the_look_up_table_is_a_search(buckets):
    group = Buckets.make(2.0, 0.01, buckets)
    cells = group.first.size - 1
    assert group.first.dtype == np.int16
    for c in range(0, cells + 1, 97):
        expected = next(k for k, edge in enumerate(group.edges) if edge >= c / cells)
        assert group.first[c] == expected
    assert group.first[0] == 0
    assert group.first[-1] == buckets - 1
