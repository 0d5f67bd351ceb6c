"""How moments M(A) = E[g^A] of a step, sums of complex exponentials, move around one complex A.

Legend
    a       complex exponent A of g (`mechanisms.complex_moments`)
    loss    (n,) complex: log g at the nodes of paths in the complex plane
    weight  (n,) complex: density times the rule's weight at the nodes
    v       (corners,) complex: corners of a polygon around 0
    first   M is the sum of weight exp(a loss) over the nodes from here on
    last    M_mid is the sum over the nodes before this one;  first <= last
"""

import math

from ._jit import jit

_SMALL = -60.0  # log of a term that is bounded instead of added up, relative to the largest term
_UNIT = 2.0**-53


@jit("void(c16, c16[::1], c16, c16[::1], c16[::1], f8[::1], i8, i8, f8[::1])")
def around(a, v, constant, loss, weight, log_weight, first, last, out):
    """Bound M(a + d) and M_mid(a + d) for all d in the polygon with the corners v around 0.

    log_weight (n,): log |weight|.  M = constant + sum of weight exp(a loss); the constant is a node of loss 0.
    Let M(a) and m be the computed sum and its computed logarithmic derivative, and p = weight exp(a loss) / M(a).  Then
    sum of p = 1 + s and sum of p (loss - m) = t, both s and t only round-off and what was left out of the sums, and

        M(a + d) = M(a) exp(d m) (1 + s + d t + sum of p (exp(d (loss - m)) - 1 - d (loss - m))).

    1. |exp(u) - 1 - u| <= |u|^2 / 2 max(1, exp(Re u)).  Re d (loss - m) is linear in d, so its maximum is at a corner.
    2. The sum of |p| exp(Re d (loss - m)) is convex in d, so its maximum is at a corner, too, and bounds the same
       factor.
    3. A term is wrong by n + 16 + 4 |a loss| units of 2^-53.  Terms that are left out are smaller than a unit of the
       largest one, all together.

    Writes log |M(a)|, Re m, Im m, a bound of |M(a + d) / (M(a) exp(d m))|, and one of |M_mid(a + d) / (M(a) exp(d m))|.
    """
    n = loss.size
    log_constant = math.log(abs(constant)) if abs(constant) > 0.0 else -math.inf
    top = log_constant
    for j in range(first, n):
        top = max(top, (a * loss[j]).real + log_weight[j])
    total, slope = constant * math.exp(-top), complex(0.0, 0.0)
    for j in range(first, n):
        exponent = a * loss[j]
        log_size = exponent.real + log_weight[j] - top
        if log_size > _SMALL:
            turned = weight[j] * complex(math.cos(exponent.imag), math.sin(exponent.imag))
            term = math.exp(log_size) / abs(weight[j]) * turned
            total += term
            slope += term * loss[j]
    if not abs(total) > 0.0:
        out[:] = math.inf
        return
    m = slope / total
    log_total = top + math.log(abs(total))
    out[0], out[1], out[2] = log_total, m.real, m.imag
    # the constant
    log_p, units = log_constant - log_total, (n + 16.0) * _UNIT
    p = math.exp(log_p)
    reach, grown = 0.0, 0.0
    straight, mid = [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]
    for k in range(4):
        reach = max(reach, abs(v[k]))
        grown = max(grown, -(v[k] * m).real)
        straight[k] = math.exp(log_p - (v[k] * m).real)
    moved = abs(m) ** 2 * math.exp(log_p + grown)
    off, turned_off = units * p, units * p * abs(m)
    for j in range(n):
        if log_weight[j] == -math.inf:
            continue
        d = loss[j] - m
        exponent = a * loss[j]
        log_p = exponent.real + log_weight[j] - log_total
        p = math.exp(log_p)
        most = p
        for k in range(4):
            e = math.exp(log_p + (v[k] * d).real)
            most = max(most, e)
            if j >= first:
                straight[k] += e
            if j < last:
                mid[k] += e
        if j >= first:
            moved += (d.real * d.real + d.imag * d.imag) * most
            share = p * (units + 4.0 * _UNIT * abs(exponent))
            off += share
            turned_off += share * (abs(loss[j]) + abs(m))
    bent = 1.0 + off + reach * turned_off + 0.5 * reach * reach * moved
    out[3] = min(bent, max(straight[0], straight[1], straight[2], straight[3]))
    out[4] = max(mid[0], mid[1], mid[2], mid[3])
