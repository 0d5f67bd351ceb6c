"""Parts of a law with soft ends: what they keep, and each term of their error budget."""

import mpmath
import numpy as np
import pytest
from scipy import special

from pld_accountant.kernels import characterise, envelope
from pld_accountant.tables import errors as budget
from pld_accountant.tables.characteristic import SpectralMaker
from pld_accountant.tables.table import COLUMNS

SOFT = [
    # sigma, q, theta, low, high, blur
    (0.4, 1e-5, 4.0, -np.inf, 2.6, 1.0 / 16.0),
    (0.4, 1e-5, 40.0, -np.inf, 2.0, 1.0 / 4.0),
    (0.4, 1e-5, 4.0, 2.6, 7.0, 1.0 / 16.0),
    (2.0, 0.005, 30.0, -np.inf, 20.0, 1.0 / 16.0),
    (2.0, 0.005, 30.0, 20.0, 40.0, 1.0 / 4.0),
    (2.0, 0.005, 1e3, 20.0, 40.0, 1.0 / 16.0),
    (1.0, 0.1, 0.5, -np.inf, 0.2, 1.0 / 4.0),
]
NAMES = [f"{s}-{q}-{t}-{low}-{blur}" for s, q, t, low, _, blur in SOFT]


def log_v(x, low, high, s):
    """log of P(low < x + s Z < high), by scipy."""
    more, less = (x - low) / s, (x - high) / s
    more, less = np.where(less > 0.0, -less, more), np.where(less > 0.0, -more, less)
    inside = special.log_ndtr(more)
    return inside + np.log1p(-np.exp(special.log_ndtr(less) - inside))


def tilted(law, x):
    """log of the tilted density of a part, not normalised, and the loss."""
    sigma, q, theta, low, high, blur = law
    log_g = np.logaddexp(np.log1p(-q), np.log(q) + (2.0 * x - 1.0) / (2.0 * sigma**2))
    log_density = (1.0 + theta) * log_g - 0.5 * (x / sigma) ** 2 - np.log(sigma * np.sqrt(2.0 * np.pi))
    return log_density + log_v(x, low, high, blur * sigma), log_g


def kernel_law(law):
    sigma, q, theta, low, high, blur = law
    return np.array([sigma]), np.array([q]), 1.0, theta, np.array([[low, high]]), blur


def ends_of(law):
    ends = np.empty((1, 2))
    characterise.interval(*kernel_law(law), budget.REACH, ends)
    return ends


def setting(law, omega):
    return *kernel_law(law)[:4], ends_of(law), omega


@pytest.mark.parametrize(
    ("low", "high", "s"), [(-np.inf, 3.0, 0.1), (2.0, 5.0, 0.25), (2.0, 2.3, 0.25), (-1.0, 40.0, 1.0)]
)
def test_what_a_part_keeps(low, high, s):
    """v near its ends and 60 standard deviations off, where it is 1e-800."""
    places = np.array([*np.linspace(-4.0, 8.0, 13), high + 30.0 * s, high + 60.0 * s, low - 60.0 * s])
    with mpmath.workdps(900):
        for x in places[np.isfinite(places)]:
            most = mpmath.ncdf((mpmath.mpf(high) - mpmath.mpf(x)) / mpmath.mpf(s))
            least = mpmath.ncdf((mpmath.mpf(low) - mpmath.mpf(x)) / mpmath.mpf(s)) if np.isfinite(low) else 0
            exact = mpmath.log(most - least)
            found = characterise.log_part(x, low, high, s)
            # as much of it as the round-off of a term allows for
            assert abs(found - exact) <= budget.UNIT * (6.0 * abs(float(exact)) + 40.0)


@pytest.mark.parametrize("omega", [0.0, 6.0])
@pytest.mark.parametrize("law", SOFT, ids=NAMES)
def test_too_few_nodes_err_by_at_most_the_quadrature_error(law, omega):
    blur, ends = law[-1], ends_of(law)[0]

    def rule(nodes, top):
        x = np.linspace(*ends, nodes)
        log_density, log_g = tilted(law, x)
        return (x[1] - x[0]) * np.sum(np.exp(log_density - top + 1j * omega * log_g))

    enough = int(budget.quadrature_nodes(*setting(law, omega), 1e-13, blur)[0])
    top = tilted(law, np.linspace(*ends, enough))[0].max()
    exact = rule(4 * enough, top)
    mass = np.trapezoid(
        np.exp(tilted(law, np.linspace(*ends, 4 * enough))[0] - top), dx=np.diff(ends)[0] / (4 * enough - 1)
    )
    sharp = []
    for nodes in np.unique(np.linspace(0.1, 1.0, 40) * enough).astype(int):
        bound = budget.quadrature_error(*setting(law, omega), np.array([nodes]), blur)[0]
        error = abs(rule(nodes, top) - exact) / mass
        if bound < 1.0:  # capped there: no statement
            assert error <= bound + 1e-11
            if error > 1e-10:
                sharp.append(np.log(error) / np.log(bound))
    assert budget.quadrature_error(*setting(law, omega), np.array([enough]), blur)[0] <= 2e-13
    # the exponent of the error is known to a factor of eight where the soft end weighs next to nothing
    assert min(sharp, default=1.0) < 8.0


@pytest.mark.parametrize("law", SOFT, ids=NAMES)
def test_the_tails_beyond_the_nodes_hold_at_most_the_tail_error(law):
    low, high = ends_of(law)[0]
    sigma = law[0]
    inside = special.logsumexp(tilted(law, np.linspace(low, high, 40_001))[0]) + np.log((high - low) / 40_000)
    tails = [special.logsumexp(tilted(law, np.linspace(a, a + 3.0 * sigma, 40_001))[0]) + np.log(3.0 * sigma / 40_000)
             for a in (low - 3.0 * sigma, high)]  # fmt: skip
    bound = budget.tail_error(np.array([sigma]), np.array([law[1]]), 1.0, law[2], law[-1])[0]
    assert np.exp(np.logaddexp(*tails) - inside) <= 0.5 * bound


def test_ends_that_lie_tightly():
    """Where a part's tilted law is a Gaussian, the nodes end where that has 1e-23 left."""
    law = (2.0, 1.0 - 1e-15, 50.0, -np.inf, 20.0, 0.25)
    high = ends_of(law)[0, 1]
    x = np.linspace(high, high + 2.0, 20_001)
    inside = special.logsumexp(tilted(law, np.linspace(high - 30.0, high, 300_001))[0])
    tail = special.logsumexp(tilted(law, x)[0])
    assert np.exp(tail - inside) >= 1e-4 * budget.tail_error(np.array([2.0]), np.array([1.0]), 1.0, 50.0, 0.25)[0]


@pytest.mark.parametrize(
    "law",
    [
        *SOFT,
        # steep tilts press the law against the end, where the error of t is what matters
        (2.111599068069266, 2.815191547424804e-05, 605.6947766549883, -np.inf, 43.85399482980671, 0.07060652731924773),
        (2.007870597708029, 1.0523638236806463e-06, 638.4693108310722, -np.inf, 56.21457613835025, 0.07118236441931548),
    ],
)
def test_k_and_phi_of_a_part(law):
    """A table's row against forty digits."""
    sigma, q, theta, low, high, blur = law
    maker = SpectralMaker(np.array([sigma]), np.array([q]), "remove", 1.0, blur=blur, parted=True)
    maker.part[0] = low, high
    table = maker.table(theta, 4.0, 16.0, np.ones(1, dtype=bool))
    m, row = table.frequencies, table.columns[0]
    bottom, top = ends_of(law)[0]
    with mpmath.workdps(40):
        s, r = mpmath.mpf(sigma), mpmath.mpf(q)
        n = 1200
        step = mpmath.mpf(float(top - bottom)) / n
        weight, loss = [], []
        for j in range(n + 1):
            x = mpmath.mpf(float(bottom)) + j * step
            log_g = mpmath.log(1 - r + r * mpmath.exp((2 * x - 1) / (2 * s * s)))
            kept = mpmath.ncdf((mpmath.mpf(high) - x) / (blur * s))
            if np.isfinite(low):
                kept -= mpmath.ncdf((mpmath.mpf(low) - x) / (blur * s))
            weight.append(kept * mpmath.exp((1 + theta) * log_g) * mpmath.npdf(x, 0, s) * step)
            loss.append(log_g)
        total = mpmath.fsum(weight)
        assert abs(mpmath.log(total) - row[0]) <= row[4]
        assert row[4] <= 1e-11 * (1.0 + abs(row[0]))
        assert mpmath.log(total) <= maker.log_moments(np.array([theta]))[0, 0]
        for f in (1, m // 3, m):
            omega = 2 * mpmath.pi / 4 * f
            phi = mpmath.fsum(w * mpmath.expj(omega * (x - row[1])) for w, x in zip(weight, loss, strict=True)) / total
            found = mpmath.exp(mpmath.mpc(row[COLUMNS - 1 + f], row[COLUMNS - 1 + m + f]))
            assert abs(found - phi) <= row[3] + row[7] * omega
            assert row[3] + row[7] * omega <= 1e-10


def test_k_of_a_part_where_sampling_makes_all_losses_gains():
    """g < 1 in all of the part: next to nothing is left of it at a steep tilt."""
    sigma, q, high, theta = 0.9817295797173737, 0.13850712504233484, 0.2820258567413885, 4560.477958877737
    maker = SpectralMaker(np.array([sigma]), np.array([q]), "remove", 1.0, blur=0.02, parted=True)
    maker.part[0, 1] = high
    x = np.linspace(-12.0, 3.0, 400_001)
    exact = special.logsumexp(tilted((sigma, q, theta, -np.inf, high, 0.02), x)[0]) + np.log(x[1] - x[0])
    k = maker.log_moments(np.array([theta]))[0, 0]
    assert -1e-9 <= k - exact <= 1e-9
    row = maker.table(theta, 4.0, 16.0, np.ones(1, dtype=bool)).columns[0]
    assert abs(row[0] - exact) <= row[4] + 1e-9
    assert 0.0 < row[4] < 1e-9


@pytest.mark.parametrize("blur", [0.0, 1.0 / 16.0, 0.5])
def test_parts_that_adjoin_add_up_to_the_whole(blur):
    sigma, q = np.array([0.4, 2.0]), np.array([1e-5, 0.005])
    whole = SpectralMaker(sigma, q, "remove")
    parts = [
        whole.variant(4.0, blur=blur, parted=True),
        whole.variant(7.0, beyond=4.0, blur=blur, parted=True),
        whole.variant(30.0, beyond=7.0, blur=blur, parted=True),
    ]
    theta, every = 3.0, np.ones(2, dtype=bool)

    def transform(maker):
        table = maker.table(theta, 4.0, 16.0, every)
        m, columns = table.frequencies, table.columns
        omega = np.pi / 2.0 * np.arange(1, m + 1)
        log_phi = columns[:, COLUMNS : COLUMNS + m] + 1j * columns[:, COLUMNS + m : COLUMNS + 2 * m]
        return np.exp(columns[:, :1] + log_phi + 1j * columns[:, 1:2] * omega)

    exact = transform(whole)
    assert np.sum([transform(p) for p in parts], axis=0) == pytest.approx(
        exact, rel=0.0, abs=1e-12 * np.abs(exact).max()
    )
    assert min(np.abs(transform(p)).max() for p in parts) > 0.0


def test_the_mass_beyond_a_soft_end():
    sigma, q, reach = 1.5, 0.01, 6.0
    maker = SpectralMaker(np.array([sigma]), np.array([q]), "remove", reach, blur=0.3)
    with mpmath.workdps(25):
        x = mpmath.mpf(float(maker.part[0, 1]))

        def beyond(mean):
            return mpmath.quad(
                lambda y: mpmath.npdf(y, mean, sigma) * mpmath.ncdf((y - x) / (mpmath.mpf("0.3") * sigma)),
                np.linspace(-15.0, 25.0, 41).tolist(),
            )

        mass = (1 - mpmath.mpf(q)) * beyond(0) + q * beyond(1)
        assert float(mass) == pytest.approx(float(mpmath.ncdf(-reach)), rel=1e-9)
    row = maker.table(3.0, 8.0, 16.0, np.ones(1, dtype=bool)).columns[0]
    assert mass <= -np.expm1(-row[5]) <= mass * (1.0 + 1e-9)


@pytest.mark.parametrize("law", SOFT, ids=NAMES)
def test_the_envelope_lies_above_phi_everywhere_beyond(law):
    levels = 0.25 * 2.0 ** (0.5 * np.arange(52))
    k, moments, env = np.empty((1, 1)), np.empty((1, 8)), np.empty((1, levels.size))
    nodes = budget.quadrature_nodes(*setting(law, 0.0), 1e-19, law[-1])
    characterise.spectrum(*kernel_law(law), ends_of(law), np.empty((2, 0)), 1.0, nodes, moments, k, k.copy())
    envelope.envelope(*kernel_law(law), moments[:, 0].copy(), moments[:, 6:8].copy(), 768, levels, env)
    log_density, loss = tilted(law, np.linspace(*ends_of(law)[0], 200_001))
    weight = np.exp(log_density - special.logsumexp(log_density))
    omega = np.geomspace(levels[0], 2000.0, 400)
    size = np.array([abs(np.sum(weight * np.exp(1j * o * loss))) for o in omega])
    assert np.all(np.diff(env[0]) <= 0.0)
    shares = []
    for level, bound in zip(levels, env[0], strict=True):
        actual = np.max(size[omega >= level * (1.0 - 1e-12)], initial=0.0) - 1e-12
        assert actual <= np.exp(bound)
        if actual > 1e-9:
            shares.append(bound / np.log(actual))
    assert max(shares) > 0.25


def test_a_soft_beginning_decays_like_a_gaussian_and_a_sharp_one_is_not_followed():
    sigma, q = np.array([0.4]), np.array([1e-5])
    rows = [
        SpectralMaker(sigma, q, "remove", 20.0, beyond=7.0, blur=blur, parted=True)
        .table(4.0, 4.0, 512.0, np.ones(1, dtype=bool))
        .columns[0]
        for blur in (0.0, 1.0 / 16.0)
    ]
    assert rows[0][2] == 0.0
    assert rows[1][2] < np.log(1e-9)
