"""`calibrate` returns the last proven value of any mechanism's parameter, and says clearly why there is none."""

import math
import time
from contextlib import suppress

import pytest

import pld_accountant as pa
from pld_accountant import calibration
from pld_accountant.composition import Composition

MADE = {
    "Laplace": (lambda b: [(pa.Laplace(b), 5)], 1.0, 1e-5, (0.1, 1000.0)),
    "sampled Laplace": (lambda b: pa.PoissonSampled(pa.Laplace(b), 0.1), 0.5, 1e-5, (0.1, 1000.0)),
    "discrete Gaussian": (lambda sigma: pa.DiscreteGaussian(sigma, 1), 1.0, 1e-5, (0.5, 100.0)),
    "group": (lambda sigma: pa.GroupGaussian(sigma, 0.01, 3), 1.0, 1e-5, (0.3, 50.0)),
    "tree": (lambda sigma: pa.TreeAggregation(sigma, 100), 1.0, 1e-5, (0.1, 1000.0)),
    "black box": (lambda epsilon: [(pa.PureDP(epsilon), 30)], 3.0, 1e-9, (1e-3, 3.0)),
    "exponential": (pa.ExponentialMechanism, 1.0, 1e-12, (0.1, 10.0)),
    "Renyi box": (pa.ZeroConcentratedDP, 1.0, 1e-5, (1e-4, 1.0)),
    "far below": (pa.Gaussian, 1e4, 1e-5, (1e-4, 1.0)),
    "tiny delta": (pa.Gaussian, 1.0, 1e-100, (1.0, 1e3)),
}


def upper(made, epsilon, delta):
    run = pa.compose(made if isinstance(made, list) else [(made, 1)])
    return run.epsilon(delta).upper <= epsilon


@pytest.mark.parametrize("name", MADE)
def test_the_last_value_that_keeps_the_target(name):
    make, epsilon, delta, between = MADE[name]
    found = pa.calibrate(make, epsilon, delta, between=between)
    assert upper(make(found), epsilon, delta)
    kept = [upper(make(found * factor), epsilon, delta) for factor in (1 - 2e-6, 1 + 2e-6)]
    assert sorted(kept) == [False, True]


def test_closed_forms():
    assert pa.calibrate(pa.Laplace, 2.0, 0.0, between=(0.01, 10.0)) == pytest.approx(0.5, rel=2e-6)
    # delta(0) of the Gaussian is 2 Phi(mu / 2) - 1: an advantage of 0.1 at 3.97894828...
    found = pa.calibrate(pa.Gaussian, 0.0, 0.1, between=(0.01, 100.0))
    assert 3.9789482805452723 <= found <= 3.9789482805452723 * (1 + 2e-6)
    assert pa.compose([(pa.Gaussian(found), 1)]).advantage().upper <= 0.1


def test_whole_numbers_and_either_direction():
    def make(steps):
        assert isinstance(steps, int)
        return [(pa.Laplace(10.0), steps)]

    found = pa.calibrate(make, 1.0, 1e-6, between=(1, 64), whole=True)
    assert upper(make(found), 1.0, 1e-6) and not upper(make(found + 1), 1.0, 1e-6)
    assert isinstance(found, int)
    most = pa.calibrate(lambda q: pa.compose([(pa.SampledGaussian(2.0, q), 100)]), 1.0, 1e-5, between=(1e-4, 1.0))
    assert most == pytest.approx(pa.calibrate_sample_rate(1.0, 1e-5, 2.0, 100), rel=3e-6)


def test_the_returned_value_was_computed_whatever_the_function_does():
    """A parameter that is not monotone: the answer still keeps the target."""

    def make(x):
        return pa.Gaussian(x * (1.2 + math.sin(50 * x)))

    found = pa.calibrate(make, 1.0, 1e-5, between=(0.5, 50.0))
    assert upper(make(found), 1.0, 1e-5)


def test_targets_out_of_reach_are_answered():
    with pytest.raises(ValueError, match=r"neither 1 nor 2 is proven to keep epsilon=0.1 .* reach .* times and"):
        pa.calibrate(pa.Gaussian, 0.1, 1e-5, between=(1.0, 2.0))
    with pytest.raises(ValueError, match="every value tried between 100 and 200 keeps"):
        pa.calibrate(pa.Gaussian, 1.0, 1e-5, between=(100.0, 200.0))
    with pytest.raises(ValueError, match="infinitely much"):
        pa.calibrate(pa.Gaussian, 1.0, 0.0, between=(1.0, 2.0))


@pytest.mark.parametrize(
    "options",
    [
        {"between": (2.0, 1.0)},
        {"between": (0.0, 1.0)},
        {"between": 3.0},
        {"between": (1.5, 2.0), "whole": True},
        {"between": (1.0, 2.0), "delta": 1.0},
        {"between": (1.0, 2.0), "target_epsilon": -1.0},
        {"between": (1.0, 2.0), "target_epsilon": 0.0, "delta": 0.0},
        {"between": (1.0, 2.0), "direction": "up"},
    ],
)
def test_bad_arguments_are_refused(options):
    with pytest.raises(ValueError, match="must"):
        pa.calibrate(pa.Gaussian, **{"target_epsilon": 1.0, "delta": 1e-5, **options})


def test_an_end_that_the_mechanism_refuses_is_named():
    with pytest.raises(ValueError, match=r"make\(0.5\), at an end of between, is refused: sigma must be from 4"):
        pa.calibrate(lambda s: [(pa.DiscreteGaussian(s, 2.0, coordinates=9), 6)], 17.0, 1e-10, between=(0.5, 100))


HARD = (1e5, 1e-100, 0.01, 1000)  # an epsilon of 1e5 at a delta of 1e-100: ten seconds for each evaluation


def test_a_limit_of_time_ends_a_search_at_what_is_proven():
    begin = time.monotonic()
    found = pa.calibrate_noise_multiplier(*HARD, seconds=3.0)
    assert time.monotonic() - begin < 60.0  # eight minutes without a limit
    # an upper bound holds whatever its limit of time, and without one takes half a minute
    assert pa.compose([(pa.SampledGaussian(found, 0.01), 1000)]).epsilon(1e-100, seconds=1.0).upper <= 1e5
    assert 0.026 < found <= 0.0625


def test_a_limit_of_time_before_anything_is_proven(monkeypatch):
    ends = iter([math.inf, math.inf])  # left before and after the first evaluation
    monkeypatch.setattr(calibration.deadline, "left", lambda: next(ends, 0.0))
    with pytest.raises(TimeoutError, match=r"nothing was proven to keep target_epsilon=0.001 .* allow more seconds"):
        pa.calibrate_noise_multiplier(1e-3, 1e-5, 0.5, 1000)
    monkeypatch.undo()
    with pytest.raises(TimeoutError, match=r"nothing was proven to keep epsilon=0\.1"):
        pa.calibrate(pa.Gaussian, 0.1, 1e-5, between=(1.0, 2.0), seconds=1e-9)


@pytest.mark.parametrize("evaluations", range(1, 12))
def test_the_end_of_time_after_any_evaluation(evaluations, monkeypatch):
    """Wherever the search is cut, the answer keeps the target, or there is none."""
    asked = Composition.epsilon
    done = []

    def counted(*args, **kwargs):
        done.append(1)
        return asked(*args, **kwargs)

    monkeypatch.setattr(Composition, "epsilon", counted)
    monkeypatch.setattr(calibration.deadline, "left", lambda: math.inf if len(done) < evaluations else 0.0)
    for search in (
        lambda: pa.SampledGaussian(pa.calibrate_noise_multiplier(0.7, 1e-5, 0.02, 900), 0.02),
        lambda: pa.SampledGaussian(2.0, pa.calibrate_sample_rate(0.7, 1e-5, 2.0, 900)),
    ):
        done.clear()
        with suppress(TimeoutError):
            found = search()
            assert len(done) <= evaluations + 2
            assert asked(pa.compose([(found, 900)]), 1e-5).upper <= 0.7
    done.clear()
    with suppress(TimeoutError):
        steps = pa.calibrate_steps(0.7, 1e-5, 2.0, 0.02)
        assert asked(pa.compose([(pa.SampledGaussian(2.0, 0.02), steps)]), 1e-5).upper <= 0.7
