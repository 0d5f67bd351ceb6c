"""The rough composition: close to certified answers, over orders of magnitude; it bounds nothing."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.engine.rough_composition import RoughComposition


@pytest.mark.parametrize(
    ("mechanism", "steps", "delta"),
    [
        (pa.SampledGaussian(0.91, 0.00029), 1_460, 1.5e-14),
        (pa.SampledGaussian(0.64, 3.3e-6), 22, 5.4e-6),
        (pa.SampledGaussian(1.0, 0.01), 1_000, 1e-6),
        (pa.SampledGaussian(2.0, 0.02), 50_000, 1e-9),
        (pa.GroupGaussian(1.26, 5.7e-5, 5), 220_413, 7.5e-14),
        (pa.GroupGaussian(0.51, 0.0034, 8), 10_338, 6.1e-15),
        (pa.ReplaceOneSampledGaussian(1.2, 1e-5), 3_000, 1e-12),
    ],
)
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_answers_are_near_the_certified_ones(mechanism, steps, delta, direction):
    law = mechanism.steps([mechanism], direction).complex_law(0)
    if law is None:
        pytest.skip("losses without end under addition have no contours")
    rough = RoughComposition([law], np.array([steps]))
    exact = pa.compose([(mechanism, steps)]).epsilon(delta, direction=direction)
    assert rough.epsilon(np.log(delta)) == pytest.approx(exact.estimate, rel=0.04)
    assert rough.log_delta(exact.estimate) == pytest.approx(np.log(delta), abs=0.3)


def test_a_large_delta_needs_no_epsilon():
    law = pa.SampledGaussian(0.58, 1.3e-6).steps([pa.SampledGaussian(0.58, 1.3e-6)], "remove").complex_law(0)
    assert RoughComposition([law], np.array([105])).epsilon(np.log(1e-3)) == 0.0


def test_several_laws_are_added():
    one, two = pa.SampledGaussian(1.0, 1e-3), pa.GroupGaussian(2.0, 1e-3, 2)
    laws = [m.steps([m], "remove").complex_law(0) for m in (one, two)]
    exact = pa.compose([(one, 50), (two, 200)]).epsilon(1e-8, direction="remove")
    assert RoughComposition(laws, np.array([50, 200])).epsilon(np.log(1e-8)) == pytest.approx(exact.estimate, rel=0.04)


def test_no_range_of_losses_ends_in_no_epsilon(monkeypatch):
    """If delta is never reached on any grid, the search of a contour has no start."""
    law = pa.SampledGaussian(1.0, 0.1).steps([pa.SampledGaussian(1.0, 0.1)], "remove").complex_law(0)
    rough = RoughComposition([law], np.array([100]))
    monkeypatch.setattr(rough, "_curve", lambda *given: (np.linspace(0.0, 1.0, 9), np.zeros(9)))
    assert rough.epsilon(np.log(1e-5)) == 0.0
