"""Tables for steps that are lotteries between neighbouring buckets (see `lotteries`): how their products are composed.

With x = log(M_b / M_a), a lottery's M_a^(1 - w) M_b^w is short of the first of

    exp(w (1 - w) x^2 / 2) and a term of third order in x.

**First order.**  Both are an error, that of every frequency by itself.  That is next to nothing where Q is not small.

**Second order.**  The first is summed up.  Of n lotteries whose w add up to W only v, the sum of w (1 - w), is not
known: it lies between 0 and 2 V = W (n - W) / n, as w (1 - w) is concave.  So V x^2 / 2 is added for them, and what an
error of v by V can do to Q is V |sum_f a_f exp(...) x_f^2 / 2|, to first order in V: a sum as that for Q itself, and
small where that is (`kernels.plancherel`).  With s = x^2 / 2 and y = sum of V |s| over all buckets, R the sum of the
third order's terms, the rest is at most

    |exp(sum of (v - V) s + r) - 1 - sum of (v - V) s| <= exp(y + R) - 1 - y,   |v - V| <= V, |r| <= R.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import errors as budget
from .table import COLUMNS, Table

__all__ = ["add_second_order", "join"]


def join(table: Table, neighbours: NDArray) -> None:
    """Let steps be lotteries between neighbouring buckets.

    Their phases come to differ by less than pi, and the columns beyond the frequencies say what lotteries add as an
    error.  A lottery's share lies in both buckets, so that each of them carries what either of its lotteries may add.

    Parameters
    ----------
    table : Table
        With `own`, and with `second` and `third` where the second order is to be summed up.
    neighbours : ndarray of bool, shape (buckets - 1,)
        Whether there are lotteries between a bucket and the next.
    """
    assert table.own is not None
    m, own, columns = table.frequencies, table.own, table.columns
    omega = 2.0 * np.pi / table.period * np.arange(m + 1)
    first = np.flatnonzero(neighbours & table.filled[:-1] & table.filled[1:])
    im = columns[:, COLUMNS + m : COLUMNS + 2 * m]
    turns = _turns(np.diff(im, axis=0)[first] + np.diff(own[:, 1])[first, None] * omega[1:], first)
    im[: len(turns)] -= 2.0 * np.pi * turns
    # the logarithms of the moment generating functions, and how far they may be off
    log = own[:, :1] + 1j * own[:, 1:2] * omega
    log[:, 1:] += columns[:, COLUMNS : COLUMNS + m] + 1j * im
    off = np.minimum(2.0 * (own[:, 8:9] + own[:, 9:10] * omega + own[:, 4:5]), 1e100)
    apart, off = np.diff(log, axis=0)[first], off[first] + off[first + 1]
    if table.second is not None and table.third is not None:
        table.second[first + 1] = 0.5 * apart**2
        table.third[first + 1] = budget.lottery_beyond(apart, off)
        columns[:, COLUMNS + 2 * m :] = 0.0
    else:
        _add_first_order(table, first, apart, off)
    # the matrix product's round-off of phases that went round
    columns[:, COLUMNS + 2 * m + 2 :] += (len(columns) + 8) * 2.0**-51 * np.maximum(np.abs(im) - np.pi, 0.0)
    envelope = budget.lottery((np.diff(own[:, 0]) + np.diff(own[:, 2]))[first])
    columns[:, 2] = own[:, 2] + _of_both(envelope, first, len(columns))
    # A product of fractional powers is known relative to itself alone: |(1 + e)^c - 1| is at most
    # exp(c |log(1 - |e|)|) - 1, and -log(1 - e) at most e / (1 - e).
    columns[:, [3, 7]] = 1e200
    most = own[:, 8] + own[:, 9] * omega[-1]
    columns[:, 8:10] = own[:, 8:10] / (1.0 - np.minimum(most, 0.5))[:, None]
    columns[most > 0.5, 8] = 1e200
    columns[:, 4] = np.maximum(own[:, 4], _of_both(np.maximum(own[first, 4], own[first + 1, 4]), first, len(columns)))


def _add_first_order(table: Table, first: NDArray, apart: NDArray, off: NDArray) -> None:
    m = table.frequencies
    adds = budget.lottery(apart, off)
    adds[:, 0] = budget.lottery(apart[:, 0].real, off[:, 0])
    real = np.abs(apart.real).max(axis=1) + off.max(axis=1)
    added = np.column_stack([adds[:, 0], real**2 / 8.0, adds[:, 1:]])
    table.columns[:, COLUMNS + 2 * m :] = _of_both(added, first, len(table.columns))


def _of_both(values: NDArray, first: NDArray, buckets: int) -> NDArray:
    """The larger of the values (pairs, ...) of the pairs that a bucket belongs to, 0 where it belongs to none."""
    out = np.zeros((buckets, *values.shape[1:]))
    out[first] = values
    out[first + 1] = np.maximum(out[first + 1], values)
    return out


def _turns(apart: NDArray, first: NDArray) -> NDArray:
    """How many turns to take off the phases of each bucket so that those in `first` are less than half from the next.

    apart (pairs, frequencies): phase of the next less that of the bucket.  Shape (last bucket of a pair + 1, ...).
    """
    turns = np.zeros((int(first.max(initial=-1)) + 2, apart.shape[1]))
    for bucket, turn in zip(first, np.round(apart / (2.0 * np.pi)), strict=True):
        # a turn of one is a turn of all that follow in its chain
        turns[bucket + 1] = turns[bucket] + turn
    return turns


def add_second_order(exponents: NDArray, table: Table, number: NDArray, half: NDArray) -> None:
    """Add what lotteries add to everybody's exponents, in the middle, and the rest of it to the errors.

    Parameters
    ----------
    exponents : ndarray, shape (people, columns)
        counts @ table.columns; changed.
    number, half : ndarray, shape (people, buckets)
        Of the lotteries between a bucket and the one before it: how many there are, and V.
    """
    assert table.second is not None and table.third is not None
    m, second = table.frequencies, table.second
    size = half @ np.abs(second)
    beyond = number @ table.third
    # the products' round-off, the kernel's among them
    units = (2.0 * len(second) + 4.0 * m + 64.0) * 2.0**-51
    beyond += units * (size + size[:, :1])
    # exp(R e^y + e^y - 1 - y) - 1 is at least exp(y + R) - 1 - y: e^y (e^R - 1) <= exp(R e^y) - 1
    y = np.minimum(size, 1.0)
    error = np.where(size <= 1.0, beyond * np.exp(y) + 0.5 * y**2 * np.exp(0.5 * y), 1e4)
    exponents[:, 0] += half @ second[:, 0].real
    exponents[:, COLUMNS : COLUMNS + m] += half @ (second[:, 1:].real - second[:, :1].real)
    exponents[:, COLUMNS + m : COLUMNS + 2 * m] += half @ second[:, 1:].imag
    errors = exponents[:, COLUMNS + 2 * m : COLUMNS + 3 * m + 2]
    errors[:, 0] += error[:, 0]
    errors[:, 1] = 1e4
    errors[:, 2:] += error[:, 1:]
    if table.mixed is not None and table.mixed_beyond is not None:
        more, rest = half @ np.abs(table.mixed), number @ table.mixed_beyond
        _add_to_large(exponents[:, COLUMNS + 3 * m + 2 :], table.mixed, half, size + beyond, more, rest + units * more)


def _add_to_large(
    columns: NDArray, mixed: NDArray, half: NDArray, product: NDArray, size: NDArray, beyond: NDArray
) -> None:
    """The same for R (see `large_losses`).

    With p what lotteries do to the product (at most `product`) and e what they do to R, in the middle, at most
    size + beyond, the part in which some loss is large comes to

        exp(p) (exp(R + e) - 1) = (exp(R) - 1) exp(p) + exp(R) ((exp(e) - 1) + (exp(p) - 1) (exp(e) - 1)),

    the first term as before; of the second, the first order of e is a sum like Q's (`kernels.plancherel`).
    """
    m = mixed.shape[1] - 1
    columns[:, : m + 1] += half @ mixed.real
    columns[:, m + 1 : 2 * (m + 1)] += half @ mixed.imag
    y = np.minimum(size, 1.0)
    error = beyond * np.exp(y) + 0.5 * y**2 * np.exp(0.5 * y)
    error += np.expm1(np.minimum(product, 1.0)) * np.expm1(np.minimum(size + beyond, 1.0))
    columns[:, 2 * (m + 1) : 3 * (m + 1)] += np.where(np.maximum(product, size + beyond) <= 1.0, error, 1e4)
