"""Events of dp-accounting."""

import numpy as np
import pytest

import pld_accountant as pa

dp_accounting = pytest.importorskip("dp_accounting")

from dp_accounting.pld import PLDAccountant as TheirAccountant  # noqa: E402

from pld_accountant.training.dp_event import PLDAccountant, event_of  # noqa: E402

SCHEDULE = [(1.5, 0.01, 300), (2.0, 1.0, 4)]


def test_an_event_and_its_accountant_agree_with_a_composition():
    exact = pa.compose([(pa.SampledGaussian(1.5, 0.01), 300), (pa.Gaussian(2.0), 4)])
    ours = PLDAccountant().compose(event_of(SCHEDULE))
    assert ours.bounds(1e-5) == exact.epsilon(1e-5)
    assert ours.get_epsilon(1e-5) == exact.epsilon(1e-5).upper
    assert ours.get_delta(1.0) == exact.delta(1.0).upper
    theirs = TheirAccountant().compose(event_of(SCHEDULE)).get_epsilon(1e-5)
    assert exact.epsilon(1e-5).lower <= theirs == pytest.approx(ours.get_epsilon(1e-5), rel=1e-3)


def test_nested_events_and_counts():
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0))
    nested = dp_accounting.ComposedDpEvent(
        [dp_accounting.SelfComposedDpEvent(step, 3), dp_accounting.NoOpDpEvent(), dp_accounting.LaplaceDpEvent(2.0)]
    )
    found = PLDAccountant().compose(nested, 2).bounds(1e-6)
    assert found == pa.compose([(pa.SampledGaussian(1.0, 0.1), 6), (pa.Laplace(2.0), 2)]).epsilon(1e-6)
    assert PLDAccountant().get_epsilon(1e-6) == 0.0


def test_events_without_privacy_and_events_that_are_not_supported():
    for event in (dp_accounting.NonPrivateDpEvent(), dp_accounting.GaussianDpEvent(0.0)):
        open_ended = PLDAccountant().compose(event)
        assert open_ended.get_epsilon(1e-5) == np.inf and open_ended.get_delta(1.0) == 1.0
    sampled = dp_accounting.SampledWithoutReplacementDpEvent(100, 10, dp_accounting.GaussianDpEvent(1.0))
    for event in (sampled, dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(1.0), sampled])):
        accountant = PLDAccountant()
        assert not accountant.supports(event)
        with pytest.raises(dp_accounting.UnsupportedEventError):
            accountant.compose(event)
        assert accountant.get_epsilon(1e-5) == 0.0
    replace = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    with pytest.raises(dp_accounting.UnsupportedEventError, match="adding or removing"):
        replace.compose(dp_accounting.GaussianDpEvent(1.0))
