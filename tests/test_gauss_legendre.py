"""The nodes and weights of the rules, against roots and derivatives in 40 digits."""

import mpmath
import numpy as np
import pytest

from pld_accountant.gauss_legendre import gauss_legendre

UNIT = 2.0**-53


@pytest.mark.parametrize("points", [1, 2, 5, 6, 8, 10, 24, 32, 40])
def test_nodes_and_weights_are_right_to_the_last_digit(points):
    nodes, weights = gauss_legendre(points)
    with mpmath.workdps(40):

        def polynomial(x):
            return mpmath.legendre(points, x)

        for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
            root = mpmath.findroot(polynomial, node) if node else mpmath.mpf(0)
            exact = 2 / ((1 - root**2) * mpmath.diff(polynomial, root) ** 2)
            assert abs(node - root) <= UNIT / 2
            assert abs(weight / exact - 1) <= UNIT
    assert np.all(np.diff(nodes) > 0.0) and np.array_equal(nodes, -nodes[::-1])


def test_rules_are_shared_and_cannot_be_changed():
    assert gauss_legendre(8) is gauss_legendre(8)
    with pytest.raises(ValueError, match="read-only"):
        gauss_legendre(8)[1, 0] = 0.0
