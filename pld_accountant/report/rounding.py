"""Numbers in print, rounded in the direction in which they promise something."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["quantile_name", "rounded_down", "rounded_up"]


def rounded_up(value: float, digits: int = 4) -> str:
    """`value` in so many significant digits, never less than it is: an upper bound stays one when it is
    printed.

    Examples
    --------
    >>> rounded_up(1.00001), rounded_up(0.0), rounded_up(float("inf"))
    ('1.001', '0', 'inf')
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """`value` in so many significant digits, never more than it is: for lower bounds.

    Examples
    --------
    >>> rounded_down(0.99999)
    '0.9999'
    """
    return _rounded(value, digits, ROUND_FLOOR)


def quantile_name(probability: float) -> str:
    """What a quantile is called in a table.

    Examples
    --------
    >>> quantile_name(0.5), quantile_name(0.05)
    ('median', '5 %')
    """
    names = {0.0: "smallest", 0.5: "median", 1.0: "largest"}
    return names.get(float(probability), f"{100 * probability:.4g} %")


def _rounded(value: float, digits: int, rounding: str) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    number = Context(prec=digits, rounding=rounding).create_decimal(Decimal(float(value)))
    number = number.quantize(Decimal(1).scaleb(number.adjusted() - digits + 1))  # 0.5000, not 0.5
    return format(number, "f") if -5 <= number.adjusted() <= 6 else format(number, "e")
