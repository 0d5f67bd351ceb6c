"""The papers' way, plainly: connect the dots on a uniform grid, one FFT convolution without tilt, delta by summation.

Float64 numpy and scipy only, written apart from the package.  Good for delta above about 1e-10: the round-off of an
untilted FFT, some 1e-16 absolute, is not part of what it returns.
"""

from __future__ import annotations

import numpy as np
from scipy import fft, special


def hockey_stick(epsilon: np.ndarray, sigma: float, q: float, direction: str) -> np.ndarray:
    """delta(epsilon) of one step as P(loss > epsilon) - exp(epsilon) Q(loss > epsilon)."""
    sign = 1.0 if direction == "remove" else -1.0
    odds = (np.exp(sign * epsilon) - (1.0 - q)) / q
    x = np.where(odds > 0.0, sigma**2 * np.log(np.maximum(odds, 1e-300)) + 0.5, -np.inf)
    if direction == "remove":
        base, moved = special.ndtr(-x / sigma), special.ndtr((1.0 - x) / sigma)
        return (1.0 - q) * base + q * moved - np.exp(epsilon) * base
    base, moved = special.ndtr(x / sigma), special.ndtr((x - 1.0) / sigma)
    return base - np.exp(epsilon) * ((1.0 - q) * base + q * moved)


def connect_the_dots(grid: np.ndarray, sigma: float, q: float, direction: str) -> tuple[np.ndarray, float]:
    """Masses at the grid's points and at infinity of the law whose delta is the chord of the true one in exp(epsilon).

    Between grid points delta is linear in exp(epsilon), so its second differences are the masses under Q; P's masses
    are those times exp(epsilon).  Below the grid delta runs to 1 at exp(epsilon) = 0.
    """
    a = np.exp(grid)
    delta = hockey_stick(grid, sigma, q, direction)
    slopes = np.concatenate([[(delta[0] - 1.0) / a[0]], np.diff(delta) / np.diff(a), [0.0]])
    return np.diff(slopes) * a, float(delta[-1])


def delta(parts, epsilon, direction: str, step: float, half: float) -> np.ndarray:
    """delta(epsilon) of a composition, as an upper bound but for round-off; the grid is [-half, half]."""
    points = int(2.0 * half / step)
    grid = (np.arange(points) - points // 2) * step
    product, alive = np.ones(points // 2 + 1, dtype=np.complex128), 1.0
    for sigma, q, n in parts:
        mass, infinite = connect_the_dots(grid, sigma, q, direction)
        product *= fft.rfft(fft.ifftshift(mass)) ** n
        alive *= (1.0 - infinite) ** n
    mass = fft.fftshift(fft.irfft(product, points))
    epsilon = np.atleast_1d(epsilon)
    weight = np.maximum(-np.expm1(epsilon[:, None] - grid), 0.0)
    return weight @ mass + (1.0 - alive)


def epsilon(parts, delta_target: float, direction: str, step: float, half: float) -> float:
    """epsilon(delta) by linear interpolation of log delta between points `step` apart."""
    grid = np.arange(0.0, 0.8 * half, half / 400)
    for _ in range(3):
        values = np.log(np.maximum(delta(parts, grid, direction, step, half), 1e-300))
        if values[0] <= np.log(delta_target):
            return float(grid[0])
        first = int(np.argmax(values <= np.log(delta_target)))
        left, right = grid[first - 1], grid[first]
        grid = np.linspace(left, right, 40)
    share = (values[first - 1] - np.log(delta_target)) / (values[first - 1] - values[first])
    return float(left + share * (right - left))
