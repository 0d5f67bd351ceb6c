"""Conversions whose products underflow are rounded up all the same."""

import math

from pld_accountant.notions.dp import dp_delta, pure_rho
from pld_accountant.notions.zcdp import zcdp_epsilon


def test_promises_are_never_zero():
    assert pure_rho(1e-170) > 0.0 == pure_rho(0.0)
    assert dp_delta(1e-310, 0.0, 1e-310 - 5e-324) > 0.0 == dp_delta(1e-310, 0.0, 1e-310)


def test_simple_conversion_of_a_tiny_rho():
    epsilon = zcdp_epsilon(1e-310, 1.0 - 2.0**-53, conversion="simple")
    assert epsilon >= 2.0 * math.sqrt(1e-310) * math.sqrt(2.0**-53)
