"""Blocks of people over threads: nothing may depend on which thread is done first."""

import os
import signal
import subprocess
import sys
import threading
import time

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from pld_accountant.threads import for_blocks, in_order


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


def test_blas_has_all_its_threads_again_when_the_last_caller_is_done():
    """The calls overlap: the second begins before, and ends after, the first one's end."""
    np.ones((2, 2)) @ np.ones((2, 2))
    before = blas_threads()
    first, second = (in_order(lambda _: blas_threads(), range(2), alone=True) for _ in range(2))
    next(first)
    next(second)
    assert len(list(first)) == 1
    assert next(second)[1] == {1}
    assert list(second) == []
    assert blas_threads() == before


@pytest.mark.parametrize(("number", "least"), [(0, 5), (1, 5), (5, 5), (11, 5), (10_000, 1), (10_000, 20_000)])
def test_every_row_is_in_one_block(threads, number, least):
    done = np.zeros(number, dtype=int)
    seen = set()

    def work(rows):
        done[rows] += 1
        seen.add(threading.get_ident())
        assert rows.stop - rows.start >= min(least, number) or rows.stop == number

    for_blocks(work, number, least)
    assert np.all(done == 1)
    assert number > least or seen <= {threading.get_ident()}


def test_blocks_are_done_by_as_many_threads_as_numba_may_use(threads):
    seen = set()
    meeting = threading.Barrier(threads, timeout=20)

    def work(_):
        seen.add(threading.get_ident())
        meeting.wait()

    for_blocks(work, 2 * threads, 1)
    assert len(seen) == threads
    assert threading.get_ident() in seen


def test_an_error_in_a_block_is_raised_after_the_others_are_done(threads):
    done = []

    def work(rows):
        done.append(rows.start)
        if rows.start == 3:
            raise IndexError("three")

    with pytest.raises(IndexError, match="three"):
        for_blocks(work, 9, 1)
    assert sorted(done) == list(range(9))


def test_no_thread_works_after_an_interrupt(threads):
    done, before = [], threading.active_count()

    def work(rows):
        if threading.current_thread() is threading.main_thread():
            time.sleep(0.1)  # so that the other thread has a block
        else:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)  # the main thread waits
            time.sleep(0.3)
        done.append(rows.start)

    if threads > 1:
        with pytest.raises(KeyboardInterrupt):
            for_blocks(work, 2, 1)
    else:
        for_blocks(work, 2, 1)
    assert threading.active_count() == before
    assert sorted(done) == [0, 1]


def test_numbas_threading_layer_is_not_started():
    """GNU OpenMP, one of its layers, does not survive a fork."""
    code = """
import numba, numpy as np, pld_accountant as pa
book = pa.Ledger(40_000, noise_multiplier=2.0, sample_rate=0.02, max_grad_norm=1.0, buckets=4)
book.record(np.ones(40_000), repeat=5_000)
book.epsilon(1e-3, bounds="upper")
try:
    print(numba.threading_layer())
except ValueError:
    print("none")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "none\n"


@pytest.mark.parametrize("number", ["1", "2"])
def test_the_environment_limits_the_threads(number):
    code = "from pld_accountant.threads import _limit; print(_limit())"
    environment = {**os.environ, "NUMBA_NUM_THREADS": number}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"{number}\n"
