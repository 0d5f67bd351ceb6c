"""kernels/_loss.py: the share of a part's mass that soft ends leave, against nine hundred digits."""

import mpmath
import numpy as np
import pytest

from pld_accountant.kernels import _loss

UNIT = 2.0**-53


@pytest.mark.parametrize(
    ("low", "high", "s"), [(-np.inf, 3.0, 0.1), (2.0, 5.0, 0.25), (2.0, 2.3, 0.25), (-1.0, 40.0, 1.0)]
)
def test_what_a_part_keeps(low, high, s):
    """v near its ends and 60 standard deviations off, where it is 1e-800."""
    places = np.array([*np.linspace(-4.0, 8.0, 13), high + 30.0 * s, high + 60.0 * s, low - 60.0 * s])
    with mpmath.workdps(900):
        for x in places[np.isfinite(places)]:
            most = mpmath.ncdf((mpmath.mpf(high) - mpmath.mpf(x)) / mpmath.mpf(s))
            least = mpmath.ncdf((mpmath.mpf(low) - mpmath.mpf(x)) / mpmath.mpf(s)) if np.isfinite(low) else 0
            exact = mpmath.log(most - least)
            found = _loss.log_part(x, low, high, s)
            # as much of it as the round-off of a term allows for
            assert abs(found - exact) <= UNIT * (6.0 * abs(float(exact)) + 40.0)
