"""Calibration returns the last value that keeps the target: at it the bound holds, just beyond it does not."""

import math
import re

import numpy as np
import pytest
from click.testing import CliRunner

import pld_accountant as pa
from pld_accountant import calibration
from pld_accountant.cli.commands import main

# Every calibration promises its end within a millionth; the bound's own uncertainty is a thousand times less.
BEYOND = 1 + 1e-6 + 1e-9


def upper(sigma, rate, steps, delta, direction="both"):
    return pa.compose([(pa.SampledGaussian(sigma, rate), steps)]).epsilon(delta, direction).upper


@pytest.mark.parametrize("direction", ["both", "remove", "add"])
@pytest.mark.parametrize(
    ("target", "delta", "rate", "steps"),
    [
        (1.0, 1e-5, 0.005, 10_000),
        (8.0, 1e-6, 0.05, 1000),
        (0.2, 1e-5, 0.02, 300),
        (1.0, 1e-5, 1.0, 100),
        (5.0, 1e-30, 0.01, 1000),
    ],
)
def test_noise_multiplier(target, delta, rate, steps, direction):
    sigma = pa.calibrate_noise_multiplier(target, delta, rate, steps, direction=direction)
    assert upper(sigma, rate, steps, delta, direction) <= target < upper(sigma / BEYOND, rate, steps, delta, direction)


@pytest.mark.parametrize(
    ("target", "delta", "sigma", "rate"),
    [(1.0, 1e-5, 2.0, 0.005), (8.0, 1e-6, 1.0, 0.02), (0.5, 1e-5, 60.0, 1.0), (0.5, 1e-5, 1.0, 0.01)],
)
def test_steps(target, delta, sigma, rate):
    steps = pa.calibrate_steps(target, delta, sigma, rate)
    assert isinstance(steps, int)
    assert upper(sigma, rate, steps, delta) <= target < upper(sigma, rate, steps + 1, delta)


@pytest.mark.parametrize(
    ("target", "delta", "sigma", "steps"), [(1.0, 1e-5, 2.0, 10_000), (8.0, 1e-6, 1.0, 500), (20.0, 1e-5, 1.0, 100)]
)
def test_sample_rate(target, delta, sigma, steps):
    rate = pa.calibrate_sample_rate(target, delta, sigma, steps)
    assert upper(sigma, rate, steps, delta) <= target < upper(sigma, rate * BEYOND, steps, delta)


def test_a_full_batch_is_the_largest_sample():
    assert pa.calibrate_sample_rate(100.0, 1e-5, 10.0, 10) == 1.0


def test_known_value():
    """One full-batch step: epsilon of the Gaussian mechanism is known in closed form."""
    sigma = pa.calibrate_noise_multiplier(1.0, 1e-5, 1.0, 1)
    normal = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))  # noqa: E731
    delta = normal(0.5 / sigma - sigma) - math.e * normal(-0.5 / sigma - sigma)
    assert delta == pytest.approx(1e-5, rel=2e-5)  # d log delta / d log sigma is about 18
    assert delta <= 1e-5


def test_impossible_targets_are_refused():
    for call, words in (
        (lambda: pa.calibrate_noise_multiplier(1.0, 0.5, 0.01, 10), "even a noise multiplier below 0.02 keeps"),
        (lambda: pa.calibrate_noise_multiplier(1e-12, 1e-100, 1.0, 10**6), "no noise multiplier up to 1e+08"),
        (lambda: pa.calibrate_steps(1e-3, 1e-5, 1.0, 0.5), "a single step exceeds target_epsilon=0.001"),
        (lambda: pa.calibrate_steps(100, 1e-5, 5000, 1e-6), "even 4294967295 steps keep"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            call()


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", None])
def test_arguments_are_checked(bad):
    for arguments in ((bad, 1e-5, 0.1, 10), (1, bad, 0.1, 10), (1, 1e-5, bad, 10), (1, 1e-5, 0.1, bad)):
        with pytest.raises(ValueError, match="must"):
            pa.calibrate_noise_multiplier(*arguments)
    with pytest.raises(ValueError, match="must"):
        pa.calibrate_steps(1, 1e-5, bad, 0.1)
    with pytest.raises(ValueError, match="must"):
        pa.calibrate_sample_rate(1, 1e-5, bad, 10)
    with pytest.raises(ValueError, match="direction"):
        pa.calibrate_steps(1, 1e-5, 1, 0.1, direction="up")


@pytest.mark.parametrize("root", [1.0000001, 1.37, 50.0, 99.9999])
@pytest.mark.parametrize(
    "curve",
    [
        lambda x: x,
        lambda x: x**9,
        lambda x: x + x**3 * (x > 0),
        lambda x: -math.inf if x < 0 else x,
        lambda x: math.inf if x > 0 else x,
        lambda x: -math.inf if x <= 0 else math.inf,
        lambda x: math.expm1(50 * x),
        lambda x: math.copysign(abs(x) ** 0.05, x),
    ],
)
@pytest.mark.parametrize("falling", [False, True])
def test_the_bracket_closes_whatever_the_curve(root, curve, falling):
    """The search alone, on curves that interpolation likes and dislikes."""
    asked = []

    def at(place):
        asked.append(place)
        value = curve(math.log(place / root))
        return calibration._End(place, -value if falling else value)

    found = calibration._last_good(at, at(0.5), at(200.0))
    assert len(asked) < 70
    assert at(found).value <= 0 < at(found / BEYOND if falling else found * BEYOND).value


@pytest.mark.parametrize(
    ("root", "good", "bad"),
    [(1, 1, 1000), (2, 1, 1000), (500, 1, 1000), (999, 1, 1000), (6, 5, 7), (5, 5, 7), (5, 5, 6)],
)
def test_whole_numbers(root, good, bad):
    def at(number):
        return calibration._End(number, math.log(number / (root + 0.5)))

    assert calibration._last_good(at, at(good), at(bad), whole=True) == root


def run(*words):
    return CliRunner().invoke(main, ["calibrate", *map(str, words)])


@pytest.mark.parametrize("asked", ["noise-multiplier", "sample-rate", "steps"])
def test_the_printed_number_keeps_the_target(asked):
    given = {"noise-multiplier": 2.0, "sample-rate": 0.005, "steps": 10_000}
    del given[asked]
    result = run("--target-epsilon", 1, "--delta", 1e-5, *(x for k, v in given.items() for x in (f"--{k}", v)))
    assert (result.exit_code, result.stderr) == (0, "")
    found, epsilon, delta = (float(x) for x in re.findall(r"[ =]([\d.]+(?:e-\d+)?)", result.stdout))
    numbers = {**given, asked: found}
    assert delta == 1e-5
    assert upper(numbers["noise-multiplier"], numbers["sample-rate"], int(numbers["steps"]), delta) <= epsilon <= 1.0
    assert np.isclose(epsilon, 1.0, rtol=1e-4)  # a step more or less of 10,000 moves epsilon by half as much


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--target-epsilon", 1, "--delta", 1e-5, "--steps", 10), "give two of"),
        (
            ("--target-epsilon", 1, "--delta", 1e-5, "--steps", 10, "--sample-rate", 1, "--noise-multiplier", 1),
            "give two of",
        ),
        (("--target-epsilon", 0, "--delta", 1e-5, "--steps", 10, "--sample-rate", 1), "target_epsilon must be"),
        (("--delta", 1e-5, "--steps", 10, "--sample-rate", 1), "Missing option '--target-epsilon'"),
        (("--target-epsilon", 1, "--delta", 0.5, "--steps", 10, "--sample-rate", 0.01), "even a noise multiplier"),
    ],
)
def test_mistakes_are_one_line(words, message):
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line
