"""Numbers in print: bounds rounded in their safe direction, names of quantiles, scientific notation, JSON."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["finite_or_none", "people_and_steps", "quantile_name", "rounded_down", "rounded_up", "scientific"]


def rounded_up(value: float, digits: int = 4) -> str:
    """`value` in `digits` significant digits, rounded up: a printed upper bound stays an upper bound.

    Examples
    --------
    >>> rounded_up(1.00001), rounded_up(0.0), rounded_up(float("inf"))
    ('1.001', '0', 'inf')
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """`value` in `digits` significant digits, rounded down: a printed lower bound stays a lower bound.

    Examples
    --------
    >>> rounded_down(0.99999)
    '0.9999'
    """
    return _rounded(value, digits, ROUND_FLOOR)


def quantile_name(probability: float) -> str:
    """The name of a quantile in a table.

    Examples
    --------
    >>> quantile_name(0.5), quantile_name(0.05)
    ('median', '5 %')
    """
    names = {0.0: "smallest", 0.5: "median", 1.0: "largest"}
    return names.get(float(probability), f"{100 * probability:.4g} %")


def scientific(value: float) -> tuple[str, int]:
    """The factor, to four significant digits and without trailing zeros, and the power of ten of a number.

    Examples
    --------
    >>> scientific(1e-5), scientific(2.5e-7)
    (('1', -5), ('2.5', -7))
    """
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{float(mantissa):g}", int(exponent)


def finite_or_none(value: float) -> float | None:
    """A float for JSON, which has no infinity: None if `value` is not finite."""
    return float(value) if math.isfinite(value) else None


def _rounded(value: float, digits: int, rounding: str) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    number = Context(prec=digits, rounding=rounding).create_decimal(Decimal(float(value)))
    number = number.quantize(Decimal(1).scaleb(number.adjusted() - digits + 1))  # 0.5000, not 0.5
    return format(number, "f") if -5 <= number.adjusted() <= 6 else format(number, "e")


def people_and_steps(people: int, steps: int) -> str:
    """How many there are, in words.

    >>> people_and_steps(1, 2_000)
    '1 person, 2,000 steps'
    """
    return f"{people:,} {'person' if people == 1 else 'people'}, {steps:,} {'step' if steps == 1 else 'steps'}"
