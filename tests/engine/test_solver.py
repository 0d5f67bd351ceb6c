"""From counts to bounds: a method answers for every person, and the answer does not depend on the company."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import schedule, solver
from pld_accountant.engine.closed_forms import least_epsilon
from pld_accountant.engine.convolution import Convolution, ConvolvedLoss
from pld_accountant.engine.plancherel import solve
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.tilting import Limits
from pld_accountant.engine.transform import Transform
from pld_accountant.mechanisms.hockey_stick import epsilon_bounds
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.notions import gdp
from pld_accountant.results import Method, Status
from pld_accountant.tables.makers import TableMakers

TRANSFORMS = tuple(method for method in schedule.SINGLE if isinstance(method, Transform))
SIGMA = 2.0 / np.array([0.25, 0.5, 0.75, 1.0])
MAKERS = {d: TableMakers(SampledGaussianSteps(SIGMA, np.full(4, 0.02), d)) for d in ("remove", "add")}
COUNTS = np.random.default_rng(7).integers(0, 900, (30, 4)) + 1
MIXED = np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0, 40, 0, 40], [0, 0, 0, 1000], [0, 0, 0, 100]])
QUESTIONS = [EpsilonAt(1e-6), DeltaAt(0.5)]


def makers_of(sigma, q, direction):
    return TableMakers(SampledGaussianSteps(np.atleast_1d(sigma), np.atleast_1d(q), direction))


def answers(counts, makers, *questions, **more):
    return solver.bounds(WholeCounts(np.asarray(counts)), makers, questions, **more)


def answer(counts, makers, question, **more):
    (found,) = answers(counts, makers, question, **more)
    return found


def epsilon(counts, delta, direction="remove", **more):
    return answer(counts, MAKERS[direction], EpsilonAt(delta), **more)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-30, 1e-100])
def test_everybody_is_answered_and_narrowly(direction, delta):
    """At 1e-100 the first method loses its digits for some people; its result must not mislead the next methods."""
    found = epsilon(COUNTS, delta, direction)
    assert np.all(found.status == Status.CERTIFIED)
    assert np.all(found.lower <= found.estimate)
    assert np.all(found.estimate <= found.upper)
    assert np.all(found.upper - found.lower <= 1e-5 * found.upper)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_nobody_is_looser_than_renyi_accounting(direction):
    theta = 2.0 ** np.linspace(-4, 9, 200)
    k = COUNTS @ MAKERS[direction].steps.log_moments(theta)
    log_c = theta * np.log(theta) - (1.0 + theta) * np.log1p(theta)
    for delta in (1e-5, 1e-100):
        assert np.all(epsilon(COUNTS, delta, direction).upper <= ((k - np.log(delta) + log_c) / theta).min(axis=1))


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_no_step_one_step_and_many_in_one_call(direction):
    found = epsilon(MIXED, 1e-6, direction)
    assert np.all(found.status == Status.CERTIFIED)
    assert (found.lower[0], found.estimate[0], found.upper[0]) == (0.0, 0.0, 0.0)
    assert 0.0 < found.lower[1] < found.upper[2] < found.upper[4] < found.upper[3]
    alone = [epsilon(row[None], 1e-6, direction) for row in MIXED]
    for name in ("lower", "upper"):
        np.testing.assert_allclose([getattr(b, name)[0] for b in alone], getattr(found, name), rtol=1e-5)
    # the two sets of bounds contain the same number
    assert np.all([b.lower[0] <= u for b, u in zip(alone, found.upper, strict=True)])
    assert np.all([b.upper[0] >= v for b, v in zip(alone, found.lower, strict=True)])


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_delta_and_epsilon_agree(direction):
    found = epsilon(MIXED[1:], 1e-6, direction)
    for i, row in enumerate(MIXED[1:]):
        over, under = answers(row[None], MAKERS[direction], DeltaAt(found.upper[i]), DeltaAt(found.lower[i]))
        assert over.lower[0] <= 1e-6 * (1.0 + 1e-9)
        assert under.upper[0] >= 1e-6 * (1.0 - 1e-9)


def test_several_targets_equal_one_after_another():
    deltas = (1e-3, 1e-5, 1e-9)
    together = answers(COUNTS, MAKERS["remove"], *map(EpsilonAt, deltas))
    for delta, found in zip(deltas, together, strict=True):
        alone = epsilon(COUNTS, delta)
        np.testing.assert_allclose(found.upper, alone.upper, rtol=1e-8)
        np.testing.assert_allclose(found.lower, alone.lower, rtol=1e-8)


def test_beyond_additions_largest_loss_delta_is_zero():
    largest = -200.0 * np.log1p(-0.02)
    counts = np.array([[0, 100, 100, 0]])
    beyond, within = answers(counts, MAKERS["add"], DeltaAt(largest * (1.0 + 1e-9)), DeltaAt(0.1 * largest))
    assert beyond.upper[0] == 0.0
    assert within.lower[0] > 0.0
    assert epsilon(counts, 1e-300, "add").upper[0] <= largest * (1.0 + 1e-11)


def test_a_bucket_at_minus_one_costs_nothing():
    def below(counts):
        counts = WholeCounts(np.asarray(counts), at=np.array([-1, 0, 1, 2]))
        return solver.bounds(counts, MAKERS["remove"], [EpsilonAt(1e-6)])[0]

    found = below(MIXED)
    expected = epsilon(np.roll(MIXED, -1, axis=1) * np.array([1, 1, 1, 0]), 1e-6)
    np.testing.assert_allclose(found.upper, expected.upper, rtol=1e-6)
    only_free = below([[5, 0, 0, 0]])
    assert only_free.upper[0] == 0.0


def test_progress_counts_people_and_questions():
    done = []
    answers(MIXED, MAKERS["remove"], EpsilonAt(1e-5), EpsilonAt(1e-6), progress=done.append)
    assert sum(done) == 2 * len(MIXED)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_person_without_any_bound_gets_zero_infinity_and_a_status(monkeypatch, question):
    # an infinite log delta would still prove delta <= 1
    monkeypatch.setattr(solver, "renyi_bounds", lambda counts, *_: np.full(len(counts), np.nan))
    found = answer(MIXED, MAKERS["remove"], question, methods=())
    assert found.status.tolist() == [0, 0, *(Status.NOT_CERTIFIED,) * 3]
    assert found.method[2:].tolist() == [Method.NONE] * 3
    assert np.all(found.lower[2:] == 0.0)
    assert np.all(np.isnan(found.estimate[2:]))
    assert np.all(np.isinf(found.upper[2:]))
    assert np.isfinite(found.upper[:2]).all()


@pytest.mark.parametrize("methods", [(), (Transform(0.0, limits=Limits(frequencies=0)),)])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_person_whom_no_method_serves_gets_the_renyi_bound(question, methods):
    """No method, or one without a single frequency: Chernoff's bound from the log-moments is left, and 0."""
    exact = answer(MIXED, MAKERS["remove"], question)
    found = answer(MIXED, MAKERS["remove"], question, methods=methods)
    assert found.status.tolist() == [0, 0, *(Status.RENYI_ONLY,) * 3]
    assert found.method[2:].tolist() == [Method.RENYI] * 3
    assert found.certified.all()
    assert np.all(found.lower[2:] == 0.0)
    assert np.all(found.upper[2:] > exact.upper[2:])
    theta = np.geomspace(0.01, 3e3, 4000)
    k = MIXED @ MAKERS["remove"].steps.log_moments(theta)
    log_c = theta * np.log(theta) - (1.0 + theta) * np.log1p(theta)
    if question.wants_epsilon:
        best = ((k - np.log(1e-6) + log_c) / theta).min(axis=1)
    else:
        best = np.exp((k - theta * 0.5 + log_c).min(axis=1))
    assert np.all(best[2:] * (1.0 - 1e-9) <= found.upper[2:])
    # two tilts per octave: far out in the tail that alone can cost a factor of ten of delta
    assert np.all(found.upper[2:] <= best[2:] * (1.2 if question.wants_epsilon else 12.0))


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_person_is_told_which_method_proved_the_upper_bound(question):
    found = answer(MIXED, MAKERS["remove"], question)
    assert found.method.tolist() == [Method.CLOSED_FORM] * 2 + [Method.TRANSFORM] * 3
    assert np.all(found.status == Status.CERTIFIED)


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta", "method"),
    [
        (0.3, 1e-6, 1, 1e-10, Method.CLOSED_FORM),
        (0.3, 1e-6, 2, 1e-10, Method.CONTOUR),
        (2.46, 0.0004, 6, 1.9e-19, Method.CONTOUR),
        (1.245, 1.07e-6, 45, 9e-42, Method.CONVOLUTION),
        (2.0, 0.005, 10_000, 1e-5, Method.TRANSFORM),
        (1.51, 0.00048, 20_317, 1.1e-38, Method.RARE_LOSSES),
    ],
)
def test_each_kind_of_composition_has_its_method(sigma, q, steps, delta, method):
    found = answer([[steps]], makers_of(sigma, q, "remove"), EpsilonAt(delta))
    assert found.method[0] == method
    assert found.status[0] == Status.CERTIFIED
    assert found.lower[0] > 0.0


def test_a_full_batch_between_its_edges_beside_a_tiny_step_is_not_free():
    """Total variations add up over steps, but not over the fractions in which a full batch is counted."""
    ledger = pa.Ledger(1, noise_multiplier=0.3, sample_rate=1.0, max_grad_norm=1.0, buckets=4)
    ledger.record(np.array([0.97]))
    ledger.record(np.array([0.5]), sample_rate=1e-9)
    mu = 0.97 / 0.3
    delta = 0.997 * gdp.delta(0.0, mu)
    assert ledger.epsilon(delta, "remove").upper[0] >= gdp.epsilon(delta, mu) > 0.05


def test_addition_near_its_largest_loss_is_bounded_from_below_too():
    """delta(epsilon) >= P(no loss below l)^steps (1 - exp(epsilon - l)), against the closed form of one step."""
    steps, delta = SampledGaussianSteps([0.5], [0.01], "add"), 1e-12
    least = least_epsilon(WholeCounts(np.array([[1]])), steps, EpsilonAt(delta), np.array([0]))[0]
    exact = epsilon_bounds(np.array([delta]), steps.sigma, steps.q, "add")[1][0]
    assert 0.999 * exact < least <= exact


@pytest.mark.parametrize("steps, scale, delta", [(8, 0.844, 2.6e-7), (25, 0.35, 4e-15), (3, 20.0, 1e-9)])
def test_an_epsilon_near_the_largest_loss_needs_no_method(steps, scale, delta, monkeypatch):
    """The bounds agree with those of a direct convolution, and those of three steps with an integral."""
    step = pa.Laplace(scale)
    makers = TableMakers(step.steps([step], "remove"))
    counts, question = WholeCounts(np.array([[steps]])), EpsilonAt(delta)
    found = solver.bounds(counts, makers, [question], methods=())[0][0]
    assert found.status == Status.CERTIFIED
    assert 0.0 < found.upper - found.lower <= 1e-6 * found.upper
    monkeypatch.setattr(solver, "_NEAR_CAP", 0.0)
    slow = solver.bounds(counts, makers, [question], methods=(schedule.SINGLE[-1],))[0][0]
    assert max(found.lower, slow.lower) <= min(found.upper, slow.upper) * (1.0 + 1e-15)
    assert slow.lower != found.lower


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(
    ("sigma", "q", "steps"),
    [(0.2, 1e-6, 2), (0.7, 1e-6, 30), (0.3, 0.03, 3), (1.5, 0.3, 7)],
)
@pytest.mark.parametrize("delta", [1e-10, 1e-100])
def test_few_steps_are_certified_and_narrow(sigma, q, steps, direction, delta):
    found = answer([[steps]], makers_of(sigma, q, direction), EpsilonAt(delta))
    assert found.status[0] == Status.CERTIFIED
    assert found.lower[0] > 0.0
    assert found.upper[0] - found.lower[0] <= 1e-6 * found.upper[0]


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_a_giant_step_among_thousands_of_tiny_ones(direction):
    found = answer([[1, 10_000]], makers_of([0.3, 5.0], [1e-3, 1e-3], direction), EpsilonAt(1e-5))
    assert found.status[0] == Status.CERTIFIED
    assert found.upper[0] - found.lower[0] <= 1e-6 * found.upper[0]


@pytest.mark.parametrize("wants_epsilon", [True, False])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_direct_convolution_agrees_with_the_transform(direction, wants_epsilon):
    """Random steps of both kinds: the methods share nothing but the law of one step, and their intervals intersect."""
    rng = np.random.default_rng(11)
    both = 0
    for _ in range(5):
        sigma, q = np.exp(rng.uniform(np.log(0.5), np.log(10.0), 2)), np.exp(rng.uniform(np.log(1e-3), 0.0, 2))
        counts = np.array([rng.integers(1, 60, 2)])
        target = np.log(10.0) * -rng.uniform(3.0, 40.0) if wants_epsilon else rng.uniform(0.1, 0.5) / sigma.min()
        question = EpsilonAt(float(np.exp(target))) if wants_epsilon else DeltaAt(target)
        makers = makers_of(sigma, q, direction)
        found = answer(counts, makers, question, methods=TRANSFORMS[:2])
        lower, upper = ConvolvedLoss(makers.steps, counts[0]).bounds(question, 1e-3, 2e6)
        if not wants_epsilon:
            lower, upper = np.exp([lower, upper])
        both += bool(found.lower[0] > 0.0) and lower > 0.0
        assert lower <= found.upper[0]
        assert upper >= found.lower[0]
    assert both >= 3


def test_hundreds_of_people_with_few_steps_each():
    """They get the methods for many people: as narrow as a ledger's buckets need, around what each gets alone."""
    rng = np.random.default_rng(3)
    counts = rng.multinomial(1, np.ones(4) / 4, (300, 20)).cumsum(axis=1)[np.arange(300), rng.integers(1, 20, 300)]
    found = epsilon(counts, 1e-6)
    assert np.all(found.status == Status.CERTIFIED)
    assert np.all(found.upper - found.lower <= 1e-3 * found.upper.max())
    for person in range(0, 300, 30):
        alone = epsilon(counts[person : person + 1], 1e-6)
        assert alone.upper[0] - alone.lower[0] <= 1e-6 * alone.upper[0]
        assert found.lower[person] <= alone.upper[0]
        assert found.upper[person] >= alone.lower[0]


class Witness:
    """A maker that writes down which bands it is asked for and refuses the costly ones."""

    def __init__(self, maker, widest):
        self.maker, self.widest, self.asked = maker, widest, []
        self.size, self.whole, self.log_moments = maker.size, maker.whole, maker.log_moments
        self.composed = maker.composed

    def table(self, theta, period, width, needed, work):
        self.asked.append(round(2.0 * np.log2(width)))
        return self.maker.table(theta, period, width, needed, work) if width <= self.widest else None


def ask(widest, frequencies, error):
    """The widths, as powers of the root of 2, at which a rare step with little noise is asked for; and the answer."""
    maker = Witness(makers_of(0.3, 1e-4, "remove").characteristic(interpolated=False), widest)
    limits = Limits(error, frequencies=frequencies, work=1e10)
    found = solve(WholeCounts(np.array([[2000]])), maker, EpsilonAt(1e-8), limits=limits)
    return maker.asked, found


def test_the_band_goes_straight_to_where_the_envelope_promises_enough():
    asked, found = ask(np.inf, 1 << 15, 1e-6)
    assert len(asked) == 2
    assert asked[1] > asked[0] + 2
    assert found.upper[0] - found.lower[0] <= 1e-5 * found.upper[0]


def test_a_refused_band_is_followed_by_half_the_way():
    asked, found = ask(2.0**9, 1 << 15, 1e-6)
    first, wanted, *rest = asked
    assert wanted > 18
    assert rest[0] == (first + wanted) // 2
    assert max(w for w in asked if w <= 18) >= 17  # up to the widest that is made
    assert found.solved[0]  # with what that proves


def test_no_table_is_made_where_the_envelope_promises_nothing():
    asked, found = ask(np.inf, 1 << 10, 1e-6)
    assert len(asked) == 1
    assert found.upper[0] - found.lower[0] > 1e-2 * found.upper[0]


@pytest.mark.parametrize("steps", [10, 200])
def test_a_delta_below_every_double_is_not_looked_at_any_closer(monkeypatch, steps):
    def convolved(*_):
        raise AssertionError("convolved directly")

    monkeypatch.setattr(Convolution, "improve", convolved)
    found = answer([[0, 0, 0, steps]], MAKERS["remove"], DeltaAt(60.0))
    assert found.status[0] == Status.CERTIFIED
    assert found.method[0] == Method.RENYI
    assert found.lower[0] == 0.0
    assert found.upper[0] <= 5e-324


@pytest.mark.parametrize("wants_epsilon", [True, False])
def test_several_targets_together(wants_epsilon):
    """Targets close enough for one tilt, and others: each as if it had been asked alone."""
    rng = np.random.default_rng(12)
    ledger = pa.Ledger(24, noise_multiplier=2.0, sample_rate=0.01, max_grad_norm=1.0, buckets=16)
    for row in rng.lognormal(-1.0, 0.7, (8, 24)):
        ledger.record(row, repeat=100)
    values = [1e-12, 1e-3, 1e-5, 1e-6, 1e-30] if wants_epsilon else [1.0, 0.2, 0.25, 0.21]
    ask = ledger.epsilon if wants_epsilon else ledger.delta
    done = []
    together = ask(values, progress=lambda n, total: done.append((n, total)))
    for j, value in enumerate(values):
        alone = ask(value)
        room = 1e-3 if wants_epsilon else 2e-2
        # small deltas are a matter of the tilt
        well = wants_epsilon | (alone.upper > 1e-7)
        np.testing.assert_allclose(together.upper[j][well], alone.upper[well], rtol=room, atol=1e-300)
        # the lower bound's interpolated counts are made for the smallest delta
        assert np.all(together.lower[j] <= alone.upper * (1.0 + 1e-12))
        assert np.all(alone.lower <= together.upper[j] * (1.0 + 1e-12))
    assert done[-1][0] == done[-1][1]
    assert [n for n, _ in done] == sorted(n for n, _ in done)


@pytest.mark.parametrize("question", [EpsilonAt(1e-8), DeltaAt(1e-3)])
def test_answers_below_what_is_known_are_not_tightened(question, monkeypatch):
    """Of somebody whose other direction is larger: the Renyi bound, or one method, says enough."""
    counts, makers = (
        WholeCounts(np.array([[50]])),
        TableMakers(SampledGaussianSteps(np.array([0.8]), np.array([1e-3]), "add")),
    )
    full = solver.bounds(counts, makers, [question])[0]
    tried = []
    for method in schedule.SINGLE:
        improve = type(method).improve
        monkeypatch.setattr(
            type(method), "improve", lambda self, *given, own=improve: (tried.append(self), own(self, *given))
        )
    far = full.upper + 50.0 if question.wants_epsilon else full.upper * 1e20
    less = solver.bounds(counts, makers, [question], known=[far])[0]
    assert not tried
    assert less.upper[0] >= full.upper[0]
    more = solver.bounds(counts, makers, [question], known=[full.upper * 0.999])[0]
    assert tried
    assert more.upper[0] <= full.upper[0] * (1.0 + 1e-12)


@pytest.mark.parametrize("question", [EpsilonAt(1e-6), DeltaAt(0.5)])
def test_a_direction_below_the_other_is_left_alone_for_everybody(question, monkeypatch):
    """Of a ledger: the answers are those of both directions, and few people are asked about addition."""
    ledger = pa.Ledger(30, noise_multiplier=0.6, sample_rate=1e-3, max_grad_norm=1.0, buckets=32)
    for row in np.random.default_rng(2).uniform(0.2, 1.0, (3, 30)):
        ledger.record(row, repeat=20)
    ask = ledger.epsilon if question.wants_epsilon else ledger.delta
    value = float(np.exp(question.target)) if question.wants_epsilon else float(question.target)
    one, other = (ask(value, direction=d, bounds="upper").upper for d in ("remove", "add"))
    improve, asked = Transform.improve, []

    def counted(self, job, working, who):
        if job.makers.steps.direction == "add":
            asked.append(who.size)
        improve(self, job, working, who)

    monkeypatch.setattr(Transform, "improve", counted)
    both = ask(value, bounds="upper")
    np.testing.assert_allclose(both.upper, np.maximum(one, other), rtol=1e-7)  # fuller tables change the last digits
    assert np.mean(both.status == Status.CERTIFIED) >= 0.99
    assert sum(asked) < 30
