"""Forked children of a process that has computed: the same bounds, and no lock that nobody can release."""

import multiprocessing
import threading

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_info

import pld_accountant as pa
from pld_accountant.locked import held
from pld_accountant.threads import in_order

# from 3.12 on, Python warns at each fork of a process that has more than one thread
pytestmark = [
    pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

STEP = {"noise_multiplier": 2.0, "sample_rate": 0.02, "max_grad_norm": 1.0}
PEOPLE = 40_000  # whose norms are counted in several threads
NORMS = np.linspace(0.0, 1.0, PEOPLE)


def forked(work):
    """The result of `work()` in a forked child; its error is raised here."""
    context = multiprocessing.get_context("fork")
    mine, other = context.Pipe(duplex=False)

    def child():
        try:
            other.send((work(), None))
        except BaseException as error:
            other.send((None, error))

    process = context.Process(target=child)
    process.start()
    other.close()
    try:
        assert mine.poll(60), "the child hangs"
        try:
            result, error = mine.recv()
        except EOFError:
            process.join(10)
            raise AssertionError(f"the child was killed: exit code {process.exitcode}") from None
    finally:
        process.join(10)
        process.kill()
    if error is not None:
        raise error
    return result


def composed():
    steps = [(pa.SampledGaussian(2.0 + 0.1 * k, 0.02), 500) for k in range(9)]
    return tuple(pa.compose(steps).epsilon(1e-5))


def recorded():
    many, some = (pa.Ledger(people, buckets=8, **STEP) for people in (PEOPLE, 3_000))
    many.record(NORMS)
    some.record(NORMS[-3_000:], repeat=5_000)
    return many.counts.tobytes(), some.epsilon(1e-3, bounds="upper").upper.tobytes()


def filtered():
    keep = pa.GaussianFilter(0.5, num_examples=PEOPLE, noise_multiplier=4.0, max_grad_norm=1.0)
    return [keep.admit(NORMS).tobytes() for _ in range(6)], keep.spent().tobytes()


def filtered_by_mu():
    keep = pa.PLDFilter(0.3, 1e-5, num_examples=100, **STEP)
    return [keep.admit(NORMS[-100:]).tobytes() for _ in range(3)], keep.spent().tobytes()


QUESTIONS = [composed, recorded, filtered, filtered_by_mu]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_child_finds_what_its_parent_found(question):
    expected = question()
    assert forked(question) == expected


def test_a_grandchild_finds_it_too():
    expected = recorded(), composed()

    def child():
        own = recorded(), composed()
        return own, forked(lambda: (recorded(), composed()))

    assert forked(child) == (expected, expected)


def test_a_child_of_a_thread_finds_it_too():
    expected, found = recorded(), []
    thread = threading.Thread(target=lambda: found.append(forked(recorded)))
    thread.start()
    thread.join()
    assert found == [expected]


def test_a_child_goes_on_with_its_own_copy():
    book = pa.Ledger(100, buckets=8, **STEP)
    book.record(NORMS[-100:], repeat=5_000)
    book.epsilon(1e-3, bounds="upper")

    def child():
        book.record(NORMS[-100:], repeat=5_000)
        return book.steps, book.epsilon(1e-3, bounds="upper").upper

    steps, upper = forked(child)
    assert (steps, book.steps) == (10_000, 5_000)
    book.record(NORMS[-100:], repeat=5_000)
    assert book.epsilon(1e-3, bounds="upper").upper == pytest.approx(upper, rel=1e-3)


def test_numbas_own_threads_do_not_matter():
    """A user who limits the threads starts numba's threading layer, which no kernel uses."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        expected = recorded()
    finally:
        numba.set_num_threads(before)
    assert forked(recorded) == expected


def test_an_object_that_a_thread_was_changing_is_refused_in_the_child():
    """A thread that the child does not have would never release it."""
    keep = pa.GaussianFilter(0.5, num_examples=1, noise_multiplier=4.0, max_grad_norm=1.0)
    other = pa.GaussianFilter(0.5, num_examples=1, noise_multiplier=4.0, max_grad_norm=1.0)
    inside, done = threading.Event(), threading.Event()

    def change():
        with held(keep):
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=change)
    thread.start()
    inside.wait(60)
    try:
        assert forked(lambda: other.admit([1.0]).tolist()) == [True]
        with pytest.raises(RuntimeError, match="when the process was forked"):
            forked(lambda: keep.admit([1.0]).tolist())
    finally:
        done.set()
        thread.join()
    assert keep.admit([1.0]).tolist() == [True]


def test_a_fork_inside_of_a_callback_keeps_the_lock_of_the_calling_thread():
    book, found = pa.Ledger(100, buckets=8, **STEP), []
    book.record(NORMS[-100:], repeat=5_000)

    def progress(_done, _total):
        if not found:
            found.append(forked(lambda: book.steps))

    book.epsilon(1e-3, bounds="upper", progress=progress)
    assert found == [5_000]


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_a_child_has_all_threads_of_blas_again():
    """A thread that had limited them does not exist in the child."""
    np.ones((2, 2)) @ np.ones((2, 2))
    before = blas_threads()
    inside, done = threading.Event(), threading.Event()

    def wait(_):
        inside.set()
        done.wait(60)

    thread = threading.Thread(target=lambda: list(in_order(wait, range(1), alone=True)))
    thread.start()
    inside.wait(60)
    try:
        assert forked(blas_threads) == before
    finally:
        done.set()
        thread.join()
    assert blas_threads() == before
