"""Limits of time: what sees them, and that an answer cut short at any place holds and leaves nothing half done."""

import time

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant import deadline, threads
from pld_accountant.counting import packed
from pld_accountant.deadline import OutOfTime, check, left, limited, shared, strict


class Clock:
    """Stands still until it is read for the last time that is allowed; then the time is over."""

    def __init__(self, monkeypatch, allowed=np.inf):
        self.read, self.allowed = 0, allowed
        monkeypatch.setattr(deadline.time, "monotonic", self)

    def __call__(self):
        self.read += 1
        return 0.0 if self.read <= self.allowed else 1e12


def test_without_a_limit_there_is_all_the_time(monkeypatch):
    Clock(monkeypatch, 0)
    with limited(None), strict():
        check()
        assert left() == np.inf


def test_only_what_can_be_done_without_stops_at_the_limit(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    with limited(8.0, essentials=True):
        with limited(20.0), limited(None):
            assert left() == 8.0
        with shared(2):
            assert left() == 4.0
        now[0] = 8.1
        check()
        with strict(), pytest.raises(OutOfTime):
            check()
        check()
        now[0] = 10.1
        with pytest.raises(OutOfTime):
            check()
    check()
    with limited(0.1, essentials=True):
        now[0] += 0.59
        check()
    with limited(1.0):
        now[0] += 1e9
        check()


def test_every_thread_sees_the_limit(monkeypatch):
    Clock(monkeypatch, 2)
    with limited(1.0), strict():
        with pytest.raises(OutOfTime):
            for _ in threads.in_order(lambda part: part, range(50)):
                pass
        done = []
        with pytest.raises(OutOfTime):
            threads.for_blocks(done.append, 64, 1)
        assert not done
    threads.for_blocks(done.append, 64, 1)
    assert len(done) == 64


def few(steps=40):
    ledger = pa.Ledger(3, noise_multiplier=1.0, sample_rate=0.01, max_grad_norm=1.0, buckets=16)
    ledger.record([0.7, 0.9, 1.0], repeat=steps)
    return ledger


ASKED = {
    "few steps": lambda: pa.compose([(pa.SampledGaussian(0.6, 0.02), 4)]),
    "rare steps": lambda: pa.compose([(pa.SampledGaussian(0.7, 1e-5), 200)]),
    "group": lambda: pa.compose([(pa.GroupGaussian(1.0, 0.01, 3), 20)]),
    "truncated batches": lambda: pa.compose([(pa.TruncatedPoisson(2.0, 0.1, 5, 20), 10)]),
    "Laplace": lambda: pa.compose([(pa.Laplace(2.0), 8)]),
    "sampled discrete Gaussian": lambda: pa.compose([(pa.PoissonSampled(pa.DiscreteGaussian(4.0), 0.1), 10)]),
    "exponential mechanism": lambda: pa.compose([(pa.ExponentialMechanism(0.1), 5), (pa.Gaussian(3.0), 1)]),
    "mixture": lambda: pa.compose([(pa.GaussianMixture(3.0, (0, 1), (0.9, 0.1)), 2)]),
    "zCDP": lambda: pa.compose([(pa.ZeroConcentratedDP(0.01), 5), (pa.Laplace(3.0), 2)]),
    "shuffled batches": lambda: pa.compose([(pa.RandomAllocation(2.0, 10, 1), 3)]),
    "ledger": few,
}


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_cut_short_anywhere_holds(monkeypatch, name):
    """Six places at which the time ends, spread over all pieces of the work; afterwards the answer is the usual one."""
    real = time.monotonic
    for question, value in (("epsilon", 1e-7), ("delta", 0.3)):
        exact = getattr(ASKED[name](), question)(value)
        clock = Clock(monkeypatch)
        getattr(ASKED[name](), question)(value, seconds=1e9)
        pieces = clock.read
        assert pieces > 2
        known = 0
        for allowed in np.unique(np.geomspace(1, pieces, 6).astype(int)):
            asked = ASKED[name]()
            Clock(monkeypatch, allowed)
            found = getattr(asked, question)(value, seconds=1.0)
            assert np.all(found.lower <= exact.upper * (1.0 + 1e-9))
            assert np.all(found.upper >= exact.lower * (1.0 - 1e-9))
            nothing = ~np.isfinite(found.upper)
            assert np.all(np.asarray(found.status)[nothing] == pa.Status.NOT_CERTIFIED)
            known += not nothing.any()
            monkeypatch.setattr(deadline.time, "monotonic", real)
            if allowed % 2:  # some of them: an answer without a limit takes its time
                again = getattr(asked, question)(value)
                np.testing.assert_allclose([again.lower, again.upper], [exact.lower, exact.upper], rtol=1e-6)
        assert known


@pytest.mark.parametrize("compressed", [False, True])
def test_the_worst_case_is_known_before_the_time_of_the_people_ends(compressed, monkeypatch):
    """Renyi bounds of rare steps are two hundred times the worst case's bound, which no person may exceed.

    That holds for each block of a compressed ledger.
    """
    monkeypatch.setattr(packed, "BLOCK", 10)

    def rare():
        ledger = pa.Ledger(30, noise_multiplier=0.61, sample_rate=2e-5, max_grad_norm=1.0)
        ledger.record(np.linspace(0.5, 1.0, 30), repeat=4)
        if compressed:
            ledger.compress()
        return ledger

    worst = rare().worst_case().epsilon(4e-8)
    assert rare().worst_case().rdp_epsilon(4e-8) > 100.0 * worst.upper
    clock = Clock(monkeypatch)
    rare().worst_case().epsilon(4e-8, seconds=1e9)
    Clock(monkeypatch, clock.read + 2)
    found = rare().epsilon(4e-8, seconds=1.0)
    assert np.any(found.status == pa.Status.RENYI_ONLY) and found.upper.max() <= worst.upper * (1.0 + 1e-9)


@pytest.mark.parametrize("question", ["advantage", "bayes_risk"])
def test_what_delta_answers_has_its_limit_of_time(question, monkeypatch):
    run = pa.compose([(pa.SampledGaussian(1.0, 0.01), 1_000)])
    ask = {"advantage": run.advantage, "bayes_risk": lambda **limit: run.bayes_risk(0.3, **limit)}[question]
    assert ask().status == pa.Status.CERTIFIED
    Clock(monkeypatch, 1)
    assert ask(seconds=1.0).status != pa.Status.CERTIFIED


CURVES = {
    "mu": lambda asked, **limit: asked.mu(1e-5, **limit),
    "tradeoff": lambda asked, **limit: asked.tradeoff(0.3, **limit),
    "attack_success": lambda asked, **limit: asked.attack_success(0.01, **limit),
    "bayes_risk": lambda asked, **limit: asked.bayes_risk(0.3, **limit),
    "advantage": lambda asked, **limit: asked.advantage(**limit),
}


@pytest.mark.parametrize("question", CURVES)
@pytest.mark.parametrize("name", ["few steps", "discrete"])
def test_a_question_about_a_curve_cut_short_holds(monkeypatch, name, question):
    make = ASKED.get(name, lambda: pa.compose([(pa.RandomizedResponse(0.5, 4), 9)]))
    ask, real = CURVES[question], time.monotonic
    exact = ask(make(), seconds=1e9)
    clock = Clock(monkeypatch)
    ask(make(), seconds=1e9)
    for allowed in np.unique(np.geomspace(1, max(clock.read, 2), 5).astype(int)):
        Clock(monkeypatch, allowed)
        found = ask(make(), seconds=1.0)
        assert np.all(found.lower <= np.asarray(exact.upper) * (1.0 + 1e-9))
        assert np.all(found.upper >= np.asarray(exact.lower) * (1.0 - 1e-9))
        monkeypatch.setattr(deadline.time, "monotonic", real)


def test_mu_with_time_to_spare_is_as_close_as_without_a_limit():
    """A Renyi bound that is known beforehand must not stand for the curve."""
    run = pa.compose([(pa.SampledGaussian(2.0, 0.01), 100)])
    without, spare = run.mu(1e-8), run.mu(1e-8, seconds=1e300)
    assert spare.upper <= without.upper * (1 + 1e-6) and spare.lower >= without.lower * (1 - 1e-6)
