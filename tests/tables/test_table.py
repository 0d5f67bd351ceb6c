"""Tables: the scalars that the kernels read, and the cache."""

import numpy as np
import pytest

from pld_accountant.kernels import _columns as c
from pld_accountant.tables.table import MemoryCache, Table, log_expm1


def made(m, extra=0):
    """Every column holds its own number."""
    columns = np.tile(np.arange(c.HEAD + 2 * m + extra, dtype=float), (3, 1))
    return Table(2.0, 8.0, columns, np.ones(3, dtype=bool), np.ones(m + 1, dtype=complex), 0.25, grid_step=0.5)


def test_the_setting_has_every_scalar():
    setting = made(4).setting()
    assert setting.shape == (c.SETTINGS,)
    assert setting[c.THETA] == 2.0
    assert setting[c.PERIOD] == 8.0
    assert setting[c.SPACING] == pytest.approx(2.0 * np.pi / 8.0)
    assert setting[c.BAND_COEFFICIENT] == 0.25
    assert setting[c.GRID_STEP] == 0.5
    assert setting[c.PRODUCT_ROUNDING] == 11 * 2.0**-52


def test_the_blocks_of_a_table_are_views_that_adjoin():
    m = 4
    table = made(m, m + 2)
    assert table.frequencies == m
    blocks = [table.columns[:, : c.HEAD], table.re, table.im, table.interpolation]
    np.testing.assert_array_equal(np.hstack(blocks), table.columns)
    assert [b.shape[1] for b in blocks[1:]] == [m, m, m + 2]
    assert all(np.shares_memory(b, table.columns) for b in blocks)
    assert made(m).interpolation.shape == (3, 0)
    assert table.omega == pytest.approx(2.0 * np.pi / 8.0 * np.arange(m + 1))
    assert not table.log_phi()[:, 0].any()
    np.testing.assert_array_equal(table.log_phi()[:, 1:], table.re + 1j * table.im)


def test_log_expm1():
    x = np.array([1e-10, 1.0, 50.0, 599.0, 601.0, 1e6])
    exact = np.array([np.log(1e-10), np.log(np.e - 1.0), 50.0, 599.0, 601.0, 1e6])
    assert log_expm1(x) == pytest.approx(exact, rel=1e-9)
    assert log_expm1(np.zeros(1))[0] < -690.0


def test_the_cache_forgets_what_was_used_longest_ago():
    cache: MemoryCache[int] = MemoryCache(10, lambda value: value)
    calls = []

    def get(value):
        return cache.get(value, lambda: calls.append(value) or value)

    assert [get(v) for v in (4, 5, 4)] == [4, 5, 4]
    assert calls == [4, 5]
    get(3)  # 12 in all: 5 goes, 4 was used since
    get(4)
    assert calls == [4, 5, 3]
    get(5)
    assert calls == [4, 5, 3, 5]
    # a value larger than the cache is kept alone
    get(100)
    get(100)
    assert calls[-1] == 100
    assert calls.count(100) == 1
