"""Arguments and rounding that the conversions of Renyi DP and zCDP share."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import validate

__all__ = ["LARGEST", "ROUNDING", "exp_up", "in_range", "plain", "uses_best"]

ROUNDING = 2.0**-50  # relative, covers four roundings of each term of a sum
LARGEST = 1e100  # larger arguments would overflow in products


def uses_best(conversion: str) -> bool:
    """Whether `conversion` is "best"; raise `ValueError` unless it is "best" or "simple"."""
    if conversion not in ("best", "simple"):
        raise ValueError(f'conversion must be "best" or "simple", got {conversion!r}')
    return conversion == "best"


def in_range(value: Any, name: str, low: float, high: float = LARGEST, *, open_low: bool = False) -> np.ndarray:
    """A float64 array; raise `ValueError` unless every element lies in [low, high), or (low, high) if `open_low`."""
    a = validate.numbers(value, name) + 0.0  # no -0
    inside = ((a > low) if open_low else (a >= low)) & (a < high)
    if not np.all(inside):
        side = "(" if open_low else "["
        raise ValueError(f"{name} must lie in {side}{low:g}, {high:g}), got {a[~inside].flat[0]}")
    return a


def exp_up(value: Any) -> np.ndarray:
    """min(exp(value), 1), rounded up, also where exp underflows."""
    return np.minimum(np.nextafter(np.exp(np.minimum(value, 0)), 2), 1)


def plain(value: np.ndarray) -> Any:
    """A float if the array has no dimensions, else the array."""
    return value if np.ndim(value) else float(value)
