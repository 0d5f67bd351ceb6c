"""The tilted law of one step to forty digits, by the trapezoidal rule in mpmath; shares no code with the package."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mpmath
import numpy as np
from mpmath.calculus.quadrature import GaussLegendre

DIGITS = 40
_ACCURACY = 80.0  # nats for the quadrature and for each tail: 1e-34


@cache
def gauss_legendre(level):
    """Pairs of a node in (-1, 1) and its weight, to thirty digits: 24 at level 4, twice as many at the next."""
    with mpmath.workdps(30):
        return GaussLegendre(mpmath.mp).calc_nodes(level, 110)


@dataclass(frozen=True)
class Law:
    """Nodes of exp(theta L) P, normalised: `weight` and `loss` are lists of mpf; `k` = log of the mass."""

    k: mpmath.mpf
    weight: list
    loss: list

    @property
    def mean(self):
        """The tilted mean of the loss."""
        return mpmath.fdot(self.weight, self.loss)

    def phi(self, omega, centre=0):
        """E_theta[exp(i omega (L - centre))]."""
        with mpmath.workdps(DIGITS):
            o, c = mpmath.mpf(omega), mpmath.mpf(centre)
            return mpmath.fsum(w * mpmath.expj(o * (s - c)) for w, s in zip(self.weight, self.loss, strict=True))


def _nodes(sigma: float, direction: str, theta: float, omega: float, accuracy: float) -> tuple[np.ndarray, float]:
    """Indices j and step h of the nodes x = j h.

    |log g| has an imaginary part of at most b / sigma^2 on the line Im x = b < pi sigma^2, and |g| is at least its real
    counterpart times cos(b / (2 sigma^2)): what the integrand grows by there is set against exp(-2 pi b / h).
    """
    angle = np.linspace(0.01, 3.1, 310)
    growth = 0.5 * sigma**2 * angle**2 + omega * angle
    if direction == "add":
        growth = growth - theta * np.log(np.cos(0.5 * angle))
    step = float(np.max(2.0 * np.pi * sigma**2 * angle / (growth + accuracy)))
    power = 1.0 + theta if direction == "remove" else -theta
    reach = sigma * np.sqrt(2.0 * accuracy)
    low, high = min(0.0, power) - reach, max(0.0, power) + reach
    return np.arange(np.floor(low / step), np.ceil(high / step) + 1), step


def law(sigma: float, q: float, direction: str, theta: float, omega: float = 0.0) -> Law:
    """The tilted law of one step of (sigma, q), exact for the characteristic function up to `omega`."""
    with mpmath.workdps(DIGITS):
        index, h = _nodes(sigma, direction, theta, omega, _ACCURACY)
        step, s, r, t = (mpmath.mpf(v) for v in (h, sigma, q, theta))
        power = 1 + t if direction == "remove" else -t
        exponent, loss = [], []
        for j in index:
            x = int(j) * step
            log_g = mpmath.log(1 - r + r * mpmath.exp((2 * x - 1) / (2 * s * s)))
            exponent.append(power * log_g - x * x / (2 * s * s))
            loss.append(log_g if direction == "remove" else -log_g)
        top = max(exponent)
        kept = [j for j, e in enumerate(exponent) if e > top - _ACCURACY]
        weight = [mpmath.exp(exponent[j]) for j in kept]
        total = mpmath.fsum(weight)
        k = mpmath.log(total * step / (s * mpmath.sqrt(2 * mpmath.pi)))
        return Law(k, [w / total for w in weight], [loss[j] for j in kept])


def double_law(sigma: float, q: float, direction: str, theta: float, omega: float) -> tuple[np.ndarray, np.ndarray]:
    """As `law`, in float64: weights and losses."""
    index, h = _nodes(sigma, direction, theta, omega, 40.0)
    t = (2.0 * index * h - 1.0) / (2.0 * sigma**2)
    log_g = np.where(t > 30.0, t + np.log(q), np.log1p(q * np.expm1(np.minimum(t, 30.0))))
    log_g = log_g if q < 1.0 else t
    power = 1.0 + theta if direction == "remove" else -theta
    exponent = power * log_g - 0.5 * (index * h / sigma) ** 2
    weight = np.exp(exponent - exponent.max())
    return weight / weight.sum(), log_g if direction == "remove" else -log_g


def one_step(epsilon: float, sigma: float, q: float, direction: str):
    """delta(epsilon) of one step in closed form, with enough digits that its cancellation does not matter."""
    with mpmath.workdps(120):
        e, s, r = (mpmath.mpf(float(v)) for v in (epsilon, sigma, q))
        odds = (mpmath.exp(e if direction == "remove" else -e) - (1 - r)) / r
        if odds <= 0:
            return 1 - mpmath.exp(e) if direction == "remove" else mpmath.mpf(0)
        x = s * s * mpmath.log(odds) + mpmath.mpf(1) / 2
        if direction == "remove":
            above, moved = mpmath.ncdf(-x / s), mpmath.ncdf((1 - x) / s)
            return (1 - r) * above + r * moved - mpmath.exp(e) * above
        below, moved = mpmath.ncdf(x / s), mpmath.ncdf((x - 1) / s)
        return below - mpmath.exp(e) * ((1 - r) * below + r * moved)
