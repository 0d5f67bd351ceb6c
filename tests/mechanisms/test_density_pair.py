"""`DensityPair`: containment of closed forms to 100 digits; coarse cells; errors of the functions; what is refused."""

import copy

import mpmath
import numpy as np
import pytest
from scipy import stats

import pld_accountant as pa
from pld_accountant.mechanisms import density_pair

DIGITS = 100


def gaussian(mu, epsilon):
    """The curve of N(mu, 1) against N(0, 1)."""
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def laplace(a, epsilon):
    """The curve of two Laplace laws of scale 1 and distance a."""
    return max(mpmath.mpf(0), 1 - mpmath.exp((mpmath.mpf(epsilon) - mpmath.mpf(a)) / 2))


def logistic(a, epsilon):
    """The curve of two logistic laws of scale 1 and distance a: the loss passes epsilon at one place."""
    a, e = mpmath.mpf(a), mpmath.exp(mpmath.mpf(epsilon))
    if mpmath.mpf(epsilon) >= a:
        return mpmath.mpf(0)
    # the loss -a - 2 log((1 + exp(-x)) / (1 + exp(a - x))) reversed: with z = exp(-x) it is epsilon at
    root = mpmath.sqrt(mpmath.exp(a) / e)
    z = (root - 1) / (mpmath.exp(a) - root)
    above_p = 1 - 1 / (1 + mpmath.exp(a) * z)
    above_q = 1 - 1 / (1 + z)
    return above_p - e * above_q


def sampled(curve, rate, epsilon, direction):
    """The curve of a Poisson sample, from that of the whole, which is the same in both directions."""
    rate, epsilon = mpmath.mpf(rate), mpmath.mpf(epsilon)
    if direction == "remove":
        return rate * curve(mpmath.log((mpmath.exp(epsilon) - 1) / rate + 1))
    rest = 1 - mpmath.exp(epsilon) * (1 - rate)
    if rest <= 0:
        return mpmath.mpf(0)
    # Q - e^eps ((1 - q) Q + q P) is (1 - e^eps (1 - q)) Q - e^eps q P
    return rest * curve(mpmath.log(mpmath.exp(epsilon) * rate / rest))


CASES = {
    "gaussian": (lambda d: (stats.norm(d), stats.norm(0.0)), gaussian),
    "gaussian from the left": (lambda d: (stats.norm(-3.0 - d), stats.norm(-3.0)), gaussian),
    "gaussian far away": (lambda d: (stats.norm(1e3 * (1.0 + d), 1e3), stats.norm(1e3, 1e3)), gaussian),
    "laplace": (lambda d: (stats.laplace(d), stats.laplace(0.0)), laplace),
    "logistic": (lambda d: (stats.logistic(d), stats.logistic(0.0)), logistic),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("distance", [0.25, 1.0, 5.0])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_one_step_encloses_the_closed_form(name, distance, direction):
    laws, curve = CASES[name]
    step = pa.compose([(pa.DensityPair(*laws(distance)), 1)])
    with mpmath.workdps(DIGITS):
        for epsilon in (0.0, 0.1, 1.0, 3.0, 8.0):
            exact = curve(distance, epsilon)
            found = step.delta(epsilon, direction)
            assert mpmath.mpf(found.lower) <= exact <= mpmath.mpf(found.upper)
            assert found.upper - found.lower <= 1e-3 * float(exact) + 1e-11


@pytest.mark.parametrize("name", ["gaussian", "laplace", "logistic"])
@pytest.mark.parametrize("rate", [0.5, 0.01])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_a_sampled_step_encloses_the_closed_form(name, rate, direction):
    laws, curve = CASES[name]
    step = pa.compose([(pa.PoissonSampled(pa.DensityPair(*laws(1.0)), rate), 1)])
    with mpmath.workdps(DIGITS):
        for epsilon in (1e-3, 0.01, 0.2, 0.5):
            exact = sampled(lambda e: curve(1.0, e), rate, epsilon, direction)
            found = step.delta(epsilon, direction)
            assert mpmath.mpf(found.lower) <= exact <= mpmath.mpf(found.upper)
            assert found.upper - found.lower <= 1e-3 * float(exact) + 1e-11


@pytest.mark.parametrize("number", [2, 30, 3000])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_many_gaussian_steps_enclose_the_closed_form(number, direction):
    distance = 0.5 / np.sqrt(number)
    run = pa.compose([(pa.DensityPair(stats.norm(distance), stats.norm()), number)])
    with mpmath.workdps(DIGITS):
        for epsilon in (0.0, 0.5, 2.0):
            exact = gaussian(mpmath.mpf(float(distance)) * mpmath.sqrt(number), epsilon)
            found = run.delta(epsilon, direction)
            assert mpmath.mpf(found.lower) <= exact <= mpmath.mpf(found.upper)
            assert found.upper - found.lower <= 1e-3 * float(exact)


def test_it_agrees_with_named_mechanisms_beside_others():
    other = [(pa.RandomizedResponse(0.9), 3), (pa.SampledGaussian(2.0, 0.1), 5)]
    for pair, named in (
        (pa.DensityPair(stats.laplace(0.0, 2.0), stats.laplace(1.0, 2.0)), pa.Laplace(2.0)),
        (pa.DensityPair(stats.norm(0.0, 2.0), stats.norm(1.0, 2.0)), pa.Gaussian(2.0)),
    ):
        found, known = (pa.compose([(step, 4), *other]).epsilon(1e-6) for step in (pair, named))
        assert found.lower <= known.upper
        assert known.lower <= found.upper
        assert found.upper - found.lower <= 1e-3 * known.upper


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_coarse_cells_lie_outside_of_fine_ones(direction, monkeypatch):
    fine = pa.compose([(pa.DensityPair(stats.norm(1.0), stats.norm()), 3)]).delta(1.0, direction)
    for name, value in (("_BULK", 12), ("_WIDE", 8), ("_LEVELS", 6)):
        monkeypatch.setattr(density_pair, name, value)
    coarse = pa.compose([(pa.DensityPair(stats.norm(1.0), stats.norm()), 3)]).delta(1.0, direction)
    assert coarse.lower < fine.lower * 0.999
    assert coarse.upper > fine.upper * 1.001


@pytest.mark.parametrize("moved", [0.125, 0.13, -0.1234567])  # an end that is a sum of few powers of 2, and others
def test_other_supports_are_infinite_losses(moved):
    step = pa.compose([(pa.DensityPair(stats.uniform(0.0, 1.0), stats.uniform(moved, 1.0)), 1)])
    for direction in ("remove", "add"):
        found = step.delta(2.0, direction)
        assert found.lower <= abs(moved) <= found.upper
        assert found.upper - found.lower <= 1e-11
        assert step.epsilon(0.1, direction).lower == np.inf
    one_way = pa.compose([(pa.DensityPair(stats.expon(0.5), stats.expon(0.0)), 1)])
    assert one_way.delta(1.0, "remove").upper <= 1e-11
    infinite = one_way.delta(3.0, "add")
    assert infinite.lower <= -np.expm1(-0.5) <= infinite.upper


def test_a_sampled_step_has_a_bounded_loss_when_its_record_is_added():
    step = pa.compose([(pa.DensityPair(stats.norm(1.0), stats.norm(), 0.25), 1)])
    largest = step.epsilon(0.0, "add").upper
    assert -np.log1p(-0.25) <= largest <= -np.log1p(-0.25) + 1e-9


class Wrong:
    """A law whose logs are wrong by a factor that changes from place to place."""

    def __init__(self, law, error):
        self._law, self._error = law, error

    def _moved(self, logs, x, sign):
        return np.where(np.isfinite(logs), logs + sign * self._error * np.sin(1e3 * x) ** 2, logs)

    def logpdf(self, x):
        return self._law.logpdf(x)

    def logcdf(self, x):
        return np.minimum(self._moved(self._law.logcdf(x), x, 1.0), 0.0)

    def logsf(self, x):
        return np.minimum(self._moved(self._law.logsf(x), x, -1.0), 0.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_error_of_the_functions_is_part_of_the_bounds(sign, monkeypatch):
    for name, value in (("_BULK", 64), ("_WIDE", 32), ("_LEVELS", 8)):
        monkeypatch.setattr(density_pair, name, value)
    tight = pa.compose([(pa.DensityPair(stats.norm(1.0), stats.norm()), 1)])
    monkeypatch.setattr(density_pair, "_ERROR", 1e-4)
    wrong = pa.DensityPair(Wrong(stats.norm(1.0), sign * 1e-4), Wrong(stats.norm(), -sign * 1e-4))
    found = pa.compose([(wrong, 1)])
    with mpmath.workdps(DIGITS):
        for direction in ("remove", "add"):
            for epsilon in (0.0, 0.5, 2.0, 5.0):
                bounds = found.delta(epsilon, direction)
                assert mpmath.mpf(bounds.lower) <= gaussian(1, epsilon) <= mpmath.mpf(bounds.upper)
                assert bounds.upper > tight.delta(epsilon, direction).upper
                assert bounds.lower < tight.delta(epsilon, direction).lower


class OneMinus:
    """A law whose upper tail is 1 - cdf, which loses its digits."""

    def __init__(self, law):
        self.logpdf, self.logcdf = law.logpdf, law.logcdf
        self.logsf = lambda x: np.log(np.maximum(1.0 - np.exp(law.logcdf(x)), 0.0))


class Shape:
    """A law with methods of the wrong shape."""

    def __init__(self):
        self.logpdf = self.logcdf = self.logsf = lambda x: 0.0


@pytest.mark.parametrize(
    ("laws", "words"),
    [
        ((stats.t(3.0, 1.0), stats.t(3.0, 0.0)), "not monotone"),
        ((stats.cauchy(1.0), stats.cauchy(0.0)), "not monotone"),
        ((stats.norm(0.0, 2.0), stats.norm(0.0, 1.0)), "not monotone"),
        ((stats.uniform(0.0, 1.0), stats.uniform(2.0, 1.0)), "no output is possible"),
        ((stats.uniform(0.0, 1.0), stats.uniform(1.5, 1.0)), "no output is possible"),
        ((OneMinus(stats.norm(1.0)), OneMinus(stats.norm())), "contradict"),
        ((stats.norm(1.0), OneMinus(stats.norm())), "contradict"),
        ((stats.poisson(3.0), stats.poisson(2.0)), "with_record must have the methods"),
        ((stats.norm(), np.log), "without_record must have the methods"),
        ((stats.norm(), Shape()), "for each number"),
        ((stats.norm(np.nan), stats.norm()), "must return the log"),
    ],
)
def test_what_is_not_such_a_pair_is_refused(laws, words):
    with pytest.raises(ValueError, match=words):
        pa.DensityPair(*laws)


def test_masses_of_another_law_are_refused():
    class Mixed(Wrong):
        def logpdf(self, x):
            return stats.norm(0.25).logpdf(x)

    with pytest.raises(ValueError, match="contradict"):
        pa.DensityPair(stats.norm(1.0), Mixed(stats.norm(), 0.0))


def test_equality_rates_and_words():
    one, same = (pa.DensityPair(stats.logistic(1.0), stats.logistic(loc=0.0)) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert repr(one) == "DensityPair(logistic(1.0), logistic(loc=0.0))"
    assert one.sampled(0.5).sampled(0.5) == pa.DensityPair(stats.logistic(1.0), stats.logistic(0.0), 0.25)
    assert one != one.sampled(0.5)
    assert one != pa.DensityPair(stats.logistic(0.0), stats.logistic(1.0))
    assert repr(one.sampled(0.5)) == "DensityPair(logistic(1.0), logistic(loc=0.0), sample_rate=0.5)"
    assert copy.deepcopy(one) == one
    assert pa.compose([(one, 1), (same, 1)]).steps == 2


def test_calibration_takes_it():
    def at(scale):
        return pa.DensityPair(stats.logistic(1.0, scale), stats.logistic(0.0, scale))

    scale = pa.calibrate(at, 0.5, 1e-6, between=(0.5, 50.0))
    assert (
        pa.compose([(at(scale), 1)]).epsilon(1e-6).upper
        <= 0.5
        < pa.compose([(at(scale * 0.999), 1)]).epsilon(1e-6).lower
    )


def test_losses_at_a_rate_near_one_err_by_less_than_they_are_widened():
    """1 + q (e^l - 1) has lost the digits of 1 - q, which decide how small the loss is."""
    rate = 1.0 - 2.0**-40
    losses = np.array([-60.0, -25.0, -20.0, -1.0, -1e-6, 0.5, 30.0])
    found = density_pair._sampled(losses, rate)
    low, high = density_pair._widened(found, -1.0), density_pair._widened(found, 1.0)
    with mpmath.workdps(50):
        for k, loss in enumerate(losses.tolist()):
            exact = mpmath.log(mpmath.mpf(2) ** -40 + rate * mpmath.exp(loss))
            assert low[k] <= exact <= high[k]


def test_a_largest_loss_that_is_not_known_has_a_proven_lower_bound():
    """The logistic laws' losses end at 1; the far tails of the pair above count as infinite."""
    bounds = pa.compose([(pa.DensityPair(stats.logistic(1), stats.logistic(0)), 1)]).epsilon(0.0)
    assert 0.999 < bounds.lower <= 1.0 and np.isinf(bounds.upper)
    assert bounds.status == pa.Status.NOT_CERTIFIED
