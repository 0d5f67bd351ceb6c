"""kernels/characterise.py: where the nodes lie, and the error of Gauss-Legendre panels where it alone acts."""

import highprecision as hp
import numpy as np
import pytest
from scipy import integrate, special

from pld_accountant.kernels import characterise
from pld_accountant.mechanisms.quadrature import ELLIPSES, GAUSS


@pytest.mark.parametrize("q", [1e-5, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("phi", [0.1, 1.0, 1.6, 3.0])
def test_how_far_phases_turn_off_the_line(q, phi):
    sigma = 0.7
    for x in (-2.0, 0.5, 3.0, 9.0):
        bound = characterise._turn(x, sigma, q, phi)
        points = np.add.outer(np.linspace(-6.0, x, 61), 1j * sigma**2 * np.linspace(-phi, phi, 201))
        turn = np.abs(np.angle(1.0 - q + q * np.exp((2.0 * points - 1.0) / (2.0 * sigma**2))))
        assert 0.999 * bound <= turn.max() <= bound * (1.0 + 1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("sigma", "q", "theta"), [(0.7, 0.3, 5.0), (0.5, 1e-3, 200.0), (2.0, 0.5, 1e3), (1.0, 1e-6, 1e5)]
)
def test_bounds_of_a_panel(sigma, q, sign, theta):
    """The height on a rectangle and the mass, against fine grids, where psi curves, grows off the line and turns."""

    def log_psi(z):
        log_g = np.log(1.0 - q + q * np.exp((2.0 * z - 1.0) / (2.0 * sigma**2)))
        return (1.0 + theta if sign > 0.0 else -theta) * log_g - 0.5 * (z / sigma) ** 2, log_g

    grid = np.linspace(-20.0, 20.0, 400_001)
    for centre in (-1.0, 0.4, 2.0, grid[np.argmax(log_psi(grid)[0])]):
        for length, phi, width in [(0.5, 0.01, 0.0), (0.3, 0.8, 0.0), (0.2, 1.4, 30.0), (0.05, 0.3, 400.0)]:
            r, along, off = 0.8 * length * sigma, length * sigma, phi * sigma**2
            z = np.add.outer(centre + np.linspace(-along, along, 41), 1j * np.linspace(-off, off, 41))
            value, log_g = log_psi(z)
            height = (value.real + width * np.abs(log_g.imag)).max()
            bound = characterise._log_height(centre, along, off, sigma, q, sign, theta, width)
            room = 1e-9 * (1.0 + abs(bound))
            assert height <= bound + room
            x = centre + r * np.linspace(-1.0, 1.0, 2001)
            values = log_psi(x)[0]
            mass = values.max() + np.log(integrate.trapezoid(np.exp(values - values.max()), x))
            assert characterise._log_mass(centre, r, sigma, q, sign, theta) <= mass + 1e-6 + room


def test_how_the_height_under_addition_grows_off_the_line():
    """On a segment without length: the normal density, g and the turn, as they are."""
    sigma, q, theta, off = 2.0, 0.5, 4000.0, 2.0
    g, g_off = (1.0 - q + q * np.exp((2.0 * (0.5 + shift) - 1.0) / (2.0 * sigma**2)) for shift in (0.0, 1j * off))
    growth = -theta * np.log(abs(g_off) / g) + 0.5 * (off / sigma) ** 2
    for width in (0.0, 100.0):
        line, above = (characterise._log_height(0.5, 1e-9, b, sigma, q, -1.0, theta, width) for b in (0.0, off))
        np.testing.assert_allclose(above - line, growth + width * abs(np.angle(g_off)), rtol=1e-6)


@pytest.mark.parametrize(
    ("sigma", "q", "sign", "theta", "omega"),
    [
        (1.0, 0.2, 1.0, 2.0, 3.0),
        (0.3, 0.01, 1.0, 0.5, 8.0),
        (2.0, 0.005, 1.0, 60.0, 20.0),
        (30.0, 1e-4, 1.0, 1e5, 0.0),
        (2.0, 1e-6, 1.0, 300.0, 3e4),
        (1.0, 0.2, -1.0, 2.0, 3.0),
        (0.6, 0.01, -1.0, 40.0, 60.0),
        (2.0, 0.5, -1.0, 30.0, 1.0),
        (1.0, 1e-3, -1.0, 1e4, 0.0),
        (3.8, 4e-6, -1.0, 3e5, 2e6),
    ],
)
def test_too_few_panels_err_by_at_most_the_panel_error(sigma, q, sign, theta, omega):
    low, top = -10.0 * sigma, 1.0 + 12.0 * sigma

    def rule(panels):
        half = 0.5 * (top - low) / panels
        x = (low + half * (2.0 * np.arange(panels) + 1.0))[:, None] + half * GAUSS[0]
        log_g = np.logaddexp(np.log1p(-q), np.log(q) + (2.0 * x - 1.0) / (2.0 * sigma**2))
        log_psi = (1.0 + theta if sign > 0.0 else -theta) * log_g - 0.5 * (x / sigma) ** 2
        weight = half * GAUSS[1] * np.exp(log_psi - log_psi.max())
        height = np.exp(log_psi.max())
        return np.sum(weight * np.exp(1j * omega * log_g)) * height, np.sum(weight) * height

    def panel_error(panels, tolerance=0.999):
        rule = GAUSS.shape[1], panels, ELLIPSES, tolerance
        return characterise.panel_error(sigma, q, sign, theta, low, top, omega, *rule)

    exact, mass = rule(400)
    sharp = []
    for panels in range(1, 40):
        bound = panel_error(panels)
        error = abs(rule(panels)[0] - exact) / mass
        assert error <= bound + 1e-12
        if bound < 1.0 and error > 1e-12:
            sharp.append(np.log(bound) / np.log(error))
    assert panel_error(400, 1e-19) < 1e-19
    assert not sharp or max(sharp) > 0.15


@pytest.mark.parametrize(
    ("sigma", "q", "theta"),
    [(0.3, 0.5, 3.0), (2.0, 0.005, 1e3), (100.0, 1e-5, 4e6), (0.2, 1e-6, 1e4), (1.0, 0.999, 7.0)],
)
def test_the_ends_hold_the_one_maximum_of_addition(sigma, q, theta):
    ends = np.empty((1, 2))
    law = np.array([sigma]), np.array([q]), -1.0, np.array([theta]), np.array([[-np.inf, np.inf]])
    characterise.interval(*law, 10.0, ends)
    low, high = ends[0] + 10.0 * sigma * np.array([1.0, -1.0])

    def slope(x):
        return -theta * special.expit((2 * x - 1) / (2 * sigma**2) + special.logit(q)) - x

    assert slope(low) > 0.0 > slope(high)
    assert high - low < 0.1 * sigma


def test_without_nodes_the_gaussian_bounds_the_log_moment():
    sigma, theta = 0.3, 50.0
    k = np.empty(1)
    law = np.array([sigma]), np.array([0.5]), 1.0, np.array([theta]), np.array([[-np.inf, np.inf]])
    nothing = np.zeros(1, dtype=np.int64)
    characterise.log_moments(*law, np.zeros((1, 2)), np.zeros((2, 0)), nothing, k, k.copy())
    assert k[0] == theta * (theta + 1.0) / (2.0 * sigma**2)
    assert k[0] >= hp.law(sigma, 0.5, "remove", theta).k
