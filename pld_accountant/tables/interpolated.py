"""Tables for interpolated steps between neighbouring buckets (see `counting.interpolation`).

With x = log(M_b / M_a), the mixture (1 - w) M_a + w M_b exceeds the product M_a^(1 - w) M_b^w, which the matrix product
of weights and tables gives, by a factor exp(f).  `errors.interpolation` bounds |f| at every frequency.  Each step's
error lies in both of its buckets with the larger of the two buckets' bounds, so that its weights 1 - w and w carry it
once.

**Variance term.**  f = w (1 - w) x^2 / 2 plus an error of third order.  A person's steps in a bucket have together the
variance v = sum of w (1 - w).  It is known if there is one step, and lies between 0 and W (n - W) / n otherwise, as
w (1 - w) is concave.  `add_variance` adds the term for the middle of that range, and charges the rest of the range and
the third order as errors.  Few steps need it, whose x are large; for many steps all of f is negligible.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernels import _columns as c
from . import errors
from .table import Table

__all__ = ["add_variance", "interpolate", "larger_of_pair", "log_moment_errors"]


def log_moment_errors(k: NDArray, neighbours: NDArray) -> NDArray:
    """What interpolation adds to the log-moments, at most and per step: (buckets, tilts)."""
    return larger_of_pair(errors.interpolation(np.diff(k, axis=0)[neighbours]), np.flatnonzero(neighbours), len(k))


def interpolate(table: Table, neighbours: NDArray) -> None:
    """Let steps be interpolated between neighbouring buckets; the table's `plain` scalars must be filled.

    Phases of neighbours come to differ by less than pi.  The columns of the block `interpolation` are filled, and the
    scalars allow for fractional powers.

    Parameters
    ----------
    table : Table
    neighbours : ndarray of bool, shape (buckets - 1,)
        Whether steps are interpolated between a bucket and the next.
    """
    assert table.plain is not None
    plain, columns, omega, size = table.plain, table.columns, table.omega, len(table.columns)
    first = np.flatnonzero(neighbours & table.filled[:-1] & table.filled[1:])
    im = table.im
    turns = _turns(np.diff(im, axis=0)[first] + np.diff(plain[:, c.MEAN])[first, None] * omega[1:], first)
    im[: len(turns)] -= 2.0 * np.pi * turns
    # the logarithms of the moment generating functions, and bounds of their errors
    log = plain[:, [c.LOG_MOMENT]] + 1j * plain[:, [c.MEAN]] * omega + table.log_phi()
    error = plain[:, [c.RELATIVE_ERROR]] + plain[:, [c.RELATIVE_SLOPE]] * omega + plain[:, [c.LOG_MOMENT_ERROR]]
    error = np.minimum(2.0 * error, 1e100)
    apart, error = np.diff(log, axis=0)[first], error[first] + error[first + 1]
    block = table.interpolation
    if table.variance is None:
        added = errors.interpolation(apart, error)
        added[:, 0] = errors.interpolation(apart[:, 0].real, error[:, 0])
        growth = (np.abs(apart.real).max(axis=1) + error.max(axis=1)) ** 2 / 8.0
        block[:] = larger_of_pair(np.column_stack([added[:, 0], growth, added[:, 1:]]), first, size)
    else:
        table.variance[0][first + 1] = 0.5 * apart**2
        table.variance[1][first + 1] = errors.interpolation_beyond_variance(apart, error)
        block[:] = 0.0
    # round-off of the matrix product in phases beyond pi
    block[:, 2:] += (size + 8) * 2.0**-51 * np.maximum(np.abs(im) - np.pi, 0.0)
    envelope = errors.interpolation((np.diff(plain[:, c.LOG_MOMENT]) + np.diff(plain[:, c.ENVELOPE]))[first])
    columns[:, c.ENVELOPE] = plain[:, c.ENVELOPE] + larger_of_pair(envelope, first, size)
    # Absolute errors say nothing of fractional powers.  |(1 + e)^c - 1| is at most exp(c |log(1 - |e|)|) - 1, and
    # -log(1 - e) at most e / (1 - e).
    columns[:, [c.ERROR, c.ERROR_SLOPE]] = 1e200
    most = plain[:, c.RELATIVE_ERROR] + plain[:, c.RELATIVE_SLOPE] * omega[-1]
    for column in (c.RELATIVE_ERROR, c.RELATIVE_SLOPE):
        columns[:, column] = plain[:, column] / (1.0 - np.minimum(most, 0.5))
    columns[most > 0.5, c.RELATIVE_ERROR] = 1e200
    of_pair = np.maximum(plain[first, c.LOG_MOMENT_ERROR], plain[first + 1, c.LOG_MOMENT_ERROR])
    columns[:, c.LOG_MOMENT_ERROR] = np.maximum(plain[:, c.LOG_MOMENT_ERROR], larger_of_pair(of_pair, first, size))


def add_variance(exponents: NDArray, table: Table, number: NDArray, middle: NDArray, doubt: NDArray) -> None:
    """Add the variance term of interpolated steps to everybody's exponents, and the rest of f to their errors.

    Parameters
    ----------
    exponents : ndarray, shape (people, columns)
        counts @ table.columns; changed.
    number, middle, doubt : ndarray, shape (people, buckets)
        For the interpolated steps between a bucket and the one before it: their number; the middle of the range of
        their variance, and half its length.
    """
    assert table.variance is not None
    second, beyond = table.variance
    re, im, block, last = c.blocks(table.frequencies)
    size = np.abs(second)
    # the products' round-off, the kernel's among them
    units = (2.0 * len(second) + 4.0 * table.frequencies + 64.0) * 2.0**-51
    error = doubt @ size + number @ beyond + units * (middle @ (size + size[:, :1]))
    term = middle @ second
    exponents[:, c.LOG_MOMENT] += term[:, 0].real
    exponents[:, re:im] += term[:, 1:].real - term[:, :1].real
    exponents[:, im:block] += term[:, 1:].imag
    exponents[:, block] += error[:, 0]
    exponents[:, block + 1] = errors.USELESS  # |exp(E)| is bounded by exp(|E|) alone
    exponents[:, block + 2 : last] += error[:, 1:]


def larger_of_pair(values: NDArray, first: NDArray, buckets: int) -> NDArray:
    """The larger value, (pairs, ...), of the pairs to which a bucket belongs; 0 for a bucket in no pair."""
    out = np.zeros((buckets, *values.shape[1:]))
    out[first] = values
    out[first + 1] = np.maximum(out[first + 1], values)
    return out


def _turns(apart: NDArray, first: NDArray) -> NDArray:
    """How many turns to take off each bucket's phases, so that neighbours in `first` differ by at most half a turn.

    apart (pairs, m): phase of the next bucket less that of the bucket.  Shape (last bucket of a pair + 1, m).
    """
    turns = np.zeros((int(first.max(initial=-1)) + 2, apart.shape[1]))
    for bucket, turn in zip(first, np.round(apart / (2.0 * np.pi)), strict=True):
        # a turn of one bucket is a turn of all later buckets of its chain
        turns[bucket + 1] = turns[bucket] + turn
    return turns
