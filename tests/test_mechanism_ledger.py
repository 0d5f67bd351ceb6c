"""`MechanismLedger`: rows that share tables against closed forms and compositions, edges of norms, and bad input."""

import copy
import math
import pickle
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant import deadline
from pld_accountant.composition.many import ManyCompositions
from pld_accountant.files.store import StoreError
from pld_accountant.mechanisms.base import Enclosure, ScalableMechanism, noise_of_share
from pld_accountant.notions import gdp
from pld_accountant.results import Status

MANY = 40  # more different rows than are composed one by one


def composed_alone(monkeypatch):
    """Make every use of a composition for one row fail."""

    def refuse(*_):
        raise AssertionError("a row was composed by itself")

    monkeypatch.setattr("pld_accountant.composition.counted_rows.CountedRows._alone", refuse)


def counted(steps, people=MANY, seed=0, most=30):
    """A ledger of random counts of these mechanisms, all rows of which differ."""
    rng = np.random.default_rng(seed)
    ledger = pa.MechanismLedger(people)
    for k, step in enumerate(steps):
        ledger.record(step, np.arange(1, people + 1) if k == 0 else rng.integers(0, most, people))
    return ledger


# ---------------------------------------------------------------------------------------------- against closed forms


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_gaussian_steps_beside_laplace_steps_of_no_loss_have_the_closed_form(monkeypatch, delta):
    composed_alone(monkeypatch)
    ledger = counted([pa.Gaussian(3.0), pa.Gaussian(11.0), pa.Laplace(1e9)])
    counts = np.array(list(ledger._counts.values()))
    mu = np.sqrt(counts[0] / 9.0 + counts[1] / 121.0)
    exact = np.array([gdp.epsilon(delta, m) for m in mu])
    found = ledger.epsilon(delta)
    assert np.all(found.lower <= exact) and np.all(exact <= found.upper)
    assert np.all(found.width <= 1e-3 * exact.max()) and np.all(found.certified)
    back = ledger.delta(2.0)
    exact = np.array([gdp.delta(2.0, m) for m in mu])
    assert np.all(back.lower <= exact) and np.all(exact <= back.upper * (1.0 + 1e-12))


def delta_of_black_boxes(number, epsilon, delta, at):
    """Kairouz, Oh and Viswanath (2015): so many (epsilon, delta)-DP steps at an epsilon."""
    total = 1.0 - (1.0 - delta) ** number
    up = 1.0 / (1.0 + math.exp(-epsilon))
    for k in range(number + 1):
        loss = (number - 2 * k) * epsilon
        if loss > at:
            chance = math.comb(number, k) * up ** (number - k) * (1.0 - up) ** k
            total += (1.0 - delta) ** number * chance * -math.expm1(at - loss)
    return total


@pytest.mark.parametrize("at", [0.0, 0.7, 2.3])
def test_black_boxes_have_their_binomial_sum(monkeypatch, at):
    ledger = counted([pa.ApproximateDP(0.25, 1e-4)])
    exact = np.array([delta_of_black_boxes(n, 0.25, 1e-4, at) for n in range(1, MANY + 1)])
    with monkeypatch.context() as patched:
        composed_alone(patched)
        found = ledger.delta(at)
    assert np.all(found.lower <= exact * (1 + 1e-12)) and np.all(exact <= found.upper * (1 + 1e-12))
    assert np.all(found.upper <= exact * 1.01 + 1e-9) and np.all(found.lower >= exact * 0.95 - 1e-9)
    if at > 0.0:
        for n in (17, 40):  # epsilon at the exact delta
            one = ledger.epsilon(float(exact[n - 1]))[n - 1]
            assert one.lower <= at * (1 + 1e-9) and at <= one.upper * (1 + 1e-9) and one.width < 0.05


def test_an_epsilon_below_the_chance_of_an_infinite_loss_is_infinite_and_certified():
    ledger = counted([pa.ApproximateDP(0.0, 1e-3), pa.Gaussian(5.0)])
    found = ledger.epsilon(1e-2)
    lost = -np.expm1(np.arange(1, MANY + 1) * math.log1p(-1e-3))
    assert np.all(np.isinf(found.lower) == (lost > 1e-2)) and np.all(np.isinf(found.upper) == (lost > 1e-2))
    assert np.all(found.certified)
    assert np.all(ledger.delta(50.0).lower >= lost * (1 - 1e-9))
    assert np.all(ledger.delta(50.0).upper <= lost * (1 + 1e-9))


# ------------------------------------------------------------------------------------------- against the composition

MIXES = {
    "discrete": [pa.DiscreteGaussian(9.0), pa.RandomizedResponse(0.6), pa.DiscreteLaplace(0.2, 3)],
    "sampled": [pa.SampledGaussian(1.1, 0.03), pa.Laplace(6.0), pa.PoissonSampled(pa.Laplace(2.0), 0.2)],
    "between two others": [pa.DiscreteGaussian(50.0, 2.0, coordinates=5), pa.TruncatedPoisson(2.0, 0.25, 30, 100)],
    "several pairs": [pa.ExponentialMechanism(0.3), pa.Gaussian(8.0)],
    "epochs": [pa.RandomAllocation(2.0, 10), pa.ApproximateDP(0.1, 1e-9)],
    "replaced": [pa.FixedSizeBatch(4.0, 10, 100), pa.PureDP(0.05)],
    "own pair": [pa.DiscretePair([0.5, 0.3, 0.1999, 0.0001], [0.4, 0.3, 0.3, 0.0]), pa.Gaussian(4.0)],
}


@pytest.mark.parametrize(
    ("mix", "direction"), [*((mix, "both") for mix in MIXES), ("sampled", "add"), ("own pair", "add")]
)
def test_rows_that_share_tables_enclose_each_persons_composition(monkeypatch, mix, direction):
    composed_alone(monkeypatch)
    ledger = counted(MIXES[mix], most=12)
    for found, question, value in (
        (ledger.epsilon(1e-2, direction), "epsilon", 1e-2),
        (ledger.delta(0.8, direction), "delta", 0.8),
    ):
        for person in (0, 39):
            one = getattr(ledger.composition(person), question)(value, direction)
            assert found.lower[person] <= one.upper * (1 + 1e-9)
            assert found.upper[person] >= one.lower * (1 - 1e-9)
            assert found.upper[person] <= one.upper * (1 + 1e-3), "an upper bound from tables is a thousandth away"


def test_the_slack_of_what_lies_between_two_others_is_counted_for_each_person():
    """Theta sums of a sigma of 4: 1e-33 for each coordinate and step, and smaller deltas have the Renyi bound."""
    steps = [pa.DiscreteGaussian(9.0, 2.0, coordinates=10)]
    many = ManyCompositions(steps, np.array([[1], [1000]]), "above")
    ratio = steps[0].above().ratio
    assert many._widening.rest == pytest.approx(3.0 * ratio * np.array([1, 1000]), rel=1e-9, abs=0.0)
    found = counted(steps).epsilon(1e-32)
    alone = [pa.compose([(steps[0], n)]).epsilon(1e-32) for n in (1, 40)]
    assert found.status[39] == alone[1].status == Status.RENYI_ONLY
    assert found.upper[39] == pytest.approx(alone[1].upper, rel=1e-4)
    assert found.upper[0] == pytest.approx(alone[0].upper, rel=1e-3)


@dataclass(frozen=True)
class Fuzzy:
    """A mechanism between two others that are far apart, with a slack and a ratio that show."""

    slack: float
    ratio: float
    noise_multiplier: float = 5.0

    def below(self):
        parts = [(pa.Gaussian(6.0), 1), (pa.ApproximateDP(0.1, 1e-4), 1)]
        return Enclosure(parts, self.slack, self.ratio)

    def above(self):
        parts = [(pa.Gaussian(5.0), 2), (pa.ApproximateDP(0.1, 2e-4), 1)]
        return Enclosure(parts, self.slack, self.ratio)


@pytest.mark.parametrize(("slack", "ratio"), [(0.04, 0.0), (0.0, 1e-3), (0.03, 5e-4)])
def test_neither_end_is_nearer_than_the_composition_proves(slack, ratio):
    """An upper bound from tables that lies below the composition's own, or a lower bound above it, would be luck."""
    ledger = pa.MechanismLedger(20)
    ledger.record(Fuzzy(slack, ratio), np.arange(1, 21))
    ledger.record(pa.Laplace(9.0), np.arange(1, 21) % 3)
    alone = {person: ledger.composition(person) for person in (0, 15)}
    for question, values in (("epsilon", (0.2, 0.05)), ("delta", (0.0, 2.0))):
        for value in values:
            ends = {p: [getattr(run, question)(value, way) for way in ("remove", "add")] for p, run in alone.items()}
            for direction, ways in (("remove", slice(0, 1)), ("add", slice(1, 2)), ("both", slice(0, 2))):
                found = getattr(ledger, question)(value, direction)
                for person, both in ends.items():
                    lower, upper = max(one.lower for one in both[ways]), max(one.upper for one in both[ways])
                    assert found.upper[person] >= min(upper, 1e9) * (1 - 4e-4) or upper == np.inf
                    assert found.lower[person] <= lower * (1 + 4e-4)
                    assert found.upper[person] <= upper * (1 + 1e-2) + 1e-3
                    assert found.lower[person] >= lower * (1 - 1e-2) - 1e-3


def test_the_far_ends_are_infinite_or_unknown_where_slack_leaves_nothing():
    ledger = pa.MechanismLedger(20)
    ledger.record(Fuzzy(0.1, 0.0), np.arange(1, 21))
    found = ledger.epsilon(0.3)
    assert np.isfinite(found.upper[:9]).all() and np.isinf(found.upper[10:]).all() and not found.lower[10:].any()


def test_losses_that_underflow_still_count():
    """PureDP(1e-16) has losses of round-off, which many steps add up: delta(0) is at least their total variation."""
    steps = np.arange(1, 21) * 10**8
    ledger = pa.MechanismLedger(20)
    ledger.record(pa.PureDP(1e-16), steps)
    # sqrt(n) steps of a random walk of 1e-16, at least a quarter of it
    assert np.all(ledger.delta(0.0).upper >= 0.25e-16 * np.sqrt(steps))
    ledger.record(pa.PureDP(1e-12))
    assert np.all(ledger.delta(0.0).upper >= 0.25e-16 * np.sqrt(steps))
    both = pa.compose([(pa.Gaussian(1e10), 1), (pa.PureDP(1e-16), 2**52)]).delta(0.0)
    assert both.upper >= 0.25e-16 * 2**26
    assert np.all(ledger.epsilon(1e-12).upper >= 0.0)


def test_a_delta_just_above_the_chance_of_infinite_losses_has_a_finite_epsilon():
    steps = np.arange(280, 300)
    ledger = pa.MechanismLedger(20)
    ledger.record(pa.ApproximateDP(0.5, 0.1), steps)
    found = ledger.epsilon(1.0 - 1e-13)
    left = np.array([math.exp(n * math.log1p(-0.1)) for n in steps])
    assert np.all(found.lower[left > 1.0004e-13] < np.inf), "all losses are finite with more than this chance"


def test_disjoint_laws_share_tables_with_others():
    ledger = pa.MechanismLedger(20)
    ledger.record(pa.DiscretePair([1, 0], [0, 1]), np.arange(20) % 2)
    ledger.record(pa.Gaussian(3.0), np.arange(1, 21))
    found = ledger.epsilon(1e-3)
    assert np.array_equal(np.isinf(found.upper), np.arange(20) % 2 == 1) and found.certified.all()


def test_a_limit_of_time_holds_for_the_laws_too(monkeypatch):
    def out_of_time():
        raise deadline.OutOfTime

    ledger = pa.MechanismLedger(20)
    ledger.record_norms(pa.RandomAllocation(2.03, 8), np.linspace(0.1, 1.0, 20))
    with monkeypatch.context() as patched:
        patched.setattr("pld_accountant.mechanisms.lognormal_sums.deadline.check", out_of_time)
        found = ledger.epsilon(1e-6, seconds=60.0)
    assert np.isinf(found.upper).all() and not found.certified.any() and not found.lower.any()


def test_one_table_of_few_rows_is_composed_as_closely_as_compose():
    ledger = pa.MechanismLedger(5)
    ledger.record(pa.DiscreteGaussian(9.0), [0, 1, 2, 2, 2])
    ledger.record(pa.Laplace(4.0), [3, 3, 3, 0, 3])
    found = ledger.epsilon([1e-4, 1e-6])
    assert found.upper.shape == (2, 5) and np.all(found.width <= 1e-5 * found.upper)
    assert np.array_equal(found.upper[:, 2], found.upper[:, 4])
    assert found.upper[1, 3] == ledger.composition(3).epsilon(1e-6).upper


def test_renyi_boxes_are_composed_one_by_one():
    ledger = counted([pa.Gaussian(4.0)])
    ledger.record(pa.ZeroConcentratedDP(0.01), np.arange(MANY) < 2)
    found = ledger.epsilon(1e-6)
    assert np.flatnonzero(found.status).tolist() == [0, 1]
    assert found.upper[1] == ledger.composition(1).epsilon(1e-6).upper


def test_upper_bounds_alone_and_a_limit_of_time():
    ledger = counted(MIXES["discrete"])
    found, all_bounds = ledger.epsilon(1e-3, bounds="upper"), ledger.epsilon(1e-3)
    assert np.array_equal(found.upper, all_bounds.upper)
    assert np.isnan(found.lower).all() and np.isnan(found.estimate).all()
    hurried = counted(MIXES["epochs"]).epsilon(1e-3, seconds=1e-9)
    assert np.all(hurried.upper >= counted(MIXES["epochs"]).epsilon(1e-3).lower)


def test_nobody_and_nothing():
    ledger = pa.MechanismLedger(3)
    assert ledger.epsilon(1e-5).upper.tolist() == [0.0] * 3 and ledger.steps == 0
    ledger.record(pa.Gaussian(1.0), 0)
    ledger.record_norms(pa.Gaussian(1.0), np.zeros(3))
    assert ledger.delta(0.0).upper.tolist() == [0.0] * 3 and ledger.delta(0.0).certified.all()


# ---------------------------------------------------------------------------------------------------- edges of norms


@pytest.mark.parametrize("max_norm", [1.0, 0.1, 7.3])
@pytest.mark.parametrize("buckets", [3, 10, 49, 64])
def test_a_norm_lies_between_the_edges_at_which_it_is_counted(max_norm, buckets):
    ledger = pa.MechanismLedger(6 * buckets, buckets=buckets)
    edges = np.array([float(Fraction(max_norm) * k / buckets) for k in range(1, buckets + 1)])
    norms = np.concatenate(
        [edges, np.nextafter(edges, 0.0), np.nextafter(edges, np.inf), 1.3 * edges, 0.2 * edges, 0.0 * edges]
    )
    ledger.record_norms(pa.Gaussian(2.0), norms, max_norm=max_norm, times=3)
    seen = np.zeros(norms.size, dtype=bool)
    for (upper, lower), numbers in ledger._counts.items():
        for person in np.flatnonzero(numbers):
            own = min(Fraction(norms[person]), Fraction(max_norm)) / Fraction(max_norm)
            assert Fraction(2.0) / Fraction(upper.noise_multiplier) >= own
            assert lower is None or Fraction(2.0) / Fraction(lower.noise_multiplier) <= own
            assert not seen[person] and numbers[person] == 3
            seen[person] = True
    assert np.array_equal(seen, norms > 0.0)


def test_norms_have_bounds_around_their_closed_form_and_clipped_ones_are_exact(monkeypatch):
    composed_alone(monkeypatch)
    rng = np.random.default_rng(1)
    ledger, square = pa.MechanismLedger(200), np.zeros(200)
    for _ in range(5):
        norms = rng.uniform(0.0, 3.0, 200)
        norms[0] = 9.0
        ledger.record_norms(pa.Gaussian(2.0), norms, max_norm=2.5, times=4)
        square += 4 * (np.minimum(norms / 2.5, 1.0) / 2.0) ** 2
    exact = np.array([gdp.epsilon(1e-6, m) for m in np.sqrt(square)])
    found = ledger.epsilon(1e-6)
    assert np.all(found.lower <= exact) and np.all(exact <= found.upper)
    worst = ledger.worst_case().epsilon(1e-6)
    assert np.all(found.width <= 0.022 * worst.upper) and found.upper[0] <= worst.upper * (1 + 1e-4)
    assert found.width[0] <= 1e-4 * worst.upper


SCALABLE = [
    pa.Gaussian(1.5),
    pa.SampledGaussian(1.5, 0.1),
    pa.Laplace(1.5),
    pa.RandomAllocation(1.5, 10, 2),
    pa.TruncatedPoisson(1.5, 0.2, 25, 100),
]


@pytest.mark.parametrize("step", SCALABLE, ids=lambda s: type(s).__name__)
def test_a_smaller_contribution_has_a_smaller_loss(step):
    assert isinstance(step, ScalableMechanism) and step.scaled(1.0) == step
    epsilons = [pa.compose([(step.scaled(share), 3)]).epsilon(1e-4).upper for share in (1.0, 0.7, 0.3, 0.05)]
    assert sorted(epsilons, reverse=True) == epsilons and epsilons[-1] < 0.6 * epsilons[0]
    for bad in (-0.1, 1.1, math.nan, "x"):
        with pytest.raises(ValueError, match="share must"):
            step.scaled(bad)


def test_no_contribution_costs_nothing_but_where_a_record_displaces_others():
    assert [step.scaled(0.0) for step in SCALABLE[:4]] == [None] * 4
    displaces = SCALABLE[4].scaled(0.0)
    assert pa.compose([(displaces, 1)]).delta(0.1).upper > 0.0
    ledger = pa.MechanismLedger(2)
    ledger.record_norms(SCALABLE[4], [0.0, 1.0])
    assert 0.0 < ledger.epsilon(1e-4).upper[0] < ledger.epsilon(1e-4).upper[1]


@pytest.mark.parametrize("noise", [1.0, 0.3, 7.1])
@pytest.mark.parametrize("share", [1.0, 0.5, 1 / 3, 0.7])
def test_noise_of_a_share_is_rounded_down(noise, share):
    found = Fraction(noise_of_share(noise, share))
    exact = Fraction(noise) / Fraction(share)
    assert found <= exact and float(found) >= float(exact) * (1 - 2.0**-52)


# ------------------------------------------------------------------------------------------------------- the account


def test_the_worst_case_took_everything_as_often_as_anybody():
    ledger = pa.MechanismLedger(3)
    ledger.record(pa.compose([(pa.Gaussian(4.0), 2), (pa.Laplace(9.0), 1)]), [1, 0, 2])
    ledger.record_norms(pa.Gaussian(8.0), [0.1, 0.2, 0.3], times=[5, 1, 1])
    worst = pa.compose([(pa.Gaussian(4.0), 4), (pa.Laplace(9.0), 2), (pa.Gaussian(8.0), 5)])
    assert ledger.worst_case() == worst and ledger.steps == 11
    assert np.all(ledger.epsilon(1e-5).upper <= worst.epsilon(1e-5).upper)
    assert list(ledger.composition(1).counts.values()) == [1]
    assert "fixed or capped beforehand" in ledger.guarantee.sentence and not ledger.guarantee.proven_adaptive


def test_a_plan_is_the_worst_case_and_no_count_of_people():
    ledger = pa.MechanismLedger(3)
    ledger.record(pa.Gaussian(4.0), 2)
    ledger.record_norms(pa.Gaussian(8.0), [0.1, 0.2, 0.3])
    assert not ledger.schedule_from_events
    ledger.record(pa.Laplace(9.0), [1, 0, 2], planned=5)
    ledger.record_norms(pa.Laplace(7.0), [1.0, 0.0, 2.0], times=np.array([False, False, False]))
    assert not ledger.schedule_from_events
    planned = pa.compose([(pa.Gaussian(4.0), 2), (pa.Gaussian(8.0), 1), (pa.Laplace(9.0), 5), (pa.Laplace(7.0), 1)])
    assert ledger.worst_case() == planned and ledger.steps == 9
    assert ledger.schedule[-2:] == (("Laplace(noise_multiplier=9.0)", 5), ("Laplace(noise_multiplier=7.0)", 1))
    with pytest.raises(ValueError, match="planned must be a whole number of at least 2"):
        ledger.record(pa.Laplace(9.0), [1, 0, 2], planned=1)
    assert ledger.worst_case() == planned and not ledger.schedule_from_events
    ledger.record_norms(pa.Gaussian(8.0), [0.1, 0.2, 0.3], times=[1, 1, 1])
    assert ledger.schedule_from_events
    other = pa.MechanismLedger(3)
    other.record(pa.Laplace(9.0), [1, 0, 2])
    other.record(pa.Laplace(9.0), 3)
    assert other.schedule_from_events


@pytest.mark.parametrize("names", [["ann", "bob", "cy"], [7, 3, 5]])
def test_ids_of_people_are_kept(tmp_path, names):
    ledger = pa.MechanismLedger(3)
    assert ledger.people.tolist() == [0, 1, 2]
    ledger.record(pa.Gaussian(4.0), [1, 2, 3], planned=9)
    ledger.people = names
    ledger.save(tmp_path / "named.npz")
    again = pa.MechanismLedger.load(tmp_path / "named.npz")
    assert again.people.tolist() == copy.copy(ledger).people.tolist() == names
    assert again.steps == 9 and not again.schedule_from_events
    for wrong in (["a", "b"], ["a", "a", "b"]):
        with pytest.raises(ValueError, match="people must be"):
            ledger.people = wrong


@pytest.mark.parametrize("question, at", [("epsilon", 1e-5), ("delta", 0.1)])
def test_nobody_exceeds_the_worst_case(monkeypatch, question, at):
    """Tables of a grid are looser than the composition of one person."""
    ledger = counted([pa.Laplace(20.0)])
    worst = getattr(ledger.worst_case(), question)(at).upper
    before, found = getattr(ManyCompositions, question), getattr(ledger, question)(at)
    assert found.upper.max() <= worst and found.certified.all()

    def looser(self, value, direction):
        one = before(self, value, direction)
        upper = np.append(np.maximum(one.upper[:-1], 2.0 * worst), np.inf)
        status = np.append(one.status[:-1], np.uint8(pa.Status.NOT_CERTIFIED))
        return pa.Bounds(one.lower, one.estimate, upper, status, one.method)

    monkeypatch.setattr(ManyCompositions, question, looser)
    monkeypatch.setattr("pld_accountant.composition.counted_rows.CountedRows._alone", lambda *_: _nothing())
    found = getattr(ledger, question)(at)
    assert np.all(found.upper == worst) and np.all(found.lower <= worst)
    assert found.status[-2:].tolist() == [pa.Status.CERTIFIED, pa.Status.RENYI_ONLY]


def _nothing():
    return pa.Bounds(0.0, np.nan, np.inf, pa.Status.NOT_CERTIFIED, pa.Method.NONE)


def test_renyi_bounds_are_those_of_the_compositions():
    ledger = counted([pa.Gaussian(9.0), pa.DiscreteGaussian(20), pa.PureDP(0.1)], people=12)
    found = ledger.rdp_epsilon(1e-6)
    alone = np.array([ledger.composition(k).rdp_epsilon(1e-6) for k in range(12)])
    assert np.all(found >= alone * (1.0 - 1e-12)) and np.all(found <= 1.02 * alone)
    assert np.all(found >= ledger.epsilon(1e-6).lower) and found.max() <= ledger.worst_case().rdp_epsilon(1e-6)
    ledger.record(pa.RandomAllocation(1.0, 10), np.arange(12) == 3)
    found = ledger.rdp_epsilon(1e-6)
    assert np.isinf(found[3]) and np.all(np.isfinite(np.delete(found, 3)))
    nobody = pa.MechanismLedger(2)
    nobody.record(pa.Gaussian(1.0), [0, 1])
    assert nobody.rdp_epsilon(1e-6)[0] == 0.0 == pa.MechanismLedger(2).rdp_epsilon(1e-6).max()


def test_progress_is_told_to_the_end():
    ledger, told = counted([pa.Gaussian(4.0), pa.Laplace(9.0)]), []
    ledger.epsilon([1e-5, 1e-6], progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {2 * MANY} and told[-1] == (2 * MANY, 2 * MANY)
    assert told == sorted(told) and len(told) > 3


def test_steps_that_are_recorded_after_a_question_count():
    ledger = counted([pa.Gaussian(4.0)])
    before = ledger.epsilon(1e-5).upper
    ledger.record(pa.Gaussian(4.0))
    assert np.all(ledger.epsilon(1e-5).upper > before)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_copies_are_independent(copied):
    ledger = counted(MIXES["discrete"])
    before = ledger.epsilon(1e-3).upper
    other = copied(ledger)
    other.record(pa.Gaussian(1.0))
    assert np.array_equal(ledger.epsilon(1e-3).upper, before) and np.all(other.epsilon(1e-3).upper > before)


def test_a_file_keeps_everything(tmp_path):
    ledger = pa.MechanismLedger(5, buckets=8)
    ledger.record(pa.PoissonSampled(pa.Laplace(3.0), 0.1), [0, 1, 2, 3, 4])
    ledger.record_norms(pa.TruncatedPoisson(1.0, 0.1, 30, 100), [0.0, 0.3, 0.5, 1.0, 9.0], times=[1, 2, 3, 4, 5])
    ledger.save(tmp_path / "mechanisms.npz")
    other = pa.MechanismLedger.load(tmp_path / "mechanisms.npz")
    assert other.worst_case() == ledger.worst_case() and other.parameters == {"num_examples": 5, "buckets": 8}
    assert np.array_equal(other.epsilon(1e-5).upper, ledger.epsilon(1e-5).upper)
    assert np.array_equal(other.epsilon(1e-5).lower, ledger.epsilon(1e-5).lower)
    other.record(pa.Gaussian(1.0))
    assert other.load(tmp_path / "mechanisms.npz").steps == ledger.steps
    pa.MechanismLedger(3).save(tmp_path / "empty.npz")
    assert pa.MechanismLedger.load(tmp_path / "empty.npz").steps == 0
    with pytest.raises(StoreError, match="not a GaussianFilter"):
        pa.GaussianFilter.load(tmp_path / "empty.npz")


def test_what_has_no_text_is_not_saved(tmp_path):
    ledger = pa.MechanismLedger(2)
    ledger.record(pa.DiscretePair([0.5, 0.5], [0.4, 0.6]))
    with pytest.raises(ValueError, match="no text from which it could be made again"):
        ledger.save(tmp_path / "own.npz")
    assert not list(tmp_path.iterdir())


BAD = {
    "a number": lambda b: b.record(2.0),
    "a class": lambda b: b.record(pa.Gaussian),
    "too few times": lambda b: b.record(pa.Gaussian(1.0), [1, 2]),
    "a negative time": lambda b: b.record(pa.Gaussian(1.0), [1, 2, -1]),
    "half a time": lambda b: b.record(pa.Gaussian(1.0), 0.5),
    "a time that is none": lambda b: b.record(pa.Gaussian(1.0), [1.0, np.nan, 1.0]),
    "a text": lambda b: b.record(pa.Gaussian(1.0), "3"),
    "a mechanism without scale": lambda b: b.record_norms(pa.FixedSizeBatch(1.0, 2, 9), [0.1, 0.2, 0.3]),
    "a norm that is none": lambda b: b.record_norms(pa.Gaussian(1.0), [0.1, np.nan, 0.3]),
    "an infinite norm": lambda b: b.record_norms(pa.Gaussian(1.0), [0.1, np.inf, 0.3]),
    "a negative norm": lambda b: b.record_norms(pa.Gaussian(1.0), [0.1, -0.2, 0.3]),
    "a table of norms": lambda b: b.record_norms(pa.Gaussian(1.0), [[0.1, 0.2, 0.3]]),
    "a clipping norm of 0": lambda b: b.record_norms(pa.Gaussian(1.0), [0.1, 0.2, 0.3], max_norm=0.0),
    "masked times": lambda b: b.record(pa.Gaussian(1.0), np.ma.array([1, 2, 3], mask=[0, 1, 0])),
    "noise out of range for somebody": lambda b: b.record_norms(
        pa.RandomAllocation(1.5e12 / 64, 5), [2 / 64, 1 / 64, 0.0]
    ),
    "too many steps": lambda b: b.record(pa.compose([(pa.Gaussian(1.0), 2**40)]), 2**20),
    "noise out of range": lambda b: b.record_norms(pa.RandomAllocation(1e12, 5), [0.1, 0.2, 0.3]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_and_nothing_is_counted(case):
    ledger = pa.MechanismLedger(3)
    ledger.record(pa.Laplace(9.0), [0, 1, 2])
    before = ledger.epsilon(1e-5).upper
    with pytest.raises(ValueError, match=r"must|no version|at most"):
        BAD[case](ledger)
    assert np.array_equal(ledger.epsilon(1e-5).upper, before) and ledger.steps == 2


def test_bad_questions_are_told():
    ledger = pa.MechanismLedger(2)
    for ask in (
        lambda: ledger.epsilon(0.0),
        lambda: ledger.epsilon(1e-5, "up"),
        lambda: ledger.epsilon(1e-5, bounds="lower"),
        lambda: ledger.epsilon([]),
        lambda: ledger.delta(-1.0),
        lambda: ledger.composition(2),
        lambda: pa.MechanismLedger(0),
        lambda: pa.MechanismLedger(2, buckets=1),
    ):
        with pytest.raises(ValueError, match="must"):
            ask()


def test_samples_of_two_relations_are_warned_about_if_a_person_has_both():
    ledger = pa.MechanismLedger(3)
    ledger.record(pa.SampledGaussian(1.0, 0.1), [1, 0, 0])
    ledger.record(pa.FixedSizeBatch(1.0, 10, 100), [0, 1, 0])
    ledger.record(pa.Gaussian(2.0))
    found = ledger.epsilon(1e-5)
    for person in range(3):
        assert found.upper[person] >= ledger.composition(person).epsilon(1e-5).lower
    with pytest.warns(UserWarning, match="holds for neither"):
        ledger.record(pa.FixedSizeBatch(1.0, 10, 100), [1, 0, 0])
    with pytest.warns(UserWarning, match="holds for neither"):
        ledger.worst_case()


def test_lists_of_steps_are_recorded():
    tree, ledger = pa.TreeAggregation(2.0, 8), pa.MechanismLedger(2)
    ledger.record(tree, [1, 0])
    assert ledger.composition(0) == pa.compose(tree) and ledger.epsilon(1e-5).upper[1] == 0.0


@pytest.mark.parametrize("step", [pa.TruncatedPoisson(1.0, 0.1, 5, 20), pa.FixedSizeBatch(1.0, 5, 20)])
def test_no_more_people_take_part_than_a_step_has_records(step):
    ledger, some = pa.MechanismLedger(30), np.arange(30) < 20
    ledger.record(step, some)
    with pytest.raises(ValueError, match="has 20 records, and 30 people took part"):
        ledger.record(step)
    if isinstance(step, pa.TruncatedPoisson):
        ledger.record_norms(step, np.ones(30), times=some)
        with pytest.raises(ValueError, match="has 20 records, and 21 people took part"):
            ledger.record_norms(step, np.ones(30), times=np.arange(30) < 21)
    assert ledger.steps == (2 if isinstance(step, pa.TruncatedPoisson) else 1)


@pytest.mark.parametrize("larger, unknown", [("remove", False), ("add", False), ("remove", True), ("add", True)])
def test_the_larger_direction_counts_with_its_status(monkeypatch, larger, unknown):
    """Also where nothing is known of it."""
    ledger = counted([pa.SampledGaussian(1.0, 0.1)])
    least, most = (0.0, np.inf) if unknown else (1e-40, 0.25)

    def answer(self, value, direction):
        upper = np.full(MANY, most if direction == larger else 1e-40)
        own = pa.Status.CERTIFIED if direction == larger else pa.Status.RENYI_ONLY
        status = np.full(MANY, pa.Status.NOT_CERTIFIED if unknown and direction == larger else own, dtype=np.uint8)
        return pa.Bounds(np.zeros(MANY), upper, upper, status, np.zeros(MANY, dtype=np.uint8))

    monkeypatch.setattr(ManyCompositions, "delta", answer)
    monkeypatch.setattr("pld_accountant.composition.counted_rows.CountedRows._alone", lambda *_: _nothing())
    found = ledger.delta(0.5, bounds="upper")
    worst = ledger.worst_case().delta(0.5).upper
    assert np.all(found.upper == min(most, worst))
    assert np.all(found.status == (pa.Status.RENYI_ONLY if unknown else pa.Status.CERTIFIED))
    assert least < worst


# ------------------------------------------------------------------------------------- contributions of several sizes


def visits(k):
    """A count to which somebody contributes k."""
    return pa.DiscreteLaplace(0.05, sensitivity=k)


def test_contributions_are_recorded_as_mechanisms_of_their_own():
    people = np.array([1, 3, 2, 3, 0])
    ledger, one_by_one = pa.MechanismLedger(5), pa.MechanismLedger(5)
    ledger.record_contributions(visits, people, largest=20, times=[2, 1, 1, 0, 4], planned=4)
    for k in (1, 2, 3):
        one_by_one.record(visits(k), np.where(people == k, [2, 1, 1, 0, 4], 0))
    np.testing.assert_array_equal(ledger.epsilon(1e-6).upper, one_by_one.epsilon(1e-6).upper)
    assert ledger.worst_case() == pa.compose([(visits(20), 4)])
    assert not ledger.schedule_from_events


def test_the_worst_case_of_contributions_does_not_depend_on_them():
    """With one person more, whose contribution is the largest."""
    worst = []
    for people in ([1, 1, 1], [1, 1, 1, 20]):
        ledger = pa.MechanismLedger(len(people))
        ledger.record_contributions(visits, people, largest=20)
        worst.append(ledger.worst_case())
        assert ledger.epsilon(1e-6).upper.max() <= worst[-1].epsilon(1e-6).upper
    assert worst[0] == worst[1]


@pytest.mark.parametrize(
    ("make", "people", "largest", "words"),
    [
        (visits, [1, 21], 20, r"person 1 contributes 21.0, more than the largest, 20"),
        (visits, np.array([1.0, 0.3], np.float32), 0.3, r"person 0 contributes 1.0"),
        (
            visits,
            np.array([0.1, 0.3], np.float32),
            0.3,
            r"contributes 0.30000001\d+, more than the largest, 0.3",
        ),
        (visits, [1, -1], 20, "contributions must be 2 finite numbers of at least 0"),
        (visits, [1, np.nan], 20, "contributions must be 2 finite numbers"),
        (visits, [1], 20, "contributions must be 2 finite numbers"),
        (visits, [1, 2], 0, "largest must be a finite number above 0"),
        (pa.Laplace, [1, 2], 20, "make\\(20\\) must lose the most, but make\\(1\\) loses more"),
        (lambda k: k, [1, 2], 20, "mechanism must be one such as"),
    ],
)
def test_contributions_that_are_wrong_count_nothing(make, people, largest, words):
    ledger = pa.MechanismLedger(2)
    with pytest.raises(ValueError, match=words):
        ledger.record_contributions(make, people, largest=largest)
    assert ledger.steps == 0 and not ledger.epsilon(1e-6).upper.any()


def test_fractions_and_lists_of_steps_are_contributions_too():
    ledger = pa.MechanismLedger(3)
    ledger.record_contributions(lambda c: [(pa.Laplace(8.0 / c), 2), (pa.Gaussian(8.0 / c), 1)], [0.5, 0, 2], largest=2)
    exact = [pa.compose([(pa.Laplace(8.0 / c), 2), (pa.Gaussian(8.0 / c), 1)]).epsilon(1e-6).upper for c in (0.5, 2.0)]
    np.testing.assert_allclose(ledger.epsilon(1e-6).upper, [exact[0], 0.0, exact[1]], rtol=1e-9)


# ------------------------------------------------------------------------------------------ people who come and go


def day(names, *, planned=1, mechanism=None):
    """A ledger of one day, in which everybody with an even place took part."""
    ledger = pa.MechanismLedger(len(names))
    ledger.people = names
    ledger.record(mechanism or pa.RandomizedResponse(0.5), np.arange(len(names)) % 2 == 0, planned=planned)
    return ledger


def counts_of(ledger):
    """Everybody's number of steps, by id."""
    return {name: ledger.composition(name).steps for name in ledger.people.tolist()}


def test_days_are_merged_by_id_and_somebody_who_joins_is_added(tmp_path):
    first, second = day(["ann", "bob", "cat"]), day(["cat", "dan", "ann"], planned=3)
    first.merge(second)
    assert counts_of(first) == {"ann": 2, "bob": 0, "cat": 2, "dan": 0}
    assert first.worst_case() == pa.compose([(pa.RandomizedResponse(0.5), 4)])
    first.add_people(["eve"])
    assert counts_of(first)["eve"] == 0 and first.num_examples == 5
    first.record(pa.Laplace(3.0), [0, 0, 0, 0, 2])
    first.save(tmp_path / "days.npz")
    again = pa.MechanismLedger.load(tmp_path / "days.npz")
    assert counts_of(again) == counts_of(first) and counts_of(again)["eve"] == 2
    np.testing.assert_array_equal(again.epsilon(1e-6).upper, first.epsilon(1e-6).upper)
    some = first.select(["eve", "ann"])
    assert counts_of(some) == {"eve": 2, "ann": 2} and some.worst_case() == first.worst_case()
    np.testing.assert_array_equal(some.epsilon(1e-6).upper, first.epsilon(1e-6).upper[[4, 0]])
    assert first.num_examples == 5, "selecting changes nothing here"
    first.select(["bob"]).save(tmp_path / "nothing.npz")
    assert counts_of(pa.MechanismLedger.load(tmp_path / "nothing.npz")) == {"bob": 0}


def test_a_named_persons_composition_is_asked_by_id_even_if_the_id_could_be_a_place():
    ledger = pa.MechanismLedger(3)
    ledger.record(pa.Laplace(3.0), [1, 2, 3])
    assert ledger.composition(2).steps == 3
    ledger.people = [2, 0, 7]
    assert [ledger.composition(name).steps for name in (2, 0, 7)] == [1, 2, 3]
    with pytest.raises(ValueError, match="1 is not in this ledger"):
        ledger.composition(1)


def test_other_people_in_the_same_steps_are_planned_once():
    first, second = day(["ann", "bob"], planned=2), day(["cat", "dan"], planned=3)
    first.merge(second, same_steps=True)
    assert counts_of(first) == {"ann": 1, "bob": 0, "cat": 1, "dan": 0}
    assert first.worst_case().steps == 3
    with pytest.raises(ValueError, match="2 people are in both"):
        first.merge(second, same_steps=True)
    assert counts_of(first) == {"ann": 1, "bob": 0, "cat": 1, "dan": 0}


def test_parts_of_one_table_hold_no_more_people_than_batches_have_records():
    batches = pa.TruncatedPoisson(1.0, 0.1, 2, 4)
    parts = [day(list("abcd")[k : k + 2], mechanism=batches) for k in (0, 2)]
    parts[0].merge(parts[1], same_steps=True)
    assert counts_of(parts[0]) == {"a": 1, "b": 0, "c": 1, "d": 0}
    few = [day([name], mechanism=pa.TruncatedPoisson(1.0, 0.1, 2, 2)) for name in "abc"]
    few[0].merge(few[1], same_steps=True)
    with pytest.raises(ValueError, match="3 people took part in batches of 2 records"):
        few[0].merge(few[2], same_steps=True)
    assert counts_of(few[0]) == {"a": 1, "b": 1}


def test_ledgers_of_other_kinds_and_without_ids_are_not_merged():
    ledger = pa.MechanismLedger(2)
    with pytest.raises(ValueError, match="other must be a MechanismLedger"):
        ledger.merge(pa.LaplaceLedger(2, noise_multiplier=1.0, sample_rate=1.0, max_grad_norm=1.0))
    with pytest.raises(ValueError, match="same 2 people"):
        ledger.merge(pa.MechanismLedger(3))
    with pytest.raises(ValueError, match="one ledger has ids"):
        ledger.merge(day(["ann", "bob"]))
    other = pa.MechanismLedger(2, buckets=8)
    other.record(pa.Gaussian(2.0), [1, 3])
    ledger.merge(other)
    assert counts_of(ledger) == {0: 1, 1: 3} and ledger.schedule_from_events


def test_a_merge_of_different_relations_warns_if_somebody_has_both():
    def ledger(mechanism, times):
        found = pa.MechanismLedger(3)
        found.record(mechanism, times)
        return found

    sampled, batch = pa.SampledGaussian(1.0, 0.1), pa.FixedSizeBatch(2.0, 10, 100)
    both = ledger(sampled, [1, 1, 0])
    both.merge(ledger(batch, [0, 0, 4]))  # nobody has both
    with pytest.warns(UserWarning, match="holds for neither"):
        both.merge(ledger(batch, [0, 1, 0]))


def test_a_worst_case_that_loses_less_than_somebody_caps_nobody_who_proves_it():
    def make(k):
        return pa.Gaussian(2.0) if k < 5 else pa.PureDP(1.0)  # the advantages say that 5 loses more

    ledger = pa.MechanismLedger(2)
    ledger.record_contributions(make, [3, 5], largest=5)
    with pytest.warns(RuntimeWarning, match="no bound for 1 of 2 people"):
        found = ledger.epsilon(1e-6)
    exact = ledger.composition(0).epsilon(1e-6)
    assert found.lower[0] <= exact.upper and exact.lower <= found.upper[0]
    assert found.upper[1] <= 1.0
