"""Cases that a review tried by hand and that were wrong or failed; each is a question a user can ask."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import pld_accountant as pa
from pld_accountant.composition.known import KnownComposition
from pld_accountant.mechanisms.discrete import DiscreteLaw, DiscreteSteps

SAMPLED = [
    (pa.PoissonSampled(pa.Laplace(20.0), 1e-6), 1000),
    (pa.PoissonSampled(pa.ExponentialMechanism(2.0), 1e-5), 100),
]


@pytest.mark.parametrize("more", SAMPLED, ids=str)
@pytest.mark.parametrize("run", [(pa.SampledGaussian(1.0, 0.1), 500), (pa.RandomizedResponse(0.6, 2), 40)], ids=str)
def test_steps_of_tiny_losses_lower_no_epsilon(run, more):
    """Their losses are smaller than a cell of the grid, so the cell begins far below the smallest loss."""
    alone, both = (pa.compose(steps).epsilon(1e-5) for steps in ([run], [run, more]))
    assert both.status == pa.Status.CERTIFIED
    assert both.upper >= alone.lower
    assert both.upper <= alone.upper * 1.0001


@pytest.mark.parametrize("sigma", [0.05, 0.06])
def test_batches_of_a_fixed_size_with_little_noise(sigma):
    """Losses beyond 709, whose exponentials are no numbers; one step is at most two, two at most a Gaussian's."""
    mechanism = pa.FixedSizeBatch(sigma, 3, 100)
    with np.errstate(over="raise", invalid="raise"):
        one, two = (pa.compose([(mechanism, n)]).epsilon(1e-5) for n in (1, 2))
    assert two.status == pa.Status.CERTIFIED
    assert one.lower <= two.upper and two.lower <= two.upper < 1.01 * two.lower
    gaussian = pa.compose([(pa.SampledGaussian(0.5 * sigma, 1.0), 2)]).epsilon(1e-5)
    assert two.lower <= gaussian.upper


def test_a_delta_far_beyond_all_doubles():
    """No split lies below the end of the losses."""
    sigma, q, steps, epsilon = 3.0, 1.5e-5, 935, 0.14
    found = pa.compose([(pa.SampledGaussian(sigma, q), steps)]).delta(epsilon)
    assert 0.0 <= found.lower <= found.upper < 1e-40
    ledger = pa.Ledger(3, noise_multiplier=sigma, sample_rate=q, max_grad_norm=1.0)
    ledger.record(np.array([0.2, 0.9, 1.0]), repeat=steps)
    bounds = ledger.delta(epsilon, seconds=1.0)
    assert np.all(bounds.lower <= bounds.upper) and np.all(bounds.upper < 1e-12)


def test_cells_of_hundreds_of_nats_lower_no_bound():
    """The sampled steps' number is binomial, and delta at most the mean of that of so many full batches."""
    sigma, q, steps, delta = 0.003, 0.99, 34_040, 0.99
    found = pa.compose([(pa.SampledGaussian(sigma, q), steps), (pa.PureDP(0.001), 1)]).epsilon(delta)
    number = np.arange(steps + 1)
    mu = np.sqrt(np.maximum(number, 1)) / sigma

    def most(epsilon):
        loss = epsilon - 0.001 - number * np.log(q) - (steps - number) * np.log1p(-q)
        return stats.binom.pmf(number, steps, q) @ stats.norm.sf(loss / mu - 0.5 * mu)

    assert most(found.lower * (1.0 - 1e-9)) >= delta
    assert found.lower > 0.999 * found.upper


def test_an_infinite_epsilon_has_an_estimate():
    found = pa.compose([(pa.ApproximateDP(0.1, 1e-6), 2), (pa.FixedSizeBatch(3.0, 17, 1000), 1)]).epsilon(1e-7)
    assert found.lower == found.estimate == found.upper == np.inf


@pytest.mark.parametrize(
    ("with_record", "without_record", "rate", "steps", "alpha", "direction"),
    [
        ((0.5036526036879108, 0.49634739631208924), (0.6367177741787033, 0.36328222582129666), 0.13925884001008682, 10,
         3.008906949833024e-13, "remove"),
        ((0.8523005926704665, 0.14769940732953346), (0.02546744677382151, 0.9745325532261785), 0.008466121191007585, 3,
         1.637343245618441e-14, "remove"),
        ((0.646913613301784, 0.353086386698216), (0.5866131209143863, 0.41338687908561367), 0.3608345856139843, 10,
         9.773276610629011e-14, "add"),
        ((0.5441487824344085, 0.45585121756559155), (0.5856419049277907, 0.41435809507220933), 1.0, 10,
         8.573658997232255e-13, "remove"),
    ],
)  # fmt: skip
def test_an_attack_with_few_false_positives(with_record, without_record, rate, steps, alpha, direction):
    """Below the null mass of the largest loss, the best attack accuses there alone: exactly alpha times its ratio."""
    p, q = ([Fraction(x) / sum(map(Fraction, law)) for x in law] for law in (with_record, without_record))
    drawn = [(1 - Fraction(rate)) * y + Fraction(rate) * x for x, y in zip(p, q, strict=True)]
    ratios = [x / y if direction == "remove" else y / x for x, y in zip(drawn, q, strict=True)]
    truth = Fraction(alpha) * max(ratios) ** steps
    run = pa.compose([(pa.DiscretePair(with_record, without_record, rate), steps)])
    found = run.attack_success(alpha, direction)
    assert found.lower <= truth <= found.upper
    assert found.lower == pytest.approx(float(truth), rel=1e-9, abs=0.0)


@pytest.mark.parametrize("mechanism", [pa.RandomizedResponse(1.0, 5), pa.ApproximateDP(0.0, 0.0)], ids=str)
def test_steps_that_lose_nothing(mechanism):
    run = pa.compose([(mechanism, 3)])
    largest = run.epsilon(0.0)
    assert largest.lower == 0.0 and largest.upper < 1e-11  # the laws are known up to round-off
    assert run.mu().upper == 0.0 and run.rdp_epsilon(1e-5) < 1e-12 and run.rdp(np.inf) < 1e-11
    assert run.tradeoff(0.1).upper <= 0.9 * (1.0 + 1e-12)


def test_losses_that_round_to_nothing_count():
    """Both probabilities of a step round to 1 / 2; four thousand million million steps lose half an epsilon."""
    truth = 2**52 * 1e-16
    run = pa.compose([(pa.PureDP(1e-16), 2**52)])
    assert run.epsilon(0.0).lower <= truth <= run.epsilon(0.0).upper
    assert run.rdp_epsilon(1e-300) >= 1e-9 and run.rdp(2.0) >= 1e-17 and run.mu(1e-12).upper > 0.0
    beside = pa.compose([(pa.PureDP(1e-16), 2**52), (pa.Laplace(10.0), 1)])
    assert beside.epsilon(0.0).upper >= 0.1 + truth
    assert beside.rdp_epsilon(1e-300) >= 0.1 + 1e-9
    # about half of the mean of the positive part of the sum, of standard deviation 7e-9, less 1e-10
    assert beside.delta(0.1 + 1e-10).upper > 1e-9 and beside.epsilon(1e-10).upper > 0.1


class _OwnLaw:
    """A user's mechanism: no base class, and a chance of 0.01 of an infinite loss."""

    noise_multiplier = 1.0

    def law(self, direction):
        return DiscreteLaw(np.array([-1.0, 1.0]), np.array([0.25, 0.74]), 0.01, False)

    @staticmethod
    def steps(mechanisms, direction):
        return DiscreteSteps([m.law(direction) for m in mechanisms], direction)


def test_infinite_losses_of_a_users_own_mechanism_count():
    run = pa.compose([(_OwnLaw(), 1)])
    assert run.delta(2.0).upper >= 0.01 and run.epsilon(1e-3).lower == np.inf
    assert run.attack_success(0.0).lower == pytest.approx(0.01)


@pytest.mark.parametrize("mechanism", [pa.ZeroConcentratedDP(0.1), pa.RenyiDP([2.0, 4.0], [0.1, 0.3])], ids=str)
def test_the_status_without_false_positives(mechanism):
    assert pa.compose([(mechanism, 1)]).attack_success(0.0).status == pa.Status.RENYI_ONLY


def test_steps_that_lose_nothing_or_everything_have_a_mu():
    run = pa.compose([(pa.ApproximateDP(0.0, 1e-3), 2)])
    assert run.mu(0.5).upper == 0.0 and run.mu(1e-5).lower == np.inf


@pytest.mark.parametrize(
    ("mechanism", "steps", "direction", "chance"),
    [
        (pa.DiscretePair([1.0, 0.0], [0.0, 1.0], 0.3), 2, "remove", 0.51),
        (pa.DiscretePair([1.0, 0.0], [0.0, 1.0], 0.3), 2, "add", 0.0),
        (pa.RandomizedResponse(0.0, 5), 1, "both", 1.0),
        (pa.ApproximateDP(5.5, 0.0133), 1, "add", 0.0133),
        (pa.ApproximateDP(0.001, 0.001), 1, "remove", 0.001),
        (pa.Gaussian(1.0), 2, "both", 0.0),
        # tails of tables are no infinite losses
        (pa.DiscreteGaussian(2.0), 3, "both", 0.0),
        (pa.RandomAllocation(1.0, 10), 3, "both", 0.0),
    ],
)
def test_without_false_positives_infinite_losses_are_found(mechanism, steps, direction, chance):
    run = pa.compose([(mechanism, steps)])
    found, missed = run.attack_success(0.0, direction), run.tradeoff(0.0, direction)
    assert 0.0 <= found.lower <= chance * (1.0 + 1e-15) and chance * (1.0 - 1e-15) <= found.upper <= 1.0
    assert found.width <= 1e-12
    assert 0.0 <= missed.lower <= missed.upper <= 1.0 and missed.width <= 1e-12
    assert Fraction(missed.lower) <= 1 - Fraction(chance) <= Fraction(missed.upper)


def test_the_renyi_bound_is_that_of_the_best_order():
    """It was that of two orders an octave, and 22.7."""
    run = KnownComposition({pa.SampledGaussian(2.0, 0.005): 10_000}, methods=())
    found = run.epsilon(1e-300, "remove")
    assert found.method == pa.Method.RENYI
    assert found.lower <= found.upper <= run.rdp_epsilon(1e-300) * (1.0 + 1e-12)


@pytest.mark.parametrize(
    "run",
    [
        [(pa.RenyiDP([2.0, np.inf], [0.1, 0.5]), 3)],
        [(pa.RepeatedSelection(pa.compose([(pa.Laplace(2.0), 1)]), 4.0, 0.0), 1), (pa.Laplace(4.0), 2)],
    ],
    ids=str,
)
def test_no_epsilon_of_black_boxes_exceeds_the_largest_loss(run):
    run = pa.compose(run)
    assert run.epsilon(1e-100).upper <= run.epsilon(0.0).upper
