"""Quadrature of the sampled Gaussian's tilted losses, in the Gaussian's own variable, with its error terms.

Each term of the error is a function of its own, with its derivation.  `kernels.characterise` evaluates the sums.

Notation: one step has the loss L = +log g(x) (remove) or -log g(x) (add), g(x) = 1 - q + q exp((2x - 1) / (2 sigma^2)),
x ~ N(0, sigma^2) with the weight g^a, a = 1 + theta or -theta; phi(omega) = E_theta[exp(i omega L)] is normalised.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.special import log_ndtr

from .base import Spectrum

__all__ = [
    "ELLIPSES",
    "GAUSS",
    "REACH",
    "TiltedLaw",
    "log_moments",
    "quadrature_error",
    "quadrature_nodes",
    "roundoff_k",
    "roundoff_phi",
    "spectrum",
    "tail_error",
]

_UNIT = 2.0**-53  # unit round-off of double precision
_TOLERANCE = 1e-19  # of the quadrature, per step: ten million steps still add up to 1e-12

GAUSS = np.array(leggauss(40))
"""Abscissas and weights of the Gauss-Legendre rule on one panel."""

REACH = 10.0
"""How many standard deviations the nodes reach beyond the maxima of the tilted distribution."""

ELLIPSES = np.geomspace(1.25, 5.0, 6)
"""Candidate sums of the half-axes of the ellipses in which a panel's integrand is bounded."""

_RESTART = 32  # frequencies between two fresh evaluations, as in `kernels.characterise`
_ANGLES = np.linspace(0.02, 3.12, 156)  # candidate half-widths of the strip, b / sigma^2, below pi


class TiltedLaw(NamedTuple):
    """Steps under a tilt: the arguments that the kernels of `kernels.characterise` share."""

    sigma: NDArray
    q: NDArray
    sign: float
    theta: float
    part: NDArray
    blur: float

    def of(self, rows: NDArray) -> TiltedLaw:
        """The same for some rows."""
        return self._replace(sigma=self.sigma[rows], q=self.q[rows], part=self.part[rows])


def log_moments(law: TiltedLaw, most: int, panels: bool, largest_loss: NDArray) -> NDArray:
    """K(theta), rounded up, shape (rows,); the unsampled Gaussian's K if more than `most` nodes would be needed."""
    from ..kernels import characterise

    ends, nodes, _ = _nodes(law, 0.0, most, panels)
    k, units = np.empty((2, law.sigma.size))
    characterise.log_moments(*law, ends, _rule(panels), nodes, k, units)
    k += roundoff_k(law.sigma.size, k, units) + 1e-18
    return np.minimum(k, largest_loss * law.theta)


def spectrum(
    law: TiltedLaw, spacing: float, m: int, columns: int, work: float, most: int, *, panels: bool
) -> Spectrum | None:
    """See `base.CharacteristicSteps.spectrum`."""
    from ..kernels import _columns as c
    from ..kernels import characterise

    ends, nodes, truncation = _nodes(law, m * spacing, most, panels)
    if float(nodes.sum()) * m > work or not np.all(nodes):
        return None
    rows = law.sigma.size
    moments, re, im = np.empty((rows, c.MOMENTS)), np.empty((rows, m)), np.empty((rows, m))
    if rows:
        characterise.spectrum(*law, ends, _rule(panels), spacing, nodes, moments, re, im)
    k, units = moments[:, c.M_LOG_MOMENT], moments[:, c.M_UNITS]
    return Spectrum(
        log_moment=k,
        mean=moments[:, c.M_MEAN],
        log_moment_error=roundoff_k(columns, k, units) + truncation,
        error=truncation + 2.0 * moments[:, c.M_LEFT_OUT],
        error_slope=roundoff_phi(m, columns, moments[:, c.M_SPREAD], moments[:, c.M_WEIGHTED]),
        re=re,
        im=im,
        span=moments[:, [c.M_LOW, c.M_HIGH]],
    )


def _rule(panels: bool) -> NDArray:
    """Gauss-Legendre on panels, or no points: the trapezoidal rule."""
    return GAUSS if panels else np.empty((2, 0))


def _nodes(law: TiltedLaw, width: float, most: int, panels: bool) -> tuple[NDArray, NDArray, NDArray]:
    """Ends of the interval, number of nodes (0: more than `most`), and the error of phi up to `width`."""
    from ..kernels import characterise

    sigma, q, sign, theta, part, blur = law
    ends = np.empty((sigma.size, 2))
    characterise.interval(sigma, q, sign, theta, part, blur, REACH, ends)
    ends[q == 1.0] = 0.0, 1.0  # full batches have closed forms; the part of their large losses has no finite end
    if panels:
        points = GAUSS.shape[1]
        number, error = np.empty(sigma.size, dtype=np.int64), np.empty(sigma.size)
        characterise.choose_panels(
            sigma, q, theta, ends, width, points, most // points, ELLIPSES, _TOLERANCE, number, error
        )
        nodes = number * points
    else:
        nodes = quadrature_nodes(sigma, q, sign, theta, ends, width, _TOLERANCE, blur)
        error = 2.0 * quadrature_error(sigma, q, sign, theta, ends, width, nodes, blur)
    error = error + 2.0 * tail_error(sigma, q, sign, theta, blur)
    error[q == 1.0] = 0.0
    nodes[q == 1.0] = 2
    return ends, np.where(nodes <= most, nodes, 0), error


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
    sigma: NDArray,
    q: NDArray,
    sign: float,
    theta: float,
    ends: NDArray,
    width: float,
    tolerance: float,
    blur: float = 0.0,
) -> NDArray:
    """Number of nodes at which `quadrature_error` falls to `tolerance`.

    Parameters
    ----------
    sigma, q : ndarray, shape (buckets,)
        Noise multipliers and sample rates.
    sign : float
        +1 for removal, -1 for addition.
    ends : ndarray, shape (buckets, 2)
        From `kernels.characterise.interval`.
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
    sigma: NDArray,
    q: NDArray,
    sign: float,
    theta: float,
    ends: NDArray,
    width: float,
    nodes: NDArray,
    blur: float = 0.0,
) -> NDArray:
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
    return 2.0 * _UNIT * ((6.0 * min(frequencies, _RESTART) + 2.5 * columns + 16.0) * spread + weighted)


def roundoff_k(columns: int, k: NDArray, units: NDArray) -> NDArray:
    """Round-off of K(theta) in the sum over steps: the kernel's units, and the matrix product's."""
    return _UNIT * (units + (columns + 8.0) * np.abs(k))
