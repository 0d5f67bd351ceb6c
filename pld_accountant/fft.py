"""Real Fourier transforms: pyfftw if it is installed, with plans that are reused; else scipy.fft."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["rfft", "roundoff"]


@lru_cache(maxsize=16)
def _plan(size: int, thread: int) -> Any:
    """A planned transform with aligned arrays of its own, for one thread only; or None without pyfftw."""
    try:
        import pyfftw
    except ImportError:
        return None
    source = pyfftw.empty_aligned(size, dtype="float64")
    result = pyfftw.empty_aligned(size // 2 + 1, dtype="complex128")
    # measuring plans costs 0.4 to 26 s, more than all transforms of a table
    return pyfftw.FFTW(source, result, flags=("FFTW_ESTIMATE", "FFTW_DESTROY_INPUT"))


def rfft(values: NDArray) -> NDArray:
    """The transform sum_n values[n] exp(-2 pi i f n / size), f = 0 .. size / 2, of one real array."""
    plan = _plan(values.size, threading.get_ident())
    if plan is None:
        import scipy.fft

        return np.asarray(scipy.fft.rfft(values))
    plan.input_array[:] = values
    return np.array(plan())


def roundoff(size: int, norm: float) -> float:
    """Bound of the error of each entry of a transform of `size` points with Euclidean norm `norm`.

    The error vector's norm is at most log2(size) eta / (1 - log2(size) eta) times that of the result, sqrt(size) norm,
    with eta = u + 4u (sqrt(2) + u) for weights rounded to u = 2^-53.

    References
    ----------
    Higham, "Accuracy and stability of numerical algorithms" (2002), Theorem 24.2.
    """
    eta = 2.0**-53 * (1.0 + 4.0 * (np.sqrt(2.0) + 1e-15)) * np.log2(size)
    return float(eta / (1.0 - eta) * np.sqrt(size) * norm)
