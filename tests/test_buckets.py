"""Where the edges of the buckets lie."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pld_accountant.buckets import Buckets, place_edges


@settings(max_examples=15, deadline=None)
@given(
    sigma=st.floats(-2, 2.5).map(lambda x: 10.0**x),
    q=st.one_of(st.floats(-7, 0).map(lambda x: 10.0**x), st.just(1.0)),
    buckets=st.sampled_from([2, 3, 31, 32, 256, 4096]),
)
def test_edges_ascend_to_one(sigma, q, buckets):
    edges = place_edges(sigma, q, buckets)
    assert edges.shape == (buckets,)
    assert edges[0] > 0.0
    assert np.all(np.diff(edges) > 0.0)
    assert edges[-1] == 1.0


def test_edges_depend_on_nothing_else():
    first, second = place_edges(2.0, 0.005, 256), place_edges(2.0, 0.005, 256)
    assert np.array_equal(first, second)


def test_edges_lie_densest_where_the_loss_grows_fastest():
    """For a sampled Gaussian the loss is all but linear in the norm: no interval is left wide."""
    edges = place_edges(2.0, 0.005, 256)
    assert np.diff(edges, prepend=0.0).max() < 3.0 / 256
    # and small norms have edges of their own
    assert np.sum(edges < 0.05) > 15
    ratio = edges[1:] / edges[:-1]
    assert ratio[edges[1:] > 0.01].max() < 1.3


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
