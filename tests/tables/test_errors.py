"""Each term of the error budget in a case where it alone acts: the actual error stays below, and not far below."""

import highprecision as hp
import mpmath
import numpy as np
import pytest
import scipy.fft

from pld_accountant.kernels import characterise, envelope, invert
from pld_accountant.tables import errors as budget
from pld_accountant.tables import fft
from pld_accountant.tables.characteristic import SpectralMaker
from pld_accountant.tables.table import COLUMNS

SIGN = {"remove": 1.0, "add": -1.0}


def one(value):
    return np.array([value])


@pytest.mark.parametrize("q", [1e-5, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("phi", [0.1, 1.0, 1.6, 3.0])
def test_how_far_phases_turn_off_the_line(q, phi):
    sigma = 0.7
    for x in (-2.0, 0.5, 3.0, 9.0):
        bound = characterise._turn(x, sigma, q, phi)
        points = np.add.outer(np.linspace(-6.0, x, 61), 1j * sigma**2 * np.linspace(-phi, phi, 201))
        turn = np.abs(np.angle(1.0 - q + q * np.exp((2.0 * points - 1.0) / (2.0 * sigma**2))))
        assert 0.999 * bound <= turn.max() <= bound * (1.0 + 1e-12)


WHOLE = np.array([[-np.inf, np.inf]])


def ends_of(sigma, q, direction, theta, part=WHOLE, blur=0.0):
    """Where the nodes begin and end."""
    ends = np.empty((np.size(sigma), 2))
    law = np.atleast_1d(sigma), np.atleast_1d(q), SIGN[direction], theta, np.tile(part, (len(ends), 1)), blur
    characterise.interval(*law, budget.REACH, ends)
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
    enough = int(budget.quadrature_nodes(*setting, 1e-13)[0])
    ratios = []
    for nodes in np.unique(np.linspace(0.2, 1.0, 20) * enough).astype(int):
        error = abs(trapezoid(sigma, q, direction, theta, omega, nodes) - exact)
        bound = budget.quadrature_error(*setting, one(nodes))[0]
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
                nodes = budget.quadrature_nodes(*setting, tolerance)
                error = budget.quadrature_error(*setting, nodes)
                # exp(rate) - 1 in place of exp(rate) / 2 is what the error may lose against the nodes
                assert np.all(error <= 2.0 * tolerance)
                fewer = budget.quadrature_error(*setting, nodes * 9 // 10 - 2)
                assert np.all(fewer > tolerance)


@pytest.mark.parametrize(
    ("sigma", "q", "theta", "omega"),
    [
        (1.0, 0.2, 2.0, 3.0),
        (0.3, 0.01, 0.5, 8.0),
        (2.0, 0.005, 60.0, 20.0),
        (30.0, 1e-4, 1e5, 0.0),
        (2.0, 1e-6, 300.0, 3e4),
    ],
)
def test_too_few_panels_err_by_at_most_the_panel_error(sigma, q, theta, omega):
    low, top = -10.0 * sigma, 1.0 + 12.0 * sigma

    def rule(panels):
        half = 0.5 * (top - low) / panels
        x = (low + half * (2.0 * np.arange(panels) + 1.0))[:, None] + half * budget.GAUSS[0]
        log_g = np.logaddexp(np.log1p(-q), np.log(q) + (2.0 * x - 1.0) / (2.0 * sigma**2))
        log_psi = (1.0 + theta) * log_g - 0.5 * (x / sigma) ** 2
        weight = half * budget.GAUSS[1] * np.exp(log_psi - log_psi.max())
        height = np.exp(log_psi.max())
        return np.sum(weight * np.exp(1j * omega * log_g)) * height, np.sum(weight) * height

    exact, mass = rule(400)
    sharp = []
    for panels in range(1, 40):
        bound = budget.panel_error(sigma, q, theta, low, top, omega, panels)
        error = abs(rule(panels)[0] - exact) / mass
        assert error <= bound + 1e-12
        if bound < 1.0 and error > 1e-12:
            sharp.append(np.log(bound) / np.log(error))
    assert budget.panel_error(sigma, q, theta, low, top, omega, 400) < 1e-19
    assert not sharp or max(sharp) > 0.15


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
    bound = budget.tail_error(one(sigma), one(q), SIGN[direction], theta)[0]
    assert float(mass) <= 0.5 * bound
    if q == 1.0:
        assert float(mass) >= 0.05 * bound


def test_addition_with_a_large_tilt_has_a_larger_tail_error():
    # sqrt(c): the curvature inside is what makes the tails relatively heavier
    small, large = (budget.tail_error(one(0.2), one(0.7), -1.0, theta)[0] for theta in (1e-6, 100.0))
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
    maker = SpectralMaker(one(sigma), one(q), direction)
    table = maker.table(theta, period, width, np.array([True]))
    m, row = table.frequencies, table.columns[0]
    law = hp.law(sigma, q, direction, theta, 2.0 * np.pi / period * m)
    k_error = float(abs(row[0] - law.k))
    assert k_error <= row[4]
    # where quadrature and tails are below 1e-18 the bound is round-off alone
    assert row[4] <= max(1e4 * k_error, 1e-13 * (1.0 + abs(row[0])))
    errors, bounds = [], []
    with mpmath.workdps(hp.DIGITS):
        for f in (1, m // 3, m):
            omega = 2 * mpmath.pi / mpmath.mpf(period) * f
            value = mpmath.exp(mpmath.mpc(row[COLUMNS - 1 + f], row[COLUMNS - 1 + m + f]))
            errors.append(float(abs(value - law.phi(omega, row[1]))))
            bounds.append(row[3] + row[7] * float(omega))
    assert np.all(np.array(errors) <= bounds)
    assert max(bounds) <= 1e4 * max(errors)
    up = maker.log_moments(one(theta))[0, 0]
    assert float(law.k) <= up <= row[0] + 2.0 * row[4] + 1e-18


def test_round_off_grows_with_what_it_counts():
    spread, weighted = one(0.01), one(1.0)
    base = budget.roundoff_phi(20, 4, spread, weighted)[0]
    assert base == pytest.approx(2.0 * budget.UNIT * (0.01 * (120 + 10 + 16) + 1.0))
    assert budget.roundoff_phi(21, 5, spread, weighted)[0] > base
    # the recurrence begins afresh
    assert budget.roundoff_phi(32, 4, spread, weighted) == budget.roundoff_phi(10_000, 4, spread, weighted)
    k = budget.roundoff_k(4, one(-3.0), one(100.0))[0]
    assert k == pytest.approx(budget.UNIT * (100.0 + 12 * 3.0))


@pytest.mark.parametrize("steps", [1, 3, 50, 10_000])
def test_errors_relative_to_phi_bound_the_error_of_a_product(steps):
    """Against errors of full size, aligned with phi: the worst there is."""
    rng = np.random.default_rng(steps)
    known = rng.uniform(0.05, 1.0, 40) ** (1.0 / steps) * np.exp(1j * rng.uniform(-3.0, 3.0, 40))
    error = 1e-6 / steps
    bound = budget.relative(np.array([[error, 3.0 * error]]), np.log(np.abs(known))[None])
    assert bound.shape == (1, 2)
    assert bound[0, 1] == pytest.approx(3.0 * bound[0, 0])
    least = np.argmin(np.abs(known))
    off = np.expm1(steps * np.log1p(error / np.abs(known)))  # of phi~ (1 + error / |phi~|), relative
    assert np.all(off <= np.expm1(steps * bound[0, 0]) * (1.0 + 1e-9))
    assert off[least] == pytest.approx(np.expm1(steps * bound[0, 0]), rel=1e-4)


def test_errors_relative_to_phi_are_past_use_where_phi_has_vanished():
    assert budget.relative(np.array([[1e-16, 0.0]]), np.array([[-1.0, -600.0]])).min() == 1e200
    # no frequency at all: phi(0) = 1
    assert budget.relative(np.array([[1e-16, 1e-15]]), np.empty((1, 0))).tolist() == [[1e-16, 1e-15]]


@pytest.mark.parametrize(("theta", "period", "m"), [(0.5, 20.0, 10), (30.0, 2.0, 3), (2.0, 8.0, 400)])
def test_the_dropped_weights_sum_to_at_most_the_band_coefficient(theta, period, m):
    spacing = 2.0 * np.pi / period
    f = np.arange(m + 1, m + 2_000_000)
    z = theta + 1j * spacing * f
    dropped = np.sum(2.0 / (period * np.abs(z * (1.0 + z))))
    bound = budget.band_coefficient(m * spacing)
    assert dropped <= bound
    if m * spacing > 100.0 * theta:
        assert dropped >= 0.99 * bound


@pytest.mark.parametrize("size", [2, 64, 4096, 1 << 15])
@pytest.mark.parametrize("kind", ["ones", "random", "spike"])
def test_transforms_err_by_at_most_their_round_off(size, kind):
    rng = np.random.default_rng(size)
    values = {"ones": np.ones(size), "random": rng.standard_normal(size), "spike": np.full(size, 1e-9)}[kind]
    if kind == "spike":
        values[size // 3] = 1.0
    exact = scipy.fft.rfft(values.astype(np.longdouble))
    error = float(np.max(np.abs(fft.rfft(values) - exact)))
    bound = fft.roundoff(size, float(np.linalg.norm(values)))
    assert error <= bound
    if kind == "random" and size > 2:
        assert bound <= 1e4 * error
    if kind == "spike":  # a larger error in one place would go unnoticed beside it
        assert bound < 1e-11


# ------------------------------------------------------------------------------------------------ aliasing


def gaussian_sum(mu, theta, period, epsilon):
    """S: the sum over all frequencies of the Gaussian's transform, and K(theta)."""
    f = np.arange(0, int(12.0 * period / mu) + 20)
    z = theta + 2j * np.pi * f / period
    terms = np.exp(0.5 * mu**2 * z * (1.0 + z) - z * epsilon) / (z * (1.0 + z)) * np.where(f == 0, 1.0, 2.0) / period
    return terms.real.sum(), np.abs(terms).sum(), 0.5 * mu**2 * theta * (1.0 + theta)


def gaussian_delta(mu, epsilon):
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2))


@pytest.mark.parametrize(
    ("mu", "theta", "epsilon"), [(1.0, 2.0, 2.0), (1.0, 4.0, 1.0), (0.2, 20.0, 0.8), (3.0, 0.5, 4.0)]
)
def test_a_short_period_adds_at_most_the_alias(mu, theta, epsilon):
    """With period P the sum is delta and the aliases; the bound comes from tilts on both sides of theta."""

    def k(t):
        return 0.5 * mu**2 * t * (1.0 + t)

    delta, sharp = gaussian_delta(mu, epsilon), []
    for period in np.array([2.0, 3.0, 4.0, 6.0, 8.0, 12.0]) * mu:
        total, size, k_theta = gaussian_sum(mu, theta, period, epsilon)
        assert total >= delta - 1e-14 * size
        for above, below in ((1.3, 0.0), (1.6, 0.5), (2.5, 0.8), (4.0, 0.0)):
            helper = np.array([above * theta, k(above * theta), below * theta, k(below * theta)])
            bound = np.exp(k_theta - theta * epsilon) * invert._alias(helper, theta, period, k_theta, epsilon)
            assert total - delta <= bound + 1e-14 * size
            if total - delta > 1e-12 * size:
                sharp.append(bound / (total - delta))
    assert len(sharp) > 3
    assert min(sharp) < 30.0


def test_no_alias_is_certified_without_helpers_on_both_sides():
    assert invert._alias(np.array([2.0, 1.0, 2.0, 1.0]), 2.0, 5.0, 1.0, 1.0) == np.inf


# ------------------------------------------------------------------------------------------------ envelope


def envelope_levels(sigma, q, direction, theta, levels, part=WHOLE, blur=0.0):
    """The kernel's bounds beyond each of the ascending levels, as `SpectralMaker` asks for them."""
    k, moments = np.empty((1, 1)), np.empty((1, 8))
    ends = ends_of(sigma, q, direction, theta, part, blur)
    nodes = budget.quadrature_nodes(one(sigma), one(q), SIGN[direction], theta, ends, 0.0, 1e-19, blur)
    law = one(sigma), one(q), SIGN[direction], theta, part, blur
    characterise.spectrum(*law, ends, np.empty((2, 0)), 1.0, nodes, moments, k, k.copy())
    out = np.empty((1, levels.size))
    envelope.envelope(*law, moments[:, 0].copy(), moments[:, 6:8].copy(), 768, levels, out)
    return out[0]


@pytest.mark.parametrize(
    ("sigma", "q", "direction", "theta"),
    [
        (2.0, 0.005, "remove", 20.0),
        (2.0, 0.005, "add", 20.0),
        (0.4, 0.02, "remove", 0.5),
        (0.4, 0.02, "remove", 3.0),  # the tilted law has two humps
        (0.4, 0.02, "add", 40.0),
        (1.0, 0.9, "add", 3.0),
        (0.3, 0.5, "remove", 1.0),
        (10.0, 0.1, "remove", 100.0),
    ],
)
def test_the_envelope_lies_above_phi_everywhere_beyond(sigma, q, direction, theta):
    weight, loss = hp.double_law(sigma, q, direction, theta, 0.0)
    spread = np.sqrt(weight @ loss**2 - (weight @ loss) ** 2)
    levels = 0.03 / spread * 2.0 ** (0.5 * np.arange(18))
    top = min(2.0 * levels[-1], 3000.0)
    weight, loss = hp.double_law(sigma, q, direction, theta, top)
    omega = np.geomspace(levels[0], top, 400)
    size = np.array([abs(np.sum(weight * np.exp(1j * o * loss))) for o in omega])
    env = envelope_levels(sigma, q, direction, theta, levels)
    assert np.all(np.diff(env) <= 0.0)
    shares = []
    for level, bound in zip(levels, env, strict=True):
        actual = np.max(size[omega >= level * (1.0 - 1e-12)], initial=0.0) - 1e-12
        assert actual <= np.exp(bound)
        if actual > 1e-9:
            shares.append(bound / np.log(actual))
    assert max(shares) > 0.3
    assert min(shares) > 0.25  # the shift alone proves an exponential decay


def test_the_envelope_of_a_gaussian_is_exact():
    out = np.empty((1, 3))
    levels = np.array([1.0, 2.0, 4.0])
    envelope.envelope(one(2.0), one(1.0), 1.0, 3.0, WHOLE, 0.0, one(1.0), np.zeros((1, 2)), 16, levels, out)
    assert out[0] == pytest.approx(-0.5 * (levels / 2.0) ** 2, rel=1e-15)
