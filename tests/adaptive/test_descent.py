"""Noisy gradient descent with individual budgets, against a plain loop, and its stopping rules."""

import numpy as np
import pytest

from pld_accountant.adaptive.descent import descend
from pld_accountant.adaptive.stopping import ActiveCount, TrainingAccuracy
from pld_accountant.filters.gaussian import GaussianFilter, ZCDPFilter
from pld_accountant.filters.pld import PLDFilter
from pld_accountant.filters.potential import PotentialFilter
from pld_accountant.filters.pure_dp import PureDPFilter
from pld_accountant.filters.renyi import RenyiFilter

PEOPLE, SIGMA, CLIP = 30, 5.0, 1.5
RECORDS = np.random.default_rng(1).normal(size=(PEOPLE, 2)) * np.linspace(0.1, 4, PEOPLE)[:, None]


class Silent:
    """No noise, and everybody sampled."""

    def normal(self, mean, deviation, size=None):
        return 0.0 if size is None else np.zeros(size)

    def random(self, size):
        return np.zeros(size)


def gradient(parameters):
    return parameters - RECORDS


def filter_for(full_steps, kind=ZCDPFilter, **arguments):
    arguments = {"num_examples": PEOPLE, "noise_multiplier": SIGMA, "max_grad_norm": CLIP, **arguments}
    budget = full_steps / (2 * SIGMA**2)
    return kind(np.sqrt(2 * budget) if kind is GaussianFilter else budget, **arguments)


def test_a_filter_that_is_not_proven_needs_a_word():
    """Without one, the result would carry a guarantee that says that there is none, which nobody reads."""
    arguments = {"num_examples": PEOPLE, "noise_multiplier": 4.0, "sample_rate": 0.1, "max_grad_norm": CLIP}
    step = {"learning_rate": 0.1, "steps": 1, "rng": np.random.default_rng(0)}
    keep = PLDFilter(1.0, 1e-5, **arguments)
    with pytest.raises(ValueError, match="PLDFilter is not proven for adaptive runs"):
        descend(gradient, [0.0, 0.0], keep, **step)
    run = descend(gradient, [0.0, 0.0], keep, allow_unproven=True, **step)
    assert not run.guarantee.proven_adaptive


def plain(steps, norm_budget, rate, public):
    """Algorithm 3 as a loop over people, without noise."""
    theta = np.zeros(2)
    used = np.zeros(PEOPLE)
    for _ in range(steps):
        total = np.zeros(2)
        for i in range(PEOPLE):
            g = theta - RECORDS[i]
            norm = np.linalg.norm(g)
            bound = min(norm, CLIP, np.sqrt(max(norm_budget - used[i], 0)))
            total += g / norm * bound
            used[i] += bound**2
        theta = theta - rate / public * total
    return theta, used


@pytest.mark.parametrize("kind", [ZCDPFilter, GaussianFilter])
@pytest.mark.parametrize("steps", [1, 6, 40])
def test_a_plain_loop_agrees(kind, steps):
    f = filter_for(6.3, kind)
    run = descend(gradient, [0.0, 0.0], f, learning_rate=0.8, steps=steps, rng=Silent())
    theta, used = plain(steps, 6.3 * CLIP**2, 0.8, PEOPLE)
    np.testing.assert_allclose(run.parameters, theta, rtol=1e-7)
    assert (run.steps, run.stopped, run.readings) == (steps, False, [])
    share = used / (6.3 * CLIP**2)
    expected = f.mu * np.sqrt(share) if kind is GaussianFilter else f.rho * share
    np.testing.assert_allclose(f.spent(), expected, rtol=1e-7)


def test_the_last_step_spends_the_budget_exactly():
    f = filter_for(6.3)
    descend(gradient, [0.0, 0.0], f, learning_rate=0.8, steps=200, rng=Silent())
    spent_all = ~f.active
    assert 0 < spent_all.sum() < PEOPLE
    assert np.all(f.spent()[spent_all] == f.rho)


def test_everybody_has_the_promised_number_of_full_steps():
    f = filter_for(6.3)
    for step in range(6):
        assert np.all(f.headroom() == CLIP), step
        descend(gradient, [9.0, 9.0], f, learning_rate=0.0, steps=1, rng=Silent())
    assert np.all(f.headroom() < CLIP)


def test_noise_is_added_once_a_step_with_the_deviation_of_the_sum():
    f = filter_for(1e9)
    start = np.zeros(4000)
    run = descend(
        lambda p: (np.zeros(PEOPLE), lambda weights: np.zeros(4000)),
        start,
        f,
        learning_rate=2.0,
        steps=3,
        normaliser=50.0,
        rng=np.random.default_rng(2),
    )
    expected = 2.0 / 50.0 * SIGMA * CLIP * np.sqrt(3)
    assert np.std(run.parameters) == pytest.approx(expected, rel=0.04)


def test_the_normaliser_does_not_depend_on_who_is_present():
    f = filter_for(1.0)
    f.admit(np.where(np.arange(PEOPLE) < PEOPLE - 1, CLIP, 0.0))
    run = descend(lambda p: np.ones((PEOPLE, 1)), [0.0], f, learning_rate=1.0, steps=1, rng=Silent())
    assert run.parameters[0] == pytest.approx(-1 / PEOPLE)


def test_norms_and_a_weighted_sum_serve_as_well():
    def lean(parameters):
        rows = gradient(parameters)
        return np.linalg.norm(rows, axis=1), lambda weights: weights @ rows

    runs = [
        descend(g, [0.0, 0.0], filter_for(4.2), learning_rate=0.5, steps=20, rng=np.random.default_rng(3))
        for g in (gradient, lean)
    ]
    np.testing.assert_allclose(runs[0].parameters, runs[1].parameters, rtol=1e-6)


def test_poisson_sampling_takes_the_share_and_charges_everybody():
    def make():
        return RenyiFilter(5.0, 8, num_examples=PEOPLE, noise_multiplier=SIGMA, max_grad_norm=CLIP, sample_rate=0.25)

    class Sampling(Silent):
        def __init__(self):
            self.inner = np.random.default_rng(5)

        def random(self, size):
            return self.inner.random(size)

    f = make()
    run = descend(lambda p: np.ones((PEOPLE, 1)), [0.0], f, learning_rate=1.0, steps=400, rng=Sampling())
    assert run.parameters[0] == pytest.approx(-400, rel=0.05)
    assert np.unique(f.spent()).size == 1 and f.spent()[0] > 0
    alone = make()
    for _ in range(400):
        alone.admit(np.ones(PEOPLE))
    np.testing.assert_array_equal(alone.spent(), f.spent())


def test_one_budget_for_all_does_not_look_at_the_people():
    spent = []
    for scale in (0.01, 100.0):
        f = filter_for(3.5, individual=False)
        descend(lambda p, s=scale: s * (p - RECORDS), [0.0, 0.0], f, learning_rate=0.0, steps=3, rng=Silent())
        spent.append(f.spent()[0])
        descend(lambda p, s=scale: s * (p - RECORDS), [0.0, 0.0], f, learning_rate=0.0, steps=5, rng=Silent())
        assert f.spent()[0] == f.rho and f.halted
    assert spent[0] == spent[1] == pytest.approx(3 / (2 * SIGMA**2))


def test_learning_rate_may_be_a_schedule():
    f = filter_for(100)
    run = descend(
        lambda p: np.ones((PEOPLE, 1)),
        [0.0],
        f,
        learning_rate=lambda k: [1.0, 10.0][k],
        steps=2,
        rng=Silent(),
    )
    assert run.parameters[0] == pytest.approx(-11)


def test_the_journal_is_ahead_of_the_release(tmp_path):
    path = tmp_path / "journal"

    class Crash(Silent):
        def normal(self, mean, deviation, size=None):
            raise KeyboardInterrupt

    f = filter_for(4.0)
    with pytest.raises(KeyboardInterrupt):
        descend(gradient, [0.0, 0.0], f, learning_rate=1.0, steps=3, rng=Crash(), journal=path)
    assert ZCDPFilter.load(path).spent().min() > 0
    np.testing.assert_array_equal(ZCDPFilter.load(path).spent(), f.spent())


# Stopping rules


def test_the_count_of_active_people_stops_the_run_and_is_charged():
    f = filter_for(6.3)
    rule = ActiveCount(least=12, noise=2.0, every=3)
    run = descend(gradient, [0.0, 0.0], f, learning_rate=0.8, steps=300, stopping=[rule], rng=np.random.default_rng(0))
    assert run.stopped and run.steps % 3 == 0
    assert [r[0] for r in run.readings] == list(range(3, run.steps + 1, 3))
    assert run.readings[-1][2] < 12 <= min(r[2] for r in run.readings[:-1])
    assert np.all(f.spent() <= f.rho)


def test_a_question_costs_one_over_twice_the_noise_squared():
    f = filter_for(100)
    descend(
        lambda p: np.zeros((PEOPLE, 2)),
        [0.0, 0.0],
        f,
        learning_rate=1.0,
        steps=4,
        stopping=[ActiveCount(least=1, noise=7.0, every=2)],
        rng=Silent(),
    )
    np.testing.assert_allclose(f.spent(), 2 / (2 * 7.0**2), rtol=1e-12)


def test_people_count_for_what_they_can_still_pay():
    f = filter_for(1.0, num_examples=PEOPLE)
    f.admit(np.full(PEOPLE, CLIP * np.sqrt(0.75)))
    rule = ActiveCount(least=1, noise=SIGMA)
    run = descend(
        lambda p: np.zeros((PEOPLE, 1)),
        [0.0],
        f,
        learning_rate=1.0,
        steps=2,
        stopping=[rule],
        rng=Silent(),
    )
    # A quarter is left, and a whole vote at this noise would cost all: half a vote each, and then none.
    assert [r[2] for r in run.readings] == pytest.approx([PEOPLE / 2, 0])
    assert run.stopped and not f.active.any()


def test_accuracy_by_noisy_questions():
    asked = []

    def correct(parameters):
        asked.append(parameters.copy())
        return np.arange(PEOPLE) < 5 * len(asked)

    f = filter_for(1000)
    rule = TrainingAccuracy(correct, noise=50.0, every=2, target=20)
    run = descend(gradient, [0.0, 0.0], f, learning_rate=0.1, steps=50, stopping=[rule], rng=Silent())
    assert run.stopped and run.steps == 8
    assert [r[2] for r in run.readings] == [5, 10, 15, 20]
    rows = np.abs(f.spent() - f.spent()[-1]) > 0
    assert rows.any(), "only those counted are charged for a question"
    flat = TrainingAccuracy(lambda p: np.ones(PEOPLE), noise=50.0, patience=3)
    run = descend(gradient, [0.0, 0.0], filter_for(1000), learning_rate=0.1, steps=50, stopping=[flat], rng=Silent())
    assert run.steps == 4


def test_a_sampled_run_asks_everybody():
    f = RenyiFilter(0.5, 8, num_examples=PEOPLE, noise_multiplier=SIGMA, max_grad_norm=CLIP, sample_rate=0.25)
    rule = ActiveCount(least=1, noise=20.0)
    descend(lambda p: np.zeros((PEOPLE, 1)), [0.0], f, learning_rate=1.0, steps=1, stopping=[rule], rng=Silent())
    np.testing.assert_allclose(f.spent(), 8 / (2 * 20.0**2), rtol=1e-12)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("max_grad_norm", lambda f: descend(gradient, [0, 0], filter_for(1, max_grad_norm=None), **ARGS)),
        ("start", lambda f: descend(gradient, [[0.0]], f, **ARGS)),
        ("start", lambda f: descend(gradient, [np.nan, 0], f, **ARGS)),
        ("gradients", lambda f: descend(lambda p: np.zeros((PEOPLE, 3)), [0, 0], f, **ARGS)),
        ("gradients", lambda f: descend(lambda p: np.full((PEOPLE, 2), np.nan), [0, 0], f, **ARGS)),
        ("norms", lambda f: descend(lambda p: (np.full(PEOPLE, np.inf), sum), [0, 0], f, **ARGS)),
        ("norms", lambda f: descend(lambda p: (np.full(PEOPLE, -1.0), sum), [0, 0], f, **ARGS)),
        ("steps", lambda f: descend(gradient, [0, 0], f, learning_rate=1.0, steps=-1)),
        ("normaliser", lambda f: descend(gradient, [0, 0], f, normaliser=0.0, **ARGS)),
        ("learning_rate", lambda f: descend(gradient, [0, 0], f, learning_rate=lambda step: np.nan, steps=1)),
        ("filter must be one of noisy", lambda f: descend(gradient, [0, 0], PureDPFilter(1.0, num_examples=3), **ARGS)),
        ("target or patience", lambda f: TrainingAccuracy(lambda p: p, 1.0)),
        ("noise", lambda f: ActiveCount(1, noise=np.nan)),
        (
            "correct",
            lambda f: descend(gradient, [0, 0], f, stopping=[TrainingAccuracy(lambda p: p, 1.0, target=1)], **ARGS),
        ),
    ],
)
def test_bad_arguments_are_refused(message, call):
    with pytest.raises(ValueError, match=message):
        call(filter_for(5))


ARGS = {"learning_rate": 1.0, "steps": 2}


def test_a_rule_that_the_filter_cannot_book_is_refused_before_the_first_step():
    kept = PotentialFilter(
        1.1, 1e-5, num_examples=PEOPLE, noise_multiplier=2.0, sample_rate=0.03, max_grad_norm=1.0, alpha=7.0
    )
    asked = []
    with pytest.raises(ValueError, match="sample_rate must be at most"):
        descend(asked.append, [0.0, 0.0], kept, learning_rate=1.0, steps=3, stopping=[ActiveCount(1, 20.0)])
    assert not asked and not kept.spent().any()


def test_a_rule_forgets_the_readings_of_earlier_runs():
    rule = TrainingAccuracy(lambda parameters: np.ones(PEOPLE), noise=1e-3, patience=2)
    stops = []
    for _ in range(2):
        kept = filter_for(1e9)
        rng = np.random.default_rng(0)
        run = descend(gradient, [0.0, 0.0], kept, learning_rate=0.0, steps=9, stopping=[rule], rng=rng)
        stops.append(run.steps)
    assert stops[0] == stops[1] > 1
