"""The relative norms whose inequalities are checked, and how far a norm is rounded up to one of them.

A norm is divided by the clipping norm and rounded up to the next number of `OCTAVES` binary octaves below 1, each
divided into `PARTS` equal parts.  The larger norm's step dominates the smaller norm's, so rounding up is safe.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["NORMS", "OCTAVES", "PARTS", "place_of"]

OCTAVES = 6
"""The smallest norm is 2**-OCTAVES; every smaller norm above 0 is charged as this one."""

PARTS = 512
"""Parts of an octave: a charge, about the square of the norm, is rounded up by 0.3 % at most, 0.2 % on average."""

_I = np.arange(OCTAVES * PARTS + 1)
NORMS: NDArray = 2.0 ** (_I // PARTS - OCTAVES) * (1.0 + _I % PARTS / PARTS)
"""The relative norms, ascending, shape (OCTAVES * PARTS + 1,), the last one 1."""


def place_of(norms: NDArray) -> NDArray:
    """The index of the smallest of `NORMS` that is not below each norm, -1 for a norm of 0; norms in [0, 1].

    Examples
    --------
    >>> NORMS[place_of(np.array([1e-9, 0.5, 0.5001, 1.0]))]
    array([0.015625  , 0.5       , 0.50097656, 1.        ])
    """
    fraction, exponent = np.frexp(norms)
    part = np.ceil((2.0 * fraction - 1.0) * PARTS).astype(np.int64)
    place = np.maximum((exponent + OCTAVES - 1) * PARTS + part, 0)
    return np.where(norms > 0, place, -1)
