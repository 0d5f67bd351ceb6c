"""Truth for few steps, where the contour needs up to tens of millions of frequencies: float64, two contours agreeing.

Also `direct`: one, two and three steps by the closed form and nested quadrature, without any transform.
"""

from __future__ import annotations

import numpy as np
import oracle_plan
from oracle import Value
from oracle_plan import Plan, Steps
from scipy import optimize, special

ACCURACY = 33.0  # nats for every neglected part: 5e-15
SLACK = 7.0
MOST_FREQUENCIES = 8_000_000
MOST_NODES = 8_000_000
WIDTH = 16  # of the spreading kernel, in cells; its error is below 1e-14
BETA = 2.3 * WIDTH
TURN = 2 * np.arctan2(np.longdouble(0), np.longdouble(-1))  # 2 pi to 64 bits


def kernel(x: np.ndarray) -> np.ndarray:
    """exp(beta (sqrt(1 - x^2) - 1)) on [-1, 1]."""
    return np.exp(BETA * (np.sqrt(np.maximum(1.0 - x * x, 0.0)) - 1.0))


def fourier_sums(weight: np.ndarray, angle: np.ndarray, count: int) -> np.ndarray:
    """sum_j weight_j exp(i k angle_j) for k < count: spread onto a twice finer grid, transform, divide by the kernel.

    weight: (N,) complex; angle: (N,) of long double, because k turns of it are taken.
    """
    size = 2 * int(special.exp2(np.ceil(np.log2(count))))
    middle = count // 2
    cell = np.mod(angle, TURN) * (size / TURN)
    first = np.ceil(cell - WIDTH / 2).astype(np.int64)
    cell = (cell - first).astype(np.float64)
    weight = weight * np.exp(1j * np.mod(middle * angle, TURN).astype(np.float64))
    grid = np.zeros(size, dtype=np.complex128)
    for offset in range(WIDTH):
        value = kernel((offset - cell) * (2.0 / WIDTH))
        target = np.mod(first + offset, size)
        grid += np.bincount(target, weight.real * value, size) + 1j * np.bincount(target, weight.imag * value, size)
    spectrum = np.fft.ifft(grid) * size
    k = np.arange(count) - middle
    x, w = np.polynomial.legendre.leggauss(120)
    values = w * kernel(x) * (WIDTH / 2)
    shape = np.zeros(count)
    for node, value in zip(x, values, strict=True):
        shape += value * np.cos(2.0 * np.pi / size * (WIDTH / 2) * node * k)
    return spectrum[k] / shape


def log_phi(part: tuple[float, float, int], steps: Steps, plan: Plan) -> tuple[float, np.ndarray]:
    """(K, phi / exp(K)) of one step at the plan's frequencies."""
    sigma, q, number = part
    omega = 2.0 * np.pi * plan.count / plan.period
    accuracy = plan.accuracy + plan.lost + np.log(number)  # every step's share
    step = oracle_plan.quadrature_step(part, steps, plan.theta, omega, accuracy + 3.0)
    if 40.0 / step > MOST_NODES:
        raise ArithmeticError(f"{40.0 / step:.0f} nodes are too many")
    index, _ = oracle_plan.nodes(part, steps, plan.theta, step, accuracy + 8.0)
    y = index.astype(np.longdouble) * np.longdouble(step)
    s, rate = np.longdouble(sigma), np.longdouble(q)
    u = y / s - 1 / (2 * s * s)
    loss = np.where(u < 30, np.log1p(rate * np.expm1(np.minimum(u, 30))) if q < 1 else u, u + np.log(rate))
    w = steps.power(np.longdouble(plan.theta)) * loss - y * y / 2
    p = np.exp(w - w.max()).astype(np.float64)
    total = np.sum(p)
    turn = steps.sign * loss * (TURN / np.longdouble(plan.period))
    front = float(w.max() + np.log(np.longdouble(step)) - 0.5 * np.log(TURN) + np.log(total))
    return front, fourier_sums(p / total + 0j, turn, plan.count)


class Contour:
    """The sum along one contour in float64."""

    def __init__(self, steps: Steps, plan: Plan) -> None:
        if plan.count > MOST_FREQUENCIES:
            raise ArithmeticError(f"{plan.count} frequencies are too many")
        self.plan = plan
        self.front, product = 0.0, np.ones(plan.count, dtype=np.complex128)
        for part in steps.parts:
            k, values = log_phi(part, steps, plan)
            self.front += part[2] * k
            product *= values ** part[2]
        self.omega = np.arange(plan.count) * (TURN / np.longdouble(plan.period))
        z = plan.theta + 1j * self.omega.astype(np.float64)
        self.terms = product / (z * (1.0 + z)) * (2.0 / plan.period)
        self.terms[0] *= 0.5

    def log_delta(self, epsilon: float) -> float:
        value = np.sum((self.terms * np.exp(-1j * np.mod(self.omega * epsilon, TURN).astype(np.float64))).real)
        if not value > 0.0:
            raise ArithmeticError("the sum is not positive")
        return float(self.front - self.plan.theta * epsilon + np.log(value))

    def epsilon(self, delta: float, start: float) -> float:
        """The root of delta(epsilon) = delta, from a start above it; 0 where the root is not above 0."""

        def f(x: float) -> float:
            try:
                return self.log_delta(x) - np.log(delta)
            except ArithmeticError:  # lost in the round-off, so far below
                return -1e3

        if f(0.0) <= 0.0:
            return 0.0
        low, high = 0.0, start
        while f(high) > 0.0:
            low, high = high, 2.0 * high
        while high > 1e-4 * start and f(0.7 * high) < 0.0:
            high *= 0.7
        low = max(low, 0.7 * high) if f(0.7 * high) > 0.0 else low
        return float(optimize.brentq(f, low, high, xtol=1e-300, rtol=9e-16, maxiter=300))


def contours(steps: Steps, epsilon: float, log_delta: float, theta: float):
    for variant in (0, 1):
        accuracy = ACCURACY + 3.0 * variant
        plan = oracle_plan.plan(steps, epsilon, log_delta, theta, accuracy, SLACK, MOST_FREQUENCIES, variant)
        yield Contour(steps, plan)


def delta(parts, epsilon: float, direction: str) -> Value:
    """delta(epsilon); `value` is log10 of it."""
    steps = Steps(tuple(parts), direction)
    log_delta, theta = oracle_plan.guess_delta(steps, epsilon)
    first, second = (c.log_delta(epsilon) / np.log(10.0) for c in contours(steps, epsilon, log_delta - 3.0, theta))
    return Value(first, abs(first - second), repr(first), "contour, float64")


def reached_at_zero(parts, target: float, direction: str) -> bool:
    """Whether delta(0) <= target, by contours that are laid for an epsilon of 0."""
    return delta(parts, 0.0, direction).value <= np.log10(target)


def epsilon(parts, delta: float, direction: str) -> Value:
    """epsilon(delta), 0 where delta(0) <= delta."""
    steps = Steps(tuple(parts), direction)
    guess, theta = oracle_plan.guess_epsilon(steps, np.log(delta))
    for _ in range(6):
        first, second = (c.epsilon(delta, guess) for c in contours(steps, guess, np.log(delta), theta))
        if first == 0.0 and second == 0.0:
            if not reached_at_zero(parts, delta, direction):
                raise ArithmeticError("the contours end above 0")
            return Value(0.0, 0.0, "0", "contour, float64")
        # both contours share the error of the spreading, 1e-14 for one step, which is taken to the power of all
        rounded = 1e-14 * sum(n for _, _, n in parts) / (theta * max(first, 1e-300))
        apart = max(abs(first - second) / max(first, 1e-300), rounded)
        if apart < 1e-11 and abs(guess / first - 1.0) < 0.2:
            return Value(first, apart, repr(first), "contour, float64")
        guess = first * 1.01
    raise ArithmeticError(f"the contours differ by {apart:.1e}")


def one_step(epsilon: np.ndarray, sigma: float, q: float, direction: str) -> np.ndarray:
    """delta(epsilon) of one step, all real epsilon, relative error some 1e-15 sigma.

    With a = x / sigma and b = a - 1 / sigma: q (tail(b) - exp((2 x - 1) / 2 sigma^2) tail(a)) = q pdf(b) (m(b) - m(a))
    for removal, m Mills' ratio; addition follows from H_a(Q || P) = 1 - a + a H_{1/a}(P || Q), that is by the mirror
    image of the same difference.
    """
    epsilon = np.asarray(epsilon, dtype=np.float64)
    sign = 1.0 if direction == "remove" else -1.0
    odds = np.expm1(sign * epsilon) / q  # (exp(+-epsilon) - (1 - q)) / q - 1
    inside = odds > -1.0
    u = np.log1p(np.where(inside, odds, 0.0))  # (2 x - 1) / (2 sigma^2)
    a = sigma * u + 0.5 / sigma
    b = a - 1.0 / sigma
    if direction == "remove":
        with np.errstate(invalid="ignore", over="ignore"):  # the branch that is not taken
            small = special.erfcx(b / 2**0.5) - special.erfcx(a / 2**0.5)
        direct = special.ndtr(-b) - np.exp(np.minimum(u, 700.0)) * special.ndtr(-a)
        value = q * np.where(b > -1.0, 0.5 * np.exp(-0.5 * b * b) * small, direct)
        return np.where(inside, value, -np.expm1(epsilon))
    # P(x) - exp(epsilon) Q(x) = exp(epsilon) q (exp(u) N(0) - N(1)) below the threshold
    with np.errstate(invalid="ignore", over="ignore"):
        small = special.erfcx(-a / 2**0.5) - special.erfcx(-b / 2**0.5)
    direct = np.exp(np.minimum(u, 700.0)) * special.ndtr(a) - special.ndtr(b)
    value = np.exp(epsilon) * q * np.where(a < 1.0, 0.5 * np.exp(-0.5 * b * b) * small, direct)
    return np.where(inside, value, 0.0)


def panels(sigma: float, q: float, high: float, corners: list[float], order: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on [-37, high], graded towards the corners to far below the scale of q."""
    low, steps = -37.0, np.exp2(-np.arange(np.ceil(np.log2(1.0 / q)) + 13.0))
    edges = [np.arange(low, high, min(0.5, 2.0 * sigma)), [high]]
    edges += [c + side * steps for c in corners for side in (-1.0, 0.0, 1.0)]
    edges = np.unique(np.clip(np.concatenate([np.ravel(e) for e in edges]), low, high))
    x, w = np.polynomial.legendre.leggauss(order)
    half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    return np.add.outer(middle, np.zeros(order)).ravel() + np.outer(half, x).ravel(), np.outer(half, w).ravel()


def direct(parts, epsilon: float, direction: str, floor: float = 0.0, order: int = 16) -> float:
    """delta(epsilon) of up to three steps: the closed form of the last, averaged over the losses of the others.

    The inner function is all but singular (flat, at the scale of q) where the remaining loss meets the end of the
    support, and the panels are graded towards there.  Nodes that weigh less than `floor` are left out.
    """
    flat = [(sigma, q) for sigma, q, n in parts for _ in range(n)]

    def recurse(level: int, rest: float) -> float:
        sigma, q = flat[level]
        sign = 1.0 if direction == "remove" else -1.0
        if level == len(flat) - 1:
            return float(one_step(np.array(rest), sigma, q, direction))
        corners = []
        for ends in (0.0, *np.cumsum([np.log1p(-r) if r < 1.0 else 0.0 for _, r in flat[level + 1 :]])):
            odds = np.expm1(sign * rest - ends) / q + 1.0
            if odds > 0.0:
                corners.append(sigma * np.log(odds) + 0.5 / sigma)
        top = 37.0 + (1.0 / sigma if sign > 0.0 else 0.0)
        y, w = panels(sigma, q, top, corners, order)
        loss = oracle_plan.log_g(y, sigma, q)
        w = w * np.exp(-0.5 * y**2 + (loss if sign > 0.0 else 0.0)) / np.sqrt(2.0 * np.pi)
        if level == len(flat) - 2:
            return float(np.sum(w * one_step(rest - sign * loss, *flat[-1], direction)))
        keep = w > floor
        return sum(a * recurse(level + 1, rest - b) for a, b in zip(w[keep], sign * loss[keep], strict=True))

    return recurse(0, epsilon)


def direct_epsilon(parts, delta: float, direction: str) -> Value:
    """epsilon(delta) of up to three steps by `direct` at two orders of quadrature."""
    steps = Steps(tuple(parts), direction)
    floor = 1e-19 * delta
    if direct(parts, 0.0, direction, floor) <= delta:
        return Value(0.0, 0.0, "0", "nested quadrature")
    guess, _ = oracle_plan.guess_epsilon(steps, np.log(delta))

    def solve(order: int, start: float) -> float:
        def f(x: float) -> float:
            value = direct(parts, x, direction, floor, order)
            return float(np.log(value / delta)) if value > 0.0 else -1e3

        low, high = start, start
        while low > 0.0 and f(low) < 0.0:
            low *= 0.8
        while f(high) > 0.0:
            high *= 1.2
        return low if low == high else float(optimize.brentq(f, low, high, rtol=9e-16, xtol=1e-300, maxiter=100))

    first = solve(16, max(guess, 1e-12))
    second = solve(22, first * (1.0 - 1e-9))
    apart = abs(first - second) / first
    if apart > 1e-11:
        raise ArithmeticError(f"two orders of quadrature differ by {apart:.1e}")
    return Value(first, apart, repr(first), "nested quadrature")
