"""Counting norms into buckets: never below the true one, and nothing lost."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pld_accountant.counting.buckets import Buckets
from pld_accountant.counting.interpolation import lower_weight_line
from pld_accountant.kernels import count

GROUP = Buckets.make(0.7, 0.01, 64)
FINE = Buckets.make(2.0, 0.01, 4096)


def counted(norms, clip, scale, group=GROUP, repeat=1, dtype=np.uint16, offset=0, width=None, ends=None):
    norms = np.atleast_2d(np.asarray(norms))
    norms = norms if norms.dtype == np.float32 else norms.astype(np.float64)
    counts = np.zeros((norms.shape[1], width or group.size), dtype=dtype)
    short = np.zeros(counts.shape, dtype=np.int32)
    buckets = clip, scale, group.edges, lower_weight_line(group), group.first
    ends = ends or [0, norms.shape[1]]
    for start, stop in pairwise(ends):
        count.count_down(np.ascontiguousarray(norms), start, stop, *buckets, np.uint32(repeat), counts, short, offset)
    return counts


def exact_bucket(norm, clip, sigma, group=GROUP):
    """The bucket of the relative norm in rational arithmetic."""
    s = min(Fraction(norm), Fraction(clip)) / Fraction(clip) * Fraction(group.noise_multiplier) / Fraction(sigma)
    return next(k for k, edge in enumerate(group.edges) if Fraction(float(edge)) >= s)


positive = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False, allow_nan=False)


@settings(max_examples=300, deadline=None)
@given(
    norm=positive,
    clip=st.floats(-100, 100).map(lambda x: 10.0**x) | st.floats(0.1, 10.0),
    over=st.floats(1.0, 2.0) | st.floats(1.0, 1e6),
    near=st.sampled_from([None, *range(64)]),
    ulps=st.integers(-6, 6),
)
def test_a_norm_is_never_counted_below_its_bucket(norm, clip, over, near, ulps):
    """Any float, or one within a few units of an edge."""
    sigma = GROUP.noise_multiplier * over
    if near is not None:
        norm = GROUP.edges[near] * clip * over
        for _ in range(abs(ulps)):
            norm = np.nextafter(norm, np.inf if ulps > 0 else 0.0)
    if not 0.0 < norm < np.inf:
        return
    counts = counted([norm], clip, GROUP.noise_multiplier / sigma / clip)
    assert counts.sum() == 1
    found, exact = int(counts[0].argmax()), exact_bucket(float(norm), clip, sigma)
    assert exact <= found <= exact + 1
    if found > exact:  # only the last few units below the edge go up
        s = Fraction(float(norm)) / Fraction(clip) / Fraction(over)
        assert s * (1 + Fraction(1, 2**49)) >= Fraction(float(GROUP.edges[exact])) or sigma != GROUP.noise_multiplier


@pytest.mark.parametrize("clip", [1e-100, 0.3, 1.0, 5.0, 1e100])
def test_at_the_clip_and_above(clip):
    norms = [clip, np.nextafter(clip, 0.0), np.nextafter(clip, np.inf), 2.0 * clip, 1.7e308]
    counts = counted(norms, clip, 1.0 / clip)
    assert np.all(counts[:, -1] == 1)
    assert counts.sum() == 5


@pytest.mark.parametrize("norm", [5e-324, 1e-310, 2.2250738585072014e-308, 1e-200])
def test_denormal_norms_cost_the_first_bucket(norm):
    for clip in (1e-100, 1.0, 1e100):
        assert counted([norm], clip, 1.0 / clip)[0, 0] == 1


def test_zero_costs_nothing():
    assert counted([0.0, -0.0, 1.0], 1.0, 1.0).sum(axis=1).tolist() == [0, 0, 1]


@pytest.mark.parametrize("group", [GROUP, FINE, Buckets.make(2.0, 0.01, 2)])
def test_the_look_up_finds_what_a_search_finds(group):
    rng = np.random.default_rng(5)
    s = np.concatenate(
        [rng.uniform(0, 1, 3000), 10.0 ** rng.uniform(-9, 0, 3000), group.edges, group.edges * (1 - 1e-15)]
    )
    s = s[s > 0]
    expected = np.minimum(np.searchsorted(group.edges, s * (1.0 + 2.0**-50), side="left"), group.size - 1)
    assert np.array_equal(counted(s, 1.0, 1.0, group).argmax(axis=1), expected)


def test_norms_at_cell_boundaries_of_the_look_up():
    s = np.arange(1, 8193) / 8192
    s = np.concatenate([s, np.nextafter(s, 0.0), np.nextafter(s, 2.0)])
    expected = np.minimum(np.searchsorted(FINE.edges, s * (1.0 + 2.0**-50), side="left"), FINE.size - 1)
    assert np.array_equal(counted(s, 1.0, 1.0, FINE).argmax(axis=1), expected)


@pytest.mark.parametrize("people", [1, 127, 128, 129, 300])
def test_many_steps_and_people_add_up(people):
    rng = np.random.default_rng(people)
    norms = rng.lognormal(-1, 1, (7, people)) * (rng.random((7, people)) < 0.8)
    counts = counted(norms, 1.0, 1.0, repeat=3, dtype=np.uint32)
    by_step = sum(counted(row, 1.0, 1.0, dtype=np.uint32) for row in norms)
    assert np.array_equal(counts, 3 * by_step)
    assert np.array_equal(counts.sum(axis=1), 3 * (norms > 0).sum(axis=0))


@pytest.mark.parametrize("group", [GROUP, FINE, Buckets.make(2.0, 0.01, 2)])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_float32_is_counted_as_the_float64_of_the_same_value(group, dtype):
    rng = np.random.default_rng(8)
    near = group.edges.astype(np.float32) * np.float32(0.3)
    near = np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(1))])
    norms = np.concatenate([rng.lognormal(-2, 2, 4000).astype(np.float32), near, np.float32([0, 1e-45, 3e38])])
    assert norms.dtype == np.float32
    single = counted(norms, 0.3, 1 / 0.3, group, repeat=5, dtype=dtype)
    assert np.array_equal(single, counted(norms.astype(np.float64), 0.3, 1 / 0.3, group, repeat=5, dtype=dtype))
    assert single.sum() == 5 * np.count_nonzero(norms)


def test_norms_that_may_not_be_written_are_counted_in_place():
    norms = np.linspace(0, 2, 300, dtype=np.float32)
    expected = counted(norms, 1.0, 1.0)
    norms.flags.writeable = False
    assert np.array_equal(counted(norms, 1.0, 1.0), expected)
    assert count.all_norms(norms[None])


def test_neither_the_order_of_steps_nor_blocks_change_a_count():
    rng = np.random.default_rng(9)
    norms = rng.lognormal(-1, 1, (20, 1000)).astype(np.float32)
    expected = counted(norms, 1.0, 1.0)
    assert np.array_equal(counted(norms[rng.permutation(20)], 1.0, 1.0), expected)
    for ends in ([0, 1000], [0, 1, 1000], [0, 127, 300, 999, 1000]):
        assert np.array_equal(counted(norms, 1.0, 1.0, ends=ends), expected)


def test_the_offset_chooses_the_group():
    counts = counted([0.5, 1.0], 1.0, 1.0, offset=10, width=64 + 20)
    assert counts[:, :10].sum() == 0
    assert counts[1, 10 + 63] == 1
    assert counts[:, 74:].sum() == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1e-300])
@pytest.mark.parametrize("place", [(0, 0), (2, 5), (3, 8)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bad_norms_are_seen_wherever_they_are(bad, place, dtype):
    norms = np.ones((4, 9), dtype=dtype)
    assert count.all_norms(norms)
    norms[place] = bad if dtype == np.float64 else np.sign(bad) * 1e-45 if np.isfinite(bad) else bad
    assert not count.all_norms(norms)


def test_zeros_and_empty_logs_are_norms():
    assert count.all_norms(np.array([[0.0, -0.0, 5e-324, 1.7e308]]))
    assert count.all_norms(np.empty((0, 3)))


def test_placing_is_counting():
    rng = np.random.default_rng(3)
    norms = np.concatenate([rng.uniform(0, 3, 500), GROUP.edges, GROUP.edges * (1 + 2.0**-52), [0.0, 1e-300, 1e300]])
    bucket = np.empty(norms.size, dtype=np.int16)
    count.place_down(norms, 1.0, 1.0, GROUP.edges, GROUP.first, bucket)
    counts = counted(norms, 1.0, 1.0)
    np.testing.assert_array_equal(bucket, np.where(counts.any(axis=1), counts.argmax(axis=1), -1))
