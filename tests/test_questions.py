"""The compositions that the page of questions advises bound what they are advised for, by laws made from scratch."""

import numpy as np
import pytest
from scipy import stats

import pld_accountant as pa


def hockey_stick(p, q, epsilon):
    """delta(epsilon) of two discrete laws, the larger of both directions."""
    return max(np.maximum(p - np.exp(epsilon) * q, 0.0).sum(), np.maximum(q - np.exp(epsilon) * p, 0.0).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3, 0.6])
def test_two_outputs_of_one_sample_are_one_step(epsilon):
    z, rate, width = (0.9, 1.7), 0.3, 0.02
    x, y = (np.arange(-9.0, 10.0, width) * one for one in z)
    without = np.multiply.outer(stats.norm.pdf(x, 0, z[0]), stats.norm.pdf(y, 0, z[1])) * width**2 * z[0] * z[1]
    shifted = np.multiply.outer(stats.norm.pdf(x, 1, z[0]), stats.norm.pdf(y, 1, z[1])) * width**2 * z[0] * z[1]
    exact = hockey_stick((1 - rate) * without + rate * shifted, without, epsilon)
    both = pa.PoissonSampled([(pa.Gaussian(one), 1) for one in z], rate)
    assert both == pa.PoissonSampled(pa.compose([(pa.Gaussian(one), 1) for one in z]), rate)
    found = pa.compose([(both, 1)]).delta(epsilon)
    error = 2e-5  # of the rule: cells of 0.02 standard deviations, at the kink of the positive part
    assert found.lower - error <= exact <= found.upper + error
    two = pa.compose([(pa.SampledGaussian(one, rate), 1) for one in z]).delta(epsilon)
    assert (two.upper < exact - error) == (epsilon > 0.0)  # which is why the page warns of two steps


@pytest.mark.parametrize("others", [1, 3, 30])
@pytest.mark.parametrize("threshold", [4, 9])
def test_a_threshold_on_keys_is_noise_and_a_chance(others, threshold):
    # the person has two keys, of which others have one; a key is released from the threshold on
    a = 0.4
    noise = np.arange(-120, 121)
    masses = np.tanh(a / 2) * np.exp(-a * np.abs(noise))

    def released(count):
        """The law of what is seen of a key: its noisy count, or nothing."""
        value = count + noise
        law = np.zeros(400)
        law[value[value >= threshold]] = masses[value >= threshold]
        law[0] = masses[value < threshold].sum()
        return law

    absent = np.zeros(400)
    absent[0] = 1.0
    with_person = np.multiply.outer(released(others + 1), released(1))
    without = np.multiply.outer(released(others), absent)
    seen = 2 * masses[1 + noise >= threshold].sum()
    steps = [(pa.DiscreteLaplace(a, 2), 1), (pa.ApproximateDP(0.0, seen), 1)]
    deltas = [hockey_stick(with_person, without, epsilon) for epsilon in (0.0, 0.2, 0.4, 0.8)]
    assert np.all(deltas <= pa.compose(steps).delta([0.0, 0.2, 0.4, 0.8]).upper)
    assert deltas[3] >= seen / 2 * (1 - 1e-9)  # the chance cannot be left out
