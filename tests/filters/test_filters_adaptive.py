"""Adaptive adversaries against the filters, on mechanisms whose joint law is computed exactly.

Every sequence of outcomes is one "person" of the filter, so the filter's own code decides, along each of
them, which steps take place.  An adversary chooses each step's norm from the outcomes before it.  Filters
that are broken on purpose must fail the same tests.
"""

import numpy as np
import pytest

from pld_accountant.filters.gaussian import GaussianFilter, ZCDPFilter
from pld_accountant.filters.pure_dp import ApproximateDPFilter, PureDPFilter
from pld_accountant.filters.renyi import RenyiFilter
from pld_accountant.notions import gdp

# Filters that are wrong on purpose: what they let pass must be caught.


def forgetful(f):
    """Looks at what was spent before the step, not at the step: the last step may be any."""
    admit = f.admit

    def broken(norms):
        before = f.active
        mask = admit(norms)
        refused = before & ~mask
        f.take_units(np.where(refused, 0, f.units_left))
        return mask | refused

    f.admit = broken
    return f


def generous(f):
    """Takes small steps for free."""
    admit = f.admit

    def broken(norms):
        small = norms < 0.7 * norms.max()
        return admit(np.where(small, 0.0, norms))

    f.admit = broken
    return f


def refunding(f):
    """Gives every step back when the next one is asked for, as if only the last one counted."""
    admit, headroom = f.admit, f.headroom

    def broken(norms):
        f._renew()
        return admit(norms)

    def broken_headroom():
        f._renew()
        return headroom()

    f.admit, f.headroom = broken, broken_headroom
    return f


BROKEN = [forgetful, generous, refunding]


# Two outcomes: randomised response, all sequences enumerated.

STEPS = 11


def enumerate_two_outcomes(f, strategy):
    """Log-probabilities of all outcome sequences with the record and without it: (2**STEPS,) each."""
    paths = np.arange(2**STEPS)
    with_record, without = np.zeros(paths.size), np.zeros(paths.size)
    history = np.zeros((0, paths.size), dtype=int)
    for step in range(STEPS):
        asked = strategy(step, history, f)
        admitted = f.admit(asked)
        epsilon = np.where(admitted, asked, 0.0)
        outcome = (paths >> step) & 1
        sign = np.where(outcome == 1, 1.0, -1.0)
        with_record += -np.logaddexp(0, -sign * epsilon)
        without += -np.logaddexp(0, sign * epsilon)
        history = np.vstack([history, outcome])
    return with_record, without


def prefix_code(history):
    """A number for each prefix of outcomes, equal for paths that agree so far."""
    return (history * (1 << np.arange(len(history)))[:, None]).sum(axis=0) if len(history) else 0


def random_norms(seed, top):
    """Norms drawn for each prefix of outcomes."""

    def strategy(step, history, f):
        table = np.random.default_rng([seed, step]).uniform(0, top, 2**STEPS)
        return table[prefix_code(history)] * np.ones(2**STEPS)

    return strategy


def spend_the_rest_when_lucky(top):
    """Small steps; once the outcomes lean one way all that is left, if the other way more than is left."""

    def strategy(step, history, f):
        lead = (2 * history - 1).sum(axis=0) if len(history) else np.zeros(2**STEPS)
        return np.where(lead >= 2, f.headroom(), np.where(lead <= -2, 3 * top, 0.3 * top))

    return strategy


def steady(top):
    return lambda step, history, f: np.full(2**STEPS, top)


def last_one_large(top):
    return lambda step, history, f: np.full(2**STEPS, 0.7 * top if step < STEPS - 1 else 40 * top)


def strategies(top):
    return [random_norms(seed, 2 * top) for seed in range(6)] + [
        spend_the_rest_when_lucky(top),
        steady(top),
        last_one_large(top),
    ]


def renyi(log_p, log_q, alpha):
    return np.logaddexp.reduce(alpha * log_p + (1 - alpha) * log_q) / (alpha - 1)


def hockey_stick(log_p, log_q, epsilon):
    return np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0).sum()


def worst_renyi_excess(make, alphas, budget, top):
    """The largest divergence over its budget, over strategies, orders and both directions."""
    worst = 0.0
    for strategy in strategies(top):
        p, q = enumerate_two_outcomes(make(), strategy)
        assert np.exp(p).sum() == pytest.approx(1) == np.exp(q).sum()
        for alpha in alphas:
            worst = max(worst, renyi(p, q, alpha) / budget(alpha), renyi(q, p, alpha) / budget(alpha))
    return worst


@pytest.mark.parametrize("rho", [0.005, 0.05])
def test_zcdp_of_two_outcome_steps(rho):
    """An e-DP step is e**2 / 2-zCDP: a filter of noise 1 charged with e as its norm."""
    top = np.sqrt(2 * rho / (STEPS - 3))
    alphas = [1.01, 1.5, 2, 4, 8, 32]

    def make():
        return ZCDPFilter(rho, num_examples=2**STEPS, noise_multiplier=1.0)

    worst = worst_renyi_excess(make, alphas, lambda alpha: alpha * rho, top)
    assert 0.97 < worst <= 1 + 1e-9
    for broken in BROKEN:
        assert worst_renyi_excess(lambda b=broken: b(make()), alphas, lambda a: a * rho, top) > 1.2


@pytest.mark.parametrize("conversion", ["best", "simple"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.01), (0.3, 1e-3), (2.0, 1e-5)])
def test_approximate_dp_of_two_outcome_steps(epsilon, delta, conversion):
    def make():
        return ApproximateDPFilter(epsilon, delta, num_examples=2**STEPS, conversion=conversion)

    def worst(filter_of):
        top = np.sqrt(2 * make().rho / (STEPS - 3))
        values = []
        for strategy in strategies(top):
            p, q = enumerate_two_outcomes(filter_of(), strategy)
            values += [hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)]
        return max(values)

    assert worst(make) <= delta
    assert worst(lambda: forgetful(make())) > delta


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_pure_dp_of_two_outcome_steps(epsilon):
    def make():
        return PureDPFilter(epsilon, num_examples=2**STEPS)

    def worst(filter_of):
        largest = 0.0
        for strategy in strategies(epsilon / (STEPS - 3)):
            log_p, log_q = enumerate_two_outcomes(filter_of(), strategy)
            largest = max(largest, np.abs(log_p - log_q).max())
        return largest

    assert 0.9 * epsilon < worst(make) <= epsilon * (1 + 1e-9)
    assert worst(lambda: forgetful(make())) > 1.1 * epsilon


# Gaussian steps: two stages on a grid of outcomes, the third in closed form.

NODES = np.linspace(-9, 9, 181)
SIGMA = 1.7


def gaussian_stages(f, second, third, sample_rate=1.0):
    """Log-likelihood ratios and weights after two stages and the third stage's norm, by the trapezoidal rule.

    Outcomes are drawn as without the record, N(0, SIGMA**2); with it a step is N(norm, SIGMA**2), or a
    mixture.
    """
    y1, y2 = (y.ravel() * SIGMA for y in np.meshgrid(NODES, NODES, indexing="ij"))
    weight = np.exp(-(y1**2 + y2**2) / (2 * SIGMA**2))
    weight /= weight.sum()
    loss = np.zeros(y1.size)
    for y, asked in (
        (y1, lambda: np.full(y1.size, 0.6)),
        (y2, lambda: second(y1)),
        (None, lambda: third(y1, y2)),
    ):
        norms = np.minimum(asked(), f.headroom())
        norms = np.where(f.admit(norms), norms, 0.0)
        if y is not None:
            ratio = (2 * y * norms - norms**2) / (2 * SIGMA**2)
            loss += np.log1p(sample_rate * np.expm1(ratio))
    return loss, weight, norms


RESPONSES = {
    "constant": (lambda y: np.full(y.size, 0.5), lambda y, z: np.full(y.size, 9.0)),
    "eager": (lambda y: 1 / (1 + np.exp(-2 * y)), lambda y, z: np.full(y.size, 9.0)),
    "cautious": (lambda y: 1 / (1 + np.exp(3 * y)), lambda y, z: np.full(y.size, 9.0)),
    "late": (lambda y: 0.1 + 0 * y, lambda y, z: 1.1 / (1 + np.exp(-y - z))),
}


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_gaussian_steps_stay_below_the_gaussian_curve_and_reach_it(response):
    """Both directions at seven epsilons; a budget spent to the end gives the curve exactly."""
    mu = 0.8

    def excess(f):
        loss, weight, last = gaussian_stages(f, *response)
        worst, least = -1.0, 1.0
        for epsilon in (-1.0, -0.2, 0.0, 0.3, 1.0, 2.0, 3.0):
            m = last / SIGMA
            with_record = np.sum(weight * np.exp(loss) * gdp.delta(epsilon - loss, m))
            without = np.sum(weight * gdp.delta(epsilon + loss, m))
            promise = gdp.delta(epsilon, mu)
            worst = max(worst, with_record - promise, without - promise)
            least = min(least, with_record - promise, without - promise)
        return worst, least

    def make():
        return GaussianFilter(mu, num_examples=NODES.size**2, noise_multiplier=SIGMA)

    worst, least = excess(make())
    assert worst < 1e-6
    if response is not RESPONSES["late"]:
        assert least > -1e-6, "the promise is tight"
        assert excess(refunding(make()))[0] > 1e-3


def renyi_of_stages(f, response, alpha, sample_rate):
    """Divergences of order alpha, both directions, of three stages; the third is summed over its outcomes."""
    loss, weight, last = gaussian_stages(f, *response, sample_rate=sample_rate)
    y = NODES * SIGMA
    mass = np.exp(-(NODES**2) / 2)
    mass /= mass.sum()
    ratio = (2 * np.outer(last, y) - last[:, None] ** 2) / (2 * SIGMA**2)
    loss = loss[:, None] + np.log1p(sample_rate * np.expm1(ratio))
    remove = weight @ np.exp(alpha * loss) @ mass
    add = weight @ np.exp((1 - alpha) * loss) @ mass
    return np.log(remove) / (alpha - 1), np.log(add) / (alpha - 1)


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
@pytest.mark.parametrize(("alpha", "sample_rate"), [(2, 1.0), (5.5, 1.0), (3, 0.3), (6.5, 0.1)])
def test_renyi_of_gaussian_steps(response, alpha, sample_rate):
    budget = 0.1 * alpha if sample_rate == 1 else 0.6 * alpha * sample_rate**2 / SIGMA**2

    def make():
        return RenyiFilter(
            budget,
            alpha,
            num_examples=NODES.size**2,
            noise_multiplier=SIGMA / 4,
            max_grad_norm=4.0,
            sample_rate=sample_rate,
        )

    remove, add = renyi_of_stages(make(), response, alpha, sample_rate)
    assert max(remove, add) <= budget * (1 + 1e-7)
    if response is not RESPONSES["late"]:
        assert remove > 0.98 * budget, "the last step spends the rest"
        assert max(renyi_of_stages(refunding(make()), response, alpha, sample_rate)) > 1.1 * budget


def test_several_orders_hold_at_once():
    orders, budgets = [2, 4, 8], [0.05, 0.09, 0.2]
    for response in RESPONSES.values():
        reached = []
        for alpha, budget in zip(orders, budgets, strict=True):
            f = RenyiFilter(
                budgets,
                orders,
                num_examples=NODES.size**2,
                noise_multiplier=SIGMA / 4,
                max_grad_norm=4.0,
                sample_rate=0.4,
            )
            reached.append(max(renyi_of_stages(f, response, alpha, 0.4)) / budget)
        assert max(reached) <= 1 + 1e-7
    assert min(reached) < 0.95
