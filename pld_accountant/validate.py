"""Checks of arguments: each raises `ValueError` with the argument, the value and, for norms, the first bad place.

Conditions are written so that NaN fails them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = [
    "array_shape",
    "buckets",
    "clipping_norm",
    "count",
    "delta",
    "flag",
    "function",
    "generator",
    "in_order",
    "noise_multiplier",
    "nonnegative",
    "norm_error",
    "norms",
    "not_nan",
    "not_real",
    "numbers",
    "orders",
    "positive",
    "sample_rate",
    "schedule",
    "sequence",
    "share",
    "step_norms",
    "wants_lower",
]


_REAL = "fiuO"  # kinds of array elements; O: Python's fractions and decimals
_MOST_BUCKETS = 4096  # a bucket costs bytes for every person; bucket numbers are 16-bit integers


def _is_masked(values: Any) -> bool:
    """Whether elements are masked; without an import of numpy.ma, which whoever made a masked array has imported."""
    ma = sys.modules.get("numpy.ma")
    return ma is not None and bool(ma.is_masked(values))


def _number(value: Any, name: str) -> float:
    try:
        if _is_masked(value) or np.ndim(value) != 0 or np.asarray(value).dtype.kind not in _REAL:
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None


def numbers(values: Any, name: str) -> np.ndarray:
    """A number or an array of numbers as float64; values above the largest double become inf."""
    try:
        array = np.asarray(values)
        if _is_masked(values) or array.dtype.kind not in _REAL:
            raise TypeError
        if array.dtype.kind == "O":  # numpy itself would make NaN of None
            return np.array([_number(v, name) for v in array.flat], dtype=np.float64).reshape(array.shape)
        with np.errstate(over="ignore"):
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be a number or an array of numbers, got {values!r}") from None


def not_nan(value: Any, name: str) -> float:
    """A number, or inf or -inf."""
    x = _number(value, name)
    if np.isnan(x):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return x


def positive(value: Any, name: str) -> float:
    """A finite number above 0."""
    x = _number(value, name)
    if not (x > 0 and np.isfinite(x)):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return x


def noise_multiplier(value: Any) -> float:
    """A noise multiplier between 1e-100 and 1e100; its square then neither overflows nor underflows."""
    x = positive(value, "noise_multiplier")
    if not 1e-100 <= x <= 1e100:
        raise ValueError(f"noise_multiplier must lie between 1e-100 and 1e100, got {value!r}")
    return x


def clipping_norm(value: Any, name: str = "max_grad_norm") -> float:
    """A clipping norm between 1e-100 and 1e100.

    The scale of the norms, which contains its reciprocal, then cannot overflow.  A scale of inf would count norms in
    the wrong bucket.
    """
    x = positive(value, name)
    if not 1e-100 <= x <= 1e100:
        raise ValueError(f"{name} must lie between 1e-100 and 1e100, got {value!r}")
    return x


def buckets(value: Any, name: str = "buckets") -> int:
    """A number of buckets of relative norms: a whole number from 2 to 4096."""
    return count(value, name, least=2, most=_MOST_BUCKETS)


def sample_rate(value: Any) -> float:
    """A Poisson sampling rate in (0, 1]."""
    x = _number(value, "sample_rate")
    if not 0 < x <= 1:
        raise ValueError(f"sample_rate must lie in (0, 1], got {value!r}")
    return x


def share(value: Any, name: str = "share") -> float:
    """A number in [0, 1]."""
    x = _number(value, name)
    if not 0 <= x <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value!r}")
    return x


def orders(values: Any) -> np.ndarray:
    """Renyi orders, finite and above 1, as an array of float64."""
    array = numbers(values, "alpha")
    if not np.all((array > 1) & (array < np.inf)):
        raise ValueError(f"alpha must be finite and above 1, got {values!r}")
    return array


def delta(value: Any, name: str = "delta") -> float:
    """A delta in (0, 1)."""
    x = _number(value, name)
    if not 0 < x < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {value!r}")
    return x


def count(value: Any, name: str, *, least: int = 0, most: int | None = None) -> int:
    """A whole number, at least `least` and at most `most`."""
    x = _number(value, name)
    if not (x >= least and x == np.floor(x) and np.isfinite(x)):
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if most is not None and x > most:
        raise ValueError(f"{name} must be at most {most}, got {value!r}")
    return int(value)


def sequence(values: Any) -> list[Any]:
    """The numbers of a question: one, or a sequence of at least one."""
    if np.ndim(values) > 1 or np.size(values) == 0:
        raise ValueError(f"several values must form a sequence of numbers, got {values!r}")
    return [values] if np.ndim(values) == 0 else list(values)


def wants_lower(bounds: Any) -> bool:
    """Whether lower bounds are asked for: True for "all", False for "upper"."""
    if bounds not in ("all", "upper"):
        raise ValueError(f"bounds must be 'all' or 'upper', got {bounds!r}")
    return bool(bounds == "all")


def flag(value: Any, name: str) -> bool:
    """True or False itself: a text such as "no" would count as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def schedule(steps: Any) -> list[tuple[float, float, int]]:
    """A list of (noise multiplier, sample rate, steps)."""
    try:
        given = [(s, q, n) for s, q, n in steps]
    except (TypeError, ValueError):
        raise ValueError(f"schedule must be a list of (noise multiplier, sample rate, steps), got {steps!r}") from None
    return [(noise_multiplier(s), sample_rate(q), count(n, "steps", least=1)) for s, q, n in given]


def generator(value: Any, name: str = "rng") -> np.random.Generator:
    """A generator of random numbers, or what draws like one; a new one from the system's entropy for None."""
    if value is not None and not callable(getattr(value, "normal", None)):
        raise ValueError(f"{name} must be a numpy.random.Generator, got {value!r}")
    return np.random.default_rng() if value is None else value


def function(value: Any, name: str) -> None:
    """Raise unless a value can be called."""
    if not callable(value):
        raise ValueError(f"{name} must be a function, got {value!r}")


def array_shape(array: np.ndarray, shape: tuple[int, ...], name: str) -> None:
    """Raise unless `array` has exactly this shape."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")


def norms(values: Any, num_examples: int, *, as_given: bool = False) -> np.ndarray:
    """Type and shape of the norms of one step or a block of steps: (num_examples,) or (steps, num_examples).

    The kernels check the values; if one is bad, `norm_error` makes the error.

    Returns
    -------
    ndarray
        C-contiguous float64.  If `as_given`, float32 stays float32 and a read-only array stays read-only.
    """
    in_order(values, "norms")
    if "bfloat16" in str(getattr(values, "dtype", "")):  # torch would fail without a word on the cause
        raise ValueError(f"norms must be real numbers, got an array of {not_real(values.dtype)}")
    array = np.asarray(values)
    if _is_masked(values):
        raise ValueError("norms must not be masked: everybody has a norm at every step")
    if array.dtype.kind not in "fiu":
        raise ValueError(f"norms must be real numbers, got an array of {not_real(array.dtype)}")
    if array.ndim not in (1, 2) or array.shape[-1] != num_examples:
        turned = "; a log with a row per person must be transposed" if array.shape[:1] == (num_examples,) else ""
        raise ValueError(
            f"norms must have shape ({num_examples},) or (steps, {num_examples}), got {array.shape}{turned}"
        )
    if as_given:
        return np.require(array, np.float32 if array.dtype == np.float32 else np.float64, ["C", "A"])
    return np.require(array, np.float64, ["C", "A", "W"])


def step_norms(values: Any, num_examples: int, *, first_row: int = 0) -> np.ndarray:
    """The norms of one step, finite and at least 0: (num_examples,) float64."""
    array = norms(values, num_examples)
    array_shape(array, (num_examples,), "norms")
    if not np.all((array >= 0) & (array < np.inf)):
        raise norm_error(array, first_row=first_row)
    return array


def not_real(dtype: Any) -> str:
    """The name of a type that holds no real numbers, with the remedy for bfloat16, which numpy saves as ``|V2``."""
    if "bfloat16" not in str(dtype) and str(dtype) != "|V2":
        return str(dtype)
    return (
        f"{dtype}: bfloat16 changes a norm by up to 0.4 %, and the bounds hold for the changed norms only; compute the "
        "norms in float32 (tensor.float() or array.astype(numpy.float32) before the norm)"
    )


def in_order(values: Any, name: str, axis: int = -1) -> None:
    """Raise unless the labels of the people's axis of a pandas object are 0, 1, 2, ...

    People are counted by position.  Other labels could mean another order, which would give people each other's loss.
    """
    if type(values).__module__.partition(".")[0] != "pandas" or not hasattr(values, "axes"):
        return
    labels = np.asarray(values.axes[axis])
    if not np.array_equal(labels, np.arange(len(labels))):
        what = "columns" if len(values.axes) == 2 and axis == -1 else "index labels"
        raise ValueError(
            f"{name}: people are counted by position, but the {what} of this {type(values).__name__} are not "
            "0, 1, 2, ...; sort it into the order of the people, and pass .to_numpy()"
        )


def norm_error(array: np.ndarray, *, first_row: int = 0) -> ValueError:
    """The error that names the first norm that is NaN, infinite or negative."""
    bad = np.argwhere(~((array >= 0) & (array < np.inf)))[0]
    value = array[tuple(bad)]
    row, column = (first_row, int(bad[0])) if array.ndim == 1 else (first_row + int(bad[0]), int(bad[1]))
    return ValueError(f"norms must be finite and at least 0, got {value} at step {row}, example {column}")


def nonnegative(value: Any, name: str) -> float:
    """A finite number of at least 0."""
    x = _number(value, name)
    if not 0 <= x < np.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    return x
