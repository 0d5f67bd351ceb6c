"""Tables on a grid: what lies beyond the grid is counted too."""

import numpy as np
import pytest

from pld_accountant.mechanisms import one_step
from pld_accountant.tables.characteristic import SpectralMaker
from pld_accountant.tables.grid import LatticeMaker

LOG_NEGLIGIBLE = -40.0  # the largest mass that a grid may leave out: 4e-18


def made(sigma, q, direction):
    spectral = SpectralMaker(np.array([sigma]), np.array([q]), direction)
    return LatticeMaker(spectral, "upper", 1 << 12, LOG_NEGLIGIBLE)


@pytest.mark.parametrize(
    ("sigma", "q", "direction"),
    [(2.0, 0.3, "remove"), (1.0, 0.05, "remove"), (1.0, 1.0, "remove"), (4.0, 0.3, "add"), (1.0, 1.0, "add")],
)
def test_the_mass_beyond_the_grid_is_part_of_the_upper_bound(sigma, q, direction):
    """At the upper end of the grid delta is what lies beyond it: the masses on the grid alone are too little."""
    step = 1e-4
    start, mass, beyond = made(sigma, q, direction)._discretised(0, 4.0, step)
    losses = start + np.arange(mass.size) * step
    epsilon = losses[-1] - 2.0 * step
    truth = float(np.exp(one_step.log_delta(np.array([epsilon]), np.array([sigma]), np.array([q]), direction)[0]))
    on_grid = float(mass @ np.maximum(-np.expm1(epsilon - losses), 0.0))
    assert on_grid < 0.5 * truth
    assert truth <= on_grid + beyond
    assert beyond == pytest.approx(np.exp(LOG_NEGLIGIBLE), rel=1e-12)
