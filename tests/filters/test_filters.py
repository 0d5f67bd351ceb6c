"""Filters: what they admit and book, that no sum exceeds its budget, and their guarantees."""

from fractions import Fraction

import mpmath
import numba
import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pld_accountant.files import store
from pld_accountant.filters.gaussian import GaussianFilter, ZCDPFilter
from pld_accountant.filters.integer_budget import TOLERANCE
from pld_accountant.filters.odometers import PotentialOdometer
from pld_accountant.filters.potential import PotentialFilter
from pld_accountant.filters.pure_dp import ApproximateDPFilter, PureDPFilter, PureStepFilter
from pld_accountant.filters.renyi import RenyiFilter
from pld_accountant.kernels.charge import BUDGET, DUST, SLACK, admit_square

OTHER_ORDER = pandas.Series([1.0, 2.0], index=[1, 0])

PEOPLE = 5
needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="tens of millions of steps, interpreted")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_a_person_is_admitted_until_the_budget_is_spent_and_others_go_on(make, dtype):
    f = make()
    scale = 0.05 if isinstance(f, PureStepFilter) and dtype != np.int64 else 1
    norms = (np.array([2, 1, 0, 2, 1]) * scale).astype(dtype)
    admitted = np.array([f.admit(norms) for _ in range(3000)])
    first_refusal = np.argmin(admitted, axis=0)
    assert admitted[: first_refusal[0], 0].all() and not admitted[first_refusal[0] :, 0].any()
    assert admitted[:, 2].all()
    assert np.array_equal(admitted[:, 0], admitted[:, 3])
    assert first_refusal[0] <= first_refusal[1]
    assert f.active[2]
    assert f.spent()[2].max() == 0


def test_admitted_at_the_headroom_and_then_spent(make):
    f = make()
    for _ in range(3000):
        before = f.active
        assert np.array_equal(f.headroom() > 0, before)
        assert np.array_equal(f.admit(f.headroom()), before)
        if not f.active.any():
            break
    assert not f.active.any()
    assert np.all(f.headroom() == 0)
    assert np.all(f.remaining.reshape(PEOPLE, -1).min(axis=1) == 0)
    assert not f.admit(np.zeros(PEOPLE)).any()


def test_a_norm_above_the_headroom_is_refused_and_costs_nothing(make, makers):
    clipped = makers["sampled"], makers["potential"], makers["pure"], makers["sum of pure"]
    f = make() if make in clipped else make(max_grad_norm=None)
    f.admit(f.headroom() * 0.7)
    before = f.spent()
    if make not in clipped[:2]:
        assert not f.admit(f.headroom() * (1 + 1e-9)).any()
    np.testing.assert_array_equal(f.spent(), before)
    assert f.admit(f.headroom() * (1 - 1e-9)).all(), "a refused person may be admitted again with less"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, -np.inf, -1e-300])
@pytest.mark.parametrize("individual", [True, False])
def test_bad_norms_book_nothing(make, bad, individual):
    f = make(individual=individual)
    f.admit(np.full(PEOPLE, 0.1))
    before = f.spent()
    norms = np.full(PEOPLE, 0.1)
    norms[3] = bad
    for array in (norms, norms.astype(np.float32)):
        if not np.signbit(array[3]) or array[3] < 0:
            with pytest.raises(ValueError, match=r"(example|person) 3"):
                f.admit(array)
    np.testing.assert_array_equal(f.spent(), before)


def test_only_renewed_budgets_start_again(make):
    f = make()
    f.admit(np.full(PEOPLE, 0.1))
    spent, left = f.spent(), f.units_left
    f.units_left[:] = 0  # a copy
    np.testing.assert_array_equal(f.units_left, left)
    who = np.arange(PEOPLE) % 2 == 0
    f._renew(who)
    assert np.all(f.units_left[who] == BUDGET) and np.all(f.spent()[who] == 0)
    np.testing.assert_array_equal(f.spent()[~who], spent[~who])
    f.take_units(left)
    np.testing.assert_array_equal(f.spent(), spent)
    f._renew()
    assert np.all(f.units_left == BUDGET)


def test_units_that_cannot_be_left_are_refused(make):
    f = make()
    left = f.units_left
    for bad in (left[1:], left - BUDGET - 1, left + 1):
        with pytest.raises(store.StoreError, match="left does not belong here"):
            f.take_units(bad)
    np.testing.assert_array_equal(f.units_left, left)


def test_units_above_ones_own_budget_are_refused():
    step = {"num_examples": 2, "noise_multiplier": 20.0, "max_grad_norm": 1.0}
    f = GaussianFilter.for_epsilon([1.0, 0.1], 1e-5, **step)
    with pytest.raises(store.StoreError, match="more left than their budget"):
        f.take_units(np.array([BUDGET, BUDGET]))
    assert f.admit([1.0, 1.0], steps=1000).tolist() == [28, 0]


def test_a_budget_without_units_is_refused():
    for make_one in (PureDPFilter, lambda epsilon, **more: ApproximateDPFilter(epsilon, 1e-300, **more)):
        with pytest.raises(ValueError, match="epsilon must be larger"):
            make_one(1e-300, num_examples=2)


def test_wrong_shapes_and_types_are_refused(make):
    f = make()
    for norms in (np.zeros(PEOPLE + 1), np.zeros((2, PEOPLE)), 0.5, np.zeros(PEOPLE, bool), ["a"] * PEOPLE):
        with pytest.raises(ValueError, match=r"^(norms|epsilons) must"):
            f.admit(norms)
    assert np.all(f.spent() == 0)


def test_one_budget_for_all_is_charged_with_the_worst_and_halts_for_good(make):
    all_, one = make(individual=False), make(num_examples=1)
    rng = np.random.default_rng(0)
    for _ in range(20):
        norms = rng.uniform(0, 0.02, PEOPLE)
        assert all_.admit(norms).tolist() == [bool(one.admit([norms.max()])[0])] * PEOPLE
        np.testing.assert_array_equal(all_.spent(), np.repeat(one.spent(), PEOPLE, axis=0))
        np.testing.assert_array_equal(all_.headroom(), np.repeat(one.headroom(), PEOPLE))
    assert all_.admit(0.01).all(), "one public bound is enough"
    while all_.admit(2.0).all():
        pass
    assert all_.halted and not all_.active.any() and not all_.headroom().any()
    assert not all_.admit(np.zeros(PEOPLE)).any()


@pytest.mark.parametrize("steps", [1, 7, 50, 112, 180, 420, 10_000])
@pytest.mark.parametrize("sigma", [1.0, 10.614652581338738, 100.0, 0.3])
def test_equal_steps_fill_a_budget_made_for_them(steps, sigma):
    """A budget written for k full steps admits k of them, whatever the last bit of its double."""
    arguments = {"num_examples": 1, "noise_multiplier": sigma, "max_grad_norm": 0.7872438989061009}
    filters = [
        GaussianFilter(np.sqrt(steps) / sigma, **arguments),
        ZCDPFilter(steps / (2 * sigma**2), **arguments),
        RenyiFilter(steps * 16 / (2 * sigma**2), 16, **arguments),
    ]
    for f in filters:
        for norm, factor in ((0.7872438989061009, 1), (0.7872438989061009 / 2, 4)):
            fresh = type(f)(**f.parameters)
            if steps * factor <= 2000:
                count = sum(bool(fresh.admit([norm])[0]) for _ in range(steps * factor + 3))
                assert count == steps * factor
                assert not fresh.active[0]


def exact_share(f, norm):
    """The share of the budget that a step of this norm costs, in exact rationals."""
    if isinstance(f, PureDPFilter):
        return Fraction(norm) / Fraction(f.parameters["epsilon"])
    if isinstance(f, ApproximateDPFilter):
        with mpmath.workdps(60):
            share = mpmath.mpf(norm) * mpmath.tanh(mpmath.mpf(norm) / 2) / mpmath.mpf(f.rho)
            return Fraction(int(share * 2**190), 2**190)
    noise, clip = Fraction(f.parameters["noise_multiplier"]), Fraction(f.parameters["max_grad_norm"])
    square = (min(Fraction(norm), clip) / (noise * clip)) ** 2
    if isinstance(f, GaussianFilter):
        return square / Fraction(f.mu) ** 2
    if isinstance(f, ZCDPFilter):
        return square / 2 / Fraction(f.rho)
    return square / 2 * Fraction(f.alpha) / Fraction(f.budget)


positive = st.floats(1e-3, 1e3)
norm_lists = st.lists(
    st.floats(0, 2) | st.floats(0, 1e-5) | st.sampled_from([0.1, 0.25, 1.0, 5.0, 1e-200]), max_size=40
)


@settings(max_examples=400, deadline=None)
@given(
    kind=st.sampled_from([GaussianFilter, ZCDPFilter, RenyiFilter, ApproximateDPFilter, PureDPFilter]),
    numbers=st.tuples(positive, positive, st.floats(1e-2, 10)),
    norms=norm_lists,
    at_headroom=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_the_spent_budget_never_exceeds_the_promise(kind, numbers, norms, at_headroom):
    """Against exact fractions: a mask, what is told as spent and left, and the headroom."""
    budget, noise, clip = numbers
    arguments = {"num_examples": 1, "noise_multiplier": noise, "max_grad_norm": clip}
    if kind is ApproximateDPFilter:
        f = kind(budget, 1e-5, num_examples=1)
    elif kind is PureDPFilter:
        f = kind(budget, num_examples=1)
    elif kind is RenyiFilter:
        f = kind(budget, 5.5, **arguments)
    else:
        f = kind(budget, **arguments)
    power = 2 if kind is GaussianFilter else 1
    if kind is PureDPFilter:
        whole = budget
    else:
        whole = f.mu if kind is GaussianFilter else f.budget if kind is RenyiFilter else f.rho
    spent = Fraction(0)
    for asked, top in zip(norms, at_headroom, strict=False):
        norm = min(asked, f.headroom()[0]) if top else asked
        cost = exact_share(f, norm)
        admitted = bool(f.admit([norm])[0])
        if admitted:
            spent += cost
            assert spent <= 1 + (0 if top else Fraction(TOLERANCE))
        else:
            assert spent + cost >= 1 - Fraction(2 * DUST, BUDGET)
        assert f.spent()[0] <= whole
        assert (Fraction(f.spent()[0]) / Fraction(whole)) ** power >= min(spent, 1)
        assert (Fraction(f.remaining[0]) / Fraction(whole)) ** power <= max(1 - spent, 0) or spent > 1
        headroom = f.headroom()[0]
        assert spent + (exact_share(f, headroom) if headroom > 0 else 0) <= 1 or spent > 1


@needs_jit
def test_a_million_random_sequences_stay_within_the_promise():
    rng = np.random.default_rng(5)
    people = 1_000_000
    f = GaussianFilter(0.7, num_examples=people, noise_multiplier=3.0, max_grad_norm=1.0)
    total = np.zeros(people, np.longdouble)
    for step in range(14):
        norms = rng.uniform(0, 1.5, people)
        if step % 3 == 2:
            norms = np.minimum(norms, f.headroom())
        admitted = f.admit(norms)
        total += np.where(admitted, np.minimum(norms, 1.0), 0).astype(np.longdouble) ** 2
    budget = (np.longdouble(0.7) * 3) ** 2
    assert total.max() <= budget * (1 + np.longdouble(TOLERANCE) + 1e-17)
    assert np.all(f.spent().astype(np.longdouble) ** 2 * 9 >= np.minimum(total, budget) * (1 - 1e-18))
    assert 0.1 < np.mean(f.active) < 0.3


_admit_square = numba.njit(error_model="numpy")(getattr(admit_square, "__wrapped__", admit_square))


@numba.njit
def _many_steps(norm, scale, steps, left, mask):
    norms = np.full(1, norm)
    admitted = 0
    for _ in range(steps):
        _admit_square(norms, 1.0, 1.0, scale, 1, left, mask)
        admitted += mask[0]
    return admitted


@needs_jit
def test_ten_million_steps_do_not_drift():
    """0.1**2 ten million times: exact to a few parts in 10^12, and never below the truth."""
    norm, steps = 0.1, 10_000_000
    cost = Fraction(norm) ** 2
    left, mask = np.full(1, BUDGET), np.zeros(1, np.int64)
    scale = float(Fraction(BUDGET) / (cost * 2 * steps))
    assert _many_steps(norm, scale, steps, left, mask) == steps
    spent = Fraction(BUDGET - int(left[0]), BUDGET)
    truth = steps * cost * Fraction(scale) / BUDGET
    assert truth <= spent <= truth * (1 + Fraction(1, 10**11))
    left[0] = BUDGET
    scale = float(Fraction(BUDGET) / (cost * (steps - 1000)))
    admitted = _many_steps(norm, scale, steps, left, mask)
    assert steps - 1001 <= admitted <= steps - 1000


def test_the_tolerance_is_used_at_most_once():
    left, mask = np.full(1, DUST + 1), np.zeros(1, np.int64)
    one_unit_less = float(DUST + 1 + SLACK // 2)
    norms = np.ones(1)
    admit_square(norms, 1.0, 1.0, one_unit_less, 1, left, mask)
    assert mask[0] and left[0] == 0
    admit_square(np.full(1, 1e-300), 1.0, 1.0, one_unit_less, 1, left, mask)
    assert not mask[0] and left[0] == 0


def test_other_noise_and_clip_for_one_step(makers):
    f = makers["gaussian"]()
    f.admit(np.ones(PEOPLE), noise_multiplier=8.0, max_grad_norm=1.0)
    np.testing.assert_allclose(f.spent(), 1 / 8, rtol=1e-12)
    f.admit(np.full(PEOPLE, 100.0), noise_multiplier=8.0, max_grad_norm=1.0)
    np.testing.assert_allclose(f.spent(), np.sqrt(2) / 8, rtol=1e-12)
    np.testing.assert_allclose(
        f.headroom(noise_multiplier=1.0, max_grad_norm=3.0), 3 * np.sqrt(0.25 - 1 / 32), rtol=1e-12
    )
    sampled = makers["sampled"]()
    sampled.admit(np.full(PEOPLE, 2.0), noise_multiplier=50.0, sample_rate=1.0)
    np.testing.assert_allclose(sampled.spent()[0], np.array([2, 8.5]) / (2 * 2500), rtol=1e-12)
    with pytest.raises(ValueError, match="full-batch"):
        makers["renyi"]().admit(np.zeros(PEOPLE), sample_rate=0.5)


def test_guarantees_say_what_is_proven(make, makers):
    for individual in (True, False):
        f = make(individual=individual)
        g = f.guarantee
        assert g.proven_adaptive and g.reference and "adding or removing" in g.sentence
        assert ("public bound" in g.sentence) == (not individual)
        assert "relative 1e-12" in g.sentence and TOLERANCE < 1e-12
        assert repr(f).startswith(type(f).__name__)
    if make in (makers["orders"], makers["sampled"]):
        assert "at no other order" in f.guarantee.sentence


@pytest.mark.parametrize(
    "call",
    [
        lambda: GaussianFilter(0.0, num_examples=1, noise_multiplier=1.0),
        lambda: GaussianFilter(np.nan, num_examples=1, noise_multiplier=1.0),
        lambda: GaussianFilter(1.0, num_examples=0, noise_multiplier=1.0),
        lambda: GaussianFilter(1.0, num_examples=1, noise_multiplier=-1.0),
        lambda: GaussianFilter(1.0, num_examples=1, noise_multiplier=1.0, max_grad_norm=0.0),
        lambda: GaussianFilter(1e-300, num_examples=1, noise_multiplier=1e-20).admit([1.0]),
        lambda: RenyiFilter(1.0, 1.0, num_examples=1, noise_multiplier=1.0),
        lambda: RenyiFilter(0.0, 2.0, num_examples=1, noise_multiplier=1.0),
        lambda: RenyiFilter(1.0, [2, 2], num_examples=1, noise_multiplier=1.0),
        lambda: RenyiFilter([1.0], 2, num_examples=1, noise_multiplier=1.0),
        lambda: RenyiFilter([1.0, 2.0], [2, 3, 4], num_examples=1, noise_multiplier=1.0),
        lambda: RenyiFilter(1.0, 2, num_examples=1, noise_multiplier=1.0, sample_rate=0.1),
        lambda: RenyiFilter.for_epsilon(0.1, 1e-9, orders=[1.01], num_examples=1, noise_multiplier=1.0),
        lambda: ApproximateDPFilter(1.0, 1.0, num_examples=1),
        lambda: ApproximateDPFilter(1.0, 1e-5, num_examples=1, conversion="other"),
        lambda: ZCDPFilter.for_epsilon(-1.0, 1e-5, num_examples=1, noise_multiplier=1.0),
        lambda: GaussianFilter(1.0, num_examples=1, noise_multiplier=1.0, max_grad_norm=1e-310),
        lambda: GaussianFilter(1.0, num_examples=1, noise_multiplier=1.0).admit([0.1], steps=2**63),
        lambda: GaussianFilter.for_epsilon(["1", "2"], 1e-5, num_examples=2, noise_multiplier=4.0),
        lambda: GaussianFilter.for_epsilon([True, True], 1e-5, num_examples=2, noise_multiplier=4.0),
        lambda: ZCDPFilter.for_epsilon([1 + 0j, 2], 1e-5, num_examples=2, noise_multiplier=4.0),
        lambda: ZCDPFilter.for_epsilon(
            np.ma.array([1.0, 100.0], mask=[False, True]), 1e-5, num_examples=2, noise_multiplier=4.0
        ),
        lambda: GaussianFilter.for_epsilon(OTHER_ORDER, 1e-5, num_examples=2, noise_multiplier=4.0),
        lambda: RenyiFilter.for_epsilon(OTHER_ORDER, 1e-5, num_examples=2, noise_multiplier=4.0),
        lambda: PotentialFilter(
            OTHER_ORDER, 1e-5, num_examples=2, noise_multiplier=2.0, sample_rate=0.1, max_grad_norm=1.0
        ),
        lambda: RenyiFilter("1", 2, num_examples=1, noise_multiplier=1.0),
        lambda: RenyiFilter(1.0, ["2"], num_examples=1, noise_multiplier=1.0),
        lambda: PotentialOdometer(["1"], 1e-5, num_examples=1, noise_multiplier=2.0, sample_rate=0.1, max_grad_norm=1),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match=r"must|none of the orders|counted by position"):
        call()
