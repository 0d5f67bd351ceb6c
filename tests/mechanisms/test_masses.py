"""Masses of wide cells are those of the narrow cells in them, wherever the knots lie, for every family of steps."""

import numpy as np
import pytest

import pld_accountant as pa
from pld_accountant.mechanisms.fixed_size import SymmetricSampledGaussian

MECHANISMS = [
    pa.SampledGaussian(1.0, 1e-4),
    pa.GroupGaussian(1.2, 1e-3, 3),
    pa.Laplace(0.7),
    pa.Laplace(20.0),
    pa.ExponentialMechanism(0.5),
    pa.PoissonSampled(pa.Laplace(20.0), 1e-6),
    pa.PoissonSampled(pa.Laplace(0.3), 0.2),
    pa.PoissonSampled(pa.ExponentialMechanism(2.0), 1e-5),
    SymmetricSampledGaussian(1.0, 0.01),
    SymmetricSampledGaussian(0.3, 0.01),
]


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_masses_of_a_wide_cell_are_those_of_its_parts(mechanism, direction):
    steps = mechanism.steps([mechanism], direction)
    low, high = steps.range_of_losses(0, 8.0)
    size, rng = high - low, np.random.default_rng(1)
    for _ in range(20):
        reach = size * 10.0 ** rng.uniform(-1.0, min(4.0, np.log10(50.0 / size)))
        wide = np.sort(rng.uniform(low - reach, high + reach, rng.integers(2, 6)))
        fine = np.unique(np.concatenate([wide, np.linspace(low - 0.01 * size, high + 0.01 * size, 2_000)]))
        fine = fine[(fine >= wide[0]) & (fine <= wide[-1])]
        p, u = steps.masses(0, fine)
        cell = np.searchsorted(wide, fine[:-1], side="right") - 1
        fall = np.exp(wide[cell] - fine[:-1])
        mass = np.bincount(cell, p, wide.size - 1)
        above = np.bincount(cell, p * -np.expm1(wide[cell] - fine[:-1]) + u * fall, wide.size - 1)
        found, found_above = steps.masses(0, wide)
        np.testing.assert_allclose(found, mass, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(found_above, above, rtol=1e-8, atol=1e-13)
