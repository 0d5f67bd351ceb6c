"""What the table of mechanisms in the documentation says that each of them supports."""

import numpy as np
import pytest
from scipy import stats

import pld_accountant as pa

LOGISTIC = stats.logistic(0.3), stats.logistic(0.0), 0.5
STEPS = {
    "Gaussian": pa.Gaussian(2.0),
    "SampledGaussian": pa.SampledGaussian(1.0, 0.01),
    "Laplace": pa.Laplace(3.0),
    "PermuteAndFlip": pa.PermuteAndFlip(0.3),
    "ExponentialMechanism": pa.ExponentialMechanism(0.3),
    "DiscretePair": pa.DiscretePair([0.6, 0.4], [0.4, 0.6]),
    "LossDistribution": pa.LossDistribution([0.5, -0.5], [0.6, 0.3]),
    "RandomizedResponse": pa.RandomizedResponse(0.8, 3),
    "DiscreteLaplace": pa.DiscreteLaplace(0.3),
    "DiscreteGaussian": pa.DiscreteGaussian(3.0),
    "PureDP": pa.PureDP(0.2),
    "DensityPair": pa.DensityPair(*LOGISTIC),
    "ApproximateDP": pa.ApproximateDP(0.2, 1e-7),
    "GaussianMixture": pa.GaussianMixture(1.0, [0.0, 1.0], [0.5, 0.5]),
    "GroupGaussian": pa.GroupGaussian(2.0, 0.01, 4),
    "ReplaceOneSampledGaussian": pa.ReplaceOneSampledGaussian(2.0, 0.01),
    "RandomAllocation": pa.RandomAllocation(2.0, 20),
    "RandomAllocation, two participations": pa.RandomAllocation(2.0, 20, 2),
    "FixedSizeBatch": pa.FixedSizeBatch(2.0, 10, 1000),
    "TruncatedPoisson": pa.TruncatedPoisson(2.0, 0.01, 20, 1000),
    "ZeroConcentratedDP": pa.ZeroConcentratedDP(0.01),
    "RenyiDP": pa.RenyiDP([2.0, 8.0], [0.01, 0.05]),
    "sampled Laplace": pa.PoissonSampled(pa.Laplace(1.0), 0.01),
    "sampled exponential mechanism": pa.PoissonSampled(pa.ExponentialMechanism(1.0), 0.01),
    "sampled randomized response": pa.PoissonSampled(pa.RandomizedResponse(0.8, 3), 0.01),
    "sampled DensityPair": pa.PoissonSampled(pa.DensityPair(*LOGISTIC), 0.1),
}
NO_LARGEST = {"DensityPair", "sampled DensityPair"}
NO_MU = {"ZeroConcentratedDP", "RenyiDP"}
NO_RDP = {name for name in STEPS if "DensityPair" in name or "Allocation" in name} | {
    "ApproximateDP",
    "LossDistribution",
}


@pytest.mark.parametrize("name", STEPS)
def test_what_the_documentation_says_about(name):
    composed = pa.compose([(STEPS[name], 3)])
    negative = composed.delta(-0.3)
    for found in (composed.epsilon(1e-5), composed.delta(0.2), negative, composed.advantage()):
        assert found.certified
        assert found.lower <= found.upper
    assert negative.lower >= 1.0 - np.exp(-0.3) - 1e-12, "delta(-e) is at least 1 - exp(-e)"
    assert composed.epsilon(0.0).certified == (name not in NO_LARGEST)
    assert composed.mu(0.05).certified == (name not in NO_MU)
    assert np.isfinite(composed.rdp(4.0)) == (name not in NO_RDP)
