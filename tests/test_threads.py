"""Blocks of people over threads: nothing may depend on which thread is done first."""

import threading
import time

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from pld_accountant.threads import in_order


@pytest.fixture(params=[1, 2])
def threads(request):
    before = numba.get_num_threads()
    if request.param > numba.config.NUMBA_NUM_THREADS:
        pytest.skip("one core")
    numba.set_num_threads(request.param)
    yield request.param
    numba.set_num_threads(before)


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("alone", [True, False])
def test_results_come_in_the_order_of_the_parts(threads, alone):
    def slow_at_first(n):
        time.sleep(0.02 if n == 0 else 0.0)
        return n * n

    assert list(in_order(slow_at_first, iter(range(20)), alone=alone)) == [(n, n * n) for n in range(20)]


def test_as_many_threads_work_as_numba_may_use(threads):
    seen = set()
    meeting = threading.Barrier(threads, timeout=20)

    def work(_):
        seen.add(threading.get_ident())
        meeting.wait()

    list(in_order(work, range(2 * threads)))
    assert len(seen) == threads
    assert (threading.get_ident() in seen) == (threads == 1)


def test_blas_keeps_to_one_thread_meanwhile_and_not_afterwards(threads):
    np.ones((2, 2)) @ np.ones((2, 2))
    before = blas_threads()
    inside = [found for _, found in in_order(lambda _: blas_threads(), range(3))]
    assert all(1 in found for found in inside)
    assert blas_threads() == before


def test_an_error_in_a_part_is_raised(threads):
    def work(n):
        return 1 // (2 - n)

    with pytest.raises(ZeroDivisionError):
        list(in_order(work, range(5)))


def test_parts_are_taken_a_few_ahead_only(threads):
    taken = []

    def parts():
        for n in range(50):
            taken.append(n)
            yield n

    for part, _ in in_order(lambda n: n, parts()):
        assert len(taken) <= part + 2 + threads
