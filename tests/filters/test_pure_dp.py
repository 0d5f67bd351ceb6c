"""The filter of pure-DP steps against the filter of Rogers et al."""

from fractions import Fraction

import numpy as np
import pytest

from pld_accountant.filters.gaussian import GaussianFilter
from pld_accountant.filters.pure_dp import ApproximateDPFilter, PureDPFilter


def rogers_stops(epsilon, target, delta):
    """Steps that the filter of Rogers et al., as quoted in Section 4.3, admits."""
    log = np.log(1 / delta)
    c = target**2 / (28.04 * log)
    k = np.arange(1, 10_000_000)
    square = k * epsilon**2
    used = square / epsilon * (np.expm1(epsilon)) / 2
    used += np.sqrt(2 * (square + c) * (1 + np.log1p(square / c) / 2) * log)
    return int(np.argmax(used > target))


@pytest.mark.parametrize("target", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.002, 0.01, 0.05])
def test_the_pure_dp_filter_outlasts_that_of_rogers(target, epsilon):
    counts = {}
    for conversion in ("simple", "best"):
        f = ApproximateDPFilter(target, 1e-5, num_examples=1, conversion=conversion)
        counts[conversion] = f.admit([epsilon], steps=1_000_000)[0]
        assert counts[conversion] == int(f.rho / (epsilon * np.tanh(epsilon / 2)) * (1 + 1e-12))
    assert rogers_stops(epsilon, target, 1e-5) < counts["simple"] < counts["best"]
    assert counts["best"] > 1.25 * counts["simple"]


def test_large_steps_are_charged_less_than_half_of_their_square():
    f = ApproximateDPFilter(200.0, 1e-6, num_examples=1)
    assert f.admit([2.0], steps=1_000)[0] == int(f.rho / (2.0 * np.tanh(1.0))) > 1.3 * f.rho / 2.0
    with pytest.raises(ValueError, match=r"got -0.5 for person 0"):
        f.admit([-0.5])


def test_epsilons_of_pure_dp_steps_add_up():
    f = PureDPFilter(1.0, num_examples=3)
    assert f.admit([0.25, 0.5, 0.0], steps=4).tolist() == [4, 2, 4]
    assert f.spent() == pytest.approx([1.0, 1.0, 0.0], rel=1e-12)
    assert "(epsilon, 0)-DP, epsilon = 1.0" in f.guarantee.sentence
    for_all = PureDPFilter(1.0, num_examples=3, individual=False)
    assert [for_all.admit(0.4).all() for _ in range(3)] == [True, True, False]
    assert for_all.spent() == pytest.approx([0.8] * 3, rel=1e-12)


def test_everybody_may_have_an_epsilon_of_their_own(tmp_path):
    budgets = [2.0, 0.5, 1.0]
    f = PureDPFilter(budgets, num_examples=3)
    admitted = np.array([f.admit([0.1, 0.1, 0.1]) for _ in range(30)])
    assert admitted.sum(axis=0).tolist() == [20, 4, 9]  # a part of the budget keeps its own tolerance
    assert np.all(f.spent() <= budgets)
    f.save(tmp_path / "keep.npz")
    again = PureDPFilter.load(tmp_path / "keep.npz")
    np.testing.assert_array_equal(again.units_left, f.units_left)
    assert again.guarantee == f.guarantee
    assert "from 0.25 to 1 of it" in f.guarantee.sentence


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan, np.inf, [1.0, 0.0], [[1.0]], "1", []])
def test_budgets_that_are_none_are_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        PureDPFilter(epsilon, num_examples=2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PureDPFilter([1.0, 0.0], num_examples=2), "got 0.0 for person 1; leave people without a budget out"),
        (lambda: PureDPFilter([1e-7, 10.0], num_examples=2), "1e-07, has no budget, or less than 1e-06 of that of the"),
        (lambda: PureDPFilter(1.0, num_examples=2).admit([0.1, -1]), "epsilons must .* got -1.0 for person 1"),
        (lambda: PureDPFilter(1.0, num_examples=2).admit([np.nan, 0]), "epsilons must .* got nan for person 0"),
    ],
)
def test_mistakes_are_told_in_the_words_of_the_call(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_float32_epsilons_are_charged_in_full():
    steps = np.random.default_rng(2).uniform(0.01, 0.9, 20).astype(np.float32)
    f = PureDPFilter(1.0, num_examples=20)
    assert f.admit(steps).all()
    for spent, step in zip(f.spent().tolist(), steps.tolist(), strict=True):
        assert Fraction(step) <= Fraction(spent) <= Fraction(step) * Fraction(1 + 1e-12)


def test_a_wrong_shape_is_told_in_the_filters_own_words():
    with pytest.raises(ValueError, match=r"^epsilons must have shape \(3,\), got \(\)$"):
        PureDPFilter(1.0, num_examples=3).admit(0.3)
    with pytest.raises(ValueError, match=r"^norms must have shape \(3,\), got \(2, 3\)$"):
        GaussianFilter(1.0, num_examples=3, noise_multiplier=2.0).admit(np.ones((2, 3)))
