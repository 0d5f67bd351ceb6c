"""kernels/envelope.py: the bound lies above the characteristic function everywhere beyond each level."""

import highprecision as hp
import numpy as np
import pytest
from parts import NAMES, PARTS, tilted
from scipy import special

from pld_accountant.kernels import _columns as c
from pld_accountant.kernels import characterise, envelope
from pld_accountant.mechanisms import quadrature

SIGN = {"remove": 1.0, "add": -1.0}
WHOLE = np.array([[-np.inf, np.inf]])


def one(value):
    return np.array([value])


def envelope_levels(law, levels, cells=384):
    """The kernel's bounds beyond each of the ascending levels, as the step family asks for them, and the ends."""
    sigma, q, sign, theta, part = law
    ends, moments, out = np.empty((1, 2)), np.empty((1, c.MOMENTS)), np.empty((1, levels.size))
    characterise.interval(*law, quadrature.REACH, ends)
    nodes = quadrature.quadrature_nodes(sigma, q, sign, theta, ends, 0.0, 1e-19)
    rule = np.empty((2, 0)) if np.isinf(part).all() else quadrature.GAUSS
    nodes = nodes if np.isinf(part).all() else 40 * (nodes // 10 + 4)
    characterise.weigh(*law, ends, rule, nodes, *np.empty((2, 1, nodes[0])), moments)
    span = moments[:, [c.M_LOW, c.M_HIGH]].copy()
    envelope.envelope(*law, moments[:, c.M_LOG_MOMENT].copy(), span, cells, levels, out)
    return out[0], ends[0]


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
    env, _ = envelope_levels((one(sigma), one(q), SIGN[direction], one(theta), WHOLE), levels)
    assert np.all(np.diff(env) <= 0.0)
    shares = []
    for level, bound in zip(levels, env, strict=True):
        actual = np.max(size[omega >= level * (1.0 - 1e-12)], initial=0.0) - 1e-12
        assert actual <= np.exp(bound)
        if actual > 1e-9:
            shares.append(bound / np.log(actual))
    assert max(shares) > 0.3
    assert min(shares) > 0.25  # the shift alone proves an exponential decay
    # what happens within wide cells is allowed for
    for cells in (2, 6, 24):
        env, _ = envelope_levels((one(sigma), one(q), SIGN[direction], one(theta), WHOLE), levels, cells)
        for level, bound in zip(levels, env, strict=True):
            assert np.max(size[omega >= level * (1.0 - 1e-12)], initial=0.0) - 1e-12 <= np.exp(bound)


@pytest.mark.parametrize("law", PARTS, ids=NAMES)
def test_the_envelope_of_a_part_lies_above_phi_everywhere_beyond(law):
    sigma, q, theta, low, high = law
    levels = 0.25 * 2.0 ** (0.5 * np.arange(52))
    env, ends = envelope_levels((one(sigma), one(q), 1.0, one(theta), np.array([[low, high]])), levels)
    log_density, loss = tilted(law, np.linspace(*ends, 200_001))
    weight = np.exp(log_density - special.logsumexp(log_density))
    omega = np.geomspace(levels[0], 2000.0, 130)
    size = np.array([abs(np.sum(weight * np.exp(1j * o * loss))) for o in omega])
    assert np.all(np.diff(env) <= 0.0)
    shares = []
    for level, bound in zip(levels, env, strict=True):
        actual = np.max(size[omega >= level * (1.0 - 1e-12)], initial=0.0) - 1e-12
        assert actual <= np.exp(bound)
        if actual > 1e-9:
            shares.append(bound / np.log(actual))
    assert max(shares) > 0.25


def test_the_envelope_of_a_gaussian_is_exact():
    out = np.empty((1, 3))
    levels = np.array([1.0, 2.0, 4.0])
    envelope.envelope(one(2.0), one(1.0), 1.0, one(3.0), WHOLE, one(1.0), np.zeros((1, 2)), 16, levels, out)
    assert out[0] == pytest.approx(-0.5 * (levels / 2.0) ** 2, rel=1e-15)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("q", [1e-100, 1e-160, 1e-200, 1e-280])
def test_tiny_rates_scale_the_losses(q, direction):
    """The loss is q times the same law, so that the bound depends on the rate times the frequency alone."""
    scaled = 2.0 ** (0.5 * np.arange(-8, 24))

    def bounds(rate):
        law = (one(1.0), one(rate), SIGN[direction], one(1.0), WHOLE)
        return envelope_levels(law, scaled / rate)[0]

    found, known = bounds(q), bounds(1e-9)
    assert found[0] > -1e-2 and known[-1] < -1.0
    np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-7)


def test_losses_without_digits_bound_nothing():
    law = (one(1.0), one(1e-300), SIGN["remove"], one(1.0), WHOLE)
    assert np.all(envelope_levels(law, 2.0 ** np.arange(990.0, 1000.0))[0] == 0.0)
