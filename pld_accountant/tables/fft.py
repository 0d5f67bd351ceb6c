"""Real Fourier transforms: pyfftw where it is installed, with plans that are reused and remembered; else scipy.fft."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["rfft", "roundoff"]

_MEASURE_UP_TO = 1 << 17  # planning longer transforms by measurement costs seconds


@lru_cache(maxsize=16)
def _plan(size: int, threads: int) -> Any:
    """A planned transform with its own aligned arrays, or None without pyfftw."""
    try:
        import pyfftw
    except ImportError:
        return None
    _remember(pyfftw)
    source = pyfftw.empty_aligned(size, dtype="float64")
    result = pyfftw.empty_aligned(size // 2 + 1, dtype="complex128")
    effort = "FFTW_MEASURE" if size <= _MEASURE_UP_TO else "FFTW_ESTIMATE"
    plan = pyfftw.FFTW(source, result, flags=(effort, "FFTW_DESTROY_INPUT"), threads=threads)
    _store(pyfftw)
    return plan


@lru_cache(maxsize=1)
def _remember(pyfftw: Any) -> None:
    """Take up the plans that an earlier process measured."""
    from .disk_cache import read_arrays

    arrays = read_arrays("wisdom")
    if arrays is not None:
        pyfftw.import_wisdom(tuple(arrays[f"part{i}"].tobytes() for i in range(len(arrays))))


def _store(pyfftw: Any) -> None:
    from .disk_cache import write_arrays

    parts = pyfftw.export_wisdom()
    write_arrays("wisdom", {f"part{i}": np.frombuffer(p, dtype=np.uint8) for i, p in enumerate(parts)})


def rfft(values: NDArray, threads: int = 1) -> NDArray:
    """The transform sum_n values[n] exp(-2 pi i f n / size), f = 0 .. size / 2, of one real array.

    More than one thread pays from about 2^18 points and on an idle machine only.
    """
    plan = _plan(values.size, threads)
    if plan is None:
        import scipy.fft

        return np.asarray(scipy.fft.rfft(values, workers=threads))
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
