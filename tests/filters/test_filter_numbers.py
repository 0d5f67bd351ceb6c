"""The papers' numbers: how many steps each filter admits."""

import numpy as np
import pytest

from pld_accountant.filters.gaussian import GaussianFilter, ZCDPFilter
from pld_accountant.filters.renyi import RenyiFilter
from pld_accountant.notions import gdp, rdp, zcdp


def steps_of(f):
    count = 0
    while f.admit([1.0])[0]:
        count += 1
    return count


def test_gaussian_against_renyi_at_one_epsilon():
    """sigma = 100, delta = 1e-5: where Renyi with orders 2 to 32 stops at 420, Gaussian stops at 495."""
    arguments = {"num_examples": 1, "noise_multiplier": 100.0, "max_grad_norm": 1.0}
    orders = np.arange(2, 33)
    epsilon = rdp.rdp_epsilon(420 * orders / 2e4, orders, 1e-5).min()
    assert epsilon == pytest.approx(0.8156, abs=5e-5)
    real = zcdp.zcdp_epsilon(420 / 2e4, 1e-5)
    assert real == pytest.approx(0.815623, abs=5e-7)
    renyi = RenyiFilter.for_epsilon(epsilon, 1e-5, orders=orders, **arguments)
    assert steps_of(renyi) == 420
    assert steps_of(RenyiFilter.for_epsilon(real, 1e-5, **arguments)) == 420
    assert steps_of(ZCDPFilter.for_epsilon(real, 1e-5, **arguments)) == 420
    assert steps_of(GaussianFilter.for_epsilon(epsilon, 1e-5, **arguments)) == 495
    assert gdp.epsilon(1e-5, np.sqrt(420) / 100) == pytest.approx(0.7451, abs=5e-5)
    assert steps_of(ZCDPFilter.for_epsilon(gdp.epsilon(1e-5, np.sqrt(420) / 100), 1e-5, **arguments)) == 355
    simple = ZCDPFilter.for_epsilon(1.00441, 1e-5, conversion="simple", **arguments)
    assert steps_of(simple) == 420
    assert steps_of(GaussianFilter.for_epsilon(1.00441, 1e-5, **arguments)) == 724


@pytest.mark.parametrize(("sigma", "steps", "best", "simple"), [(130, 180, 214, 342), (170, 112, 134, 229)])
def test_equal_epsilon_counts(sigma, steps, best, simple):
    arguments = {"num_examples": 1, "noise_multiplier": sigma, "max_grad_norm": 1.0}
    rho = steps / (2 * sigma**2)
    for conversion, expected in (("best", best), ("simple", simple)):
        epsilon = zcdp.zcdp_epsilon(rho, 1e-5, conversion=conversion)
        assert steps_of(GaussianFilter.for_epsilon(epsilon, 1e-5, **arguments)) == expected


def test_a_set_of_orders_stops_at_the_first_that_is_spent():
    arguments = {"num_examples": 1, "noise_multiplier": 10.0, "max_grad_norm": 1.0}
    singles = [RenyiFilter(b, a, **arguments) for a, b in ((2, 0.5), (8, 1.5), (32, 9.0))]
    together = RenyiFilter([0.5, 1.5, 9.0], [2, 8, 32], **arguments)
    assert steps_of(together) == min(steps_of(f) for f in singles) == 37
    np.testing.assert_allclose(together.spent(), [[0.37, 1.48, 5.92]], rtol=1e-9)
