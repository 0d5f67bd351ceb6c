"""The relative norms whose inequalities are checked, and how far a norm is rounded up to one of them.

A norm is divided by the clipping norm and rounded up to the next number of `OCTAVES` binary octaves below 1, each
divided into `PARTS` equal parts.  The larger norm's step dominates the smaller norm's, so rounding up is safe.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["NORMS", "OCTAVES", "PARTS"]

OCTAVES = 6
"""The smallest norm is 2**-OCTAVES; every smaller norm above 0 is charged as this one."""

PARTS = 512
"""Parts of an octave: a charge, about the square of the norm, is rounded up by 0.3 % at most, 0.2 % on average."""

_I = np.arange(OCTAVES * PARTS + 1)
NORMS: NDArray = 2.0 ** (_I // PARTS - OCTAVES) * (1.0 + _I % PARTS / PARTS)
"""The relative norms, ascending, shape (OCTAVES * PARTS + 1,), the last one 1."""
