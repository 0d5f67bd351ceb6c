"""All makers of one family: each is made once, and whole and truncated steps stay apart."""

import numpy as np
import pytest

from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.tables.makers import TableMakers

SIGMA, Q = np.array([2.0, 1.0]), np.array([0.01, 0.01])


@pytest.fixture
def makers():
    return TableMakers(SampledGaussianSteps(SIGMA, Q, "remove"), np.array([True]))


def test_each_maker_is_made_once(makers):
    assert makers.characteristic(interpolated=True) is makers.characteristic(interpolated=True)
    assert makers.characteristic(5.0, interpolated=True) is not makers.characteristic(interpolated=True)
    assert makers.characteristic(interpolated=False) is not makers.characteristic(interpolated=True)
    assert makers.grid("upper", 1024, 9.0) is makers.grid("upper", 1024, 9.0)
    assert makers.grid("lower", 1024, 9.0) is not makers.grid("upper", 1024, 9.0)
    assert makers.truncated(np.inf) is makers.steps
    assert makers.truncated(5.0) is makers.truncated(5.0)


def test_tables_of_different_makers_are_not_confused(makers):
    """All makers share one cache; the tables at the same tilt, period and band are each maker's own."""
    every = np.ones(2, dtype=bool)
    kinds = [makers.characteristic(reach, interpolated=i) for reach in (np.inf, 4.0) for i in (False, True)]
    tables = [maker.table(3.0, 8.0, 16.0, every) for maker in kinds]
    assert len({id(t) for t in tables}) == 4
    assert all(maker.table(3.0, 8.0, 16.0, every) is t for maker, t in zip(kinds, tables, strict=True))
    first = [t.columns[0, 0] for t in tables]
    assert first[0] == first[1]
    assert first[2] == first[3]
    assert first[2] < first[0]  # the truncated steps have less mass


def test_whole_and_interpolated_makers_share_the_log_moments(makers):
    theta = np.array([0.5, 4.0])
    whole, between = (makers.characteristic(interpolated=i).log_moments(theta) for i in (False, True))
    assert np.all(between >= whole)
    assert np.any(between > whole)
    np.testing.assert_array_equal(makers.any(interpolated=False).log_moments(theta), whole)
    np.testing.assert_array_equal(makers.grid("upper", 1024, 9.0).log_moments(theta), whole)
