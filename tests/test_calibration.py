"""Calibration returns the last value that keeps the target: at it the bound holds, just beyond it does not."""

import math
import re
from fractions import Fraction
from statistics import NormalDist

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


@pytest.mark.parametrize("direction", ["both", "add"])
def test_a_target_of_0_is_an_advantage(direction):
    """As `calibrate` does it: delta at 0 keeps delta, and the next value does not."""

    def advantage(sigma, rate, steps):
        return pa.compose([(pa.SampledGaussian(sigma, rate), steps)]).delta(0.0, direction).upper

    sigma = pa.calibrate_noise_multiplier(0.0, 0.1, 0.001, 10_000, direction=direction)
    assert advantage(sigma, 0.001, 10_000) <= 0.1 < advantage(sigma / BEYOND, 0.001, 10_000)
    steps = pa.calibrate_steps(0.0, 0.1, 2.0, 0.005, direction=direction)
    assert advantage(2.0, 0.005, steps) <= 0.1 < advantage(2.0, 0.005, steps + 1)
    rate = pa.calibrate_sample_rate(0.0, 0.1, 2.0, 1_000, direction=direction)
    assert advantage(2.0, rate, 1_000) <= 0.1 < advantage(2.0, rate * BEYOND, 1_000)


@pytest.mark.parametrize("target, least", [(0.05, 0.01), (0.9, 0.2), (1e-3, 1e-6)])
def test_the_success_of_an_attack(target, least):
    """Of one Gaussian step, in closed form; a little less noise no longer keeps the target."""
    normal = NormalDist()
    exact = 1.0 / (normal.inv_cdf(1.0 - least) - normal.inv_cdf(1.0 - target))
    noise = pa.calibrate_attack_success(pa.Gaussian, target, least, between=(0.01, 100.0))
    assert exact <= noise <= exact * (1.0 + 3e-5)
    assert pa.compose([(pa.Gaussian(noise), 1)]).attack_success(least).upper <= target
    assert pa.compose([(pa.Gaussian(noise / BEYOND), 1)]).attack_success(least).upper > target


def test_the_success_of_an_attack_by_the_number_of_steps():
    number = pa.calibrate_attack_success(lambda n: [(pa.Laplace(10), n)], 0.2, 0.05, between=(1, 1000), whole=True)
    rates = [pa.compose([(pa.Laplace(10), n)]).attack_success(0.05) for n in (number, number + 1)]
    assert rates[0].upper <= 0.2 < rates[1].upper


@pytest.mark.parametrize(
    "target, least, words",
    [
        (0.01, 0.01, "target_rate must exceed false_positive_rate"),
        (1.0, 0.01, "target_rate"),
        (0.1, 0.0, "false_positive_rate"),
        (math.nan, 0.1, "target_rate"),
        (0.02, 0.01, "neither 1 nor 2 is proven to keep attack_success=0.02 at false_positive_rate=0.01"),
    ],
)
def test_an_attack_that_cannot_be_calibrated_to(target, least, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        pa.calibrate_attack_success(pa.Gaussian, target, least, between=(1.0, 2.0))


@pytest.mark.parametrize("between", [(), (1.0,), (1.0, 2.0, 3.0), 5, None])
def test_ends_that_are_not_two_are_refused(between):
    with pytest.raises(ValueError, match="between must be two numbers, got"):
        pa.calibrate(pa.Gaussian, 1.0, 1e-5, between=between)


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
        (
            lambda: pa.calibrate_steps(1e-3, 1e-5, 1.0, 0.5),
            "not even a single step is proven to keep target_epsilon=0.001",
        ),
        (lambda: pa.calibrate_steps(100, 1e-5, 5000, 1e-6), "even 4294967295 steps keep"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            call()


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", None])
def test_arguments_are_checked(bad):
    # a target of 0 is an advantage
    target = -1e-9 if bad == 0 else bad
    for arguments in ((target, 1e-5, 0.1, 10), (1, bad, 0.1, 10), (1, 1e-5, bad, 10), (1, 1e-5, 0.1, bad)):
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


@pytest.mark.parametrize("direction", ["both", "add"])
def test_rates_of_groups_under_one_noise(direction):
    targets = [0.5, 1.0, 30.0]
    found = pa.calibrate_group_sample_rates(targets, 1e-5, 500, noise_multiplier=2.0, direction=direction)
    assert found.noise_multiplier == 2.0 and sorted(found.sample_rates) == list(found.sample_rates)
    for target, rate in zip(targets, found.sample_rates, strict=True):
        assert upper(2.0, rate, 500, 1e-5, direction) <= target
        assert rate == 1 or target < upper(2.0, rate * BEYOND, 500, 1e-5, direction)


@pytest.mark.parametrize(
    ("targets", "sizes", "mean", "steps", "delta"),
    [
        ([1.0, 2.0, 3.0], [34, 43, 23], 0.01, 1000, 1e-5),
        ([0.1, 10.0], [999, 1], 0.05, 100, 1e-6),
        ([3.0, 3.0], [1, 1], 0.02, 200, 1e-5),
        ([1.0, 20.0], [1, 1], 0.6, 5, 1e-5),
    ],
)
def test_rates_of_groups_with_a_mean(targets, sizes, mean, steps, delta):
    """Each group keeps its target, the mean is reached, and with less noise it would not be."""
    found = pa.calibrate_group_sample_rates(targets, delta, steps, mean_sample_rate=mean, sizes=sizes)
    sigma = found.noise_multiplier
    for target, rate in zip(targets, found.sample_rates, strict=True):
        assert upper(sigma, rate, steps, delta) <= target

    def reached(rates):
        return sum(Fraction(rate) * size for rate, size in zip(rates, sizes, strict=True)) / sum(sizes)

    assert reached(found.sample_rates) >= Fraction(mean) * (1 - Fraction(1, 2**50))
    # each rate is itself found to a millionth
    less = pa.calibrate_group_sample_rates(targets, delta, steps, noise_multiplier=sigma / (1 + 3e-6))
    assert reached(less.sample_rates) < mean


@pytest.mark.parametrize("given", [{"sizes": [600, 300, 100]}, {"noise_multiplier": 1.3}])
def test_clipping_norms_of_groups(given):
    """The noise over each group's norm is at least the noise at which the bound was computed: exactly, not nearly."""
    targets = [1.0, 4.0, 2.0]
    for clip in (5.0, 0.1, 1 / 3, 7e-9):
        found = pa.calibrate_group_clipping_norms(targets, 1e-5, 0.02, 500, max_grad_norm=clip, **given)
        noise = Fraction(found.noise_multiplier) * Fraction(max(found.max_grad_norms))
        for target, norm in zip(targets, found.max_grad_norms, strict=True):
            own = pa.calibrate_noise_multiplier(target, 1e-5, 0.02, 500)
            assert upper(own, 0.02, 500, 1e-5) <= target
            assert Fraction(norm) * Fraction(own) <= noise
            assert noise < Fraction(math.nextafter(norm, math.inf)) * Fraction(own)  # the largest such number
        if "sizes" in given:
            assert np.average(found.max_grad_norms, weights=given["sizes"]) == pytest.approx(clip, rel=1e-14)
        else:
            assert float(noise) == pytest.approx(1.3 * clip, rel=1e-14)


def test_one_group_is_the_ordinary_calibration():
    sigma = pa.calibrate_noise_multiplier(1.0, 1e-5, 0.02, 500)
    norms = pa.calibrate_group_clipping_norms([1.0], 1e-5, 0.02, 500, max_grad_norm=3.0, sizes=[7])
    assert norms.noise_multiplier == sigma and norms.max_grad_norms[0] == pytest.approx(3.0, rel=1e-15)
    found = pa.calibrate_group_sample_rates([1.0], 1e-5, 500, mean_sample_rate=0.02, sizes=[7])
    assert found.noise_multiplier == pytest.approx(sigma, rel=5e-6)
    assert found.sample_rates[0] == pytest.approx(0.02, rel=5e-6)


def test_wrong_groups_are_refused():
    rates, norms = pa.calibrate_group_sample_rates, pa.calibrate_group_clipping_norms
    for call, words in (
        (lambda: rates([], 1e-5, 10, noise_multiplier=1.0), "a number for each group"),
        (lambda: rates(1.0, 1e-5, 10, noise_multiplier=1.0), "a number for each group"),
        (lambda: rates([1.0, math.nan], 1e-5, 10, noise_multiplier=1.0), "target_epsilons must be a finite"),
        (lambda: rates([1.0], 1e-5, 10), "either noise_multiplier or mean_sample_rate"),
        (lambda: rates([1.0], 1e-5, 10, mean_sample_rate=0.1), "give both or neither"),
        (lambda: rates([1.0], 1e-5, 10, noise_multiplier=1.0, sizes=[1]), "give both or neither"),
        (lambda: rates([1.0, 2.0], 1e-5, 10, mean_sample_rate=0.1, sizes=[1]), "each of the 2 groups"),
        (lambda: rates([1.0], 1e-5, 10, mean_sample_rate=0.1, sizes=[0]), "sizes must"),
        (lambda: rates([100.0], 0.5, 10, mean_sample_rate=1e-9, sizes=[1]), "even a noise multiplier below 0.02"),
        (lambda: norms([1.0], 1e-5, 0.1, 10, max_grad_norm=1.0), "either noise_multiplier or sizes"),
        (lambda: norms([1.0], 1e-5, 0.1, 10, max_grad_norm=0.0, sizes=[1]), "max_grad_norm"),
        (lambda: norms([1.0], 1e-5, 0.1, 10, max_grad_norm=1e100, noise_multiplier=1e3), "the largest clipping norm"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            call()
