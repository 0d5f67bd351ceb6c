"""kernels/charge.py: single charges against exact rationals."""

from fractions import Fraction

import numpy as np
import pytest

from pld_accountant.filters.integer_budget import round_up
from pld_accountant.kernels.charge import BUDGET, admit_square, admit_table


def booked(kernel, norms, clip, scale, orders=0):
    left = np.full((norms.size, orders) if orders else norms.size, BUDGET)
    counts = np.zeros(norms.size, np.int64)
    inverse = round_up(1 / Fraction(clip)) if clip < np.inf else 1.0
    assert kernel(norms, clip, inverse, scale, 1, left, counts) == -1
    assert np.all(counts == 1)
    return [int(x) for x in BUDGET - left.reshape(-1)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip", [1.0, 0.7872438989061009, 1e-3, 1e5, np.inf])
def test_a_charge_is_the_exact_square_rounded_up(dtype, clip):
    rng = np.random.default_rng(2)
    top = min(clip, 3.0)
    norms = (top * rng.uniform(0, 1.2, 4000) * 10.0 ** -rng.integers(0, 12, 4000)).astype(dtype)
    scale = 0.37 * 2.0**58
    for norm, units in zip(norms.tolist(), booked(admit_square, norms, clip, scale), strict=True):
        ratio = min(Fraction(norm), Fraction(clip)) / Fraction(clip) if clip < np.inf else Fraction(norm)
        exact = ratio**2 * Fraction(scale)
        assert exact <= units <= exact * (1 + Fraction(1, 2**48)) + 1


@pytest.mark.parametrize("clip", [1.0, 0.7872438989061009])
def test_a_tabulated_charge_is_the_exact_chord_rounded_up(clip):
    rng = np.random.default_rng(3)
    cells = 16
    tables = np.zeros((cells + 1, 2))
    tables[1:] = np.cumsum(rng.uniform(0, 1, (cells, 2)), axis=0) * [2.0**55, 2.0**40]
    norms = clip * np.append(rng.uniform(0, 1.1, 3000) ** 3, np.sqrt(np.arange(1, cells + 1) / cells))
    units = np.array(booked(admit_table, norms, clip, tables, 2), dtype=object).reshape(-1, 2)
    for norm, pair in zip(norms.tolist(), units, strict=True):
        place = min(Fraction(norm) / Fraction(clip), Fraction(1)) ** 2 * cells
        cell = min(int(place), cells - 1)
        for a in range(2):
            low, high = Fraction(tables[cell, a]), Fraction(tables[cell + 1, a])
            exact = low + (place - cell) * (high - low)
            assert exact <= pair[a] <= exact * (1 + Fraction(1, 2**44)) + 1


def test_one_cell_is_a_square_law_without_end():
    norms = np.array([0.0, 1e-160, 0.5, 1.0, 3.0, 1e3])
    table = np.array([[0.0], [2.0**40]])
    for norm, units in zip(norms.tolist(), booked(admit_table, norms, np.inf, table, 1), strict=True):
        exact = Fraction(norm) ** 2 * 2**40
        assert exact <= units <= exact * (1 + Fraction(1, 2**48)) + 1


@pytest.mark.parametrize("norm", [1e200, 1e300, 1.7e308])
def test_what_no_budget_can_hold_is_refused(norm):
    for kernel, scale, left in (
        (admit_square, 1e250, np.full(1, BUDGET)),
        (admit_table, np.array([[0.0], [1e280]]), np.full((1, 1), BUDGET)),
    ):
        counts = np.ones(1, np.int64)
        with np.errstate(over="ignore", invalid="ignore"):  # for the kernels run without compilation
            kernel(np.array([norm]), np.inf, 1.0, scale, 1, left, counts)
        assert not counts[0] and left.max() == BUDGET
