"""Each error term of the quadrature in a case where it alone acts: the error stays below it, and not far below.

First the whole tilted distribution, then parts of it.
"""

import highprecision as hp
import mpmath
import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from parts import NAMES, PARTS, tilted
from scipy import integrate

from pld_accountant.kernels import characterise
from pld_accountant.mechanisms import quadrature
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps

SIGN = {"remove": 1.0, "add": -1.0}
UNIT = 2.0**-53


def one(value):
    return np.array([value])


def spectrum(steps, theta, period, width):
    """The spectrum of the only row, and the number of frequencies."""
    spacing = 2.0 * np.pi / period
    m = int(np.ceil(width / spacing))
    found = steps.spectrum(theta, spacing, m, np.arange(1), 1, np.inf)
    assert found is not None
    return found, m


WHOLE = np.array([[-np.inf, np.inf]])


def ends_of(sigma, q, direction, theta, part=WHOLE):
    """Where the nodes begin and end."""
    ends = np.empty((np.size(sigma), 2))
    law = (
        np.atleast_1d(sigma),
        np.atleast_1d(q),
        SIGN[direction],
        np.full(len(ends), theta),
        np.tile(part, (len(ends), 1)),
    )
    characterise.interval(*law, quadrature.REACH, ends)
    return ends


def trapezoid(sigma, q, direction, theta, omega, nodes):
    """The rule that `quadrature_error` is about, normalised by the true mass; plain numpy."""
    power = 1.0 + theta if direction == "remove" else -theta
    low, high = ends_of(sigma, q, direction, theta)[0]
    x = np.linspace(low, high, nodes)
    log_g = np.log1p(q * np.expm1((2.0 * x - 1.0) / (2.0 * sigma**2)))
    k = float(hp.law(sigma, q, direction, theta).k)
    density = np.exp(power * log_g - 0.5 * (x / sigma) ** 2 - k) / (sigma * np.sqrt(2.0 * np.pi))
    return (x[1] - x[0]) * np.sum(density * np.exp(1j * SIGN[direction] * omega * log_g))


@pytest.mark.parametrize(
    ("sigma", "q", "direction", "theta", "omega", "factor"),
    [
        (1.0, 1.0, "remove", 2.0, 0.0, 5.0),
        (1.0, 0.2, "remove", 2.0, 3.0, 1e4),
        (1.0, 0.2, "add", 2.0, 3.0, 1e4),
        (0.5, 0.01, "remove", 0.5, 8.0, 1e4),
        (0.5, 0.9, "add", 20.0, 8.0, np.inf),
    ],
)
def test_too_few_nodes_err_by_at_most_the_quadrature_error(sigma, q, direction, theta, omega, factor):
    exact = complex(hp.law(sigma, q, direction, theta, omega).phi(omega))
    setting = one(sigma), one(q), SIGN[direction], theta, ends_of(sigma, q, direction, theta), omega
    enough = int(quadrature.quadrature_nodes(*setting, 1e-13)[0])
    ratios = []
    for nodes in np.unique(np.linspace(0.2, 1.0, 20) * enough).astype(int):
        error = abs(trapezoid(sigma, q, direction, theta, omega, nodes) - exact)
        bound = quadrature.quadrature_error(*setting, one(nodes))[0]
        if bound < 1.0:  # capped there: no statement
            assert error <= bound + 1e-14
            if error > 1e-13:
                ratios.append(bound / error)
    # For the Gaussian the error is 2 exp(-2 pi^2 sigma^2 / h^2) times a cosine, and the bound has 4 in place of 2.
    assert len(ratios) > 3
    assert min(ratios) < factor


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("rate", [1e-5, 0.3, 0.99])
def test_nodes_meet_the_tolerance(direction, rate):
    sigma = np.array([0.3, 1.0, 2.0, 10.0, 100.0])
    q = np.full(5, rate)
    for theta in (1e-3, 0.7, 30.0, 1e4):
        for width in (0.0, 1.0, 300.0):
            for tolerance in (1e-6, 1e-19):
                setting = sigma, q, SIGN[direction], theta, ends_of(sigma, q, direction, theta), width
                nodes = quadrature.quadrature_nodes(*setting, tolerance)
                error = quadrature.quadrature_error(*setting, nodes)
                # exp(rate) - 1 in place of exp(rate) / 2 is what the error may lose against the nodes
                assert np.all(error <= 2.0 * tolerance)
                fewer = quadrature.quadrature_error(*setting, nodes * 9 // 10 - 2)
                assert np.all(fewer > tolerance)


@pytest.mark.parametrize(
    ("sigma", "q", "direction", "theta"),
    [
        (1.0, 1.0, "remove", 3.0),
        (2.0, 0.01, "remove", 0.5),
        (2.0, 0.01, "remove", 40.0),
        (0.5, 0.3, "add", 5.0),
        (0.3, 1e-3, "add", 300.0),
        (1.0, 0.999, "add", 30.0),
        (30.0, 1e-4, "add", 1e5),
    ],
)
def test_the_tails_beyond_the_nodes_hold_at_most_the_tail_error(sigma, q, direction, theta):
    with mpmath.workdps(30):
        power = mpmath.mpf(1 + theta if direction == "remove" else -theta)
        low, high = (mpmath.mpf(float(e)) for e in ends_of(sigma, q, direction, theta)[0])
        k = hp.law(sigma, q, direction, theta).k

        def density(x):
            log_g = mpmath.log(1 - mpmath.mpf(q) + q * mpmath.exp((2 * x - 1) / (2 * mpmath.mpf(sigma) ** 2)))
            return mpmath.exp(power * log_g - x * x / (2 * sigma**2) - k) / (sigma * mpmath.sqrt(2 * mpmath.pi))

        mass = mpmath.quad(density, [low - 3 * sigma, low]) + mpmath.quad(density, [high, high + 3 * sigma])
    bound = quadrature.tail_error(one(sigma), one(q), SIGN[direction], theta)[0]
    assert float(mass) <= 0.5 * bound
    if q == 1.0:
        assert float(mass) >= 0.05 * bound


def test_addition_with_a_large_tilt_has_a_larger_tail_error():
    # sqrt(c): the curvature inside is what makes the tails relatively heavier
    small, large = (quadrature.tail_error(one(0.2), one(0.7), -1.0, theta)[0] for theta in (1e-6, 100.0))
    assert large / small == pytest.approx(np.sqrt(1.0 + 100.0 / 0.16), rel=1e-5)


LAWS = [
    # sigma, q, direction, theta, period, largest frequency
    (2.0, 0.005, "remove", 20.0, 2.0, 64.0),
    (2.0, 0.005, "remove", 0.5, 20.0, 32.0),
    (0.5, 0.01, "remove", 4.0, 16.0, 16.0),
    (0.5, 0.01, "add", 8.0, 8.0, 64.0),
    (1.2, 0.9, "add", 28.0, 8.0, 16.0),
    (0.5, 1.0 - 1e-9, "add", 8.0, 8.0, 16.0),
    (0.24, 0.9993, "add", 20.0, 100.0, 1.0),
    (8.66, 0.00186, "remove", 1383.0, 1.0, 32.0),
]


@pytest.mark.parametrize(("sigma", "q", "direction", "theta", "period", "width"), LAWS)
def test_round_off_of_k_and_phi(sigma, q, direction, theta, period, width):
    steps = SampledGaussianSteps(one(sigma), one(q), direction)
    found, m = spectrum(steps, theta, period, width)
    k, off = found.log_moment[0], found.log_moment_error[0]
    law = hp.law(sigma, q, direction, theta, 2.0 * np.pi / period * m)
    k_error = float(abs(k - law.k))
    assert k_error <= off
    # where quadrature and tails are below 1e-18 the bound is round-off alone
    assert off <= max(1e4 * k_error, 1e-13 * (1.0 + abs(k)))
    errors, bounds = [], []
    with mpmath.workdps(hp.DIGITS):
        for f in (1, m // 3, m):
            omega = 2 * mpmath.pi / mpmath.mpf(period) * f
            value = mpmath.exp(mpmath.mpc(found.re[0, f - 1], found.im[0, f - 1]))
            errors.append(float(abs(value - law.phi(omega, found.mean[0]))))
            bounds.append(found.error[0] + found.error_slope[0] * float(omega))
    assert np.all(np.array(errors) <= bounds)
    assert max(bounds) <= 1e4 * max(errors)
    up = steps.log_moments(one(theta))[0, 0]
    assert float(law.k) <= up <= k + 2.0 * off + 1e-18


def test_round_off_grows_with_what_it_counts():
    spread, weighted = one(0.01), one(1.0)
    base = quadrature.roundoff_phi(4, spread, weighted)[0]
    assert base == pytest.approx(2.0 * UNIT * (0.01 * (10 + 16) + 1.0))
    assert quadrature.roundoff_phi(5, spread, weighted)[0] > base
    k = quadrature.roundoff_k(4, one(-3.0), one(100.0))[0]
    assert k == pytest.approx(UNIT * (100.0 + 12 * 3.0))


def kernel_law(law):
    sigma, q, theta, low, high = law
    return np.array([sigma]), np.array([q]), 1.0, np.array([theta]), np.array([[low, high]])


def ends_of_part(law):
    ends = np.empty((1, 2))
    characterise.interval(*kernel_law(law), quadrature.REACH, ends)
    return ends


def steps_of_part(law):
    """A family of one row that is just this part; what lies outside of it is the caller's."""
    sigma, q, _, low, high = law
    steps = SampledGaussianSteps(one(sigma), one(q), "remove", end=1.0, infinite=False)
    steps.part[0] = low, high
    return steps


@pytest.mark.parametrize(
    "law",
    [
        *PARTS,
        # steep tilts press the law against the end, where the error of t is what matters
        (2.111599068069266, 2.815191547424804e-05, 605.6947766549883, -np.inf, 43.85399482980671),
        (2.007870597708029, 1.0523638236806463e-06, 638.4693108310722, -np.inf, 56.21457613835025),
    ],
    ids=[*NAMES, "steep", "steeper"],
)
def test_k_and_phi_of_a_part(law):
    """A spectrum against forty digits."""
    sigma, q, theta, _, _ = law
    steps = steps_of_part(law)
    spec, m = spectrum(steps, theta, 4.0, 16.0)
    k, k_error, mean = spec.log_moment[0], spec.log_moment_error[0], spec.mean[0]
    bottom, top = ends_of_part(law)[0]
    with mpmath.workdps(40):
        s, r = mpmath.mpf(sigma), mpmath.mpf(q)
        low, span = mpmath.mpf(float(bottom)), mpmath.mpf(float(top - bottom))
        weight, loss = [], []
        # the double exponential rule: the integrand does not vanish at the ends
        for t in mpmath.linspace(-4, 4, 1601):
            place = 1 / (1 + mpmath.exp(-mpmath.pi * mpmath.sinh(t)))
            x = low + span * place
            log_g = mpmath.log(1 - r + r * mpmath.exp((2 * x - 1) / (2 * s * s)))
            step = span * mpmath.pi * mpmath.cosh(t) * place * (1 - place) / 200
            weight.append(mpmath.exp((1 + theta) * log_g) * mpmath.npdf(x, 0, s) * step)
            loss.append(log_g)
        total = mpmath.fsum(weight)
        assert abs(mpmath.log(total) - k) <= k_error
        assert k_error <= 1e-11 * (1.0 + abs(k))
        assert mpmath.log(total) <= steps.log_moments(np.array([theta]))[0, 0]
        for f in (1, m // 3, m):
            omega = 2 * mpmath.pi / 4 * f
            phi = mpmath.fsum(w * mpmath.expj(omega * (x - mean)) for w, x in zip(weight, loss, strict=True)) / total
            found = mpmath.exp(mpmath.mpc(spec.re[0, f - 1], spec.im[0, f - 1]))
            bound = spec.error[0] + spec.error_slope[0] * omega
            assert abs(found - phi) <= bound
            assert bound <= 1e-10


@pytest.mark.parametrize(
    ("sigma", "q", "theta", "reach"), [(3.594, 1.77e-5, 50.84, 6.302), (1.6075, 5.825e-3, 4.2462, 6.8496)]
)
def test_the_weights_of_a_rule_are_within_the_round_off_of_k(sigma, q, theta, reach):
    """Those of `numpy.polynomial.legendre.leggauss`, which err by 80 units, are not."""
    losses = SampledGaussianSteps(one(sigma), one(q), "remove").truncated(reach)._tilted(one(theta))
    ends, nodes, _ = quadrature._nodes(losses, 0.0, 4_000, True, error=False)
    found, rough, units = np.empty((3, 1))
    characterise.log_moments(*losses, ends, quadrature.GAUSS, nodes, found, units)
    allowed = quadrature.roundoff_k(1, found, units)[0]
    characterise.log_moments(*losses, ends, np.array(leggauss(40)), nodes, rough, units)
    with mpmath.workdps(30):
        places = [mpmath.mpf(x) for x in np.linspace(*ends[0], 30)]
        exact = mpmath.log(
            mpmath.quad(
                lambda x: (
                    mpmath.npdf(x, 0, sigma)
                    * (1 - mpmath.mpf(q) + q * mpmath.exp((2 * x - 1) / (2 * mpmath.mpf(sigma) ** 2))) ** (1 + theta)
                ),
                places,
            )
        )
        assert abs(found[0] - exact) <= 0.5 * allowed < allowed < abs(rough[0] - exact)


def test_k_of_a_part_in_which_every_loss_is_a_gain():
    """g < 1 in all of the part: next to nothing is left of it at a steep tilt."""
    sigma, q, high, theta = 0.9817295797173737, 0.13850712504233484, 0.2820258567413885, 4560.477958877737
    law = sigma, q, theta, -np.inf, high
    steps = steps_of_part(law)
    x = np.linspace(-12.0, high, 400_001)
    density = tilted(law, x)[0]
    top = density.max()
    exact = top + np.log(integrate.simpson(np.exp(density - top), x=x))
    k = steps.log_moments(np.array([theta]))[0, 0]
    assert -1e-9 <= k - exact <= 1e-9
    found, _ = spectrum(steps, theta, 4.0, 16.0)
    assert abs(found.log_moment[0] - exact) <= found.log_moment_error[0] + 1e-9
    assert 0.0 < found.log_moment_error[0] < 1e-9


@pytest.mark.parametrize(
    ("sigma", "q", "theta", "spacing", "m"),
    [(3.82, 4.1e-6, 3.7e5, 7e4, 30), (1.2, 1.6e-6, 9.3e4, 1.8e4, 60), (0.6, 1e-3, 900.0, 200.0, 64)],
)
def test_panels_under_addition_agree_with_the_trapezoidal_rule_and_save_nodes(monkeypatch, sigma, q, theta, spacing, m):
    losses = quadrature.TiltedLosses(*np.array([[sigma], [q]]), -1.0, np.array([theta]), np.array([[-np.inf, np.inf]]))

    def spectrum():
        return quadrature.spectrum(losses, spacing, m, 1, np.inf, 4_000_000, panels=False)

    on_panels = spectrum()
    monkeypatch.setattr(quadrature, "_MANY", 1 << 40)
    uniform = spectrum()
    assert on_panels.cost[0] < 0.5 * uniform.cost[0]
    omega = spacing * np.arange(1, m + 1)
    both = [np.exp(one.re + 1j * (one.im + omega * one.mean)) for one in (on_panels, uniform)]
    error = sum(one.error[0] + omega * one.error_slope[0] for one in (on_panels, uniform))
    assert np.all(np.abs(both[0] - both[1]) <= error + 4e-16 * omega * abs(uniform.mean[0]))
    room = on_panels.log_moment_error + uniform.log_moment_error
    assert abs(on_panels.log_moment[0] - uniform.log_moment[0]) <= room[0]


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(
    ("theta", "spacing", "m"), [(2048.0, 142.0, 11), (30.0, 0.5, 200), (30.0, 0.5, 201), (30.0, 0.5, 333)]
)
def test_a_row_does_not_depend_on_the_rows_beside_it(direction, theta, spacing, m):
    """What is kept on disk row by row is compared with rows that are computed alone."""
    steps = SampledGaussianSteps(np.geomspace(1.0, 60.0, 12), np.full(12, 0.01), direction)
    together = steps.spectrum(theta, spacing, m, np.arange(12), 12, np.inf)
    assert together is not None
    for row in range(12):
        alone = steps.spectrum(theta, spacing, m, np.array([row]), 12, np.inf)
        assert alone is not None
        for field in ("log_moment", "mean", "log_moment_error", "error", "error_slope", "re", "im", "span", "cost"):
            assert getattr(alone, field)[0].tobytes() == getattr(together, field)[row].tobytes(), (row, field)


def test_many_frequencies_keep_the_closed_form_of_a_full_batch():
    """The two nodes that stand for it are no quadrature rule."""
    family = SampledGaussianSteps([4096.0], [1.0], "remove")
    found = family.spectrum(20.0, 1.0, 236_013, np.zeros(1, dtype=np.int64), 1, np.inf)
    assert np.isclose(found.log_moment[0], 20.0 * 21.0 / 2.0 / 4096.0**2, rtol=1e-12, atol=0.0)
    omega = np.array([1.0, 1_000.0, 200_000.0])
    assert np.allclose(found.re[0, omega.astype(int) - 1], -0.5 * (omega / 4096.0) ** 2, rtol=1e-10, atol=1e-15)
