"""Mixtures at the limits of doubles: weights that underflow, and losses that differ from the largest by round-off."""

import math

import numpy as np
import pytest

from pld_accountant import Method, SampledGaussian
from pld_accountant.composition import compose
from pld_accountant.mechanisms.gaussian_mixture import GaussianMixtureSteps, GroupGaussian, Pair
from pld_accountant.mechanisms.text import parsed, written


@pytest.mark.parametrize(("noise", "rate", "records", "order"), [(2.0, 1e-6, 60, 3), (5.0, 1e-5, 100, 11)])
def test_renyi_divergences_count_weights_that_underflow(noise, rate, records, order):
    """E_Q[(P / Q)^alpha] is at least the term of the outermost centre, whose weight no double holds."""
    far = records / noise
    least = (order * records * math.log(rate) + 0.5 * order * (order - 1) * far**2) / (order - 1)
    assert compose([(GroupGaussian(noise, rate, records), 1)]).rdp(order) >= least


@pytest.mark.parametrize("theta", [0.3, 2.0, 10.0, 40.0])
def test_a_component_that_is_left_out_costs_its_own_moment(theta):
    """E[(X + Y)^a] is at least E[X^a] + E[Y^a].  One of the two is far larger here, so a thousandth less is seen."""
    pair, log_weight, centre = Pair(np.array([0.0, 1.0]), np.array([0.9, 0.1]), np.zeros(1), np.ones(1)), -345.0, 12.0
    own = GaussianMixtureSteps([pair], "remove").log_moments(np.array([theta]))[0, 0]
    least = np.logaddexp(own, (1.0 + theta) * (log_weight + 0.5 * theta * centre**2))
    lost = [(math.exp(log_weight), centre)]
    found = GaussianMixtureSteps([pair], "remove", lost).log_moments(np.array([theta]))[0, 0]
    assert least * (1.0 - 1e-14) <= found <= least * (1.0 + 1e-9)


def test_bounds_of_a_group_that_seldom_draws_few_records():
    """The truths, from 60 digits, are below what was computed without the lost probabilities: 1372.6 and 1439.7."""
    group = GroupGaussian(1.0, 1 - 1.4e-12, 60)
    for delta, truth in ((1e-5, 1332.87989975), (1e-10, 1380.06190779)):
        found = compose([(group, 1)]).epsilon(delta, "add")
        assert 0.5 * truth < found.lower <= truth <= found.upper < 1.1 * truth
        assert compose([(group, 1)]).epsilon([delta, 0.5 * delta], "add").lower[0] <= truth
    assert compose([(group, 1)]).epsilon(1e-5).width < 1e-6
    assert parsed(written(group)) == [(group, 1)]


def test_mass_that_no_table_holds_is_part_of_tiny_deltas():
    """The probability of 53 records and more is about 1e-308 a step, and their losses are large."""
    composed = compose([(GroupGaussian(2.0, 1e-6, 60), 10)])
    assert composed.delta(200.0, "remove").upper >= 10 * 2.2e-308
    assert composed.epsilon(1e-300).method == Method.RENYI
    assert composed.epsilon(1e-280).method == Method.CONVOLUTION
    beside = compose([(GroupGaussian(2.0, 1e-6, 60), 10), (SampledGaussian(2.0, 1e-3), 2)])
    assert beside.delta(200.0, "remove").upper >= 10 * 2.2e-308
    assert beside.epsilon(1e-300).method == Method.RENYI


def test_delta_next_below_the_largest_loss():
    """log 4 is above the nearest double; delta there is 3.93e-17 (60 digits)."""
    largest = math.log(4.0)
    assert compose([(GroupGaussian(0.1, 0.75, 1), 1)]).delta(largest, "add").upper >= 3.92e-17
    assert compose([(SampledGaussian(0.1, 0.75), 1)]).delta(largest, "add").upper >= 3.92e-17
