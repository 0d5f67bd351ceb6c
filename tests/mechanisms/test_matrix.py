"""Matrix mechanisms: the noise relative to the sensitivity is rounded down, so that no bound is below the truth."""

from fractions import Fraction

import numpy as np

from pld_accountant.mechanisms.matrix import BandedMatrix, TreeAggregation
from pld_accountant.mechanisms.tree import tree_squared_sensitivity


def test_the_noise_of_a_banded_matrix_is_rounded_down():
    for noise, norm in np.random.default_rng(0).uniform(0.1, 5.0, (300, 2)).tolist():
        ((step, _),) = BandedMatrix(noise, 0.1, 10, 2, max_column_norm=norm)
        exact = Fraction(noise) / Fraction(norm)
        assert exact * (1 - Fraction(1, 2**50)) <= Fraction(step.noise_multiplier) <= exact


def test_the_noise_of_a_tree_is_rounded_down():
    rng = np.random.default_rng(0)
    for steps in range(2, 300):
        noise = float(rng.uniform(0.1, 5.0))
        ((step, _),) = TreeAggregation(noise, steps)
        exact = Fraction(noise) ** 2 / tree_squared_sensitivity(steps)
        assert exact * (1 - Fraction(1, 2**48)) <= Fraction(step.noise_multiplier) ** 2 <= exact
