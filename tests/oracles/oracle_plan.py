"""Where the oracle's contour runs: tilt, period, number of frequencies and quadrature step, planned in float64.

Nothing here touches a result.  `oracle` and `oracle_few` evaluate at what is planned here, always for two
different plans, and accept a value only where the two agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Steps:
    """A composition of Poisson-sampled Gaussians: `parts` holds (sigma, q, n); direction "remove" or "add"."""

    parts: tuple[tuple[float, float, int], ...]
    direction: str

    @property
    def sign(self) -> int:
        """+1 where the loss is log g, -1 where it is -log g."""
        return 1 if self.direction == "remove" else -1

    def power(self, theta: float) -> float:
        """The power of g whose mean under N(0, sigma^2) is the moment generating function at theta."""
        return 1.0 + theta if self.direction == "remove" else -theta


@dataclass(frozen=True)
class Plan:
    """One contour: z_k = theta + 2 pi i k / period for k < count.

    `accuracy` in nats, relative to delta, for every neglected part; M(theta) exp(-theta epsilon) is `lost` nats more.
    """

    theta: float
    period: float
    count: int
    accuracy: float
    lost: float = 0.0


def log_g(y: np.ndarray, sigma: float, q: float) -> np.ndarray:
    """log(1 - q + q exp(y / sigma - 1 / (2 sigma^2))), the loss at x = sigma y."""
    u = y / sigma - 0.5 / sigma**2
    small = np.log1p(q * np.expm1(np.minimum(u, 30.0))) if q < 1.0 else u
    return np.where(u < 30.0, small, u + np.log(q))


@lru_cache(maxsize=4096)
def coarse_nodes(part: tuple[float, float, int], steps: Steps, theta: float, accuracy: float) -> tuple:
    """Some points y and log weights that cover where the tilted law lives."""
    step = min(0.3, 0.3 * part[0])
    index, w = nodes(part, steps, theta, step, accuracy + 30.0)
    if not index.size:
        raise ArithmeticError(f"no node carries weight at the tilt {theta:.1e}")
    w = w + np.log(step)
    return index * step, w - w.max() - np.log(np.sum(np.exp(w - w.max())))


def quadrature_step(part: tuple[float, float, int], steps: Steps, theta: float, omega: float, accuracy: float) -> float:
    """A step of the trapezoidal rule in y whose error at theta + i omega is exp(-accuracy) of phi(theta).

    The rule's error is 2 M(a) / (exp(2 pi a / h) - 1), M(a) the integral of the integrand's modulus on the line of
    imaginary part a, for any a up to pi sigma, where log g ceases to be analytic.  M is looked at on a coarse grid.
    """
    sigma, q, _ = part
    y, w = coarse_nodes(part, steps, theta, accuracy)
    a = np.geomspace(1e-3, 0.98, 60) * np.pi * sigma
    a = a[a < 60.0]
    turn = np.exp(1j * a / sigma)[:, None]
    u = y / sigma - 0.5 / sigma**2
    share = 1.0 / (1.0 + (1.0 - q) / q * np.exp(np.clip(-u, -650.0, 650.0)))  # of the sampled part in g
    ratio = np.log1p(share * (turn - 1.0))  # log of g(y + i a) / g(y)
    grown = w + 0.5 * a[:, None] ** 2 + steps.power(theta) * ratio.real + omega * ratio.imag
    top = grown.max(axis=1)
    need = top + np.log(np.sum(np.exp(grown - top[:, None]), axis=1)) + accuracy + 2.0
    return float(np.max(2.0 * np.pi * a / np.maximum(need, 1.0)))


def nodes(
    part: tuple[float, float, int], steps: Steps, theta: float, step: float, accuracy: float
) -> tuple[np.ndarray, np.ndarray]:
    """Indices j of the nodes y = j step that matter, and the logarithm of the tilted weight there.

    The logarithm's curvature in y is at least -1 for removal, so between two points 8 apart it exceeds the larger end
    by at most 8 and a coarse scan finds all that matters; for addition it is concave, and one peak is searched for.
    """
    sigma, q, _ = part
    power = steps.power(theta)
    reach = np.sqrt(2.0 * accuracy) + 1.0

    def weight(y: np.ndarray) -> np.ndarray:
        return -0.5 * y**2 - 0.5 * np.log(2.0 * np.pi) + power * log_g(y, sigma, q)

    if steps.direction == "add":
        low, high = -theta / sigma, 0.0
        for _ in range(200):
            middle = 0.5 * (low + high)
            u = middle / sigma - 0.5 / sigma**2
            share = 1.0 / (1.0 + (1.0 - q) / q * np.exp(np.clip(-u, -650.0, 650.0)))
            low, high = (middle, high) if -middle - theta * share / sigma > 0.0 else (low, middle)
        windows = np.array([[low - reach, low + reach]])
    else:
        coarse = np.arange(-reach - 8.0, power / sigma + reach + 16.0, 8.0)
        values = weight(coarse)
        ends = np.stack([coarse[:-1], coarse[1:]], axis=1)
        windows = ends[np.maximum(values[:-1], values[1:]) > values.max() - accuracy - 8.0]
    index = np.unique(np.concatenate([np.arange(np.floor(a / step), np.ceil(b / step) + 1) for a, b in windows]))
    values = weight(index * step)
    keep = values > values.max() - accuracy
    return index[keep], values[keep]


@dataclass(frozen=True)
class Bent:
    """Nodes of the trapezoidal rule in t = y + bend * log g(y): uniform in y for small losses, in the loss for large.

    t runs over `index` * `step`; `y` is its inverse in float64, a start for more digits.
    """

    bend: float
    step: float
    index: np.ndarray
    y: np.ndarray


def bent_nodes(
    part: tuple[float, float, int], steps: Steps, theta: float, omega: float, accuracy: float, crowd: float
) -> Bent:
    """Nodes for frequencies up to omega: the spacing of losses is at most pi / (crowd omega).

    log g bends the axis where it oscillates, so that the many nodes that high frequencies need stand only there.  The
    inverse of t is analytic as far as log g is.  That `crowd` suffices is seen from two values of it agreeing.
    """
    sigma, q, _ = part
    step = 0.9 * quadrature_step(part, steps, theta, 0.0, accuracy)
    bend = crowd * step * omega / np.pi
    y, w = coarse_nodes(part, steps, theta, accuracy)
    y = y[w > w.max() - accuracy - 10.0]
    runs = np.split(y, np.flatnonzero(np.diff(y) > 1.5 * min(0.3, 0.3 * sigma)) + 1)
    indices, found = [], []
    for run in runs:
        fine = np.linspace(run[0] - 0.3, run[-1] + 0.3, 20 * len(run) + 100)
        t = fine + bend * log_g(fine, sigma, q)
        index = np.arange(np.ceil(t[0] / step), np.floor(t[-1] / step) + 1)
        indices.append(index)
        found.append(np.interp(index * step, t, fine))
    return Bent(float(bend), float(step), np.concatenate(indices), np.concatenate(found))


def log_mgf(steps: Steps, theta: float) -> float:
    """K(theta) = sum of n log E exp(theta loss), to a few digits."""
    total = 0.0
    for part in steps.parts:
        step = quadrature_step(part, steps, theta, 0.0, 20.0)
        _, w = nodes(part, steps, theta, step, 45.0)
        total += part[2] * (np.log(step) + w.max() + np.log(np.sum(np.exp(w - w.max()))))
    return float(total)


def log_modulus(steps: Steps, theta: float, omega: float, limit: int = 4_000_000) -> float:
    """sum of n log |phi(theta + i omega) / phi(theta)|; NaN where it would take too many nodes."""
    total = 0.0
    for part in steps.parts:
        sigma, q, n = part
        step = quadrature_step(part, steps, theta, omega, 36.0)
        if 20.0 / step > limit:
            return np.nan
        index, w = nodes(part, steps, theta, step, 45.0)
        p = np.exp(w - w.max())
        phi = np.sum(p * np.exp(1j * omega * log_g(index * step, sigma, q))) / np.sum(p)
        total += n * np.log(min(abs(phi) + 1e-16, 1.0))
    return float(total)


def minimise(function, start: float) -> float:
    """Where a quasi-convex function of theta > 0 is smallest, to a relative 2 %."""
    a, b = start, start * 2.0
    if function(b) > function(a):
        while function(a / 2.0) < function(a):
            a /= 2.0
        low, high = a / 2.0, a * 2.0
    else:
        while b < 1e15 and function(b * 2.0) < function(b):  # near the largest loss no tilt is the best
            b *= 2.0
        low, high = b / 2.0, b * 2.0
    while high / low > 1.02:
        first, second = low * (high / low) ** 0.382, low * (high / low) ** 0.618
        low, high = (low, second) if function(first) < function(second) else (first, high)
    return float(np.sqrt(low * high))


def log_cap(theta: float) -> float:
    """log of the largest (1 - exp(-y)) exp(-theta y): Chernoff's bound on delta carries it."""
    return float(theta * np.log(theta) - (1.0 + theta) * np.log1p(theta))


def guess_epsilon(steps: Steps, log_delta: float) -> tuple[float, float]:
    """epsilon(delta) by the saddle point approximation at the tilt of the Renyi bound, and that tilt."""

    def bound(theta: float) -> float:
        return (log_mgf(steps, theta) - log_delta + log_cap(theta)) / theta

    theta = minimise(bound, 1.0)
    left, middle, right = (log_mgf(steps, theta * r) for r in (0.95, 1.0, 1.05))
    curvature = max((left - 2.0 * middle + right) / (0.05 * theta) ** 2, 1e-300)
    front = np.log(theta * (1.0 + theta)) + 0.5 * np.log(2.0 * np.pi * curvature)
    return min(bound(theta), (middle - log_delta - front) / theta), theta


def guess_delta(steps: Steps, epsilon: float) -> tuple[float, float]:
    """Chernoff's bound on log delta(epsilon) and its tilt."""

    def bound(theta: float) -> float:
        return log_mgf(steps, theta) - theta * epsilon + log_cap(theta)

    theta = minimise(bound, 1.0)
    return min(bound(theta), 0.0), theta


def period(steps: Steps, theta: float, epsilon: float, log_delta: float, accuracy: float) -> float:
    """A period at which both aliases are below exp(-accuracy) of delta.

    The alias from below is at most exp(-theta P) / (1 - exp(-theta P)); the one from above, by Chernoff at any
    t > theta, at most exp(K(t) - t epsilon) r / (1 - r) with r = exp(-(t - theta) P).
    """
    below = (accuracy - log_delta + 1.0) / theta
    above = min(
        (log_mgf(steps, theta * (1.0 + r)) - theta * (1.0 + r) * epsilon - log_delta + accuracy + 1.0) / (theta * r)
        for r in (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    )
    return max(below, above)


def band(
    steps: Steps, theta: float, epsilon: float, log_delta: float, accuracy: float, start: float, most: float
) -> float:
    """A frequency, `most` at the largest, beyond which the sum no longer matters; looks also far beyond it."""
    log_front = log_mgf(steps, theta) - theta * epsilon - log_delta

    def rest(omega: float) -> float:
        z = theta + 1j * omega
        return log_front + log_modulus(steps, theta, omega) + np.log(omega) - np.log(abs(z * (1.0 + z))) + accuracy

    omega = start
    while omega < most:
        near = max(rest(omega * r) for r in (1.0, 1.07, 1.15))
        if np.isnan(near):
            break
        # what takes too many nodes to look at is not looked at: max with NaN on the right keeps the left
        if near < 0.0 and max(-1.0, *(rest(omega * r) for r in (1.6, 2.5, 8.0, 32.0))) < 0.0:
            return omega
        omega *= 1.15
    raise ArithmeticError(f"frequencies up to {omega:.3g} are not enough")


def plan(
    steps: Steps, epsilon: float, log_delta: float, theta: float, accuracy: float, slack: float, most: int, variant: int
) -> Plan:
    """The cheapest of a few tilts around `theta`; variant 1 is another contour than variant 0.

    Digits are lost with a tilt off the saddle point; `slack` says how many nats may be.  At most `most` frequencies.
    """
    best: Plan | None = None
    shift = (1.0, 0.93)[variant]
    for factor in (1.0, 0.85, 0.7, 0.5, 0.35, 1.2, 1.45):
        t = theta * factor * shift
        lost = log_mgf(steps, t) - t * epsilon - log_delta + log_cap(t)
        if lost > slack:
            continue
        p = period(steps, t, epsilon, log_delta, accuracy) * (1.0, 1.17)[variant]
        if best is not None and p > 1.5 * best.period:
            continue
        limit = most if best is None else min(most, best.count)
        try:
            w = band(steps, t, epsilon, log_delta, accuracy, 4.0 * np.pi / p, 2.0 * np.pi / p * limit)
        except ArithmeticError:
            continue
        count = int(np.ceil(w * p / (2.0 * np.pi))) + 2
        if best is None or count < best.count:
            best = Plan(t, p, count, accuracy, max(float(lost), 0.0))
    if best is None:
        raise ArithmeticError(f"no tilt keeps enough digits with {most} frequencies")
    return best
