"""Cases that a review tried by hand and that were wrong or failed; each is a question a user can ask."""

import numpy as np
import pytest

import pld_accountant as pa

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
    bounds = ledger.delta(epsilon, seconds=4.0)
    assert np.all(bounds.lower <= bounds.upper) and np.all(bounds.upper < 1e-12)


def test_an_infinite_epsilon_has_an_estimate():
    found = pa.compose([(pa.ApproximateDP(0.1, 1e-6), 2), (pa.FixedSizeBatch(3.0, 17, 1000), 1)]).epsilon(1e-7)
    assert found.lower == found.estimate == found.upper == np.inf
