"""Numbers that papers and their repositories print: ours contain them, or lie on the side that the source leaves.

"equal": the source computes the same quantity, to `within`: half a unit of its last digit, or the error of its grid, by
which its own answers at two grids differ.  "at most": the source gives an upper bound, by a looser analysis.  Closed
forms of theorems are computed here.
"""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import pld_accountant as pa
from pld_accountant.notions import dp, gdp, zcdp

FOURIER = "Koskela, Jaelkoe and Honkela (2020), PLD-Accountant, tests and README"
RISKS = "Kulynych et al. (2024), riskcal, gpt2_metadata.csv: by prv_accountant, whose error is about 0.05"
SCALE = "De et al. (2022), jax_privacy, image_classification/configs"


def sampled(noise, rate, steps):
    return [(pa.SampledGaussian(noise, rate), steps)]


def replaced(noise, rate, steps):
    return [(pa.ReplaceOneSampledGaussian(noise, rate), steps)]


def ramp(mechanism, parts):
    """Their heterogeneous test: noise from 1.6 to 1.8, rates from 0.05 to 0.06, ten steps of each."""
    both = zip(np.linspace(1.6, 1.8, 10).tolist(), np.linspace(0.05, 0.06, 10).tolist(), strict=True)
    return [(mechanism(noise, rate), 10) for noise, rate in list(both)[:parts]]


ADD_REMOVE, REPLACE = pa.SampledGaussian, pa.ReplaceOneSampledGaussian
# their values of noise 1 and of 10^5 steps are left out: their grid is too coarse, or their window too small
COMPOSITIONS = [
    # source, steps, asked, at, value, relation, within
    (FOURIER, sampled(2, 0.01, 10_000), "delta", 1.0, 0.010224911126651472, "equal", 2e-10),
    (FOURIER, sampled(2, 0.01, 10_000), "delta", 0.8, 0.022850339595771204, "equal", 2e-10),
    (FOURIER, sampled(2, 0.02, 10_000), "delta", 1.0, 0.14991732969314892, "equal", 2e-10),
    (FOURIER, sampled(4, 0.01, 10_000), "delta", 1.0, 4.243484012034273e-06, "equal", 1e-12),
    (FOURIER, sampled(2, 0.01, 10_000), "epsilon", 1e-6, 2.446733916332568, "equal", 2e-7),
    (FOURIER, sampled(2, 0.01, 10_000), "epsilon", 1e-5, 2.162704603256141, "equal", 2e-7),
    (FOURIER, replaced(2, 0.01, 10_000), "delta", 1.0, 0.12820938556632053, "equal", 3e-10),
    (FOURIER, replaced(2, 0.01, 10_000), "delta", 0.8, 0.16803207353601804, "equal", 3e-10),
    (FOURIER, replaced(1, 0.01, 10_000), "delta", 1.0, 0.556809673151891, "equal", 3e-10),
    (FOURIER, replaced(2, 0.02, 10_000), "delta", 1.0, 0.5113118821506575, "equal", 3e-10),
    (FOURIER, replaced(2, 0.01, 10_000), "epsilon", 1e-5, 4.396030629364786, "equal", 2e-7),
    (FOURIER, replaced(1, 0.01, 10_000), "epsilon", 1e-6, 11.956857696159513, "equal", 2e-7),
    (FOURIER, replaced(2, 0.005, 10_000), "epsilon", 1e-6, 2.26528666506213, "equal", 2e-7),
    (FOURIER, replaced(4, 0.01, 10_000), "epsilon", 1e-5, 1.9931200626285734, "equal", 2e-7),
    (FOURIER, ramp(ADD_REMOVE, 10), "delta", 1.0, 0.0007824006547443852, "equal", 2e-10),
    (FOURIER, ramp(ADD_REMOVE, 10), "delta", 0.8, 0.0030814519279194538, "equal", 2e-10),
    (FOURIER, ramp(ADD_REMOVE, 9), "delta", 1.0, 0.0005014987387132376, "equal", 2e-10),
    (FOURIER, ramp(ADD_REMOVE, 10), "epsilon", 1e-3, 0.9658230049986837, "equal", 2e-7),
    (FOURIER, ramp(ADD_REMOVE, 10), "epsilon", 1e-4, 1.2658081375076573, "equal", 2e-7),
    (FOURIER, ramp(ADD_REMOVE, 9), "epsilon", 1e-3, 0.9092052395489234, "equal", 2e-7),
    (FOURIER, ramp(REPLACE, 10), "delta", 1.0, 0.026891238632122155, "equal", 3e-10),
    (FOURIER, ramp(REPLACE, 9), "delta", 0.8, 0.039256512455315, "equal", 3e-10),
    (FOURIER, ramp(REPLACE, 10), "epsilon", 1e-3, 1.8493437498330085, "equal", 2e-7),
    (FOURIER, ramp(REPLACE, 9), "epsilon", 1e-4, 2.157488007444617, "equal", 2e-7),
    (RISKS, sampled(0.5715066078978425, 0.0038010957846441, 792), "epsilon", 1e-5, 4.0, "equal", 0.06),
    (RISKS, sampled(0.607176132813643, 0.0038010957846441, 792), "epsilon", 1e-5, 3.25, "equal", 0.06),
    (RISKS, sampled(0.636648345573876, 0.0038010957846441, 792), "epsilon", 1e-5, 2.75, "equal", 0.06),
    (RISKS, sampled(0.6945392638626464, 0.0038010957846441, 792), "epsilon", 1e-5, 2.0, "equal", 0.06),
    (RISKS, sampled(0.7497660219048379, 0.0038010957846441, 792), "epsilon", 1e-5, 1.5, "equal", 0.06),
    (SCALE, sampled(10, 4096 / 50_000, 875), "epsilon", 1e-5, 1.0, "at most", 0.0),
    (SCALE, sampled(21.1, 16_384 / 50_000, 250), "epsilon", 1e-5, 1.0, "at most", 0.0),
    (SCALE, sampled(2.5, 16_384 / 1_281_167, 71_589), "epsilon", 8e-7, 8.0, "at most", 0.0),
    (
        "Abadi et al. (2016), Figure 2: moments accountant",
        sampled(4, 0.01, 10_000),
        "epsilon",
        1e-5,
        1.26,
        "at most",
        0,
    ),
    (
        "Chua et al. (2024), How private are DP-SGD implementations?",
        sampled(0.4, 1e-4, 10_000),
        "delta",
        4.0,
        1.18e-5,
        "at most",
        0.0,
    ),
]


def label(value):
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(("source", "steps", "asked", "at", "value", "relation", "within"), COMPOSITIONS, ids=label)
def test_a_composition_of_a_paper(source, steps, asked, at, value, relation, within):
    found = getattr(pa.compose(steps), asked)(at)
    assert found.lower <= found.upper
    assert found.lower - within <= value
    if relation == "equal":
        assert value <= found.upper + within


CENSUS = "U.S. Census Bureau (2021), 2020 Census redistricting data: persons and units, delta 1e-10"
HOUSING = "U.S. Census Bureau (2023), 2020 Census demographic and housing characteristics, delta 1e-10"
LINKS = "Messing et al. (2020), Facebook privacy-protected full URLs, in OpenDP's registry: one action, and all"
CONVERSIONS = [
    # source, conversion of rho, delta, rho to how many digits, epsilon, half a unit of its last digit
    (CENSUS, zcdp.zcdp_epsilon, 1e-10, 2.56, 0.005, 17.14, 0.005),
    (CENSUS, zcdp.zcdp_epsilon, 1e-10, 0.07, 0.005, 2.47, 0.005),
    (HOUSING, lambda rho, d: zcdp.zcdp_epsilon(rho, d, conversion="simple"), 1e-10, 4.96, 0.005, 26.34, 0.005),
    (HOUSING, lambda rho, d: zcdp.zcdp_epsilon(rho, d, conversion="simple"), 1e-10, 7.70, 0.005, 34.33, 0.005),
    (
        "Google Research blog (2022 and 2024), Gboard, Spanish next word",
        zcdp.zcdp_epsilon,
        1e-10,
        0.81,
        0.005,
        8.9,
        0.05,
    ),
    ("OpenDP, zCDP_to_approxDP/test.rs", zcdp.zcdp_epsilon, 1e-3, 1 / 32, 0.0, 0.6880024554878086, 1e-15),
    (LINKS, lambda rho, d: gdp.epsilon(d, math.sqrt(2 * rho)), 1e-5, 0.0052, 0.00005, 0.345, 0.005),
    (LINKS, lambda mu, d: gdp.epsilon(d, mu), 1e-5, 0.376, 0.0005, 1.453, 0.0005),
]


@pytest.mark.parametrize(("source", "convert", "delta", "known", "digit", "epsilon", "within"), CONVERSIONS, ids=label)
def test_a_conversion_of_a_deployment(source, convert, delta, known, digit, epsilon, within):
    """Both numbers are rounded: some pair that rounds to them is ours."""
    assert float(convert(known - digit, delta)) <= epsilon + within
    assert float(convert(known + digit, delta)) >= epsilon - within


def test_looser_conversions_of_deployments_lie_above():
    """Messing et al. (2020), by a lemma of Bun and Steinke (2016); Adeleye et al. (2023): "stronger than (1, 1e-7)"."""
    assert zcdp.zcdp_epsilon(0.0052, 1e-5) < 0.45
    assert zcdp.zcdp_epsilon(0.0728, 1e-5) < 1.844
    assert zcdp.zcdp_epsilon(0.015, 1e-7) < 1.0


class TruncatedLaplace:
    """Noise of density ~ exp(-epsilon abs(x)) on abs(x) <= A, the support at which it is (epsilon, delta)-DP."""

    def __init__(self, epsilon, delta, at):
        self.rate, self.at = epsilon, at
        self.end = math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon
        self.whole = -math.expm1(-epsilon * self.end)

    def logpdf(self, x):
        x = np.abs(np.asarray(x) - self.at)
        return np.where(x <= self.end, math.log(0.5 * self.rate / self.whole) - self.rate * x, -np.inf)

    def _log_tail(self, x):
        """log P(X <= x), x relative to the centre."""
        x = np.clip(x, -self.end, self.end)
        tail = 0.5 * (np.exp(-self.rate * np.abs(x)) - math.exp(-self.rate * self.end)) / self.whole
        with np.errstate(divide="ignore"):
            return np.where(x < 0, np.log(tail), np.log1p(-tail))

    def logcdf(self, x):
        return self._log_tail(np.asarray(x) - self.at)

    def logsf(self, x):
        return self._log_tail(self.at - np.asarray(x))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (0.5, 1e-5), (3.0, 1e-2)])
def test_truncated_laplace_noise_has_the_delta_that_it_is_made_for(epsilon, delta):
    """Geng, Ding, Guo and Kumar (2020), "Tight analysis of privacy and utility tradeoff in approximate DP"."""
    laws = TruncatedLaplace(epsilon, delta, 1.0), TruncatedLaplace(epsilon, delta, 0.0)
    found = pa.compose([(pa.DensityPair(*laws), 1)]).delta(epsilon)
    assert found.lower <= delta * (1 + 1e-9)
    assert delta * (1 - 1e-9) <= found.upper <= delta * (1 + 1e-4)


@pytest.mark.parametrize(("epsilon", "rate"), [(1.0, 0.3), (0.5, 0.05), (2.0, 0.9)])
def test_one_sided_noise_on_a_sample_is_private_both_ways(epsilon, rate):
    """Ghazi, Kamath, Kumar, Manurangsi and Sealfon (2024), Lemma 3.1; its two parts, attained by exponential noise."""
    noise = stats.expon(1.0, 1.0 / epsilon), stats.expon(0.0, 1.0 / epsilon)
    run = pa.compose([(pa.DensityPair(*noise, rate), 1)])
    for way, largest in (("remove", math.log1p(rate * math.expm1(epsilon))), ("add", -math.log1p(-rate))):
        found = run.epsilon(1e-9, way)
        assert found.lower <= largest
        assert found.upper >= largest - 1e-7


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_the_trade_off_function_of_laplace_noise(mu):
    """Dong, Roth and Su (2022): T(Lap(0, 1), Lap(mu, 1))."""
    alpha = np.array([1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.99])
    ends = [1 - math.exp(mu) * alpha, math.exp(-mu) / (4 * alpha), math.exp(-mu) * (1 - alpha)]
    exact = np.select([alpha < 0.5 * math.exp(-mu), alpha <= 0.5], ends[:2], ends[2])
    found = pa.compose([(pa.Laplace(1 / mu), 1)]).tradeoff(alpha)
    assert np.all(found.lower <= exact * (1 + 1e-12))
    assert np.all(exact * (1 - 1e-12) <= found.upper)


@pytest.mark.parametrize(("epsilon", "steps"), [(0.1, 100), (0.3, 30)])
def test_the_central_limit_theorem_with_its_error(epsilon, steps):
    """Dong, Roth and Su (2022), Section 3, for pure DP: a Gaussian curve, moved by the Berry-Esseen error both ways."""
    mean, chance = epsilon * math.tanh(epsilon / 2), 1 / (1 + math.exp(-epsilon))
    third = chance * (epsilon - mean) ** 3 + (1 - chance) * (epsilon + mean) ** 3
    variance = epsilon**2 - mean**2
    mu, error = 2 * mean * math.sqrt(steps / variance), 0.56 * third / (math.sqrt(steps) * variance**1.5)
    run = pa.compose([(pa.PureDP(epsilon), steps)])

    def gaussian(alpha):
        return float(stats.norm.cdf(stats.norm.ppf(1 - alpha) - mu))

    for alpha in (0.1, 0.3, 0.5, 0.7):
        found = run.tradeoff(alpha)
        assert gaussian(alpha + error) - error <= found.upper
        assert found.lower <= gaussian(max(alpha - error, 0.0)) + error


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 20.0])
def test_pure_dp_implies_no_larger_divergence(epsilon):
    """Steinke (2024), "Sharp RDP & zCDP from pure DP", Theorems 4 and 5."""
    rho = dp.pure_rho(epsilon)
    assert rho == pytest.approx(math.expm1(epsilon) / (math.exp(epsilon) + 1) * epsilon, rel=1e-14)
    with mp.workdps(60):
        e = mp.mpf(epsilon)
        for order in (1 + 1e-9, 1.01, 2.0, 5.0, 30.0, 1e4):
            a = mp.mpf(order)
            exact = e - mp.log((1 + mp.exp(-e)) / (1 + mp.exp(-(2 * a - 1) * e))) / (a - 1)
            assert exact <= dp.pure_rdp(epsilon, order)
            assert exact <= a * mp.mpf(rho)


@pytest.mark.parametrize(("noise", "batches"), [(0.35, 1000), (0.6, 100), (1.0, 100)])
def test_the_largest_output_of_balls_in_bins_is_a_lower_bound(noise, batches):
    """Chua et al. (2024), "Balls-and-bins sampling": P(max >= C) - exp(epsilon) Q(max >= C) for every C."""
    run, c = pa.compose([(pa.RandomAllocation(noise, batches), 1)]), np.linspace(-1, 8, 2001)
    others = stats.norm.logcdf(c / noise)
    with_record = -np.expm1((batches - 1) * others + stats.norm.logcdf((c - 1) / noise))
    without = -np.expm1(batches * others)
    for epsilon in (0.5, 1.0, 2.0):
        assert np.max(with_record - math.exp(epsilon) * without) <= run.delta(epsilon).upper


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_tuning_of_pure_dp(epsilon, shape):
    """Papernot and Steinke (2022), Theorem 2 at large orders: (2 + shape) epsilon; shape 1: Liu and Talwar (2019)."""
    run = pa.compose([(pa.PureDP(epsilon), 1)])
    tuned = pa.compose([(pa.RepeatedSelection(run, 1e9, shape), 1)])
    assert tuned.epsilon(0.0).upper == pytest.approx((2 + shape) * epsilon, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "steps", "delta"), [(0.1, 100, 1e-5), (0.5, 20, 1e-6), (0.01, 5000, 1e-8)])
def test_the_closed_form_of_optimal_composition_lies_above(epsilon, steps, delta):
    """Kairouz, Oh and Viswanath (2015), Theorem 3.4."""
    drift = math.expm1(epsilon) * epsilon * steps / (math.exp(epsilon) + 1)
    spread = epsilon * math.sqrt(2 * steps)
    logs = math.log(math.e + math.sqrt(steps) * epsilon / delta), math.log(1 / delta)
    published = min(steps * epsilon, *(drift + spread * math.sqrt(log) for log in logs))
    assert pa.compose([(pa.PureDP(epsilon), steps)]).epsilon(delta).upper < published


def permute_and_flip(scores, epsilon):
    """The chances of the answers; scores of sensitivity 1."""
    accept, chances = np.exp(0.5 * epsilon * (scores - scores.max())), np.zeros(scores.size)
    for order in itertools.permutations(range(scores.size)):
        left = 1.0 / math.factorial(scores.size)
        for i in order:
            chances[i] += left * accept[i]
            left *= 1.0 - accept[i]
    return chances


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_permute_and_flip_loses_at_most_what_laplace_noise_does(epsilon):
    """McKenna and Sheldon (2020), Algorithm 1, in exact probabilities; two answers attain the curve."""
    rng, at = np.random.default_rng(0), np.linspace(0.0, epsilon, 9)[:-1]
    found, nearest = pa.compose([(pa.PermuteAndFlip(epsilon), 1)]).delta(at), np.inf
    gaps = [np.array([gap, 0.0]) for gap in np.linspace(-2.0, 0.0, 41)]
    for before in gaps + [rng.exponential(rng.choice([0.3, 1.0, 3.0]), n) for n in (2, 3, 4) for _ in range(60)]:
        move = np.array([1.0, -1.0]) if len(before) == 2 else rng.choice([-1.0, 0.0, 1.0], before.size)
        p, q = permute_and_flip(before + move, epsilon), permute_and_flip(before, epsilon)
        reached = np.maximum(p - np.exp(at)[:, None] * q, 0.0).sum(axis=1)
        assert np.all(reached <= found.upper * (1 + 1e-12))
        nearest = np.minimum(nearest, found.lower - reached)
    assert np.all(nearest < 1e-2 * found.lower)


@pytest.mark.parametrize(("noise", "epochs", "epsilon"), [(1.3, 15, 1.19), (1.1, 60, 3.01), (0.7, 45, 7.10)])
def test_the_moments_accountant_on_mnist(noise, epochs, epsilon):
    """TensorFlow Privacy, tutorials/README.md, batches of 256: Mironov's conversion at their orders."""
    run = pa.compose(sampled(noise, 256 / 60_000, epochs * 60_000 // 256))
    orders = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)))
    assert np.min(run.rdp(orders) - math.log(1e-5) / (orders - 1)) == pytest.approx(epsilon, abs=0.005)
    assert run.epsilon(1e-5).upper < run.rdp_epsilon(1e-5) < epsilon


def test_the_central_limit_theorem_alone_underestimates():
    """Bu, Dong, Long and Su (2020), compute_muP: "0.227-GDP"; Gopi, Lee and Wutschitz (2021): it is too small."""
    run = pa.compose(sampled(1.3, 256 / 60_000, 3515))
    mu = math.sqrt(math.expm1(1.3**-2) * 3515) * 256 / 60_000
    assert mu == pytest.approx(0.227, abs=5e-4)
    assert gdp.epsilon(1e-5, mu) < run.epsilon(1e-5).lower
    assert run.mu(1e-5).lower > mu


@pytest.mark.parametrize("noise", [2.0, 4.0, 16.0])
def test_batches_of_one_size_have_the_limits_of_the_central_limit_theorem(noise):
    """Dong, Roth and Su (2022), on subsampling: the mu of the symmetrised pair.  Bu et al. (2020): that of the pair."""
    steps, x = 1_000_000, 2.0 / noise  # rate times sqrt(steps) is 0.1
    below = 0.1 * math.sqrt(math.expm1(x**2))
    above = 0.1 * math.sqrt(2 * (math.exp(x**2) * stats.norm.cdf(1.5 * x) + 3 * stats.norm.cdf(-0.5 * x) - 2))
    found = pa.compose([(pa.FixedSizeBatch(noise, 100, 1_000_000), steps)]).epsilon(1e-5, tolerance=1e-3)
    # how far this many steps are from the limit
    assert found.lower == pytest.approx(gdp.epsilon(1e-5, below), rel=1e-2)
    assert found.upper == pytest.approx(gdp.epsilon(1e-5, above), rel=1e-2)
