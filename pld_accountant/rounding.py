"""Numbers in print: bounds rounded in their safe direction, exact ones, names of quantiles, JSON."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["exact", "finite_or_none", "people_and_steps", "quantile_name", "rounded_down", "rounded_up", "scientific"]


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


def exact(value: float) -> str:
    """`value` in the fewest digits that read back as the same number, as a delta beside bounds from both sides.

    Examples
    --------
    >>> exact(1e-5), exact(1 / 3), exact(2.0)
    ('1e-05', '0.3333333333333333', '2')
    """
    return repr(float(value)).removesuffix(".0")


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
    """The factor and the power of ten of a number, with the digits of `exact`.

    Examples
    --------
    >>> scientific(1e-5), scientific(2.5e-7)
    (('1', -5), ('2.5', -7))
    """
    factor, exponent = format(Decimal(exact(value)).normalize(), "e").split("e")
    return factor, int(exponent)


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
