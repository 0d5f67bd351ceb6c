"""fft.py: the round-off of a transform stays below its bound, and not far below."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.fft

from pld_accountant import fft


@pytest.mark.parametrize("size", [2, 64, 4096, 1 << 15])
@pytest.mark.parametrize("kind", ["ones", "random", "spike"])
def test_transforms_err_by_at_most_their_round_off(size, kind):
    rng = np.random.default_rng(size)
    values = {"ones": np.ones(size), "random": rng.standard_normal(size), "spike": np.full(size, 1e-9)}[kind]
    if kind == "spike":
        values[size // 3] = 1.0
    exact = scipy.fft.rfft(values.astype(np.longdouble))
    error = float(np.max(np.abs(fft.rfft(values) - exact)))
    bound = fft.roundoff(size, float(np.linalg.norm(values)))
    assert error <= bound
    if kind == "random" and size > 2:
        assert bound <= 1e4 * error
    if kind == "spike":  # a larger error in one place would go unnoticed beside it
        assert bound < 1e-11


def test_transforms_of_one_size_in_several_threads_do_not_mix():
    rng = np.random.default_rng(3)
    values = [rng.standard_normal(1 << 16) for _ in range(8)]
    expected = [fft.rfft(one) for one in values]
    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(fft.rfft, values * 20)):
            assert np.array_equal(found, expected[number % 8])
