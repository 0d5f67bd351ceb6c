"""Printed bounds stay bounds."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pld_accountant.rounding import exact, finite_or_none, rounded_down, rounded_up, scientific


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False), st.integers(1, 17))
def test_rounding_goes_the_safe_way_and_not_far(value, digits):
    up, down = Fraction(rounded_up(value, digits)), Fraction(rounded_down(value, digits))
    assert down <= Fraction(value) <= up
    assert up - down <= Fraction(value) / 10 ** (digits - 1)


@given(st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False))
def test_a_delta_is_printed_as_it_is(value):
    """A bound beside a rounded delta is a bound at another delta."""
    factor, exponent = scientific(value)
    assert float(exact(value)) == value == float(f"{factor}e{exponent}")


def test_forms():
    assert rounded_up(1234567.0, 4) == "1235000"
    assert rounded_up(12345678.0, 4) == "1.235e+7"
    assert rounded_up(0.000123456, 4) == "0.0001235"
    assert rounded_down(3.2e-9, 4) == "3.200e-9"
    assert rounded_up(0.5, 4) == "0.5000"
    assert rounded_up(9.99999, 4) == "10.00"
    assert rounded_up(float("inf")) == "inf"
    assert rounded_up(0.0) == "0"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1e-5, ("1", -5)), (2.5e-7, ("2.5", -7)), (0.5, ("5", -1)), (9.99999e-4, ("9.99999", -4)), (1230.0, ("1.23", 3))],
)
def test_scientific_notation(value, expected):
    assert scientific(value) == expected


def test_json_has_no_infinity():
    assert [finite_or_none(value) for value in (1.5, np.float64(2.0), np.inf, np.nan)] == [1.5, 2.0, None, None]
