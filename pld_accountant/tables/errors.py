"""Error terms of tables, each a function of its own with its derivation.

Characteristic tables use all of them, and grid tables use `relative`.

The error budget's other terms stand where they are evaluated: `mechanisms.quadrature` (quadrature and its round-off),
`kernels.envelope` (the characteristic function beyond the band), `kernels.invert` (aliasing, and the sum of all terms
for each person), `engine.convolution` (direct convolution).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["USELESS", "band_coefficient", "interpolation", "interpolation_beyond_variance", "relative"]

USELESS = 1e4
"""An error of an exponent that makes every bound useless: returned if a bound's condition fails."""


def relative(error: NDArray, log_modulus: NDArray) -> NDArray:
    """Bounds of the error of phi relative to the known phi, from absolute bounds and the least |phi| of the band.

    With phi = phi~ + e at each of c steps, |prod phi - prod phi~| <= |prod phi~| (exp(sum of |e / phi~|) - 1).  If the
    product has decayed but no single factor has, as after many steps, its error has decayed with it.

    Parameters
    ----------
    error : ndarray, shape (buckets, kinds)
    log_modulus : ndarray, shape (buckets, frequencies)
        log |phi~|.
    """
    least = np.maximum(log_modulus.min(axis=1, initial=0.0), -500.0)
    # below e^-500 the sum of all steps' errors is useless
    return np.where(least > -500.0, error.T * np.exp(-least), 1e200).T


def interpolation(difference: NDArray, error: NDArray | float = 0.0) -> NDArray:
    """Upper bound of the log of the factor that one interpolated step between two mechanisms adds to their product.

    With x = log M_b - log M_a and a step of weight w, f(x) = log(1 - w + w e^x) - w x has f(0) = f'(0) = 0 and
    f'' = p (1 - p), p = w e^x / (1 - w + w e^x).  As |1 - w + w e^x| >= (1 - w + w e^(Re x)) cos(Im x / 2), |f''| is
    at most 1 / (4 cos^2(Im x / 2)), and |f| half of that times |x|^2: Hoeffding's lemma for a complex argument.  For a
    real x, |f| is at most |x| as well.

    Parameters
    ----------
    difference : ndarray of complex, or of float
        x, with an imaginary part between -pi and pi.
    error : ndarray or float
        Bound of the error of x.

    Returns
    -------
    ndarray
        `USELESS` if the modulus of the imaginary part exceeds 3.
    """
    size = np.abs(difference) + error
    if np.isrealobj(difference):
        return np.minimum(size**2 / 8.0, size)
    turn = np.abs(difference.imag) + error
    bound = size**2 / (8.0 * np.cos(0.5 * np.minimum(turn, 3.0)) ** 2)
    return np.where(turn > 3.0, USELESS, bound)


def interpolation_beyond_variance(difference: NDArray, error: NDArray) -> NDArray:
    """Bounds of the error, per step, that interpolated steps leave beyond their variance term w (1 - w) x^2 / 2.

    With f as for `interpolation`, f has the second derivative w (1 - w) at 0, and the third derivative
    x^3 p (1 - p) (1 - 2 p) along the way to x.  There p is 1 / (1 + u), |u| = r and arg u = a, |a| <= |Im x|, so that
    the modulus of p (1 - p) (1 - 2 p) is

        r |u - 1| / |u + 1|^3 <= t sqrt(1 - 4 t c^2) / c^3,   t = r / (1 + r)^2 <= 1 / 4, c = cos(Im x / 2),

    as |u + 1| >= (1 + r) c and |u - 1|^2 = (r - 1)^2 + 4 r sin^2(a / 2).  The largest value is 1 / (6 sqrt(3) c^5) at
    t = 1 / (6 c^2), or sqrt(1 - c^2) / (4 c^3) if that t exceeds 1 / 4.  A sixth of it, times |x|^3, bounds
    |f - w (1 - w) x^2 / 2|; an error e of x moves the variance term by at most (|x| + e) e / 4.

    Parameters
    ----------
    difference, error : ndarray
        As for `interpolation`, complex.
    """
    size, turn = np.abs(difference) + error, np.abs(difference.imag) + error
    c = np.cos(0.5 * np.minimum(turn, 3.0))
    steepest = np.where(c * c >= 2.0 / 3.0, 1.0 / (6.0 * np.sqrt(3.0) * c**5), np.sqrt(1.0 - c * c) / (4.0 * c**3))
    return np.where(turn > 3.0, USELESS, size**3 * steepest / 6.0 + 0.25 * size * error)


def band_coefficient(width: float) -> float:
    """Bound of the sum of the weights beyond the band of a characteristic table, to be multiplied by sup |phi| there.

    With omega_f = 2 pi f / P and m P^-1 2 pi = width: (2 / P) sum over f > m of 1 / |z_f (1 + z_f)| with
    |z (1 + z)| >= omega^2 is at most (1 / pi) times the integral of omega^-2 from `width`.
    """
    return 1.0 / (np.pi * width)
