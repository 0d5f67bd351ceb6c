"""The smallest mu above a curve: the kernel against `gaussian`, known values, one Gaussian, and both ends."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import dominating_mu
from pld_accountant.engine.transform import GridTransform
from pld_accountant.kernels import dominate as kernel
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.notions import gdp
from pld_accountant.tables.makers import TableMakers

SAMPLED = [(pa.SampledGaussian(2, 0.005), 10_000)]


def makers_of(sigma, q, direction):
    return TableMakers(SampledGaussianSteps(sigma, q, direction))


def mu_upper(counts, makers, min_delta, **more):
    return dominating_mu.touching(WholeCounts(counts), makers, min_delta, **more)[0]


def mu_lower(counts, makers, min_delta, **more):
    return dominating_mu.mu_lower(WholeCounts(counts), makers, min_delta, **more)


def touching(counts, makers, min_delta, **more):
    return dominating_mu.touching(WholeCounts(counts), makers, min_delta, **more)


def random_pairs(n, seed):
    rng = np.random.default_rng(seed)
    mu = 10.0 ** rng.uniform(-9, 1.6, n)
    return np.where(rng.random(n) < 0.1, 0.0, rng.uniform(0, 36, n) * mu), mu


def test_the_gaussian_lies_between_the_kernels_ends():
    epsilon, mu = random_pairs(20_000, 0)
    out = np.empty((epsilon.size, 5))
    for k in range(epsilon.size):
        out[k] = kernel._gauss(epsilon[k], mu[k], 0.0)
    # beside the kernel's own ends only the error of `gaussian`
    exact = gdp.log_delta(epsilon, mu)
    error = 2.0**-46 * (1 + (epsilon / mu - mu / 2) ** 2)
    with np.errstate(divide="ignore"):
        assert np.all(np.log(out[:, 0]) <= exact + error)
        assert np.all(np.log(out[:, 1]) >= exact - error)
    good = mu > 1e-6
    assert np.all(out[good, 1] - out[good, 0] <= 1e-8 * out[good, 1]), "the ends are close"
    step = 1e-6
    moved = np.exp(gdp.log_delta(epsilon[good] * (1 + step) + step * mu[good], mu[good]) - exact[good])
    slope = (1 - moved) * np.exp(exact[good]) / (step * (epsilon[good] + mu[good]))
    some = (moved < 1 - 1e-5) & (out[good, 2] > 1e-280)
    np.testing.assert_allclose(slope[some], out[good, 2][some], rtol=2e-3)


@pytest.mark.parametrize("mu", [1e-3, 0.27, 1.0, 3.5])
def test_a_gaussian_is_its_own_smallest_curve(mu):
    """Points on the curve: from below nothing is lost, from above the chords cost dt^2 / 8 and no more."""
    for points in (17, 65, 401):
        t = np.linspace(0, 6, points)
        epsilon = mu * t[None]
        curve = gdp.log_delta(epsilon, mu)
        low, high, hull = np.empty(1), np.empty((1, 3)), np.empty((1, 3), dtype=np.int64)
        kernel.least_mu_down(epsilon, curve, low)
        kernel.least_mu_up(epsilon, curve, np.zeros((1, 2)), np.inf, 5e-5, True, high, hull)
        assert mu * (1 - 1e-8) <= low[0] <= mu
        assert mu <= high[0, 2] <= mu * (1 + 2.2 * t[1] ** 2 / 8 + 6e-5), "a step doubles at worst"
        assert high[0, 1] <= mu * (1 + 6e-5)
        assert (hull[0, 1] > 0) == (points < 401)


def test_the_result_lies_above_every_chord():
    """On a fine grid between the points, for curves that are no Gaussian's."""
    rng = np.random.default_rng(1)
    people, points = 40, 12
    epsilon = np.sort(rng.uniform(0, 3, (people, points)), axis=1)
    mu = rng.uniform(0.1, 1.0, (people, 1)) * (1 + rng.uniform(-0.1, 0.1, (people, points)))
    x, delta = np.exp(epsilon), gdp.delta(epsilon, mu)
    for _ in range(points):  # make it convex and falling: the greatest convex function below
        for j in range(1, points - 1):
            t = (x[:, j] - x[:, j - 1]) / (x[:, j + 1] - x[:, j - 1])
            delta[:, j] = np.minimum(delta[:, j], (1 - t) * delta[:, j - 1] + t * delta[:, j + 1])
    out, hull = np.empty((people, 3)), np.empty((people, 3), dtype=np.int64)
    kernel.least_mu_up(epsilon, np.log(delta), np.zeros((people, 2)), np.inf, 5e-5, True, out, hull)
    share = np.linspace(0, 1, 201)
    tight = 0
    for i in range(people):
        for j in range(points - 1):
            between = x[i, j] + share * (x[i, j + 1] - x[i, j])
            chord = (1 - share) * delta[i, j] + share * delta[i, j + 1]
            assert np.all(gdp.delta(np.log(between), out[i, 2]) >= chord * (1 - 1e-12))
            tight += bool(np.any(gdp.delta(np.log(between), out[i, 2] * 0.9) < chord))
    assert tight >= people


def test_a_chord_is_accepted_only_where_the_gaussian_lies_above_all_of_it():
    """Of the smallest mu that is accepted, to the last digits; it is close to the smallest there is."""
    rng = np.random.default_rng(4)
    share = np.linspace(0, 1, 1001)
    for _ in range(60):
        mu = rng.uniform(0.05, 2)
        left = mu * rng.uniform(0, 6)
        right = left + mu * rng.uniform(0.02, 1.5)
        d = gdp.delta(np.array([left, right]), mu)
        low, high = mu * (1 - 1e-6), 2 * mu
        for _ in range(45):
            middle = (low + high) / 2
            good = kernel._above_chord(left, right, d[0], d[1], middle, 0.0)
            low, high = (low, middle) if good else (middle, high)
        between = np.exp(left) + share * (np.exp(right) - np.exp(left))
        chord = (1 - share) * d[0] + share * d[1]
        above = gdp.delta(np.log(between), high) / chord
        assert above.min() >= 1 - 1e-11
        # eight tangents miss a sixty-fourth of the chord's own distance from the curve
        short = gdp.delta(np.log(between), mu + (high - mu) * 0.9) / chord
        assert short.min() < 1


def test_known_values():
    c = pa.compose(SAMPLED)
    for min_delta, low, high in ((1e-5, 0.269025, 0.269091), (1e-10, 0.27055, 0.27110)):
        found = c.mu(min_delta)
        assert low <= found.lower <= found.upper <= high
        assert found.upper / found.lower - 1 < 1e-4
    assert c.mu(1e-30).upper > 0.27476
    # addition's curve is the lower one
    assert c.mu(1e-5, "add").upper < c.mu(1e-5, "remove").lower


@pytest.mark.parametrize("min_delta", [1e-3, 1e-10])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_curve_of_the_upper_end_lies_above_and_of_the_lower_end_does_not(direction, min_delta):
    rng = np.random.default_rng(2)
    sigma, rate = np.array([1.0, 2.0, 6.0]), np.array([0.02, 0.01, 0.005])
    counts = rng.integers(100, 2000, (5, 3))
    counts[0, :2] = counts[1, 1:] = 0
    makers = makers_of(sigma, rate, direction)
    upper = mu_upper(counts, makers, min_delta)
    lower = mu_lower(counts, makers, min_delta)
    assert np.all(lower < upper)
    assert np.all(upper / lower - 1 < 2e-4)
    for row, low, high in zip(counts, lower, upper, strict=True):
        c = pa.compose([(pa.SampledGaussian(s, q), int(n)) for s, q, n in zip(sigma, rate, row, strict=True)])
        # beyond, delta is below min_delta, where nothing is promised
        grid = np.linspace(0, c.epsilon(min_delta, direction).lower, 23)
        exact = [c.delta(e, direction) for e in grid]
        assert all(gdp.delta(e, high) >= b.lower for e, b in zip(grid, exact, strict=True))
        assert any(gdp.delta(e, low * 0.9995) < b.upper for e, b in zip(grid, exact, strict=True))
    # nobody's result depends on who else is asked about, beyond round-off of the matrix products
    alone = [mu_upper(counts[i : i + 1], makers, min_delta)[0] for i in range(len(counts))]
    np.testing.assert_allclose(upper, alone, rtol=1e-9)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_one_step_has_a_closed_form(direction):
    sigma, rate = np.array([1.0, 3.0]), np.array([0.02, 0.5])
    counts = np.eye(2, dtype=np.int64)
    makers = makers_of(sigma, rate, direction)
    upper = mu_upper(counts, makers, 1e-5)
    lower = mu_lower(counts, makers, 1e-5)
    assert np.all(lower <= upper) and np.all(upper <= lower * (1 + 1e-4))
    assert np.all(upper <= np.sqrt(counts @ sigma**-2.0) * (1 + 1e-12))
    for i, (s, q) in enumerate(zip(sigma, rate, strict=True)):
        c = pa.compose([(pa.SampledGaussian(s, q), 1)])
        grid = np.linspace(0, c.epsilon(1e-5, direction).lower, 300)
        exact = np.array([c.delta(e, direction).estimate for e in grid])
        needed = gdp.mu(grid, np.maximum(exact, 1e-5)).max()
        assert upper[i] == pytest.approx(needed, rel=1e-4)


def test_with_fewer_rounds_the_upper_end_is_larger_never_smaller(monkeypatch):
    """Whatever was not looked at again counts with its coarse chords.  The usual points need no second look here."""
    monkeypatch.setattr(dominating_mu, "_STEP", 1.0)
    monkeypatch.setattr(dominating_mu, "_SPLIT", 2)
    makers = makers_of(np.array([2.0, 5.0]), np.array([0.005, 0.01]), "remove")
    counts = np.array([[3000, 0], [2000, 5000], [0, 9000]])
    found = []
    for rounds in (0, 1, 2, 4):
        monkeypatch.setattr(dominating_mu, "_ROUNDS", rounds)
        found.append(mu_upper(counts, makers, 1e-8))
    assert np.all(np.diff(found, axis=0) <= 0)
    assert np.all(found[0] > found[1]) and np.all(found[1] > found[3] * (1 + 1e-4))


def some_people(seed, people=6):
    counts = np.random.default_rng(seed).integers(100, 5000, (people, 3))
    counts[0] = 0
    return counts, np.array([1.0, 2.0, 6.0]), np.array([0.02, 0.01, 0.005])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999, 1.0, 1.5, np.inf])
def test_an_end_is_taken_only_where_it_is_one(share):
    """Whatever is proposed, the whole range is compared."""
    counts, sigma, rate = some_people(5)
    makers = makers_of(sigma, rate, "remove")
    upper, touch, end = touching(counts, makers, 1e-6)
    assert upper[0] == touch[0] == end[0] == 0.0
    assert np.all((touch[1:] > 0) & (touch[1:] <= end[1:]))
    with np.errstate(invalid="ignore"):
        proposed = np.where(end > 0, end * share, 0.0)
    again, _, used = touching(counts, makers, 1e-6, end=proposed)
    assert np.all(used >= end * (1 - 1e-9))
    # beyond the end the curve may ask for more
    assert np.all(np.abs(again[1:] / upper[1:] - 1) < 2 * dominating_mu.LOSS) or share == 1.5
    assert np.all(again >= upper * (1 - 2 * dominating_mu.LOSS))


def test_any_share_gives_a_lower_bound_and_the_right_one_a_close_one():
    counts, sigma, rate = some_people(6)
    makers = makers_of(sigma, rate, "remove")
    upper, touch, end = touching(counts, makers, 1e-8)
    right = touch[1:] / end[1:]
    for share in (right, np.zeros(5), np.full(5, 0.5), np.ones(5)):
        lower = mu_lower(counts, makers, 1e-8, share=np.concatenate([[1.0], share]))
        assert lower[0] == 0.0
        assert np.all(lower <= upper)
        assert share is not right or np.all(upper[1:] / lower[1:] - 1 < 1.5 * dominating_mu.LOSS)


def test_where_nothing_else_serves_the_steps_count_without_sampling(monkeypatch):
    monkeypatch.setattr(dominating_mu._Curves, "at", lambda self, who, epsilon, **_: np.zeros((*epsilon.shape, 2)))
    makers = makers_of(np.array([2.0, 4.0]), np.array([0.01, 0.02]), "remove")
    counts = np.array([[300, 400], [1000, 0]])
    mu = np.sqrt([100, 250])
    np.testing.assert_allclose(mu_upper(counts, makers, 1e-5), mu, rtol=1e-12)


def test_contradictory_methods_count_for_nothing(monkeypatch):
    """A single step, whose curve is asked for point by point; every point is told to be far too low."""
    one = dominating_mu.solve

    def contradicted(*given, **more):
        found = one(*given, **more)
        found.upper -= 5.0
        found.contradicted[:] = True
        return found

    makers = makers_of(np.array([0.6]), np.array([0.01]), "remove")
    truth = mu_upper(np.array([[1]]), makers, 1e-5)
    monkeypatch.setattr(dominating_mu, "solve", contradicted)
    assert mu_upper(np.array([[1]]), makers, 1e-5) >= truth


def test_a_floor_and_a_ceiling_decide_as_the_number_itself_does():
    rng = np.random.default_rng(3)
    sigma, rate = np.array([2.0, 4.0]), np.array([0.005, 0.005])
    counts = rng.integers(0, 20_000, (60, 2))
    makers = makers_of(sigma, rate, "remove")
    mu = mu_upper(counts, makers, 1e-6)
    budget = float(np.median(mu))
    asked = mu_upper(counts, makers, 1e-6, floor=np.full(60, budget), ceiling=budget)
    clear = np.abs(mu / budget - 1) > 2 * dominating_mu.LOSS
    np.testing.assert_array_equal((asked <= budget)[clear], (mu <= budget)[clear])


def test_a_ledgers_bounds_enclose_the_person_clipped_at_every_step():
    ledger = pa.Ledger(3, noise_multiplier=2, sample_rate=0.005, max_grad_norm=1)
    ledger.record([0.0, 0.4, 1.0], repeat=10_000)
    found = ledger.mu(1e-5)
    worst = pa.compose(SAMPLED).mu(1e-5)
    assert found.upper[0] == found.lower[0] == 0
    assert worst.lower <= found.upper[2] == pytest.approx(worst.upper, rel=1e-9)
    assert np.all(found.lower <= found.upper) and found.lower[2] > 0.98 * worst.lower


def test_a_ledgers_mu_lies_above_all_curves_in_both_directions():
    ledger = pa.Ledger(4, noise_multiplier=1.0, sample_rate=0.02, max_grad_norm=1)
    norms = np.array([0.0, 0.02, 0.5, 1.0])
    ledger.record(norms, repeat=1000)
    told = []
    found = ledger.mu(1e-7, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told) and told[-1] == (12, 12)
    for person in (1, 2, 3):
        c = pa.compose([(pa.SampledGaussian(1.0 / norms[person], 0.02), 1000)])
        asks = []
        for direction in ("remove", "add"):
            epsilon = np.linspace(0, c.epsilon(1e-7, direction).lower, 25)
            delta = np.array([c.delta(e, direction).lower for e in epsilon])
            asks.append(gdp.mu(epsilon, delta).max())
        assert found.lower[person] <= max(asks) * (1 + 1e-3)
        assert max(asks) * (1 - 1e-9) <= found.upper[person]


@pytest.mark.parametrize(("noise", "rate", "steps"), [(0.8, 0.05, 200), (1.1, 0.1, 100), (0.6, 0.01, 2000)])
def test_many_people_with_points_that_no_common_tilt_serves(noise, rate, steps):
    """Deltas of 0, and deltas bounded loosely: both used to give up to ten times the worst case's mu."""
    norms = np.linspace(0.5, 1.2, 40)
    ledger = pa.Ledger(norms.size, noise_multiplier=noise, sample_rate=rate, max_grad_norm=1)
    ledger.record(norms, repeat=steps)
    found, worst = ledger.mu(), ledger.worst_case().mu()
    assert np.all(found.upper <= worst.upper * (1.0 + 1e-3))
    assert np.all(found.upper <= 1.08 * found.lower), "two edges of a bucket"
    for person in (0, 15):
        own = pa.compose([(pa.SampledGaussian(noise / norms[person], rate), steps)]).mu()
        assert own.lower * (1.0 - 1e-9) <= found.upper[person] <= 1.01 * own.upper


@pytest.mark.parametrize(("noise", "rate", "steps"), [(2.43, 1.42e-5, 5), (4.785, 6.19e-5, 366)])
def test_mu_of_rare_steps_is_close_for_one_person_and_for_many(noise, rate, steps):
    """No tilt serves the curve: mu used to be 5 to 300 times too large."""
    worst = pa.compose([(pa.SampledGaussian(noise, rate), steps)]).mu()
    assert worst.upper <= worst.lower * (1.0 + 1e-6)
    norms = np.linspace(0.5, 1.2, 24)
    ledger = pa.Ledger(norms.size, noise_multiplier=noise, sample_rate=rate, max_grad_norm=1)
    ledger.record(norms, repeat=steps)
    found = ledger.mu()
    assert np.all(found.upper <= worst.upper * (1.0 + 1e-3))
    assert np.all(found.upper <= 1.08 * found.lower), "two edges of a bucket"


def test_mu_of_many_rare_steps_with_several_norms_is_close():
    """More than a hundred rare steps: neither grids nor tilts serve the curve, and mu used to be too large."""
    ledger = pa.Ledger(8, noise_multiplier=0.976, sample_rate=1.817e-4, max_grad_norm=1, buckets=64)
    norms = (0.3, 0.01, 1e-4)
    for norm, repeat in zip(norms, (4876, 3640, 1457), strict=True):
        ledger.record(np.append(np.roll(np.linspace(0.05, 1.0, 7), repeat), norm), repeat=repeat)
    ledger.record(np.append(np.linspace(1.0, 0.3, 7), 1.0), repeat=7, noise_multiplier=1.091, sample_rate=1.416e-3)
    found = ledger.mu()
    assert np.all(found.upper <= 1.2 * found.lower)


def sums_of(pair, steps, direction):
    """Losses of a discrete pair's composition and their masses, by plain convolution; the infinite mass apart."""
    law = pair.law(direction)
    losses, masses = np.zeros(1), np.ones(1)
    for _ in range(steps):
        losses = np.add.outer(losses, law.losses).ravel()
        masses = np.multiply.outer(masses, law.masses).ravel()
    return losses, masses, 1.0 - (1.0 - law.infinite) ** steps


@pytest.mark.parametrize(
    ("pair", "steps"),
    [
        (pa.RandomizedResponse(0.5, 4), 5),
        (pa.DiscretePair([0.5, 0.3, 0.2 - 1e-7, 1e-7], [0.2, 0.3, 0.5, 0.0]), 4),
        (pa.DiscretePair([0.7, 0.3], [0.25, 0.75]), 1),
    ],
)
def test_discrete_losses_are_compared_point_by_point(pair, steps):
    min_delta, needed = 1e-5, 0.0
    for direction in ("remove", "add"):
        losses, masses, infinite = sums_of(pair, steps, direction)
        epsilon = np.concatenate([np.linspace(0.0, losses.max(), 2_001), losses[losses > 0.0]])
        delta = infinite + np.maximum(-np.expm1(epsilon[:, None] - losses), 0.0) @ masses
        some = delta >= min_delta
        needed = max(needed, gdp.mu(epsilon[some], delta[some]).max())
    found = pa.compose([(pair, steps)]).mu(min_delta)
    assert found.certified
    assert found.lower <= needed * (1.0 + 2e-4)
    assert found.upper >= needed * (1.0 - 1e-9)
    assert found.upper - found.lower <= 1e-3 * found.upper


def test_an_infinite_mass_above_the_least_delta_has_no_mu():
    pair = pa.DiscretePair([0.6, 0.4 - 1e-3, 1e-3], [0.4, 0.6, 0.0])
    found = pa.compose([(pair, 3)]).mu(1e-5)
    assert found.certified and found.lower == np.inf


def test_infinite_losses_beside_others():
    """An infinite mass m below the least delta, and one Gaussian step, whose curve without it is known."""
    m, sigma, min_delta = 2e-5, 2.0, 1e-4
    box = pa.ApproximateDP(0.0, m)
    found = pa.compose([(box, 1), (pa.Gaussian(sigma), 1)]).mu(min_delta)
    epsilon = np.linspace(0.0, 2.5, 400_001)
    delta = m + (1.0 - m) * gdp.delta(epsilon, 1.0 / sigma)
    some = delta >= min_delta
    assert not some.all()
    needed = gdp.mu(epsilon[some], delta[some]).max()
    assert needed > 1.001 / sigma, "the infinite mass counts"
    assert found.lower <= needed * (1.0 + 1e-6)
    assert needed * (1.0 - 2e-3) <= found.upper <= needed * (1.0 + 2e-3)


def test_a_shuffled_epoch_is_compared_point_by_point():
    composed, min_delta = pa.compose([(pa.RandomAllocation(2.0, 10), 3)]), 1e-4
    found = composed.mu(min_delta)
    assert found.certified
    assert found.upper - found.lower <= 2e-3 * found.upper
    needed = 0.0
    for epsilon in np.linspace(0.0, 1.5, 16):
        delta = composed.delta(float(epsilon))
        if delta.lower >= min_delta:
            assert gdp.delta(epsilon, found.upper) >= delta.lower
            needed = max(needed, float(gdp.mu(epsilon, delta.upper)))
    assert 0.98 * found.lower <= needed <= found.upper * (1.0 + 1e-3)


def test_bounds_of_a_curve_that_are_far_apart():
    """Upper ends make the upper bound, lower ends the lower one."""
    composed, min_delta = pa.compose([(pa.FixedSizeBatch(2.0, 10, 100), 20)]), 1e-3
    found = composed.mu(min_delta)
    assert found.lower < 0.97 * found.upper
    points = np.linspace(0.0, composed.epsilon(min_delta).lower, 15)
    curve = [composed.delta(float(epsilon)) for epsilon in points]
    for epsilon, delta in zip(points, curve, strict=True):
        assert gdp.delta(epsilon, found.upper) >= delta.upper * (1.0 - 1e-3)
    needed = max(float(gdp.mu(epsilon, delta.lower)) for epsilon, delta in zip(points, curve, strict=True))
    assert found.lower == pytest.approx(needed, rel=5e-3)


@pytest.mark.parametrize("group", [pa.GroupGaussian(2.0, 0.01, 4), pa.SampledGaussian(0.5, 0.01)])
def test_few_steps_whose_points_need_tilts_of_their_own(group):
    # under addition one tilt for the whole curve bounds delta by several times the truth
    composed = pa.compose([(group, 10)])
    found = composed.mu(1e-6)
    assert found.upper - found.lower <= 1e-3 * found.upper
    for epsilon in (0.0, 0.1, 0.3):
        delta = composed.delta(epsilon)
        assert delta.lower > 1e-6
        assert gdp.delta(epsilon, found.upper) >= delta.lower * (1.0 - 1e-9)


def test_points_of_losses_with_atoms_take_no_grid_of_a_million_points(monkeypatch):
    """One such grid takes a second for each point of the curve; mu is within half a percent without."""
    points = []
    own = GridTransform.improve

    def improve(self, job, working, who):
        if not job.question.wants_epsilon:
            points.append(self.points)
        own(self, job, working, who)

    monkeypatch.setattr(GridTransform, "improve", improve)
    run = pa.compose([(pa.SampledGaussian(5.25, 0.0016), 23), (pa.DiscreteLaplace(0.53), 3), (pa.Laplace(3.0), 4)])
    found = run.mu(1e-5)
    assert found.certified and found.upper - found.lower <= 5e-3 * found.upper
    assert points and max(points) <= 1 << 17
