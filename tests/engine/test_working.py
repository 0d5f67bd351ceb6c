"""The best bounds so far: whatever is merged, copied or capped, a proven bound is never loosened."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.working import WorkingBounds
from pld_accountant.results import Method, Status

QUESTION = {True: EpsilonAt(1e-5), False: DeltaAt(1.0)}
METHODS = [Method.CLOSED_FORM, Method.TRANSFORM, Method.RARE_LOSSES, Method.CONVOLUTION, Method.RENYI]


@st.composite
def interval(draw, wants_epsilon):
    """Bounds around the true answer, which is 1 for epsilon and -1 for log delta; or nothing at all."""
    if not draw(st.booleans()):
        return None
    truth = 1.0 if wants_epsilon else -1.0
    below = draw(st.sampled_from([0.0, 1e-9, 0.5, 1.0, np.inf]))
    above = draw(st.sampled_from([0.0, 1e-9, 0.5, 1.0, 7.0]))
    lower = max(truth - below, 0.0) if wants_epsilon else truth - below
    return lower, draw(st.sampled_from([np.nan, truth])), truth + above, draw(st.sampled_from(METHODS))


def working_of(intervals, wants_epsilon):
    made = WorkingBounds.unknown(len(intervals), QUESTION[wants_epsilon])
    for person, some in enumerate(intervals):
        if some is not None:
            made.settle(np.array([person]), *some)
    return made


def copy_of(made):
    return copy.deepcopy(made)


ARRAYS = [name for name in vars(working_of([], True)) if name != "slack"]


def some_of(made, who):
    return WorkingBounds(**{name: getattr(made, name)[who] for name in ARRAYS}, slack=made.slack)


@st.composite
def pair(draw):
    wants_epsilon = draw(st.booleans())
    people = draw(st.integers(1, 5))
    one, two = (draw(st.lists(interval(wants_epsilon), min_size=people, max_size=people)) for _ in range(2))
    return working_of(one, wants_epsilon), working_of(two, wants_epsilon), QUESTION[wants_epsilon]


def truth_of(question):
    return 1.0 if question.wants_epsilon else -1.0


def assert_holds(made, question):
    solved = made.solved
    assert np.all((made.lower <= truth_of(question))[solved])
    assert np.all((made.upper >= truth_of(question))[solved])
    assert np.all(np.isinf(made.upper[~solved]))


@given(pair())
def test_merging_never_loosens_and_keeps_the_tighter_of_both(both):
    made, found, question = both
    before, who = copy_of(made), np.arange(made.solved.size)
    made.merge(who, found)
    assert np.all(made.lower >= before.lower)
    assert np.all(made.upper <= before.upper)
    assert np.all(made.solved == (before.solved | found.solved))
    at = found.solved
    assert np.all(made.upper[at] == np.minimum(before.upper, found.upper)[at])
    assert np.all(made.lower[at] == np.maximum(before.lower, found.lower)[at])
    # the method is that of the upper bound
    for person in np.flatnonzero(made.solved):
        source = found if found.solved[person] and found.upper[person] < before.upper[person] else before
        assert made.method[person] == source.method[person]
    assert_holds(made, question)


@given(pair())
def test_merging_some_people_leaves_the_others_as_they_are(both):
    made, found, _ = both
    before, who = copy_of(made), np.arange(0, made.solved.size, 2)
    made.merge(who, some_of(found, who))
    rest = np.setdiff1d(np.arange(made.solved.size), who)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(made, name)[rest], getattr(before, name)[rest])


@given(pair(), st.booleans())
def test_taking_a_side_never_loosens_that_side(both, lower):
    made, found, _ = both
    before = copy_of(made)
    made.take_side(np.arange(made.solved.size), found, lower=lower)
    kept = before.solved
    if lower:
        assert np.all(made.lower >= before.lower)
        assert np.all(made.lower[kept] == np.maximum(before.lower, np.where(found.solved, found.lower, -np.inf))[kept])
    else:
        assert np.all(made.upper <= before.upper)
        assert np.all(made.upper[kept] == np.minimum(before.upper, found.upper)[kept])
    assert np.all(made.solved == (before.solved | found.solved))


@given(pair(), st.lists(st.sampled_from([1.0, 1.25, 3.0, np.inf, np.nan]), min_size=5, max_size=5))
def test_capping_never_loosens_and_keeps_the_lower_bound(both, more):
    made, _, question = both
    before, who = copy_of(made), np.arange(made.solved.size)
    most = truth_of(question) * np.array(more)[who] ** (1.0 if question.wants_epsilon else -1.0)
    made.cap(who, most, Method.RENYI)
    assert np.all(made.upper <= before.upper)
    assert np.all(made.lower == before.lower)
    better = np.isfinite(most) & (most < before.upper)
    assert np.all(made.upper[better] == most[better])
    assert np.all(made.method == np.where(better, Method.RENYI, before.method))
    assert_holds(made, question)


@given(pair())
def test_the_answer_is_ordered_and_its_status_says_what_is_known(both):
    made, _, question = both
    answer = made.answer(question)
    assert np.all(answer.lower <= answer.upper)
    inside = (answer.lower <= answer.estimate) & (answer.estimate <= answer.upper)
    assert np.all(inside | ~made.solved)
    assert np.all((answer.status == Status.NOT_CERTIFIED) == ~made.solved)
    assert np.all((answer.method == Method.NONE) == ~made.solved)
    alone = made.solved & (made.lower == question.floor) & (made.lower < made.upper)
    assert np.all((answer.status == Status.RENYI_ONLY) == (alone & (made.method == Method.RENYI)))


@pytest.mark.parametrize("name", ["lower", "upper"])
def test_the_estimate_is_that_of_the_narrower_interval(name):
    made, found = (working_of([(0.5, 0.9, 2.0, Method.RENYI)], True), working_of([(0.9, 1.1, 1.2, Method.GRID)], True))
    made.merge(np.array([0]), found)
    assert made.estimate[0] == 1.1
    made.merge(np.array([0]), working_of([(0.0, 5.0, 9.0, Method.GRID)], True))
    assert made.estimate[0] == 1.1
    assert getattr(made, name)[0] == getattr(found, name)[0]


def test_methods_that_contradict_each_other_certify_nothing():
    """Beyond round-off; the other people keep their bounds, and the contradiction is not forgotten."""
    question = EpsilonAt(1e-5)
    made, found = WorkingBounds.unknown(3, question), WorkingBounds.unknown(3, question)
    who = np.arange(3)
    made.settle(who, np.ones(3), np.full(3, 1.5), np.full(3, 2.0), Method.TRANSFORM)
    found.settle(who, np.array([1.0, 2.0 + 1e-12, 2.001]), np.full(3, 2.0), np.full(3, 3.0), Method.CONTOUR)
    made.merge(who, found)
    later = WorkingBounds.unknown(3, question)
    later.merge(who, made)
    with pytest.warns(RuntimeWarning, match="contradict"):
        answer = later.answer(question)
    assert answer.status.tolist() == [Status.CERTIFIED, Status.CERTIFIED, Status.NOT_CERTIFIED]
    assert (answer.lower[2], answer.upper[2]) == (0.0, np.inf)
    made.settle(who, np.ones(3), np.full(3, 1.5), np.full(3, 2.0), Method.TRANSFORM)
    made.contradicted[:] = False
    made.cap(np.array([1]), np.full(3, 0.5)[:1], Method.RENYI)
    assert made.contradicted.tolist() == [False, True, False]


def test_a_method_that_contradicts_itself_certifies_nothing():
    question = EpsilonAt(1e-5)
    made = WorkingBounds.unknown(2, question)
    made.settle(np.arange(2), np.array([2.0 + 1e-12, 2.1]), np.full(2, 2.0), np.full(2, 2.0), Method.CONTOUR)
    with pytest.warns(RuntimeWarning, match="contradict"):
        answer = made.answer(question)
    assert answer.status.tolist() == [Status.CERTIFIED, Status.NOT_CERTIFIED]


@pytest.mark.parametrize(("lower", "upper"), [(np.inf, 5.0), (-3.0, -np.inf), (2.0, 1.0)])
def test_contradictions_of_infinite_bounds_and_of_other_counts_are_seen(lower, upper):
    question, who = DeltaAt(1.0), np.array([0])
    made, found, other = (WorkingBounds.unknown(1, question) for _ in range(3))
    made.settle(who, -np.inf, upper, upper, Method.TRANSFORM)
    found.settle(who, lower, lower, np.inf, Method.CONTOUR)
    made.merge(who, found)
    assert made.contradicted[0]
    other.take_side(who, made, lower=False)
    assert other.contradicted[0]


@pytest.mark.parametrize(
    ("question", "lower", "upper", "seen"),
    [
        (EpsilonAt(1e-5), 3e-15, 1e-15, True),
        (EpsilonAt(1e-5), 1e-15 * (1.0 + 1e-12), 1e-15, False),
        (DeltaAt(1.0), -1e-15, -3e-15, False),
        (DeltaAt(1.0), -1e-10, -3e-10, True),
    ],
)
def test_the_room_for_round_off_is_relative_for_epsilon_and_absolute_for_small_log_delta(question, lower, upper, seen):
    made, found, who = *(WorkingBounds.unknown(1, question) for _ in range(2)), np.array([0])
    made.settle(who, question.floor, upper, upper, Method.TRANSFORM)
    found.settle(who, lower, lower, np.inf, Method.CONTOUR)
    made.merge(who, found)
    assert bool(made.contradicted[0]) is seen


def test_bounds_that_cross_by_round_off_are_put_in_order():
    made = WorkingBounds.unknown(1, QUESTION[True])
    made.settle(np.array([0]), 1.0, 1.0, 1.0 - 1e-13, Method.CONVOLUTION)
    found = made.answer(QUESTION[True])
    assert (found.lower[0], found.upper[0]) == (1.0 - 1e-13, 1.0)
    assert found.status[0] == Status.CERTIFIED
