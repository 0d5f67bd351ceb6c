"""The filter of pure-DP steps against the filter of Rogers et al."""

import numpy as np
import pytest

from pld_accountant.filters.pure_dp import ApproximateDPFilter


def rogers_stops(epsilon, target, delta):
    """Steps that the filter of Rogers et al., as quoted in Section 4.3, admits."""
    log = np.log(1 / delta)
    c = target**2 / (28.04 * log)
    k = np.arange(1, 10_000_000)
    square = k * epsilon**2
    used = square / epsilon * (np.expm1(epsilon)) / 2
    used += np.sqrt(2 * (square + c) * (1 + np.log1p(square / c) / 2) * log)
    return int(np.argmax(used > target))


@pytest.mark.parametrize("target", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.002, 0.01, 0.05])
def test_the_pure_dp_filter_outlasts_that_of_rogers(target, epsilon):
    counts = {}
    for conversion in ("simple", "best"):
        f = ApproximateDPFilter(target, 1e-5, num_examples=1, conversion=conversion)
        counts[conversion] = sum(bool(f.admit([epsilon])[0]) for _ in range(150_000))
        assert counts[conversion] == int(2 * f.rho / epsilon**2 * (1 + 1e-12))
    assert rogers_stops(epsilon, target, 1e-5) < counts["simple"] < counts["best"]
    assert counts["best"] > 1.25 * counts["simple"]
