"""Gaussian differential privacy in closed form: delta of (epsilon, mu), and its inverses with directed rounding.

The pair is N(mu, 1) against N(0, 1).  All inverses start from log delta and from a bound on its error, which
`_gaussian_curve` computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import validate
from ._gaussian_curve import LOG_SQRT_TWO_PI, error_of_log_delta, log_delta_above, log_delta_anywhere, mills

__all__ = ["delta", "epsilon", "log_delta", "mu"]

_NEWTON_STEPS = 100
_NEAR_ONE = 2.0**-41  # a delta nearer to 1 cannot be proven to be reached
_FAR = 1e6  # for larger mu, Phi(-t1) alone bounds delta to a few units of the round-off of mu


def _prepare(**values: Any) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """Flat float64 arrays of the broadcast arguments; NaN raises `ValueError` with the name."""
    arrays = [validate.numbers(value, name) for name, value in values.items()]
    for name, a in zip(values, arrays, strict=True):
        if np.isnan(a).any():
            raise ValueError(f"{name} must be a number, got NaN")
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return [np.ascontiguousarray(np.broadcast_to(a, shape)).reshape(-1) for a in arrays], shape


def _shaped(values: np.ndarray, shape: tuple[int, ...]) -> Any:
    return values.reshape(shape) if shape else float(values[0])


def _require(condition: np.ndarray, what: str) -> None:
    if not np.all(condition):
        raise ValueError(what)


def log_delta(epsilon: Any, mu: Any) -> Any:
    """Natural logarithm of `delta`, also if `delta` is below the smallest double.

    Examples
    --------
    >>> round(log_delta(100.0, 1.0) / log_delta(50.0, 1.0), 3)
    4.02
    """
    (eps, m), shape = _prepare(epsilon=epsilon, mu=mu)
    _require((m >= 0) & (m < np.inf), "mu must be finite and at least 0")
    out = np.full(eps.shape, -np.inf)
    above = (eps >= 0) & (eps < np.inf) & (m > 0)
    out[above] = log_delta_anywhere(eps[above], m[above])
    below = (eps < 0) & (m > 0)
    # H(-e) = 1 - exp(-e) + exp(-e) H(e): the pair is symmetric; both terms are positive.
    out[eps < 0] = np.log(-np.expm1(eps[eps < 0]))
    finite = below & (eps > -np.inf)
    out[finite] = np.logaddexp(out[finite], eps[finite] + log_delta_anywhere(-eps[finite], m[finite]))
    return _shaped(out, shape)


def delta(epsilon: Any, mu: Any) -> Any:
    """The delta of mu-GDP at `epsilon`: the hockey-stick divergence of N(mu, 1) from N(0, 1).

    Parameters
    ----------
    epsilon : float or ndarray
        In nats; any real number, also negative.
    mu : float or ndarray
        At least 0; broadcast against `epsilon`.

    Returns
    -------
    float or ndarray
        In [0, 1].

    Raises
    ------
    ValueError
        For NaN, or a negative or infinite mu.

    **Error**: nearest, not directed; relative about 2**-52 * (4 + t**2 + mu * max(t, 0) + abs(log(mu))) with
    t = epsilon / mu - mu / 2.  Rounding the arguments to doubles changes delta by all of these terms but the last.

    **Cost**: 0.2 microseconds an element, 0.5 for mu below 0.4.

    References
    ----------
    Balle and Wang (2018), Theorem 8; Koskela, Tobaben and Honkela (2023), eq. (2.2).

    Examples
    --------
    >>> f"{delta(0.745138, 0.204939):.4e}"
    '1.0000e-05'
    >>> delta([0.0, 1.0], 1.0).round(6)
    array([0.382925, 0.126937])
    """
    out = np.exp(log_delta(epsilon, mu))
    return out if np.ndim(out) else float(out)


def epsilon(delta: Any, mu: Any, *, rounding: str = "up") -> Any:
    """The smallest epsilon >= 0 at which mu-GDP gives at most `delta`.

    Parameters
    ----------
    delta : float or ndarray
        In (0, 1).
    mu : float or ndarray
        At least 0; broadcast against `delta`.
    rounding : {"up", "down"}
        "up": at the returned epsilon the true delta does not exceed `delta`.
        "down": the true delta at any smaller epsilon is at least `delta`.

    Returns
    -------
    float or ndarray
        In nats.

    Raises
    ------
    ValueError
        For a delta outside (0, 1), a negative or infinite mu, NaN, or an unknown rounding.

    **Error**: directed as `rounding` says, by less than 1e-11 * (epsilon + mu) for delta up to 0.99.  For larger delta
    the curve is so flat that the rounding of delta itself changes epsilon by more.

    **Cost**: four to eight evaluations of `delta`.  log delta is concave in epsilon, so Newton's steps from the right
    stay on the right, and even an unfinished iteration is safe.

    Examples
    --------
    >>> f"{epsilon(1e-5, 0.204939):.6f}"
    '0.745138'
    >>> epsilon(0.5, 0.1)
    0.0
    """
    if rounding not in ("up", "down"):
        raise ValueError(f'rounding must be "up" or "down", got {rounding!r}')
    (dlt, m), shape = _prepare(delta=delta, mu=mu)
    _require((dlt > 0) & (dlt < 1), "delta must lie in (0, 1)")
    _require((m >= 0) & (m < np.inf), "mu must be finite and at least 0")
    out = np.zeros(dlt.shape)
    far = m >= _FAR
    out[far] = _far_epsilon(dlt[far], m[far], rounding)
    goal = np.log(dlt)
    todo = np.flatnonzero((m > 0) & ~far)
    zero = np.zeros(todo.size)
    todo = todo[log_delta_above(zero, m[todo]) + error_of_log_delta(zero, m[todo]) > goal[todo]]
    m, goal = m[todo], goal[todo]
    x = m * (m / 2 + np.sqrt(-2 * goal)) * (1 + 2.0**-50)
    live = np.arange(x.size)
    for _ in range(_NEWTON_STEPS):
        value = log_delta_above(x[live], m[live])
        slope = _slope(x[live], m[live], value)
        step = (goal[live] - error_of_log_delta(x[live], m[live]) - value) / slope  # negative: towards the left
        moving = step < -(2.0**-50) * x[live]
        live, step = live[moving], step[moving]
        if not live.size:
            break
        x[live] += step
    # Rounding may put Newton's last step on the left: push it right until the margin holds.
    push = 2.0**-51
    while True:
        bad = log_delta_above(x, m) + error_of_log_delta(x, m) / 2 > goal
        if not bad.any():
            break
        x[bad] += push * (x[bad] + m[bad])
        push *= 2
    out[todo] = x if rounding == "up" else _below(x, m, goal)
    return _shaped(out, shape)


def _far_thresholds(dlt: np.ndarray, mu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of t1 for a mu of at least about `_FAR`: Phi(-t1) >= delta >= Phi(-t1) - phi(t1) / t2, t2 > mu / 2.

    Left of z = Phi^-1(1 - delta) by s = 4 / mu, Phi(-t1) has grown by at least s min(phi(z), phi(z - s)), more than
    phi(z - s) / t2.
    """
    from scipy import special

    z = -special.ndtri(dlt)
    error = 1e-12 * (1 + np.abs(z))
    return z - error - 4 / mu, z + error


def _far_epsilon(dlt: np.ndarray, mu: np.ndarray, rounding: str) -> np.ndarray:
    """`epsilon` for mu of at least `_FAR`."""
    low, high = _far_thresholds(dlt, mu)
    with np.errstate(over="ignore"):
        if rounding == "up":
            return mu * (mu / 2 + high) * (1 + 2.0**-50)
        return np.minimum(mu * (mu / 2 + low) * (1 - 2.0**-50), np.finfo(np.float64).max)


def _far_mu(eps: np.ndarray, dlt: np.ndarray, rounding: str) -> np.ndarray:
    """`mu` for epsilon of at least `_FAR`**2 / 2: the root of epsilon / mu - mu / 2 = t1."""
    root = np.sqrt(2.0) * np.sqrt(eps)
    low, high = _far_thresholds(dlt, root)
    t, side = (low, 1.0) if rounding == "up" else (high, -1.0)
    return (np.hypot(t, root) - t) * (1 + side * 2.0**-50)


def _slope(x: np.ndarray, mu: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The derivative of log delta in epsilon, given log delta."""
    t1 = x / mu - mu / 2
    return -np.exp(-t1 * t1 / 2 - LOG_SQRT_TWO_PI - value) * mills(t1 + mu)


def _below(x: np.ndarray, mu: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """A point slightly left of x at which log delta is at least `goal` for every possible error, or 0."""
    x, live = x.copy(), np.flatnonzero(x > 0)
    push = np.zeros(0)
    while live.size:
        value, error = log_delta_above(x[live], mu[live]), error_of_log_delta(x[live], mu[live])
        if not push.size:
            with np.errstate(divide="ignore", over="ignore"):
                push = (error + np.maximum(goal[live] - value, 0.0)) / -_slope(x[live], mu[live], value)
            push = np.maximum(np.fmin(push, x[live]), 2.0**-51 * (x[live] + mu[live]))
        bad = value - error / 2 < goal[live]
        live, push = live[bad], push[bad]
        x[live] = np.maximum(x[live] - push, 0.0)
        live, push = live[x[live] > 0], 2.0 * push[x[live] > 0]
    return x


def mu(epsilon: Any, delta: Any, *, rounding: str = "down") -> Any:
    """The mu whose Gaussian curve passes through (epsilon, delta).

    Parameters
    ----------
    epsilon : float or ndarray
        In nats, finite, at least 0.
    delta : float or ndarray
        In (0, 1); broadcast against `epsilon`.
    rounding : {"down", "up"}
        "down": a budget, the largest mu that still gives delta(epsilon, mu) <= delta.
        "up": a description, the smallest mu whose curve lies on or above the point,
        delta(epsilon, mu) >= delta.

    Returns
    -------
    float or ndarray
        inf for "up" if delta is within 2**-41 of 1: no computed value then proves that delta is reached.

    Raises
    ------
    ValueError
        For arguments outside their ranges.

    **Error**: directed as `rounding` says, below 1e-10 relative; more at a delta so close to 1 that a double holds few
    digits of 1 - delta.

    **Cost**: five to ten evaluations of `delta`.

    Examples
    --------
    >>> f"{mu(0.745138, 1e-5):.6f} {mu(0.0, 0.3829249225480262, rounding='up'):.6f}"
    '0.204939 1.000000'
    """
    if rounding not in ("down", "up"):
        raise ValueError(f'rounding must be "down" or "up", got {rounding!r}')
    (eps, dlt), shape = _prepare(epsilon=epsilon, delta=delta)
    _require((eps >= 0) & (eps < np.inf), "epsilon must be finite and at least 0")
    _require((dlt > 0) & (dlt < 1), "delta must lie in (0, 1)")
    out = np.full(eps.shape, np.inf)
    far = eps >= _FAR**2 / 2
    out[far] = _far_mu(eps[far], dlt[far], rounding)
    todo = ~far if rounding == "down" else ~far & (np.log(dlt) < -_NEAR_ONE)
    out[todo] = _near_mu(eps[todo], np.log(dlt[todo]), -1.0 if rounding == "down" else 1.0)
    return _shaped(out, shape)


def _near_mu(eps: np.ndarray, goal: np.ndarray, side: float) -> np.ndarray:
    """The root in mu of log delta = goal, rounded up for side = 1, down for side = -1."""
    x = _root_in_mu(eps, goal, *_bracket(eps, goal, side), side)
    push = 2.0**-51
    while True:
        bad = side * (log_delta_above(eps, x) - goal) < error_of_log_delta(eps, x) / 2
        if not bad.any():
            return x
        x[bad] *= 1 + side * push
        push *= 2


def _bracket(eps: np.ndarray, goal: np.ndarray, side: float) -> tuple[np.ndarray, np.ndarray]:
    """A mu below the root, by delta <= Phi(mu / 2 - eps / mu), and a mu above it, by doubling."""
    from scipy import special

    dlt = np.minimum(np.exp(goal), 1.0 - 2.0**-53)  # some libraries round the exponential of -2^-53 to 1
    z = -special.ndtri(dlt)
    root = np.hypot(z, np.sqrt(2 * eps))
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(z > 0, 2 * eps / (z + root), root - z)
    low = np.maximum(low, dlt) * (1 - 1e-9)  # delta(eps, mu) <= delta(0, mu) < mu / 2
    high = 2 * low
    while True:
        short = log_delta_above(eps, high) < goal + side * error_of_log_delta(eps, high)
        if not short.any():
            return low, high
        high[short] *= 2


def _root_in_mu(eps: np.ndarray, goal: np.ndarray, low: np.ndarray, high: np.ndarray, side: float) -> np.ndarray:
    """Newton's method in log mu inside a shrinking bracket; bisection if a step leaves the bracket."""
    x = np.sqrt(low) * np.sqrt(high)  # the product itself may underflow
    live = np.arange(x.size)
    for _ in range(_NEWTON_STEPS):
        e, m = eps[live], x[live]
        margin = error_of_log_delta(e, m)
        log_dlt = log_delta_above(e, m)
        value = log_dlt - goal[live] - side * margin
        moving = np.abs(value) > margin / 4
        live, e, m, value, log_dlt = (v[moving] for v in (live, e, m, value, log_dlt))
        if not live.size:
            break
        high[live] = np.where(value > 0, m, high[live])
        low[live] = np.where(value > 0, low[live], m)
        t1 = e / m - m / 2
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            slope = m * np.exp(-t1 * t1 / 2 - LOG_SQRT_TWO_PI - log_dlt)
            new = m * np.exp(-value / slope)
        inside = (new > low[live]) & (new < high[live])
        x[live] = np.where(inside, new, np.sqrt(low[live]) * np.sqrt(high[live]))
    return x
