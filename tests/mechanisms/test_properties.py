"""What holds for every mechanism: bounds in order, monotone in each parameter, limits, the order of a composition."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pld_accountant as pa

# A mechanism of a noise above 0 and a rate in (0, 1]: delta falls with the noise and rises with the rate.
KINDS = {
    "Gaussian": pa.SampledGaussian,
    "replace-one": pa.ReplaceOneSampledGaussian,
    "group": lambda s, q: pa.GroupGaussian(s, q, 3),
    "Laplace": lambda s, q: pa.PoissonSampled(pa.Laplace(s), q),
    "exponential": lambda s, q: pa.PoissonSampled(pa.ExponentialMechanism(1.0 / s), q),
    "discrete Laplace": lambda s, q: pa.PoissonSampled(pa.DiscreteLaplace(1.0 / s, 2), q),
    "discrete Gaussian": lambda s, q: pa.PoissonSampled(pa.DiscreteGaussian(s), q),
    "pure": lambda s, q: pa.PoissonSampled(pa.PureDP(1.0 / s), q),
    "approximate": lambda s, q: pa.PoissonSampled(pa.ApproximateDP(1.0 / s, 1e-3), q),
    "fixed size": lambda s, q: pa.FixedSizeBatch(s, max(round(100 * q), 1), 100),
}
SOME = {"max_examples": 6, "deadline": None, "derandomize": True}


@pytest.mark.parametrize("kind", KINDS)
@settings(**SOME)
@given(noise=st.floats(0.5, 8.0), rate=st.floats(0.01, 1.0), epsilon=st.floats(-1.0, 3.0))
def test_one_step_is_monotone_and_in_order(kind, noise, rate, epsilon):
    make = KINDS[kind]
    bounds = pa.compose([(make(noise, rate), 1)]).delta(epsilon)
    assert 0.0 <= bounds.lower <= bounds.upper <= 1.0
    for less in (make(1.1 * noise, rate), make(noise, 0.9 * rate)):
        assert pa.compose([(less, 1)]).delta(epsilon).lower <= bounds.upper
    larger = pa.compose([(make(noise, rate), 1)]).delta(epsilon + 0.1)
    assert larger.lower <= bounds.upper
    assert bounds.upper >= pa.compose([]).delta(epsilon).lower


@pytest.mark.parametrize("kind", KINDS)
@settings(**SOME)
@given(noise=st.floats(0.5, 8.0), rate=st.floats(0.01, 1.0), delta=st.floats(1e-9, 0.5))
def test_epsilon_and_delta_are_inverse(kind, noise, rate, delta):
    run = pa.compose([(KINDS[kind](noise, rate), 1)])
    epsilon = run.epsilon(delta)
    if epsilon.upper < float("inf"):
        assert run.delta(epsilon.upper).lower <= delta
    if 0.0 < epsilon.lower < float("inf"):
        assert run.delta(epsilon.lower).upper >= delta * (1.0 - 1e-9)
    assert run.epsilon(0.5 * delta).upper >= epsilon.lower


@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_near_zero_costs_nearly_nothing(kind):
    if kind != "fixed size":
        assert pa.compose([(KINDS[kind](1.0, 1e-9), 1)]).delta(0.0).upper <= 3.01e-9  # three records


def test_the_order_of_three_kinds_does_not_matter():
    steps = [(pa.PureDP(0.1), 3), (pa.SampledGaussian(2.0, 0.1), 5), (pa.Laplace(10.0), 2)]
    first, second = pa.compose(steps).epsilon(1e-5), pa.compose(steps[::-1]).epsilon(1e-5)
    assert first.lower <= second.upper and second.lower <= first.upper
