"""What is a number: the one check behind every parameter."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant import validate

NOT_NUMBERS = [
    None,
    "1e-5",
    b"1",
    True,
    np.True_,
    np.array(True),
    1j,
    np.complex128(0.5),
    10**400,
    [0.5],
    np.array([0.5]),
    np.ma.masked,
    np.ma.array(0.5, mask=True),
    np.datetime64("2020-01-01"),
    pytest.param(object(), id="object"),
    {},
]


@pytest.mark.parametrize("bad", NOT_NUMBERS, ids=repr)
def test_not_a_number(bad):
    """Refused by name, without a warning on the way."""
    checks = (lambda v: validate.count(v, "delta"), lambda v: validate.positive(v, "delta"))
    for check in (validate.delta, *checks):
        with pytest.raises(ValueError, match="delta must be a number, got"):
            check(bad)


@pytest.mark.parametrize(
    "good", [0.5, np.float16(0.5), np.float32(0.5), np.longdouble(0.5), np.array(0.5), Fraction(1, 2), Decimal("0.5")]
)
def test_a_number_of_any_type(good):
    value = validate.delta(good)
    assert (value, type(value)) == (0.5, float)


def test_arrays_of_numbers():
    assert validate.numbers([1, Fraction(1, 2)], "x").tolist() == [1.0, 0.5]
    assert validate.numbers(np.longdouble("1e400"), "x") == np.inf
    for bad in (["1"], [1j], [True], np.ma.array([1.0, 2.0], mask=[False, True]), [None], [10**400], "1", None):
        with pytest.raises(ValueError, match="x must be a number or an array of numbers"):
            validate.numbers(bad, "x")


def test_norms_of_any_kind_of_array():
    """The same norms in other types and orders are the same steps; what is masked is not taken for what lies under."""
    ledger = {"noise_multiplier": 2.0, "sample_rate": 0.01, "max_grad_norm": 1.0, "buckets": 16}
    log = np.array([[0.5, 1.0, 0.25], [0.0, 3.0, 0.125]])
    expected = pa.Ledger.from_norms(log, **ledger).counts
    for same in (
        log.astype(np.float16),
        log.astype(np.float32),
        log.astype(np.longdouble),
        log.astype(">f8"),
        np.asfortranarray(log),
        np.repeat(log, 2, axis=1)[:, ::2],
        np.ma.array(log),
        log.tolist(),
    ):
        np.testing.assert_array_equal(pa.Ledger.from_norms(same, **ledger).counts, expected)
    whole = pa.Ledger(3, **ledger)
    whole.record(np.array([0, 3, 1], dtype=np.uint8))
    assert whole.counts.sum() == 2
    masked = np.ma.array(log, mask=log == 0)
    with pytest.raises(ValueError, match="norms must not be masked"):
        pa.Ledger.from_norms(masked, **ledger)
    keep = pa.GaussianFilter(1.0, num_examples=3, noise_multiplier=2.0)
    with pytest.raises(ValueError, match="norms must not be masked"):
        keep.admit(masked[1])
    for bad in (log.astype(complex), log.astype(str), log.astype(object), log > 0):
        with pytest.raises(ValueError, match="norms must be real numbers"):
            pa.Ledger.from_norms(bad, **ledger)


@pytest.mark.parametrize("good", [1e-100, 1, 2.5, 1e100])
def test_clipping_norms(good):
    value = validate.clipping_norm(good)
    assert (value, type(value)) == (good, float)


@pytest.mark.parametrize("bad", [0.0, -1.0, 9e-101, 1.1e100, np.inf, np.nan, "1"])
def test_clipping_norms_whose_scale_could_overflow(bad):
    with pytest.raises(ValueError, match="max_grad_norm must"):
        validate.clipping_norm(bad)
    with pytest.raises(ValueError, match="clip must"):
        validate.clipping_norm(bad, "clip")


@pytest.mark.parametrize("good", [2, 256.0, np.int16(4096)])
def test_numbers_of_buckets(good):
    value = validate.buckets(good)
    assert (value, type(value)) == (good, int)


@pytest.mark.parametrize("bad", [1, 0, -2, 2.5, 4097, np.nan, np.inf, "16"])
def test_numbers_of_buckets_out_of_range(bad):
    with pytest.raises(ValueError, match="buckets must be"):
        validate.buckets(bad)


def test_a_pandas_index_that_could_mean_another_order_is_refused():
    pandas = pytest.importorskip("pandas")
    series, frame = pandas.Series([1.0, 2.0, 3.0]), pandas.DataFrame(np.ones((2, 3)))
    assert validate.norms(series, 3).tolist() == [1, 2, 3]
    assert validate.norms(frame, 3).shape == (2, 3)
    assert validate.norms(frame[1:], 3).shape == (1, 3)  # the index of steps says nothing about people
    for bad, what in (
        (series[::-1], "index labels of this Series"),
        (series.set_axis(["a", "b", "c"]), "index labels of this Series"),
        (frame[[2, 1, 0]], "columns of this DataFrame"),
    ):
        with pytest.raises(ValueError, match=f"norms: people are counted by position, but the {what}"):
            validate.norms(bad, 3)


class Tensor:
    """A tensor of torch in bfloat16, as far as numpy sees it."""

    dtype = "torch.bfloat16"

    def __array__(self, *arguments, **options):
        raise TypeError("Got unsupported ScalarType BFloat16")


def test_bfloat16_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"torch\.bfloat16: .* compute the norms in float32"):
        validate.norms(Tensor(), 3)
    with pytest.raises(ValueError, match=r"\|V2: bfloat16 changes"):  # as numpy loads it from a file
        validate.norms(np.zeros(3, dtype="V2"), 3)
    types = pytest.importorskip("ml_dtypes")
    with pytest.raises(ValueError, match="bfloat16 changes a norm by up to"):
        pa.Ledger(3, noise_multiplier=1, sample_rate=0.1, max_grad_norm=1).record(np.ones(3, dtype=types.bfloat16))


def test_only_a_log_with_a_row_per_person_is_told_to_be_transposed():
    with pytest.raises(ValueError, match="must be transposed"):
        validate.norms(np.ones((3, 5)), 3)
    with pytest.raises(ValueError, match=r"got \(4, 5\)$"):
        validate.norms(np.ones((4, 5)), 3)
