"""Events of dp-accounting."""

import numpy as np
import pytest

import pld_accountant as pa

dp_accounting = pytest.importorskip("dp_accounting")

import attr  # noqa: E402
from dp_accounting import dp_event as events  # noqa: E402
from dp_accounting.pld import PLDAccountant as TheirAccountant  # noqa: E402

from pld_accountant.training.dp_event import PLDAccountant, event_of, mechanism_of, pld_of  # noqa: E402

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
    step = events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0))
    nested = events.ComposedDpEvent(
        [events.SelfComposedDpEvent(step, 3), events.NoOpDpEvent(), events.LaplaceDpEvent(2.0)]
    )
    found = PLDAccountant().compose(nested, 2).bounds(1e-6)
    assert found == pa.compose([(pa.SampledGaussian(1.0, 0.1), 6), (pa.Laplace(2.0), 2)]).epsilon(1e-6)
    assert PLDAccountant().get_epsilon(1e-6) == 0.0


def test_events_without_privacy_and_events_that_are_not_supported():
    for event in (events.NonPrivateDpEvent(), events.GaussianDpEvent(0.0)):
        open_ended = PLDAccountant().compose(event)
        assert open_ended.get_epsilon(1e-5) == np.inf and open_ended.get_delta(1.0) == 1.0
    without_noise = [
        events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(0.0)),
        events.MixtureOfGaussiansDpEvent(0.0, [0.0, 1.0], [0.99, 0.01]),
        events.RepeatAndSelectDpEvent(events.NonPrivateDpEvent(), 0.01, np.inf),
    ]
    for event in without_noise:  # a record takes part with probability 0.01: epsilon is 0 at a delta of 0.5
        hidden = PLDAccountant().compose(event)
        assert hidden.bounds(0.5).lower == 0.0 and hidden.get_epsilon(0.5) == np.inf and hidden.get_delta(1.0) == 1.0
    assert PLDAccountant().compose(events.PoissonSampledDpEvent(1.0, events.GaussianDpEvent(0.0))).bounds(0.5).lower > 9
    sampled = events.SampledWithReplacementDpEvent(100, 10, events.GaussianDpEvent(1.0))
    for event in (sampled, events.ComposedDpEvent([events.GaussianDpEvent(1.0), sampled])):
        accountant = PLDAccountant()
        assert not accountant.supports(event)
        with pytest.raises(dp_accounting.UnsupportedEventError):
            accountant.compose(event)
        assert accountant.get_epsilon(1e-5) == 0.0
    for event in (
        events.PoissonSampledDpEvent(0.1, events.LaplaceDpEvent(1.0)),
        events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
        events.DiscreteLaplaceDpEvent(0.5, 1),
    ):
        with pytest.raises(dp_accounting.UnsupportedEventError, match="REPLACE_ONE"):
            PLDAccountant(Relation.REPLACE_ONE).compose(event)


Relation = dp_accounting.NeighboringRelation
GAUSSIAN = events.GaussianDpEvent(1.5)
BOTH = [Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_SPECIAL]
EVENTS = [
    (GAUSSIAN, list(Relation)),
    (events.PoissonSampledDpEvent(0.05, GAUSSIAN), list(Relation)),
    (events.PoissonSampledDpEvent(1.0, GAUSSIAN), BOTH),
    (events.LaplaceDpEvent(3.0), BOTH),
    (events.PoissonSampledDpEvent(0.1, events.LaplaceDpEvent(1.0)), BOTH),
    (events.DiscreteLaplaceDpEvent(0.2, 2), BOTH),
    (events.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0, 2.0], [0.8, 0.15, 0.05]), BOTH),
    (events.RandomizedResponseDpEvent(0.6, 4), [Relation.REPLACE_ONE, Relation.REPLACE_SPECIAL]),
    (events.TruncatedSubsampledGaussianDpEvent(1000, 0.02, 25, 1.5), BOTH),
]


@pytest.mark.parametrize(("event", "relation"), [(e, r) for e, relations in EVENTS for r in relations], ids=str)
def test_the_two_accountants_agree(event, relation):
    """Theirs is pessimistic at an interval of 1e-4: our lower bound is below theirs, and both are close."""
    ours = PLDAccountant(relation).compose(events.SelfComposedDpEvent(event, 6)).bounds(1e-5)
    # a list, because theirs counts a self-composed randomized response once (dp-accounting 0.6)
    theirs = TheirAccountant(relation).compose(events.ComposedDpEvent([event] * 6)).get_epsilon(1e-5)
    assert ours.lower <= theirs * (1 + 1e-9)
    if isinstance(event, events.TruncatedSubsampledGaussianDpEvent):
        assert ours.upper <= theirs * (1 + 1e-9)  # another pair dominates, a looser one
    else:
        assert theirs == pytest.approx(ours.upper, rel=2e-3, abs=2e-3)


def test_events_that_only_renyi_accountants_take():
    from dp_accounting.rdp import RdpAccountant

    for event, relation in (
        (events.ZCDpEvent(0.05, 0.01), Relation.ADD_OR_REMOVE_ONE),
        (events.RepeatAndSelectDpEvent(GAUSSIAN, 10, 1), Relation.ADD_OR_REMOVE_ONE),
        (events.SingleEpochTreeAggregationDpEvent(5.0, [100, 37]), Relation.REPLACE_SPECIAL),
        (events.SampledWithoutReplacementDpEvent(1000, 50, events.GaussianDpEvent(2.0)), Relation.REPLACE_ONE),
    ):
        mine = event
        if relation == Relation.REPLACE_ONE:
            # their Renyi accountant takes the noise relative to the change by a replaced record, twice the norm of one
            mine = events.SampledWithoutReplacementDpEvent(1000, 50, events.GaussianDpEvent(4.0))
        ours = PLDAccountant(relation).compose(mine, 3).get_epsilon(1e-5)
        theirs = RdpAccountant(neighboring_relation=relation).compose(event, 3).get_epsilon(1e-5)
        assert 0.1 * theirs < ours <= theirs * (1 + 1e-3)


def test_events_that_release_nothing():
    for event in (
        events.PoissonSampledDpEvent(0.0, GAUSSIAN),
        events.ZCDpEvent(0.0, 0.0),
        events.TruncatedSubsampledGaussianDpEvent(1000, 0.0, 25, 1.5),
        events.PoissonSampledDpEvent(0.1, events.NoOpDpEvent()),
        events.MixtureOfGaussiansDpEvent(0.0, [0.0], [1.0]),
        events.DiscreteLaplaceDpEvent(1.0, 0),
        events.SampledWithoutReplacementDpEvent(1000, 0, GAUSSIAN),
        newer("EpsilonDelta", epsilon=0.0, delta=0.0),
        newer("DiscreteGaussian", sigma=1.0, sensitivity=0.0, dimension=None),
    ):
        accountant = PLDAccountant().compose(event)
        assert accountant.get_epsilon(1e-5) == accountant.get_epsilon(0) == accountant.get_epsilon(1) == 0.0
        assert accountant.get_delta(0) == accountant.get_delta(np.inf) == 0.0


def newer(name, **fields):
    """An event of dp-accounting's newest version, or what stands for it."""
    known = getattr(events, f"{name}DpEvent", None)
    return (known or attr.make_class(f"{name}DpEvent", [*fields], (events.DpEvent,), frozen=True))(**fields)


NEWER = [
    (newer("EpsilonDelta", epsilon=1.0, delta=0.01), pa.ApproximateDP(1.0, 0.01)),
    (newer("EpsilonDelta", epsilon=1.0, delta=0.0), pa.PureDP(1.0)),
    (newer("ExponentialMechanism", epsilon=0.5), pa.ExponentialMechanism(0.5)),
    (newer("PermuteAndFlip", epsilon=0.5), pa.PermuteAndFlip(0.5)),
    (newer("DiscreteGaussian", sigma=10.0, sensitivity=2.0, dimension=1), pa.DiscreteGaussian(10.0, 2)),
    (
        newer("DiscreteGaussian", sigma=10.0, sensitivity=2.5, dimension=9),
        pa.DiscreteGaussian(10.0, 2.5, coordinates=9),
    ),
    (newer("RandomAllocation", event=GAUSSIAN, num_selected=2, num_steps=20), pa.RandomAllocation(1.5, 20, 2)),
    (newer("RandomAllocation", event=events.GaussianDpEvent(0.0), num_selected=2, num_steps=20), None),
    (newer("EpsilonDelta", epsilon=1.0, delta=1.0), None),
    (events.ZCDpEvent(np.inf), None),
    (events.PoissonSampledDpEvent(0.1, events.NonPrivateDpEvent()), None),
]


@pytest.mark.parametrize(("event", "mechanism"), NEWER, ids=str)
def test_newer_events_and_events_without_noise(event, mechanism):
    ours = PLDAccountant().compose(event, 2)
    if mechanism is None:
        assert ours.get_epsilon(0.1) == np.inf and ours.get_delta(np.inf) == 1.0
    else:
        assert ours.composition == pa.compose([(mechanism, 2)])


def test_the_discrete_gaussian_of_an_unknown_dimension():
    """Its Renyi divergence is at most the Gaussian's in every dimension."""
    event = newer("DiscreteGaussian", sigma=10.0, sensitivity=2.0, dimension=None)
    found = PLDAccountant().compose(event).get_epsilon(1e-6)
    assert pa.compose([(pa.Gaussian(5.0), 1)]).epsilon(1e-6).upper < found
    assert found == pytest.approx(pa.compose([(pa.Gaussian(5.0), 1)]).rdp_epsilon(1e-6), rel=1e-9)


SEVERAL = events.ComposedDpEvent(
    [events.GaussianDpEvent(3.0), events.SelfComposedDpEvent(events.GaussianDpEvent(4.0), 2)]
)


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (lambda inside: events.PoissonSampledDpEvent(0.1, inside), Relation.ADD_OR_REMOVE_ONE),
        (lambda inside: events.PoissonSampledDpEvent(0.1, inside), Relation.REPLACE_ONE),
        (lambda inside: events.SampledWithoutReplacementDpEvent(1000, 20, inside), Relation.REPLACE_ONE),
    ],
)
def test_several_gaussians_on_one_sample(event, relation):
    one = events.GaussianDpEvent((1 / 9 + 2 / 16) ** -0.5)
    found, exact = (PLDAccountant(relation).compose(event(inside), 30).bounds(1e-5) for inside in (SEVERAL, one))
    assert exact.upper * (1 - 1e-9) <= found.upper <= exact.upper * (1 + 1e-9)


def test_their_distributions_come_in():
    """A pessimistic distribution of theirs lies above the truth, so our bounds of it do."""
    from dp_accounting.pld import privacy_loss_distribution as theirs

    sampled = theirs.from_gaussian_mechanism(2.0, sampling_prob=0.05, value_discretization_interval=1e-3)
    run = pa.compose([(mechanism_of(sampled), 40), (pa.Laplace(4.0), 2)])
    for direction in ("remove", "add"):
        exact = pa.compose([(pa.SampledGaussian(2.0, 0.05), 40), (pa.Laplace(4.0), 2)]).epsilon(1e-5, direction)
        found = run.epsilon(1e-5, direction)
        assert exact.lower <= found.upper <= exact.upper + 0.05
    with pytest.raises(ValueError, match="pessimistic"):
        mechanism_of(theirs.from_gaussian_mechanism(2.0, pessimistic_estimate=False))


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_their_composed_distributions_have_round_off(direction):
    """Negative masses, and sums above 1 by up to 1e-6; the bounds stay above theirs, and close."""
    from dp_accounting.pld import privacy_loss_distribution as theirs

    some = [
        theirs.from_gaussian_mechanism(1.5),
        theirs.from_gaussian_mechanism(3.0).self_compose(10),
        theirs.from_gaussian_mechanism(2.0, sampling_prob=0.005).self_compose(1000),
        theirs.from_laplace_mechanism(1.0).compose(theirs.from_gaussian_mechanism(2.0)),
    ]
    for pld in some:
        pmf = pld._pmf_remove if direction == "remove" else pld._pmf_add
        run = pa.compose([(mechanism_of(pld), 1)])
        for epsilon in (0.0, 0.1, 0.5, 1.5):
            wanted = pmf.get_delta_for_epsilon(epsilon)
            assert wanted <= run.delta(epsilon, direction).upper * (1.0 + 1e-9) <= wanted * 1.001 + 2e-6


def test_our_compositions_go_out():
    """The distribution that theirs gets lies above our curve at every epsilon, and composes with theirs."""
    run = pa.compose([(pa.SampledGaussian(2.0, 0.05), 40), (pa.Laplace(4.0), 2)])
    out = pld_of(run, interval=0.05)
    for epsilon in (-0.3, 0.0, 0.17, 0.5, 1.234, 2.0):
        truth = run.delta(epsilon)
        assert truth.lower <= out.get_delta_for_epsilon(epsilon) <= truth.upper + 2e-3
    twice = pa.compose([(pa.SampledGaussian(2.0, 0.05), 80), (pa.Laplace(4.0), 4)]).epsilon(1e-5)
    assert twice.lower <= out.self_compose(2).get_epsilon_for_delta(1e-5) <= twice.upper * 1.02
    with pytest.raises(ValueError, match="not bounded"):
        pld_of(pa.compose([(pa.ApproximateDP(1.0, 1e-3), 1)]))
    with pytest.raises(ValueError, match="interval"):
        pld_of(run, interval=1e-7)
