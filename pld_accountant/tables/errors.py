"""The error budget of the spectral tables: each term a function of its own, with its derivation.

Two further terms live where they are evaluated for every person: the aliasing of the period
(`kernels.plancherel._alias`) and the envelope of the characteristic function (`kernels.envelope`).

Notation: one step has the loss L = +log g(x) (remove) or -log g(x) (add), g(x) = 1 - q + q exp((2x - 1) / (2 sigma^2)),
x ~ N(0, sigma^2) with the weight g^a, a = 1 + theta or -theta; phi(omega) = E_theta[exp(i omega L)] is normalised.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.special import log_ndtr

__all__ = [
    "ELLIPSES",
    "GAUSS",
    "LEAF",
    "REACH",
    "UNIT",
    "band_coefficient",
    "lottery",
    "lottery_beyond",
    "outside",
    "panel_error",
    "quadrature_error",
    "quadrature_nodes",
    "relative",
    "roundoff_k",
    "roundoff_loss",
    "roundoff_pairs",
    "roundoff_phi",
    "tail_error",
]

UNIT = 2.0**-53
"""Unit round-off of double precision."""

GAUSS = np.array(leggauss(40))
"""Abscissas and weights of the Gauss-Legendre rule on one panel."""

REACH = 10.0
"""How many standard deviations the nodes reach beyond the maxima of the tilted law."""

ELLIPSES = np.geomspace(1.25, 5.0, 6)
"""Candidate sums of the half-axes of the ellipses in which a panel's integrand is bounded."""
_RESTART = 32
_ANGLES = np.linspace(0.02, 3.12, 156)  # candidate half-widths of the strip, b / sigma^2, below pi


def _growth(sigma: NDArray, q: NDArray, sign: float, theta: float, width: float, blur: float) -> NDArray:
    """log sup over the strip |Im x| <= b of the integrand's growth, for angles b / sigma^2 in `_ANGLES`.

    On the line Im x = b the normal density grows by exp(b^2 / (2 sigma^2)), |g| <= g(Re x), and |arg g| <= b / sigma^2,
    so that |exp(i omega log g)| <= exp(omega b / sigma^2).  For addition |g| must not be small, in one of two ways, phi
    the angle: |g| >= g(Re x) cos(phi / 2); or, for phi < pi / 2, |g| >= Re g = c g'(Re x), where g' is g at the smaller
    rate q cos(phi) / c and c = 1 - q + q cos(phi), and E[g'^-theta] <= E[g^-theta] since fewer records sampled is a
    post-processing.  Of a part with soft ends, v(x) is an integral of normal densities of standard deviation
    s = blur sigma, and grows by at most exp(b^2 / (2 s^2)).

    Returns
    -------
    ndarray, shape (buckets, angles)
    """
    narrow = 1.0 + 1.0 / blur**2 if blur > 0.0 else 1.0
    growth = 0.5 * narrow * np.multiply.outer(sigma**2, _ANGLES**2) + width * _ANGLES
    if sign < 0:
        acute = _ANGLES < 1.57
        growth_of_g = np.tile(-np.log(np.cos(0.5 * _ANGLES)), (sigma.size, 1))
        rate = -np.log1p(np.multiply.outer(q, np.cos(_ANGLES[acute]) - 1.0))
        growth_of_g[:, acute] = np.minimum(growth_of_g[:, acute], rate)
        growth += theta * growth_of_g
    return growth


def quadrature_nodes(
    sigma: NDArray, q: NDArray, sign: float, theta: float, ends: NDArray, width: float, tolerance: float,
    blur: float = 0.0,
) -> NDArray:  # fmt: skip
    """Number of nodes at which `quadrature_error` falls to `tolerance`.

    Parameters
    ----------
    sigma, q : ndarray, shape (buckets,)
        Noise multipliers and sample rates.
    sign : float
        +1 for removal, -1 for addition.
    ends : ndarray, shape (buckets, 2)
        From `kernels.spectral.interval`.
    theta, width : float
        Tilt, and largest frequency omega at which phi is wanted.
    tolerance : float
        Absolute error of the normalised phi.
    blur : float
        Of a part of the law with soft ends: how soft, in standard deviations of the noise.

    Returns
    -------
    ndarray of int64, shape (buckets,)
    """
    growth = _growth(sigma, q, sign, theta, width, blur)
    log_ratio = np.logaddexp(0.0, growth + np.log(2.0 / tolerance))
    step = np.max(2.0 * np.pi * np.multiply.outer(sigma**2, _ANGLES) / log_ratio, axis=1)
    return np.minimum(np.ceil((ends[:, 1] - ends[:, 0]) / step) + 2, 2**40).astype(np.int64)


def quadrature_error(
    sigma: NDArray, q: NDArray, sign: float, theta: float, ends: NDArray, width: float, nodes: NDArray,
    blur: float = 0.0,
) -> NDArray:  # fmt: skip
    """Absolute error of the normalised phi(omega), |omega| <= width, by the trapezoidal rule on `nodes` nodes.

    For an integrand analytic in |Im x| < b whose modulus integrates to at most M on every line of the strip, the
    trapezoidal sum with step h differs from the integral by at most 2 M / (exp(2 pi b / h) - 1).
    The integrand here is analytic for b < pi sigma^2, the nearest zero of g; M is `_growth` times its value at b = 0.

    References
    ----------
    Trefethen and Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56 (2014), Theorem 5.1.
    """
    step = (ends[:, 1] - ends[:, 0]) / (nodes - 1)
    rate = 2.0 * np.pi * np.multiply.outer(sigma**2, _ANGLES) / step[:, None]
    growth = _growth(sigma, q, sign, theta, width, blur)
    # exp(rate) - 1 >= exp(rate) / 2 for rate >= 1
    log_error = np.where(rate >= 1.0, np.log(4.0) + growth - rate, np.inf)
    return np.exp(np.minimum(log_error.min(axis=1), 0.0))


def panel_error(sigma: float, q: float, theta: float, low: float, top: float, width: float, panels: int) -> float:
    """Absolute error of the normalised phi(omega), |omega| <= width, by Gauss-Legendre on equal panels of [low, top].

    Removal only.  The n-point rule errs on [-1, 1] by at most (64 / 15) M rho^(2 - 2 n) / (1 - rho^-2) for an integrand
    that is at most M on the ellipse with foci -1, 1 and half-axes (rho +- 1 / rho) / 2.  On a panel of half-width r the
    ellipse reaches A along the line and B off it, B < pi sigma^2, where the integrand has grown as in `_growth`, but
    that |arg g| is bounded panel by panel: of g / (1 - q) = 1 + r exp(i phi) it grows with r, and with phi up to
    cos phi = -r, where it is arcsin(r).  Where sampling makes no difference yet, next to nothing.  Along the line the
    logarithm bends down by at most 1 / sigma^2, so it exceeds its values at the ends of 2 A by at most
    A^2 / (2 sigma^2), and the mass of the panel is at least its value at the centre times 2 r exp(-r^2 / (2 sigma^2)).

    References
    ----------
    Trefethen, "Approximation Theory and Approximation Practice", Theorem 19.3.
    """
    from ..kernels import characterise

    return float(characterise.panel_error(sigma, q, theta, low, top, width, GAUSS.shape[1], panels, ELLIPSES))


def tail_error(sigma: NDArray, q: NDArray, sign: float, theta: float, blur: float = 0.0) -> NDArray:
    """Tilted mass beyond the first and the last node.

    The logarithm of the integrand has slope (a w(x) - x) / sigma^2, w growing from 0 to 1.  Removal: all its zeros lie
    in [0, a].  Outside of that it falls at least as fast as a normal density of standard deviation sigma, from a height
    psi; inside, the slope points away from the end and the curvature is at least -1 / sigma^2, so the mass inside is at
    least psi sigma sqrt(pi / 2).  Addition: a w(x) falls, so there is one maximum, left of 0;
    beyond it the same holds, and left of it, where w <= q, the curvature is at least -c / sigma^2,
    c = 1 + theta min(q, 1/4) / sigma^2, which leaves a mass of at least psi sigma sqrt(pi / (2 c)) there.
    A tail thus holds at most 2 sqrt(c) Phi(-10) of the mass; two tails, and as much again for a sum in place of an
    integral.

    A sharp end leaves nothing beyond.  Soft ends add (log v)' = (E[t | x] - x) / s^2 with t between the low and the
    high one, and (log v)'' between -1 / s^2 and 0, s = blur sigma.  With s' = s / sqrt(1 + blur^2) the slope is at most
    (u - x) / s'^2 and at least (d - x) / s'^2, u = (a blur^2 + high) / (1 + blur^2), d = low / (1 + blur^2): beyond u
    and d the same holds with s' in place of sigma.  Without a low end (log v)' is at most 0, so that the larger of u
    and high serves as u does; and beyond a, and below sigma^2 (log v)'(0), what falls as sigma says is sigma / s' times
    as much relative to a mass that may bend down as s' says.
    """
    excess = theta / sigma**2 * np.minimum(q, 0.25) if sign < 0 else np.zeros_like(sigma)
    if blur > 0.0:
        excess = np.full_like(sigma, blur**-2.0)
    return 8.0 * np.sqrt(1.0 + excess) * float(np.exp(log_ndtr(-REACH)))


def roundoff_phi(frequencies: int, columns: int, spread: NDArray, weighted: NDArray) -> NDArray:
    """Round-off of the normalised, centred phi at a frequency omega, per step and per unit of omega.

    phi - 1 is the sum over nodes of p_j (exp(i omega d_j) - 1), each factor at most omega |d_j|.  The recurrence, begun
    afresh every 32 frequencies, loses at most 6 units of that at each; a weight p_j has the relative error of its
    exponent (in units, summed by the kernel into `weighted`, with the units of the additions).  The matrix product adds
    `columns` units of |Re log phi| + |Im log phi|: with t = omega E|d| >= |phi - 1| the second is at most pi t, and the
    first at most t / |phi|, which `relative` allows for; without it y exp(-y) <= t stands for the sum y over all steps.

    Parameters
    ----------
    spread, weighted : ndarray, shape (buckets,)
        E_theta|d|, and E_theta[|d| times the units of a weight].
    """
    return 2.0 * UNIT * ((6.0 * min(frequencies, _RESTART) + 2.5 * columns + 16.0) * spread + weighted)


def relative(error: NDArray, log_modulus: NDArray) -> NDArray:
    """Bounds of the error of phi relative to the known phi, from absolute ones: over the least known |phi| of the band.

    With phi = phi~ + e at each of c steps, |prod phi - prod phi~| <= |prod phi~| (exp(sum of |e / phi~|) - 1): where
    the product has decayed but no single factor, as after many steps, its error has decayed with it.

    Parameters
    ----------
    error : ndarray, shape (buckets, kinds)
    log_modulus : ndarray, shape (buckets, frequencies)
        log |phi~|.
    """
    least = np.maximum(log_modulus.min(axis=1, initial=0.0), -500.0)
    # below e^-500 the sum of all steps' errors is past every use
    return np.where(least > -500.0, error.T * np.exp(-least), 1e200).T


def roundoff_k(columns: int, k: NDArray, units: NDArray) -> NDArray:
    """Round-off of K(theta) in the sum over steps: the kernel's units, and the matrix product's."""
    return UNIT * (units + (columns + 8.0) * np.abs(k))


def lottery(difference: NDArray, error: NDArray | float = 0.0) -> NDArray:
    """What n lotteries between two mechanisms add, at most and per lottery, to the logarithm of their product.

    With x = log M_b - log M_a and a lottery of probability w, f(x) = log(1 - w + w e^x) - w x has f(0) = f'(0) = 0 and
    f'' = p (1 - p), p = w e^x / (1 - w + w e^x).  As |1 - w + w e^x| >= (1 - w + w e^(Re x)) cos(Im x / 2), |f''| is
    at most 1 / (4 cos^2(Im x / 2)), and |f| half of that times |x|^2: Hoeffding's lemma for a complex argument.  For a
    real x it is at most |x| as well.

    Parameters
    ----------
    difference : ndarray of complex, or of float
        x, with an imaginary part between -pi and pi.
    error : ndarray or float
        By how much x may be off.

    Returns
    -------
    ndarray
        1e4, past every use, where the imaginary part is above 3 in modulus.
    """
    size = np.abs(difference) + error
    if np.isrealobj(difference):
        return np.minimum(size**2 / 8.0, size)
    turn = np.abs(difference.imag) + error
    bound = size**2 / (8.0 * np.cos(0.5 * np.minimum(turn, 3.0)) ** 2)
    return np.where(turn > 3.0, 1e4, bound)


def lottery_beyond(difference: NDArray, error: NDArray) -> NDArray:
    """What n lotteries add, at most and per lottery, beyond the second order, to the logarithm of their product.

    With f as for `lottery`, f''(0) = w (1 - w), and f''' = x^3 p (1 - p) (1 - 2 p) along the way to x.  There p is
    1 / (1 + u), |u| = r and arg u = a, |a| <= |Im x|, so that the modulus of p (1 - p) (1 - 2 p) is

        r |u - 1| / |u + 1|^3 <= t sqrt(1 - 4 t c^2) / c^3,   t = r / (1 + r)^2 <= 1 / 4, c = cos(Im x / 2),

    as |u + 1| >= (1 + r) c and |u - 1|^2 = (r - 1)^2 + 4 r sin^2(a / 2).  The largest is 1 / (6 sqrt(3) c^5) at
    t = 1 / (6 c^2), or where that is above 1 / 4, sqrt(1 - c^2) / (4 c^3).  A sixth of it, times |x|^3, bounds
    |f - w (1 - w) x^2 / 2|; an error e of x moves the second order by at most (|x| + e) e / 4.

    Parameters
    ----------
    difference, error : ndarray
        As for `lottery`, complex.
    """
    size = np.abs(difference) + error
    turn = np.abs(difference.imag) + error
    c = np.cos(0.5 * np.minimum(turn, 3.0))
    steepest = np.where(c * c >= 2.0 / 3.0, 1.0 / (6.0 * np.sqrt(3.0) * c**5), np.sqrt(1.0 - c * c) / (4.0 * c**3))
    return np.where(turn > 3.0, 1e4, size**3 * steepest / 6.0 + 0.25 * size * error)


def band_coefficient(width: float) -> float:
    """Bound of the weights beyond the band, to be multiplied by sup |phi| there.

    With omega_f = 2 pi f / P and m P^-1 2 pi = width: (2 / P) sum over f > m of 1 / |z_f (1 + z_f)| with
    |z (1 + z)| >= omega^2 is at most (1 / pi) times the integral of omega^-2 from `width`.
    """
    return 1.0 / (np.pi * width)


LEAF = 1e-12
"""Relative error of a cell's masses of one step (`kernels.discretise.masses`): a Gaussian density at 38 standard
deviations carries 1,500 units, the additions as many, the quadrature less."""


def roundoff_pairs(one: int, two: int) -> float:
    """Relative error of the masses of a sum of laws of these sizes (`kernels.direct`), beside that of the laws.

    All terms are positive.  A cell's additions form chains of at most 16 x two within a block of 16 losses of the
    first law and one / 16 over the blocks; sums over the second law made beforehand are 4 x two roundings deep; a
    product, 1 - exp(-d) and the sharing between the ends of a cell cost at most 30.
    """
    return UNIT * (20.0 * two + one / 16.0 + one + 64.0)


def roundoff_loss(sigma: NDArray, q: NDArray, counts: NDArray, depth: int) -> tuple[float, float]:
    """How far the sum of losses may be off: by the first times itself and the second, where it is positive.

    One step: with t = (2 x - 1) / (2 sigma^2), at most T = 39 / sigma + 1 / sigma^2 on the grid, log g is computed from
    t, and t from log g, with an error of t below (4 T + 8) units; d log g <= 8 dt (|log g| + N), N = -log(1 - q) at
    most, where it is not 0; below a rate of 1e-15, where log g = t + log q cancels, N = T.  A partial sum is rounded
    once at every one of `depth` levels, relative to itself, and again where cells are merged.  In all the errors are at
    most c sum |l_i| + c sum N_i; under removal no loss is below -N, under addition none above N, so that
    sum |l_i| <= |sum l_i| + 2 sum N_i where the sum is positive.
    """
    t = 39.0 / sigma + 1.0 / sigma**2
    with np.errstate(divide="ignore"):
        n = np.where(q < 1e-15, t, np.minimum(-np.log1p(-q), t))
    used = counts > 0
    c = UNIT * (8.0 * (4.0 * float(t[used].max()) + 8.0) + 4.0 * depth + 8.0)
    return c, 3.0 * c * float(counts[used] @ n[used])


def outside(steps: int) -> float:
    """Mass of so many steps beyond 38 standard deviations, where their grids end: each below 6e-316."""
    return 1e-315 * steps
