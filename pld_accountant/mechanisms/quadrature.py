"""Quadrature of the sampled Gaussian's tilted losses, in the Gaussian's own variable, and the terms of its error.

Each term of the error is a function of its own, with its derivation; `kernels.characterise.panel_error` holds the
derivation for panels.  `kernels.characterise` evaluates the sums.

Notation: one step has the loss L = +log g(x) (remove) or -log g(x) (add), g(x) = 1 - q + q exp((2x - 1) / (2 sigma^2)).
Here x ~ N(0, sigma^2) with the weight g^a, a = 1 + theta or -theta.  The characteristic function
phi(omega) = E_theta[exp(i omega L)] is normalised.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..gauss_legendre import gauss_legendre
from ..threads import for_blocks
from .base import Spectrum
from .exponential_sums import excess_at, log_of_excess, products, products_of_transform

__all__ = [
    "ELLIPSES",
    "GAUSS",
    "REACH",
    "TiltedLosses",
    "log_moments",
    "quadrature_error",
    "quadrature_nodes",
    "roundoff_k",
    "roundoff_phi",
    "spectrum",
    "tail_error",
]

_UNIT = 2.0**-53  # unit round-off of double precision
_TOLERANCE = 1e-19  # of the quadrature, per step: over ten million steps the errors add up to 1e-12

GAUSS = np.array(gauss_legendre(40))
"""Abscissas and weights of the Gauss-Legendre rule on one panel."""

REACH = 10.0
"""How many standard deviations the nodes reach beyond the maxima of the tilted distribution."""

_BEYOND = 7.619853024160478e-24  # Phi(-REACH)

ELLIPSES = np.geomspace(1.25, 5.0, 6)
"""Candidate sums rho of the half-axes of the ellipses in which a panel's integrand is bounded."""

_ANGLES = np.linspace(0.02, 3.12, 156)  # candidate half-widths of the strip, b / sigma^2, below pi

# what takes about 0.2 milliseconds
_NODES = 4_000
_PRODUCTS = 600_000
_FEW_PANELS = 4  # rows whose panels are chosen

_ELEMENTS = 1 << 16  # nodes and frequencies of rows that are added up together

_MANY = 2_000  # nodes of the trapezoidal rule, beyond which panels are tried under addition


class TiltedLosses(NamedTuple):
    """Tilted losses of some steps: the arguments that the kernels of `kernels.characterise` share."""

    sigma: NDArray
    q: NDArray
    sign: float
    theta: NDArray
    part: NDArray

    def of(self, rows: NDArray | slice) -> TiltedLosses:
        """The losses of some rows."""
        return self._replace(sigma=self.sigma[rows], q=self.q[rows], theta=self.theta[rows], part=self.part[rows])


def log_moments(losses: TiltedLosses, most: int, panels: bool, largest_loss: NDArray, columns: int) -> NDArray:
    """K(theta), rounded up, shape (rows,); if more than `most` nodes are needed, the unsampled Gaussian's K.

    columns: how many rows a matrix product adds up.
    """
    from ..kernels import characterise

    ends, nodes, _ = _nodes(losses, 0.0, most, panels, error=False)
    rows, rule = losses.sigma.size, _rule(panels)
    k, units = np.empty((2, rows))

    def fill(some: slice) -> None:
        characterise.log_moments(*losses.of(some), ends[some], rule, nodes[some], k[some], units[some])

    for_blocks(fill, rows, _rows(rows, nodes, _NODES))
    k += roundoff_k(columns, k, units) + 1e-18
    return np.minimum(k, largest_loss * losses.theta)


def spectrum(
    losses: TiltedLosses, spacing: float, m: int, columns: int, work: float, most: int, *, panels: bool
) -> Spectrum | None:
    """See `base.CharacteristicSteps.spectrum`."""
    from ..kernels import _columns as c
    from ..kernels import characterise

    rows, width = losses.sigma.size, m * spacing
    ends, nodes, truncation = _nodes(losses, width, most, panels)
    on_panels = np.full(rows, panels)
    many = np.flatnonzero(~((nodes > 0) & (nodes <= _MANY)))
    if losses.sign < 0.0 and not panels and many.size:
        # the trapezoidal rule bounds arg g by the whole angle everywhere; panels bound it one by one
        _, fewer, missed = _nodes(losses.of(many), width, most, True)
        better = _or_more(fewer, most) < _or_more(nodes[many], most)
        some = many[better]
        nodes[some], truncation[some], on_panels[some] = fewer[better], missed[better], True
    cost = products(nodes, m)
    if not np.all(nodes) or float(cost.sum()) > work:
        return None
    moments, re, im, (error, slope) = np.empty((rows, c.MOMENTS)), *np.empty((2, rows, m)), np.zeros((2, rows))
    full = np.flatnonzero(losses.q == 1.0)
    moments[full], re[full] = _full_batches(losses.of(full), spacing * np.arange(1, m + 1))
    im[full] = 0.0
    for same in (False, True):
        some, rule = np.flatnonzero((losses.q < 1.0) & (on_panels == same)), _rule(same)

        def fill(part: slice, some: NDArray = some, rule: NDArray = rule) -> None:
            number = part.stop - part.start
            shares = math.ceil((int(nodes[some[part]].max()) + m) * number / _ELEMENTS)
            for at in np.array_split(some[part], min(shares, number)):
                weight, d = np.empty((2, at.size, int(nodes[at].max())))
                found = np.empty((at.size, c.MOMENTS))
                characterise.weigh(*losses.of(at), ends[at], rule, nodes[at], weight, d, found)
                excess, error[at], slope[at] = excess_at(weight, d, spacing, m)
                moments[at], (re[at], im[at]) = found, log_of_excess(excess)

        if some.size:
            for_blocks(fill, some.size, _rows(some.size, products_of_transform(nodes[some], m), _PRODUCTS))
    k, units = moments[:, c.M_LOG_MOMENT], moments[:, c.M_UNITS]
    return Spectrum(
        log_moment=k,
        mean=moments[:, c.M_MEAN],
        log_moment_error=roundoff_k(columns, k, units) + truncation,
        error=error + truncation + 2.0 * moments[:, c.M_LEFT_OUT],
        error_slope=slope + roundoff_phi(columns, moments[:, c.M_SPREAD], moments[:, c.M_WEIGHTED]),
        re=re,
        im=im,
        span=moments[:, [c.M_LOW, c.M_HIGH]],
        cost=cost,
    )


def _full_batches(losses: TiltedLosses, omega: NDArray) -> tuple[NDArray, NDArray]:
    """Moments of the Gaussian losses of full batches, and their Re log phi; Im log phi is 0."""
    from ..kernels import _columns as c

    moments = np.zeros((losses.sigma.size, c.MOMENTS))
    variance = losses.sigma**-2.0
    moments[:, c.M_LOG_MOMENT] = 0.5 * losses.theta * (losses.theta + 1.0) * variance
    moments[:, c.M_MEAN] = (losses.theta + 0.5) * variance
    moments[:, c.M_UNITS] = 8.0 * moments[:, c.M_LOG_MOMENT]
    moments[:, c.M_SPREAD] = np.sqrt(variance)
    moments[:, c.M_WEIGHTED] = 8.0 * moments[:, c.M_SPREAD]
    with np.errstate(over="ignore"):
        return moments, -0.5 * np.multiply.outer(variance, omega * omega)


def _or_more(nodes: NDArray, most: int) -> NDArray:
    """The numbers of nodes, of which a 0 stands for more than `most`."""
    return np.where(nodes > 0, nodes, most + 1)


def _rows(rows: int, nodes: NDArray, work: float) -> int:
    """Number of rows that have about `work` nodes."""
    return int(min(work * rows / max(float(nodes.sum()), 1.0), rows)) + 1


def _rule(panels: bool) -> NDArray:
    """Abscissas and weights of Gauss-Legendre on panels; no points mean the trapezoidal rule."""
    return GAUSS if panels else np.empty((2, 0))


def _nodes(
    losses: TiltedLosses, width: float, most: int, panels: bool, *, error: bool = True
) -> tuple[NDArray, NDArray, NDArray]:
    """Ends of the interval, number of nodes (0: more than `most` are needed), and the error of phi up to `width`.

    Without `error`, the third is 0.
    """
    # full batches have closed forms; the part of their large losses has no finite end
    ends, nodes, missed = np.tile([0.0, 1.0], (losses.q.size, 1)), np.full(losses.q.size, 2), np.zeros(losses.q.size)
    sampled = np.flatnonzero(losses.q < 1.0)
    if sampled.size:
        found = _nodes_of_samples(losses.of(sampled), width, most, panels, error)
        ends[sampled], nodes[sampled], missed[sampled] = found
    return ends, np.where(nodes <= most, nodes, 0), missed


def _nodes_of_samples(
    losses: TiltedLosses, width: float, most: int, panels: bool, error: bool
) -> tuple[NDArray, NDArray, NDArray]:
    """`_nodes` of sample rates below 1; the number of nodes may exceed `most`."""
    from ..kernels import characterise

    sigma, q, sign, theta, part = losses
    ends = np.empty((sigma.size, 2))
    characterise.interval(sigma, q, sign, theta, part, REACH, ends)
    if panels:
        points = GAUSS.shape[1]
        number, missed = np.empty(sigma.size, dtype=np.int64), np.empty(sigma.size)
        limits = width, points, most // points, ELLIPSES, _TOLERANCE

        def choose(some: slice) -> None:
            characterise.choose_panels(
                sigma[some], q[some], sign, theta[some], ends[some], *limits, number[some], missed[some]
            )

        for_blocks(choose, sigma.size, _FEW_PANELS)
        nodes, missed = number * points, 2.0 * missed
    else:
        nodes = quadrature_nodes(sigma, q, sign, theta, ends, width, _TOLERANCE)
        missed = np.zeros(sigma.size)
        if error:
            missed = 2.0 * quadrature_error(sigma, q, sign, theta, ends, width, nodes)
    if error:
        missed = missed + 2.0 * tail_error(sigma, q, sign, theta)
    return ends, nodes, missed


def _growth(sigma: NDArray, q: NDArray, sign: float, theta: NDArray | float, width: float) -> NDArray:
    """Upper bound of the log of the integrand's growth over the strip |Im x| <= b, for angles b / sigma^2 in `_ANGLES`.

    1. On the line Im x = b the normal density grows by exp(b^2 / (2 sigma^2)), and |g| <= g(Re x).
    2. |arg g| <= b / sigma^2, so |exp(i omega log g)| <= exp(omega b / sigma^2).
    3. For addition |g| has a negative exponent and needs a lower bound.  Let phi be the angle.  The smaller growth of
       two counts:

       a. |g| >= g(Re x) cos(phi / 2);
       b. if phi < pi / 2, |g| >= Re g = c g'(Re x), c = 1 - q + q cos(phi), where g' is g at the smaller rate
          q cos(phi) / c.  E[g'^-theta] <= E[g^-theta], because a smaller sample rate is a post-processing.

    Returns
    -------
    ndarray, shape (buckets, angles)
    """
    growth = 0.5 * np.multiply.outer(sigma**2, _ANGLES**2) + width * _ANGLES
    if sign < 0:
        acute = _ANGLES < 1.57
        growth_of_g = np.tile(-np.log(np.cos(0.5 * _ANGLES)), (sigma.size, 1))
        rate = -np.log1p(np.multiply.outer(q, np.cos(_ANGLES[acute]) - 1.0))
        growth_of_g[:, acute] = np.minimum(growth_of_g[:, acute], rate)
        growth += np.asarray(theta)[..., None] * growth_of_g
    return growth


def quadrature_nodes(
    sigma: NDArray,
    q: NDArray,
    sign: float,
    theta: NDArray | float,
    ends: NDArray,
    width: float,
    tolerance: float,
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
    theta : ndarray, shape (buckets,), or float
        Tilt.
    width : float
        Largest frequency omega at which phi is computed.
    tolerance : float
        Absolute error of the normalised phi.

    Returns
    -------
    ndarray of int64, shape (buckets,)
    """
    growth = _growth(sigma, q, sign, theta, width)
    log_ratio = np.logaddexp(0.0, growth + np.log(2.0 / tolerance))
    step = np.max(2.0 * np.pi * np.multiply.outer(sigma**2, _ANGLES) / log_ratio, axis=1)
    return np.minimum(np.ceil((ends[:, 1] - ends[:, 0]) / step) + 2, 2**40).astype(np.int64)


def quadrature_error(
    sigma: NDArray,
    q: NDArray,
    sign: float,
    theta: NDArray | float,
    ends: NDArray,
    width: float,
    nodes: NDArray,
) -> NDArray:
    """Absolute error of the normalised phi(omega), |omega| <= width, by the trapezoidal rule on `nodes` nodes.

    1. Let the integrand be analytic in |Im x| < b, and let its modulus integrate to at most M on every line of this
       strip.  Then the trapezoidal sum with step h differs from the integral by at most 2 M / (exp(2 pi b / h) - 1).
    2. The integrand here is analytic for b < pi sigma^2, the distance of the nearest zero of g.
    3. M is exp(`_growth`) times its value at b = 0.

    References
    ----------
    Trefethen and Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56 (2014), Theorem 5.1.
    """
    step = (ends[:, 1] - ends[:, 0]) / (nodes - 1)
    rate = 2.0 * np.pi * np.multiply.outer(sigma**2, _ANGLES) / step[:, None]
    growth = _growth(sigma, q, sign, theta, width)
    # exp(rate) - 1 >= exp(rate) / 2 for rate >= 1
    log_error = np.where(rate >= 1.0, np.log(4.0) + growth - rate, np.inf)
    return np.exp(np.minimum(log_error.min(axis=1), 0.0))


def tail_error(sigma: NDArray, q: NDArray, sign: float, theta: NDArray | float) -> NDArray:
    """Upper bound of the tilted mass beyond the first and the last node.

    The whole distribution:

    1. The logarithm of the integrand has the slope (a w(x) - x) / sigma^2, and w grows from 0 to 1.
    2. Removal: all zeros of the slope lie in [0, a].  Let psi be the integrand's height at an end of [0, a].  Outside
       of this interval the integrand falls at least as fast as a normal density of standard deviation sigma.  Inside,
       the slope points away from the end and the curvature is at least -1 / sigma^2, so the mass inside is at least
       psi sigma sqrt(pi / 2).
    3. Addition: a w(x) falls, so the integrand has one maximum, left of 0.  On both sides it falls as in step 2.  Left
       of the maximum w <= q, so the curvature is at least -c / sigma^2, c = 1 + theta min(q, 1/4) / sigma^2.  The mass
       there is at least psi sigma sqrt(pi / (2 c)).
    4. So a tail holds at most 2 sqrt(c) Phi(-10) of the mass.  There are two tails.  A second factor of 2 covers sums
       in place of integrals.

    A part of the distribution has no mass beyond its ends.
    """
    excess = theta / sigma**2 * np.minimum(q, 0.25) if sign < 0 else np.zeros_like(sigma)
    return 8.0 * np.sqrt(1.0 + excess) * _BEYOND


def roundoff_phi(columns: int, spread: NDArray, weighted: NDArray) -> NDArray:
    """Round-off of the normalised, centred phi at a frequency omega, per step and per unit of omega.

    A unit is 2^-53.  The sum over the nodes has an error of its own (`exponential_sums`).

    1. phi - 1 is the sum over nodes of p_j (exp(i omega d_j) - 1), and |exp(i omega d_j) - 1| <= omega |d_j|.
    2. A weight p_j has the relative error of its exponent.  The kernel sums these units into `weighted`.
    3. The matrix product adds `columns` units of |Re log phi| + |Im log phi|.  Let t = omega E|d| >= |phi - 1|.  The
       second term is at most pi t.  The first is at most t / |phi|.  `tables.errors.relative` allows for 1 / |phi|;
       without it, y exp(-y) <= t covers the sum y over all steps.

    Parameters
    ----------
    spread, weighted : ndarray, shape (buckets,)
        E_theta|d|, and E_theta[|d| times the round-off of a weight in units].
    """
    return 2.0 * _UNIT * ((2.5 * columns + 16.0) * spread + weighted)


def roundoff_k(columns: int, k: NDArray, units: NDArray) -> NDArray:
    """Round-off of K(theta) in the sum over steps: that of the kernel, `units`, and that of the matrix product."""
    return _UNIT * (units + (columns + 8.0) * np.abs(k))
