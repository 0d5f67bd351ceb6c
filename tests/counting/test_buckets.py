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


def test_clipped_steps_have_a_bucket_of_their_own():
    edges = place_edges(256)
    assert 1.0 - edges[-2] == pytest.approx(1e-6)
    for clipped in (1.0, 1.0 - 2.0**-53, float(np.float32(1.0) - np.finfo(np.float32).eps)):
        assert np.searchsorted(edges, clipped, side="left") == 255
    assert np.searchsorted(edges, 0.999) < 255


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


@pytest.mark.parametrize(
    "edges",
    [
        [0.5, 0.9],
        [0.5, 0.5, 1.0],
        [0.7, 0.5, 1.0],
        [0.0, 1.0],
        [-0.5, 1.0],
        [np.nan, 1.0],
        [0.5, np.inf, 1.0],
        [],
        [[0.5, 1.0]],
        np.linspace(0.0, 1.0, 5000)[1:],
        np.array([0.5, 1.0], dtype=np.float32),
        np.array([0.5, 0.7, 1.0])[::2],
    ],
)
def test_edges_that_the_kernels_cannot_use_are_refused(edges):
    with pytest.raises(ValueError, match=r"edges|buckets"):
        Buckets(0.1, 2.0, np.asarray(edges))


@pytest.mark.parametrize(
    ("rate", "noise"), [(0.0, 1.0), (1.5, 1.0), (np.nan, 1.0), (0.1, 0.0), (0.1, np.inf), (0.1, -1.0)]
)
def test_buckets_of_no_mechanism_are_refused(rate, noise):
    with pytest.raises(ValueError, match=r"sample_rate|noise_multiplier"):
        Buckets(rate, noise, np.array([0.5, 1.0]))
