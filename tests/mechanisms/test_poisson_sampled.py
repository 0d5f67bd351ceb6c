"""Poisson samples of Laplace noise against sums over the two atoms and the density between them, in 50 digits."""

import mpmath
import pytest

import pld_accountant as pa

LITTLE_NOISE = [(0.005, 0.1), (0.01, 0.5), (0.02, 0.9999)]
NEAR_ONE = [1.0 - 1e-4, 1.0 - 1e-10, 1.0 - 2.0**-53]


def one_step_delta(noise, rate, epsilon, direction):
    """E[(1 - e^(epsilon - L))+], by the place x where the loss is epsilon: it rises in x on [0, 1]."""
    b, q = mpmath.mpf(noise), mpmath.mpf(rate)
    sign = 1 if direction == "remove" else -1
    ratio = (mpmath.exp(sign * mpmath.mpf(epsilon)) - (1 - q)) / q
    if ratio >= mpmath.exp(1 / b):
        return mpmath.mpf(0) if sign > 0 else 1 - mpmath.exp(epsilon)
    if ratio <= mpmath.exp(-1 / b):
        return 1 - mpmath.exp(epsilon) if sign > 0 else mpmath.mpf(0)
    x = (1 + b * mpmath.log(ratio)) / 2
    with_record, without = mpmath.exp(-(1 - x) / b) / 2, 1 - mpmath.exp(-x / b) / 2
    if sign > 0:
        with_record, without = 1 - with_record, 1 - without
    mixed = (1 - q) * without + q * with_record
    return mixed - mpmath.exp(epsilon) * without if sign > 0 else without - mpmath.exp(epsilon) * mixed


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("noise", "rate"), LITTLE_NOISE)
def test_two_steps_with_little_noise(noise, rate, direction):
    """The first step's loss is one of its two ends but for a chance of e^(-1 / (2 noise)), which widens the truth."""
    found = pa.compose([(pa.PoissonSampled(pa.Laplace(noise), rate), 2)])
    with mpmath.workdps(50):
        q, least = mpmath.mpf(rate), mpmath.exp(-1 / mpmath.mpf(noise))
        low, high = mpmath.log(1 - q + q * least), mpmath.log(1 - q + q / least)
        if direction == "remove":
            ends = [(low, (1 - q + q * least) / 2), (high, (q + (1 - q) * least) / 2)]
        else:
            ends = [(-low, mpmath.mpf(1) / 2), (-high, least / 2)]
        between = 1 - sum(mass for _, mass in ends)
        for epsilon in (0.0, 0.05, 2.0, 15.0):
            rest = [mass * one_step_delta(noise, rate, mpmath.mpf(epsilon) - loss, direction) for loss, mass in ends]
            bounds = found.delta(epsilon, direction)
            assert bounds.lower <= sum(rest) + between and sum(rest) <= bounds.upper
            assert bounds.upper - bounds.lower <= 1e-4 * bounds.upper


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("rate", NEAR_ONE)
@pytest.mark.parametrize("noise", [0.02, 0.04, 0.5])
def test_one_step_at_a_rate_near_one(noise, rate, direction):
    """The smallest loss is near log(1 - rate), where 1 - rate is a difference of almost equal numbers."""
    found = pa.compose([(pa.PoissonSampled(pa.Laplace(noise), rate), 1)])
    with mpmath.workdps(50):
        for epsilon in (0.0, 0.3, 10.0, 18.0, 24.0):
            exact = one_step_delta(noise, rate, epsilon, direction)
            bounds = found.delta(epsilon, direction)
            assert bounds.lower <= exact <= bounds.upper
            assert bounds.upper - bounds.lower <= 1e-4 * exact + 1e-15
