"""Truth to many digits: delta(epsilon) and epsilon(delta) of compositions of Poisson-sampled Gaussians.

Shares no code with the package.  For theta > 0 the two-sided Laplace transform of epsilon -> delta(epsilon) is
M(z) / (z (1 + z)) with M the moment generating function of the summed losses; a trapezoidal sum along Re z = theta
inverts it up to aliases that are bounded beforehand.  M comes from the trapezoidal rule in the Gaussian's own variable,
which for these analytic integrands has a proven geometric rate.  Everything that enters the result is computed in Arb
balls (python-flint), with nothing clever: no centring, no logarithm of 1 + x, simply enough bits.

A value counts only if two contours agree on it (different tilt, period, number of frequencies, step and cut of the
quadrature).
Where Arb would need too many frequencies (few steps) `oracle_few` takes over in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt, log, log10

import oracle_plan
from oracle_plan import Plan, Steps

ACCURACY = 48.0  # nats for every neglected part: 1e-21
SLACK = 60.0  # nats that a tilt off the saddle point may lose
BITS = 224
MOST_FREQUENCIES = 200_000


@dataclass(frozen=True)
class Value:
    """A value, how far the second contour was from it (relative), and what computed it."""

    value: float
    agreement: float
    digits: str
    method: str


def flint():
    """python-flint at the oracle's precision, or ImportError."""
    import flint as module

    module.ctx.prec = BITS
    return module


def bent(part, steps: Steps, plan: Plan) -> oracle_plan.Bent:
    """The nodes in the Gaussian's variable for one step of `part`."""
    accuracy = plan.accuracy + plan.lost + 10.0 + log(part[2])  # for every step's share
    crowd = 2.0 + 0.1 * (plan.accuracy - ACCURACY)  # another one for each contour
    return oracle_plan.bent_nodes(part, steps, plan.theta, 6.2832 * plan.count / plan.period, accuracy, crowd)


def phi(part, steps: Steps, plan: Plan) -> list:
    """Arb balls of E exp(z_k loss), one step of `part`, at the plan's frequencies.

    The powers exp(i k dw loss) are split as k = a B + b, so that all sums together are one matrix product.
    """
    f = flint()
    sigma, q, _ = (f.arb(v) for v in part)
    nodes = bent(part, steps, plan)
    step, bend = f.arb(nodes.step), f.arb(nodes.bend)
    dw = 2 * f.arb.pi() / f.arb(plan.period)
    power = f.arb(steps.power(plan.theta)) if steps.direction == "add" else 1 + f.arb(plan.theta)
    scale = step / (2 * f.arb.pi()).sqrt()
    weights, turns = [], []
    for j, start in zip(nodes.index, nodes.y, strict=True):
        t, y = f.arb(int(j)) * step, f.arb(start)
        for _ in range(8):
            moved = q * (y / sigma - 1 / (2 * sigma**2)).exp()
            g = 1 - q + moved
            slope = 1 + bend * moved / (g * sigma)
            error = ((y + bend * g.log() - t) / slope).mid()
            y = (y - error).mid()
            if abs(float(error)) < 1e-40:
                break
        loss = (t - y) / bend if nodes.bend > 1e-6 else (1 - q + q * (y / sigma - 1 / (2 * sigma**2)).exp()).log()
        weights.append(f.acb((power * loss - y * y / 2).exp() * scale / slope))
        turns.append(f.acb(0, steps.sign * dw * loss).exp())
    # Radii are dropped between the factors: rectangles that are turned a hundred times grow a thousandfold for nothing,
    # while the true rounding error is one unit in the last bit each.
    width = isqrt(plan.count) + 1
    height = ceil(plan.count / width)
    total = f.acb_mat(height, width)
    for start in range(0, len(turns), 2000):  # bounds the memory
        row, turn = weights[start : start + 2000], turns[start : start + 2000]
        inner, outer, column = [], [], [f.acb(1)] * len(turn)
        for _ in range(width):
            inner.extend(column)
            column = [(c * t).mid() for c, t in zip(column, turn, strict=True)]
        for _ in range(height):
            outer.extend(row)
            row = [(r * c).mid() for r, c in zip(row, column, strict=True)]
        total += f.acb_mat(height, len(turn), outer) * f.acb_mat(width, len(turn), inner).transpose()
    return total.entries()[: plan.count]


class Contour:
    """The sum along one contour: terms exp(-2 pi i k epsilon / period), k < count."""

    def __init__(self, steps: Steps, plan: Plan) -> None:
        f = flint()
        self.plan = plan
        products = [f.acb(1)] * plan.count
        for part in steps.parts:
            products = [p * v ** part[2] for p, v in zip(products, phi(part, steps, plan), strict=True)]
        dw = 2 * f.arb.pi() / f.arb(plan.period)
        self.dw = dw
        z = [f.acb(plan.theta, k * dw) for k in range(plan.count)]
        terms = [m / (s * (1 + s)) for m, s in zip(products, z, strict=True)]
        terms[0] /= 2  # the two halves of the line are conjugates
        slopes = [-t * s for t, s in zip(terms, z, strict=True)]
        self.rows = f.acb_mat(2, plan.count, terms + slopes)

    def sums(self, epsilon) -> tuple:
        """delta(epsilon) and its derivative, Arb balls."""
        f = flint()
        turn, powers = f.acb(0, -self.dw * epsilon).exp().mid(), [f.acb(1)]
        for _ in range(self.plan.count - 1):
            powers.append((powers[-1] * turn).mid())
        value, slope = (self.rows * f.acb_mat(self.plan.count, 1, powers)).entries()
        front = 2 * (-f.arb(self.plan.theta) * epsilon).exp() / f.arb(self.plan.period)
        return value.real * front, slope.real * front

    def log_delta(self, epsilon):
        """log of delta(epsilon), an Arb ball; fails where it is not positive."""
        value, _ = self.sums(epsilon)
        if not value > 0:
            raise ArithmeticError("the sum is not positive: digits were lost")
        return value.log()

    def epsilon(self, delta: float, start: float):
        """The root of delta(epsilon) = delta, from a start above it: an Arb number; 0 where the root is not above 0.

        delta can be flat over long stretches, so a bracket comes first, then bisection, then Newton's method.
        """
        f = flint()
        target, zero = f.arb(delta).log(), f.arb(0)
        if self.sums(zero)[0] <= f.arb(delta):
            return zero
        low, high = zero, f.arb(start)
        while not self.sums(high)[0] < f.arb(delta):
            low, high = high, 2 * high
        while high > f.arb(start) * 1e-4 and self.sums(high * 0.7)[0] < f.arb(delta):
            high = high * 0.7
        low = high * 0.7 if low == 0 else low
        x = high
        for _ in range(300):
            value, slope = self.sums(x)
            move = None
            if value > 0:
                low, high = (x, high) if value > f.arb(delta) else (low, x)
                if abs(float(value.log() - target)) < 2.0 and slope < 0:
                    move = ((value.log() - target) * value / slope).mid()
            else:
                high = x
            inside = move is not None and low <= x - move <= high
            following = (x - move if inside else (low + high) / 2).mid()
            if abs(float(following - x)) < 1e-26 * float(x):
                return following
            x = following
        raise ArithmeticError("the search for epsilon did not settle")


def seconds(steps: Steps, plan: Plan) -> float:
    """What one contour takes, roughly: the matrix product, its factors, the powers."""
    total = 0.0
    for part in steps.parts:
        points = len(bent(part, steps, plan).index)
        total += 3e-8 * plan.count * points + (4e-6 * plan.count**0.5 + 1e-4) * points + 4e-5 * plan.count
    return total


def gaussian_epsilon(steps: Steps, delta: float) -> Value:
    """epsilon(delta) of full-batch Gaussian steps: bisection of the closed form at 2000 bits."""
    f = flint()
    f.ctx.prec = 2000
    root = f.arb(2).sqrt()
    mu = sum((f.arb(n) / f.arb(s) ** 2 for s, _, n in steps.parts), f.arb(0)).sqrt()

    def private(x) -> bool:
        a, b = ((x / mu + side * mu / 2) / root for side in (-1, 1))
        return (a.erfc() - x.exp() * b.erfc()) / 2 <= f.arb(delta)

    low, high = f.arb(0), f.arb(1)
    if private(low):
        return Value(0.0, 0.0, "0", "closed form")
    while not private(high):
        low, high = high, 2 * high
    for _ in range(140):
        middle = ((low + high) / 2).mid()
        low, high = (low, middle) if private(middle) else (middle, high)
    f.ctx.prec = BITS
    return Value(float(low), 0.0, low.str(30, radius=False), "closed form")


def contours(steps: Steps, epsilon: float, log_delta: float, theta: float, patience: float = 30.0):
    """Two contours for values near (epsilon, log_delta), if each takes less than `patience` seconds."""
    for variant in (0, 1):
        accuracy = ACCURACY + 5.0 * variant
        chosen = oracle_plan.plan(steps, epsilon, log_delta, theta, accuracy, SLACK, MOST_FREQUENCIES, variant)
        if seconds(steps, chosen) > patience:
            raise ArithmeticError(f"{chosen.count} frequencies are too many for Arb")
        yield Contour(steps, chosen)


def delta(parts, epsilon: float, direction: str) -> Value:
    """delta(epsilon); `parts` holds (noise_multiplier, sample_rate, count).  `value` is log10 of it."""
    f = flint()
    steps = Steps(tuple(parts), direction)
    log_delta, theta = oracle_plan.guess_delta(steps, epsilon)
    first, second = (c.log_delta(f.arb(epsilon)) for c in contours(steps, epsilon, log_delta - 3.0, theta))
    tens = first / f.arb(10).log()
    return Value(float(tens), abs(float(first - second)), tens.str(30, radius=False), "contour, Arb")


def reached_at_zero(parts, target: float, direction: str) -> bool:
    """Whether delta(0) <= target, by contours that are laid for an epsilon of 0."""
    return delta(parts, 0.0, direction).value <= log10(target)


def epsilon(parts, delta: float, direction: str, patience: float = 30.0) -> Value:
    """epsilon(delta), 0 where delta(0) <= delta; `parts` holds (noise_multiplier, sample_rate, count)."""
    steps = Steps(tuple(parts), direction)
    if all(q == 1.0 for _, q, _ in parts):
        return gaussian_epsilon(steps, delta)
    flint()  # sets the precision
    guess, theta = oracle_plan.guess_epsilon(steps, log(delta))
    for _ in range(6):
        first, second = (c.epsilon(delta, guess) for c in contours(steps, guess, log(delta), theta, patience))
        if float(first) == 0.0 and float(second) == 0.0:
            if not reached_at_zero(parts, delta, direction):
                raise ArithmeticError("the contours end above 0")
            return Value(0.0, 0.0, "0", "contour, Arb")
        apart = abs(float((first - second) / first))
        if apart < 1e-16 and abs(guess / float(first) - 1.0) < 0.2:
            return Value(float(first), apart, first.str(30, radius=False), "contour, Arb")
        guess = float(first) * 1.01  # the contours were laid for a value too far away
    raise ArithmeticError(f"the contours differ by {apart:.1e}")
