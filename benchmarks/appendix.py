"""One person the way of the paper's appendix: a density on 2,000,000 points, one inverse FFT, bisection for epsilon.

Written from Koskela, Tobaben and Honkela (2023), Appendix D: the privacy loss density of each relative norm is sampled
on a grid, the transforms are raised to the counts and multiplied, the product is transformed back.  By removal only.
"""

from __future__ import annotations

import time

import numpy as np
from scipy import fft

POINTS = 2_000_000
HALF = 10.0


def density(grid: np.ndarray, sigma: float, q: float) -> np.ndarray:
    """Density of the privacy loss by removal, times the grid's step."""
    values = np.zeros_like(grid)
    inside = grid > np.log1p(-q)
    s = grid[inside]
    rest = np.exp(s) - (1.0 - q)
    x = sigma**2 * np.log(rest / q) + 0.5
    normal = (1.0 - q) * np.exp(-0.5 * (x / sigma) ** 2) + q * np.exp(-0.5 * ((x - 1.0) / sigma) ** 2)
    values[inside] = normal * sigma * np.exp(s) / (rest * np.sqrt(2.0 * np.pi))
    return values * (grid[1] - grid[0])


def individual_by_inverse_fft(parts: list, delta: float) -> dict:
    """epsilon(delta) and the seconds it takes once the transforms stand; those of making the transforms beside it."""
    grid = np.linspace(-HALF, HALF, POINTS, endpoint=False)
    product, tables, composing = np.ones(POINTS // 2 + 1, dtype=np.complex128), 0.0, 0.0
    for sigma, q, n in parts:
        start = time.process_time()
        transform = fft.rfft(fft.fftshift(density(grid, sigma, q)))
        middle = time.process_time()
        product *= transform**n
        composing += time.process_time() - middle
        tables += middle - start
    start = time.process_time()
    mass = fft.ifftshift(fft.irfft(product, POINTS))
    low, high = 0.0, HALF
    while high - low > 1e-9:
        epsilon = 0.5 * (low + high)
        first = np.searchsorted(grid, epsilon)
        value = float(np.sum(mass[first:] * -np.expm1(epsilon - grid[first:])))
        low, high = (epsilon, high) if value > delta else (low, epsilon)
    composing += time.process_time() - start
    return {"epsilon": high, "seconds": composing, "table_seconds": tables}
