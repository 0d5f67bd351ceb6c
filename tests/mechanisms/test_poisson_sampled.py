"""Poisson samples of Laplace noise against sums over the two atoms and the density between them, in 50 digits."""

import mpmath
import numpy as np
import pytest

import pld_accountant as pa

LITTLE_NOISE = [(0.005, 0.1), (0.01, 0.5), (0.02, 0.9999)]
NEAR_ONE = [1.0 - 1e-4, 1.0 - 1e-10, 1.0 - 2.0**-53]


def one_step_delta(noise, rate, epsilon, direction):
    """E[(1 - e^(epsilon - L))+], by the place x where the loss is epsilon: it rises in x on [0, 1]."""
    b, q = mpmath.mpf(noise), mpmath.mpf(rate)
    sign = 1 if direction == "remove" else -1
    ratio = (mpmath.exp(sign * mpmath.mpf(epsilon)) - (1 - q)) / q
    if ratio >= mpmath.exp(1 / b):
        return mpmath.mpf(0) if sign > 0 else 1 - mpmath.exp(epsilon)
    if ratio <= mpmath.exp(-1 / b):
        return 1 - mpmath.exp(epsilon) if sign > 0 else mpmath.mpf(0)
    x = (1 + b * mpmath.log(ratio)) / 2
    with_record, without = mpmath.exp(-(1 - x) / b) / 2, 1 - mpmath.exp(-x / b) / 2
    if sign > 0:
        with_record, without = 1 - with_record, 1 - without
    mixed = (1 - q) * without + q * with_record
    return mixed - mpmath.exp(epsilon) * without if sign > 0 else without - mpmath.exp(epsilon) * mixed


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("noise", "rate"), LITTLE_NOISE)
def test_two_steps_with_little_noise(noise, rate, direction):
    """The first step's loss is one of its two ends but for a chance of e^(-1 / (2 noise)), which widens the truth."""
    found = pa.compose([(pa.PoissonSampled(pa.Laplace(noise), rate), 2)])
    with mpmath.workdps(50):
        q, least = mpmath.mpf(rate), mpmath.exp(-1 / mpmath.mpf(noise))
        low, high = mpmath.log(1 - q + q * least), mpmath.log(1 - q + q / least)
        if direction == "remove":
            ends = [(low, (1 - q + q * least) / 2), (high, (q + (1 - q) * least) / 2)]
        else:
            ends = [(-low, mpmath.mpf(1) / 2), (-high, least / 2)]
        between = 1 - sum(mass for _, mass in ends)
        for epsilon in (0.0, 0.05, 2.0, 15.0):
            rest = [mass * one_step_delta(noise, rate, mpmath.mpf(epsilon) - loss, direction) for loss, mass in ends]
            bounds = found.delta(epsilon, direction)
            assert bounds.lower <= sum(rest) + between and sum(rest) <= bounds.upper
            assert bounds.upper - bounds.lower <= 1e-4 * bounds.upper


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("rate", NEAR_ONE)
@pytest.mark.parametrize("noise", [0.02, 0.04, 0.5])
def test_one_step_at_a_rate_near_one(noise, rate, direction):
    """The smallest loss is near log(1 - rate), where 1 - rate is a difference of almost equal numbers."""
    found = pa.compose([(pa.PoissonSampled(pa.Laplace(noise), rate), 1)])
    with mpmath.workdps(50):
        for epsilon in (0.0, 0.3, 10.0, 18.0, 24.0):
            exact = one_step_delta(noise, rate, epsilon, direction)
            bounds = found.delta(epsilon, direction)
            assert bounds.lower <= exact <= bounds.upper
            assert bounds.upper - bounds.lower <= 1e-4 * exact + 1e-15


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("rate", [1e-18, 1e-14, 1e-10, 1e-6, 1e-3, 0.1, 0.6])
@pytest.mark.parametrize("noise", [0.05, 0.4486, 20.0])
def test_one_step_at_any_rate_and_close_to_the_largest_loss(noise, rate, direction):
    found = pa.compose([(pa.PoissonSampled(pa.Laplace(noise), rate), 1)])
    with mpmath.workdps(60):
        q, c = mpmath.mpf(rate), 1 / mpmath.mpf(noise)
        sign = 1 if direction == "remove" else -1
        top = sign * mpmath.log(1 - q + q * mpmath.exp(sign * c))
        for share in (0.0, 0.3, 0.9, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12):
            epsilon = float(share * top)
            bounds, exact = found.delta(epsilon, direction), one_step_delta(noise, rate, epsilon, direction)
            assert bounds.lower <= exact <= bounds.upper
        assert found.epsilon(1e-60, direction).upper <= top * (1 + 1e-13)
        if float(top) * rate > 1e-55:
            assert found.epsilon(1e-60, direction).lower >= top * (1 - 1e-9)


@pytest.mark.parametrize("rate", [1e-10, 1e-7, 1e-5, 1e-3, 0.3, 0.9])
@pytest.mark.parametrize("noise", [0.1, 1.19181228, 30.0])
def test_the_renyi_divergence_of_order_two(noise, rate):
    """1 + rate^2 chi^2, chi^2 that of the Laplace mechanism."""
    found = pa.compose([(pa.PoissonSampled(pa.Laplace(noise), rate), 1)]).rdp(2.0)
    with mpmath.workdps(40):
        c, q = 1 / mpmath.mpf(noise), mpmath.mpf(rate)
        # Mironov (2017), Proposition 6, at order 2
        moment = 2 * mpmath.exp(c) / 3 + mpmath.exp(-2 * c) / 3
        exact = mpmath.log(1 + q**2 * (moment - 1))
        assert exact <= float(found) <= exact * (1 + 1e-2) + 1e-9 * q


@pytest.mark.parametrize("rate", [1e-6, 1e-8, 1e-10, 1e-12, 1e-14])
def test_two_steps_of_tiny_losses(rate):
    """At rates that tend to 0 the loss under addition is rate (1 - e^l), l the loss without the record."""
    bounds = pa.compose([(pa.PoissonSampled(pa.Laplace(1.0), rate), 2)]).delta(0.3 * rate, "add")
    limit = 0.410849194285472402  # E(1.7 - e^l1 - e^l2)+, by quadrature in 30 digits
    assert bounds.lower <= limit * rate * (1 + 10 * rate)
    assert bounds.upper >= limit * rate * (1 - 10 * rate)
    assert bounds.upper - bounds.lower <= 2e-3 * bounds.upper


@pytest.mark.parametrize("noise", [1.0, 91467894004.63084])
@pytest.mark.parametrize("rate", [0.047539348378612185, 0.5, 0.9])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_knot_at_an_atom_leaves_both_laws_atoms_in_one_cell(noise, rate, sign):
    """The knot is moved by a few units in the last place, so that it lies at the atom, below it and above it."""
    step = pa.PoissonSampled(pa.Laplace(noise), rate)
    family = type(step).steps([step], "remove")
    atom = np.log1p(rate * np.expm1(sign / noise))
    for ulps in range(-8, 9):
        knot = atom + ulps * np.spacing(abs(atom))
        width = 1e-3 * abs(atom)
        p, u = family.masses(0, knot + width * np.array([-1.0, 0.0, 1.0]))
        assert min(p) < 0.01 * max(p), "the masses of one atom lie in two cells"
        loss = knot + width * (np.argmax(p) - 1.0) - np.log1p(-u[np.argmax(p)] / max(p))
        assert abs(loss - atom) < 0.01 * width


def test_outputs_of_one_sample_are_one_gaussian_of_no_more_noise():
    noise, counts = np.array([0.7, 3.0, 1e5]), np.array([2, 5, 1])
    found = pa.PoissonSampled(list(zip(map(pa.Gaussian, noise), counts, strict=True)), 0.2)
    with mpmath.workdps(30):
        exact = 1 / mpmath.sqrt(sum(int(n) / mpmath.mpf(z) ** 2 for z, n in zip(noise, counts, strict=True)))
        assert exact * (1 - mpmath.mpf(2) ** -47) <= found.noise_multiplier <= exact
    assert pa.PoissonSampled([(pa.Gaussian(2.0), 1)], 1.0).sample_rate == 1.0


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([], "a sample must have an output"),
        ([(pa.Gaussian(1.0), 0)], "a sample must have an output"),
        ([(pa.Gaussian(1.0), -1)], "count"),
        ([pa.Gaussian(1.0)], "pairs"),
        ([(pa.Laplace(1.0), 1)], "each must be Gaussian, got Laplace"),
        (pa.compose([(pa.SampledGaussian(1.0, 0.5), 2)]), "each must be Gaussian, got SampledGaussian"),
    ],
)
def test_bad_outputs_of_one_sample(outputs, message):
    with pytest.raises(ValueError, match=message):
        pa.PoissonSampled(outputs, 0.1)
