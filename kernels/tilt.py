"""Choose, for every person, the tilt at which the inner product needs the fewest frequencies.

Legend
    i           person
    j, t        index into the ascending grid of tilts theta
    k[i, j]     log-moment K(theta_j) of person i, or an upper bound of it
    log_c[j]    log of c(theta) = theta^theta / (1 + theta)^(1 + theta)
    band[i]     the least frequency up to which the band must go
    error       relative error wanted for delta
    log_least   log of the smallest E_theta[g] that is accepted
    back        how many tilts below the saddle point are candidates
    at          the saddle point: the integrand M(z) e^(-z epsilon) / (z (1 + z)) is smallest there on the real axis; if
                epsilon is wanted, where the Renyi bound is smallest, unless the epsilon in `hint` has one far below
    choice      columns: tilt, helper tilt above, helper tilt below (-1: theta = 0), each an index
    need        columns: period P, frequency W, expected epsilon or log delta, epsilon or log delta by Renyi (Chernoff)

The last column of `need` is an upper bound if k is.  Every other result is only a choice: a poor choice costs time or a
failed certificate, never a wrong number.
"""

import math

import numpy as np

from ._jit import inline, jit


@inline
def _spreads(k, theta, spread):
    """Write the standard deviation of the tilted sum at each tilt, from second differences of K; NaN at the ends."""
    n = theta.size
    for j in range(theta.size):
        spread[j] = np.nan
    for j in range(1, n - 1):
        right = (k[j + 1] - k[j]) / (theta[j + 1] - theta[j])
        left = (k[j] - k[j - 1]) / (theta[j] - theta[j - 1])
        curvature = 2.0 * (right - left) / (theta[j + 1] - theta[j - 1])
        if curvature > 0.0:
            spread[j] = math.sqrt(curvature)


@inline
def _saddle_point(k, theta, log_c, target, wants_epsilon):
    """One person's Renyi bound, and the index of the saddle point; neither the first tilt nor the last."""
    best = least = np.inf
    at = -1
    for j in range(theta.size):
        # the last term bounds the round-off of the additions
        size = abs(k[j]) + abs(log_c[j])
        if wants_epsilon:
            value = (k[j] - target + log_c[j]) / theta[j]
            modulus = value
            value += 2.0**-50 * ((size + abs(target)) / theta[j] + abs(value))
        else:
            value = k[j] - theta[j] * target
            modulus = value - math.log(theta[j] * (1.0 + theta[j]))
            value += log_c[j] + 2.0**-50 * (size + theta[j] * abs(target))
        best = min(best, value)
        if modulus < least:
            least = modulus
            at = j
    return best, min(max(at, 1), theta.size - 2)


@inline
def _saddle_at(k, theta, epsilon):
    """The index of one person's saddle point at an epsilon; neither the first tilt nor the last."""
    least = np.inf
    at = 1
    for j in range(1, theta.size - 1):
        modulus = k[j] - theta[j] * epsilon - math.log(theta[j] * (1.0 + theta[j]))
        if modulus < least:
            least = modulus
            at = j
    return at


@inline
def _periods(excess, theta, j, log_floor, helpers):
    """The smallest period at which both aliasing terms stay below exp(log_floor); helpers = tilts that prove it.

    excess[t] = K(t) - t epsilon + log c(t) - log_floor.
    """
    above = np.inf
    helpers[0] = -1
    for t in range(j + 1, theta.size):
        p = excess[t] / (theta[t] - theta[j])
        if p < above:
            above = p
            helpers[0] = t
    below = -log_floor / theta[j]
    helpers[1] = -1
    for t in range(j):
        p = excess[t] / (theta[j] - theta[t])
        if p < below:
            below = p
            helpers[1] = t
    return max(above, below)


@jit(
    "void(f8[:, ::1], f8[::1], f8[::1], f8[::1], f8[::1], b1, f8[::1], f8, f8, i8, i8[:, ::1], f8[:, ::1])",
    interpreted=2,
)
def choose_tilts(k, theta, log_c, target, hint, wants_epsilon, band, error, log_least, back, choice, need):
    """Fill choice and need.

    target[i] = log delta if epsilon is wanted (wants_epsilon), else epsilon; hint[i] = the approximate answer, or NaN
    if it is not known.  choice[i, 0] = -1: no tilt is suitable.
    """
    spread = np.empty(theta.size)
    excess = np.empty(theta.size)
    helpers = np.empty(2, dtype=np.int64)
    for i in range(k.shape[0]):
        _spreads(k[i], theta, spread)
        best, at = _saddle_point(k[i], theta, log_c, target[i], wants_epsilon)
        need[i, 3] = best
        choice[i, 0] = -1
        # A hint above the Renyi bound comes from cancellation and is ignored.
        known = hint[i] if hint[i] <= best and not (wants_epsilon and hint[i] <= 0.0) else np.nan
        if wants_epsilon and not math.isnan(known):
            # the Renyi bound of an epsilon near the largest loss is smallest at a tilt that says nothing of it
            near = _saddle_at(k[i], theta, known)
            if near < at - back:
                at = near
        s = spread[at]
        if not s > 0.0:
            continue
        # E_theta[g] at the saddle point: a normal density of standard deviation s against g, mass 1/(theta (1+theta)).
        log_expectation = -math.log(2.0 + 2.5066 * s * theta[at] * (1.0 + theta[at]))
        if wants_epsilon:
            log_delta = target[i]
            epsilon = (k[i, at] - log_delta + log_expectation) / theta[at]
            if not math.isnan(known):
                epsilon = known
            need[i, 2] = epsilon
        else:
            epsilon = target[i]
            log_delta = k[i, at] - theta[at] * epsilon + log_expectation
            if not math.isnan(known):
                log_delta = known
            need[i, 2] = log_delta
        log_floor = log_delta + math.log(0.25 * error)
        for t in range(theta.size):
            excess[t] = k[i, t] - theta[t] * epsilon + log_c[t] - log_floor
        cheapest = np.inf
        largest = -np.inf
        narrow = np.inf
        for j in range(max(1, at - back), min(at + 2, theta.size - 1)):
            if not spread[j] > 0.0:
                continue
            narrow = min(narrow, spread[j])
            expectation = log_delta - k[i, j] + theta[j] * epsilon
            if j > at and math.isnan(known):
                expectation = min(expectation, log_expectation)
            # If no tilt reaches the smallest accepted expectation, the nearest tilt is tried.
            if expectation < log_least and (cheapest < np.inf or expectation <= largest):
                continue
            period = _periods(excess, theta, j, log_floor, helpers)
            reach = max(-math.log(error) - min(expectation, 0.0), 1.0)
            width = max(math.sqrt(reach / 0.45) / narrow, band[i])
            if expectation < log_least or period * width < cheapest:
                if expectation < log_least:
                    largest = expectation
                else:
                    cheapest = period * width
                choice[i, 0] = j
                choice[i, 1] = helpers[0]
                choice[i, 2] = helpers[1]
                need[i, 0] = period
                need[i, 1] = width
