"""Sums of complex exponentials: moments M(A) = E[g^A] of a step at complex A, and how they move around one A.

Legend
    a       complex exponent A of g (`mechanisms.complex_moments`)
    loss    (n,) complex: log g at the nodes of paths in the complex plane
    bent    (n,) complex: g - 1 - log g at the nodes
    weight  (n,) complex: density times the rule's weight at the nodes
    units   (4, n): round-off of a loss with its product a loss over |a|, and of `weight` relative to itself, in units
            of 2^-53; |weight|; round-off of `bent`, in these units
    v       (corners,) complex: corners of a polygon around 0
    first   M is the sum of weight exp(a loss) over the nodes from here on
    last    M_mid is the sum over the nodes before this one;  first <= last
"""

import math

from ._jit import inline, jit

_BLOCK = 16  # terms in one block of a sum
_SMALL = -60.0  # log of a term that is bounded instead of added up, relative to its weight or to the largest term
_UNIT = 2.0**-53
_SERIES = 0.06  # exponents up to which a power series serves
_DOUBLINGS = 5  # times that a small exponent is doubled
_DOUBLED = _SERIES * 2.0**_DOUBLINGS  # exponents up to which that serves


@inline
def _second(u):
    """exp(u) - 1 - u of a small u: eight terms, of which the processor adds up several at a time."""
    square = u * u
    fourth = square * square
    low = (1.0 / 2.0 + u * (1.0 / 6.0)) + square * (1.0 / 24.0 + u * (1.0 / 120.0))
    high = (1.0 / 720.0 + u * (1.0 / 5040.0)) + square * (1.0 / 40320.0 + u * (1.0 / 362880.0))
    return square * (low + fourth * high)


@inline
def _doubled(u):
    """exp(u) - 1 - u from that of u / 32: with s that of v, that of 2 v is 2 s + (v + s)^2, whose terms do not cancel.

    A doubling lowers the relative error of s and adds about 4 units of 2^-53.
    """
    v = u * 2.0**-_DOUBLINGS
    s = _second(v)
    for _ in range(_DOUBLINGS):
        s, v = 2.0 * s + (v + s) * (v + s), 2.0 * v
    return s


@jit("void(c16[::1], c16[::1], c16[::1], c16[::1], f8[:, ::1], i8, i8, c16[:, ::1], f8[:, ::1])")
def sums(a, loss, bent, weight, units, first, last, total, error):
    """Write sums for M and for M_mid at each exponent, and their round-off in units of 2^-53.

    total[0] is the sum of weight (exp(a loss) - 1 - a (g - 1)) over M's nodes, of terms of second order in small
    losses: with u = a loss each is weight ((exp(u) - 1 - u) - a bent).  total[1] is that of weight exp(u) over M_mid's.

    1. A loss is wrong by units[0], which exp(u) - 1 - u passes on, times |a (exp(u) - 1)|; and a bent by |a| units[3].
    2. A term costs 24 units, the weight its own, and the sums in blocks of blocks 2 x 16 + n / 256.  Where it is a
       difference of exp(u), 1 and u, 8 units of all three.
    3. A term exp(u) below exp(-60) is left out, which costs less than a unit.
    """
    n = loss.size
    chain = 2.0 * _BLOCK + n / (_BLOCK * _BLOCK) + 24.0
    for i in range(a.size):
        of_a = abs(a[i])
        whole, mid = complex(0.0, 0.0), complex(0.0, 0.0)
        of_whole, of_mid = 0.0, 0.0
        block, block_mid = complex(0.0, 0.0), complex(0.0, 0.0)
        for start in range(0, n, _BLOCK):
            part, part_mid = complex(0.0, 0.0), complex(0.0, 0.0)
            for j in range(start, min(start + _BLOCK, n)):
                u = a[i] * loss[j]
                share = units[2, j]
                own = units[1, j] + chain
                of_u = abs(u.real) + abs(u.imag)
                if of_u <= _DOUBLED:
                    second = _second(u) if of_u <= _SERIES else _doubled(u)
                    less = u + second
                    term, size = 1.0 + less, 1.0 + abs(less.real) + abs(less.imag)
                else:
                    term, size = complex(0.0, 0.0), 2.0**-33
                    if u.real >= _SMALL:
                        size = math.exp(u.real)
                        term = complex(size * math.cos(u.imag), size * math.sin(u.imag))
                    less = term - 1.0
                    second = less - u
                if j >= first:
                    linear = a[i] * bent[j]
                    part += weight[j] * (second - linear)
                    of_less = abs(less.real) + abs(less.imag)
                    moved = (abs(second.real) + abs(second.imag) + abs(linear.real) + abs(linear.imag)) * own
                    if of_u > _DOUBLED:
                        moved += 8.0 * (size + 1.0 + of_u)
                    of_whole += share * (moved + of_a * (of_less * units[0, j] + units[3, j]))
                if j < last:
                    part_mid += weight[j] * term
                    of_mid += share * size * (of_a * units[0, j] + own)
            block += part
            block_mid += part_mid
            if start // _BLOCK % _BLOCK == _BLOCK - 1:
                whole += block
                mid += block_mid
                block, block_mid = complex(0.0, 0.0), complex(0.0, 0.0)
        total[0, i], total[1, i] = whole + block, mid + block_mid
        error[0, i], error[1, i] = of_whole, of_mid


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
