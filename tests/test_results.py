"""Bounds as a user of a notebook meets them: what they print, how they are indexed, compared and turned into tables."""

import re
import sys

import numpy as np
import pytest

from pld_accountant.results import Bounds, Method, Status

UPPER = np.array([0.375001, 0.125, 0.25, np.inf])
STATUS = np.array([0, 0, 1, 2], dtype=np.uint8)


@pytest.fixture
def many():
    return Bounds(np.array([0.25, 0.0625, 0.0, 0.0]), np.array([0.25, 0.07, 0.1, np.nan]), UPPER.copy(), STATUS)


def test_the_text_is_short_and_rounds_upper_bounds_up(many):
    assert repr(many[:3]) == "Bounds(3 elements: upper 0.1250 to 0.3751, median 0.2500; 2 CERTIFIED, 1 RENYI_ONLY)"
    assert repr(many[:2]).endswith("; all certified)")
    million = Bounds(*(np.linspace(0, 1, 1_000_000),) * 3)
    assert len(repr(million)) < 100 and "1,000,000 elements" in repr(million)
    assert repr(Bounds(0.9, 1.0, 1.1)) == (
        "Bounds(lower=0.9, estimate=1.0, upper=1.1, status=CERTIFIED, method=CLOSED_FORM)"
    )
    assert repr(many[:0]) == "Bounds(0 elements)"
    assert "2 x 4 elements" in repr(Bounds(*(np.ones((2, 4)),) * 3))


def test_the_table_of_a_notebook_rounds_each_bound_to_its_safe_side(many):
    cells = re.findall(r"<t[hd]>([^<]*)</t[hd]>", many._repr_html_())
    assert cells == [
        *("", "smallest", "median", "largest"),
        *("lower", "0", "0", "0.2500"),
        *("estimate", "0.07", "0.1", "0.25"),
        *("upper", "0.1250", "0.2500", "inf"),
    ]
    assert "Bounds of 4 elements, 2 CERTIFIED, 1 RENYI_ONLY, 1 NOT_CERTIFIED" in many._repr_html_()
    only = Bounds(np.full(2, np.nan), np.full(2, np.nan), np.ones(2))
    assert "lower" not in only._repr_html_() and "upper" in only._repr_html_()
    assert "Bounds of 1 element, all certified" in Bounds(0.9, 1.0, 1.1)._repr_html_()


def test_unpacking_gives_three_and_length_counts_elements(many):
    lower, estimate, upper = many
    assert np.array_equal(upper, UPPER) and np.array_equal(lower, many.lower) and estimate is many.estimate
    assert len(many) == 4
    with pytest.raises(TypeError, match="one number have no length"):
        len(many[0])
    assert many and many[0]


def test_bounds_are_not_taken_for_one_array(many):
    with pytest.raises(TypeError, match=r"take bounds\.lower"):
        np.asarray(many)


@pytest.mark.parametrize("index", [slice(1, 3), np.array([True, False, True, False]), [3, 0], np.array([2])])
def test_indexing_takes_all_parts(many, index):
    some = many[index]
    for name in ("lower", "estimate", "upper", "status"):
        assert np.array_equal(getattr(some, name), getattr(many, name)[index], equal_nan=True)
    assert np.array_equal(some.method, np.zeros(len(some)))


def test_an_integer_gives_numbers(many):
    one = many[2]
    assert (one.upper, one.status, one.method) == (0.25, Status.RENYI_ONLY, Method.CLOSED_FORM)
    assert isinstance(one.upper, float) and isinstance(one.status, Status)


def test_equality_is_one_answer(many):
    same = Bounds(*(np.array(part) for part in many), many.status.copy(), np.zeros(4, dtype=np.uint8))
    assert many == same
    assert many != Bounds(*many)  # another status
    assert many != many[:3] and many != "bounds"
    assert Bounds(0.9, 1.0, 1.1) == Bounds(0.9, 1.0, 1.1) != Bounds(0.9, 1.0, 1.2)


def test_the_arrays_cannot_be_changed_and_those_given_still_can(many):
    for name in ("lower", "estimate", "upper", "status"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(many, name)[0] = 1
    given = np.ones(2)
    Bounds(given, given, given)
    given[0] = 2.0


def test_a_data_frame_holds_every_part(many):
    pandas = pytest.importorskip("pandas")
    table = many.to_pandas()
    assert list(table) == ["lower", "estimate", "upper", "status", "method"]
    assert np.array_equal(table["upper"], UPPER) and table.index.equals(pandas.RangeIndex(4))
    assert table["status"].tolist() == ["CERTIFIED", "CERTIFIED", "RENYI_ONLY", "NOT_CERTIFIED"]
    assert set(table["method"]) == {"CLOSED_FORM"}
    assert len(many[0].to_pandas()) == 1
    with pytest.raises(ValueError, match="choose a row"):
        Bounds(*(np.ones((2, 4)),) * 3).to_pandas()


def test_without_pandas_the_error_says_how_to_install_it(many, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'individual-pld-accountant\[pandas\]'"):
        many.to_pandas()
