"""The smallest noise, most steps or largest sample rate that keep a target: of any mechanisms, or of sampled Gaussians.

Epsilon falls with the noise and rises with steps and sample rate, so a search narrows a bracket.  At the end
returned the certified upper bound keeps the target; at the other end of the bracket it exceeds the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import validate
from .composition import Composition, compose
from .mechanisms.base import Mechanism
from .mechanisms.sampled_gaussian import SampledGaussian

__all__ = ["calibrate", "calibrate_noise_multiplier", "calibrate_sample_rate", "calibrate_steps"]

_TOLERANCE = 1e-6  # relative width of the last bracket
_LEAST_NOISE, _MOST_NOISE = 0.02, 1e8
_MOST_STEPS = 2**32 - 1  # the most steps of a ledger


@dataclass(frozen=True)
class _End:
    """A place and log(epsilon / target) there, which is at most 0 if the target is kept."""

    place: float
    value: float

    @property
    def keeps(self) -> bool:
        """Whether the target is kept."""
        return self.value <= 0


def calibrate(
    make: Callable[[Any], Any],
    target_epsilon: float,
    delta: float,
    *,
    between: tuple[float, float],
    whole: bool = False,
    direction: str = "both",
) -> float:
    """The last value of a parameter between two ends that keeps epsilon(delta) <= target_epsilon, for any mechanisms.

    Parameters
    ----------
    make : callable
        Gives, for a value of the parameter, what is run: a mechanism (one step of it), a list of (mechanism, count) as
        for `compose`, or a `Composition`.  The parameter is anything in one direction of which epsilon rises: noise,
        a scale, steps, a rate, the epsilon of a black box, a group size.
    target_epsilon : float
        At least 0, in nats.  At 0, the target is delta(0) <= delta, the advantage of an attacker.
    delta : float
        In [0, 1); at 0, the target is the largest loss.
    between : (float, float)
        Both above 0, the smaller first.  One of the two must keep the target and the other not.
    whole : bool
        Whether the parameter is a whole number.
    direction : {"both", "remove", "add"}

    Returns
    -------
    float
        An int if `whole`.  The upper bound of epsilon was computed there, and is at most the target, whatever `make`
        does elsewhere.  A value nearer to the other end by a relative 1e-6, or by 1 if `whole`, was computed and is
        not proven to keep it.

    Raises
    ------
    ValueError
        If an argument is out of its range, if neither end keeps the target, or if both do; the message says what is
        reached at the ends.

    **Cost**: about ten to twenty evaluations of `Composition.epsilon`.

    Examples
    --------
    >>> from pld_accountant.mechanisms.laplace import Laplace
    >>> scale = calibrate(lambda b: [(Laplace(b), 20)], 1.0, 1e-6, between=(1.0, 1000.0))
    >>> compose([(Laplace(scale), 20)]).epsilon(1e-6).upper <= 1.0
    True
    """
    target = validate.nonnegative(target_epsilon, "target_epsilon")
    dlt = 0.0 if _is_zero(delta) else validate.delta(delta)
    if target == 0.0 and dlt == 0.0:
        raise ValueError("target_epsilon and delta must not both be 0: only what uses no data keeps this target")
    try:
        first, last = (validate.positive(value, "between") for value in between)
    except TypeError:
        raise ValueError(f"between must be two numbers, got {between!r}") from None
    if not first < last:
        raise ValueError(f"between must be two numbers, the smaller first, got {between!r}")
    if whole:
        first, last = (validate.count(value, "between", least=1) for value in between)

    def at(place: float) -> _End:
        run = _composed(make(int(place) if whole else place))
        if target == 0.0:
            return _End(place, _excess(run.delta(0.0, direction).upper, dlt))
        return _End(place, _excess(run.epsilon(dlt, direction).upper, target))

    low, high = at(first), at(last)
    if low.keeps == high.keeps:
        what = f"epsilon={target:g} at delta={dlt:g}"
        reached = f"the ends reach {_reached(low)} and {_reached(high)} of it"
        if low.keeps:
            raise ValueError(f"every value tried between {first:g} and {last:g} keeps {what}: {reached}")
        raise ValueError(f"neither {first:g} nor {last:g} keeps {what}: {reached}; move the ends of between")
    place = _last_good(at, low, high, whole=whole)
    return int(place) if whole else place


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 0


def _composed(run: Any) -> Composition:
    if isinstance(run, Composition):
        return run
    return compose([(run, 1)] if isinstance(run, Mechanism) else run)


def _reached(end: _End) -> str:
    """The upper bound at one end as a multiple of the target, in words."""
    if not math.isfinite(end.value):
        return "none" if end.value < 0 else "infinitely much"
    return f"{math.exp(min(end.value, 700.0)):.4g} times"


def calibrate_noise_multiplier(
    target_epsilon: float, delta: float, sample_rate: float, steps: int, *, direction: str = "both"
) -> float:
    """The smallest noise multiplier with epsilon(delta) <= target_epsilon for a person clipped at every step.

    Parameters
    ----------
    target_epsilon : float
        Above 0, in nats.
    delta, sample_rate : float
        In (0, 1) and (0, 1].
    steps : int
        At least 1.
    direction : {"both", "remove", "add"}

    Returns
    -------
    float
        With it, the upper bound of `Composition.epsilon` is at most the target.  With a noise multiplier that is
        smaller by a relative 1e-6, the upper bound exceeds the target.

    Raises
    ------
    ValueError
        If an argument is out of its range, or if the answer lies outside of 0.02 to 1e8.

    **Cost**: about ten evaluations of `Composition.epsilon`; at small rates, few steps take seconds each.

    Examples
    --------
    >>> round(calibrate_noise_multiplier(1.0, 1e-5, 0.005, 10_000), 4)
    2.0066
    """
    target, asked = _asked(target_epsilon, delta, direction)
    rate, number = validate.sample_rate(sample_rate), validate.count(steps, "steps", least=1)

    def at(sigma: float) -> _End:
        return _End(sigma, asked(sigma, rate, number))

    def further(end: _End) -> float:
        if end.place in (_LEAST_NOISE, _MOST_NOISE):
            side = f"below {_LEAST_NOISE:g} keeps" if end.keeps else f"up to {_MOST_NOISE:g} keeps"
            word = "even a noise multiplier" if end.keeps else "no noise multiplier"
            raise ValueError(f"{word} {side} target_epsilon={target:g} at delta={delta:g}")
        return max(end.place / 2, _LEAST_NOISE) if end.keeps else min(end.place * 2, _MOST_NOISE)

    return _last_good(at, *_bracket(at, 1.0, further))


def calibrate_steps(
    target_epsilon: float, delta: float, noise_multiplier: float, sample_rate: float, *, direction: str = "both"
) -> int:
    """The largest number of steps with epsilon(delta) <= target_epsilon; otherwise as `calibrate_noise_multiplier`.

    Raises
    ------
    ValueError
        If an argument is out of its range, a single step exceeds the target, or 2^32 - 1 steps keep it.

    Examples
    --------
    >>> calibrate_steps(1.0, 1e-5, 2.0, 0.005)
    9924
    """
    target, asked = _asked(target_epsilon, delta, direction)
    sigma, rate = validate.noise_multiplier(noise_multiplier), validate.sample_rate(sample_rate)

    def at(number: float) -> _End:
        return _End(number, asked(sigma, rate, int(number)))

    def further(end: _End) -> float:
        if end.place == 1 and not end.keeps:
            raise ValueError(f"a single step exceeds target_epsilon={target:g} at delta={delta:g}")
        if end.place == _MOST_STEPS and end.keeps:
            raise ValueError(f"even {_MOST_STEPS} steps keep target_epsilon={target:g} at delta={delta:g}")
        return min(end.place * 4, _MOST_STEPS) if end.keeps else max(end.place // 4, 1)

    return int(_last_good(at, *_bracket(at, 256, further), whole=True))


def calibrate_sample_rate(
    target_epsilon: float, delta: float, noise_multiplier: float, steps: int, *, direction: str = "both"
) -> float:
    """The largest sample rate with epsilon(delta) <= target_epsilon, at most 1; otherwise as
    `calibrate_noise_multiplier`.

    A solution always exists: if a person is sampled with total probability at most delta, epsilon is 0.

    Examples
    --------
    >>> round(calibrate_sample_rate(1.0, 1e-5, 2.0, 10_000), 6)
    0.004981
    """
    _, asked = _asked(target_epsilon, delta, direction)
    sigma, number = validate.noise_multiplier(noise_multiplier), validate.count(steps, "steps", least=1)

    def at(rate: float) -> _End:
        return _End(rate, asked(sigma, rate, number))

    if at(1.0).keeps:
        return 1.0
    return _last_good(at, *_bracket(at, 1.0, lambda end: 0.01 if end.place == 1.0 else end.place / 4))


def _asked(target_epsilon: float, delta: float, direction: str) -> tuple[float, Callable[[float, float, int], float]]:
    """The checked target, and the function whose value is log(upper bound of epsilon / target)."""
    target, delta = validate.positive(target_epsilon, "target_epsilon"), validate.delta(delta)

    def asked(sigma: float, rate: float, steps: int) -> float:
        return _excess(compose([(SampledGaussian(sigma, rate), steps)]).epsilon(delta, direction).upper, target)

    return target, asked


def _excess(upper: float, target: float) -> float:
    """log(upper / target); its sign comes from the comparison, because the logarithms are rounded."""
    if upper == target:
        return 0.0
    size = abs(math.log(upper) - math.log(target)) if 0 < upper < math.inf else math.inf
    return max(size, 1e-300) if upper > target else -size


def _bracket(at: Callable[[float], _End], first: float, further: Callable[[_End], float]) -> tuple[_End, _End]:
    """Neighbouring places of which exactly one keeps the target; `further` gives the next place, or raises."""
    end = at(first)
    while True:
        following = at(further(end))
        if following.keeps != end.keeps:
            return end, following
        end = following


def _last_good(at: Callable[[float], _End], one: _End, other: _End, *, whole: bool = False) -> float:
    """The end of the bracket that keeps the target, once the two ends are within the tolerance.

    The method is regula falsi in logarithms with the Illinois correction for an end that does not move.  Every point
    is at least a small step away from both ends: if one end is at the root, the next point lies just across.  If two
    points do not halve the bracket, or a value is infinite, the next point is the middle.
    """
    good, bad = (one, other) if one.keeps else (other, one)
    weight = {True: 1.0, False: 1.0}
    widths = [math.inf, math.inf]
    last: bool | None = None
    while not _near(good.place, bad.place, whole):
        low, high = sorted((good.place, bad.place))
        widths.append(math.log(high / low))
        share = 0.5
        if math.isfinite(good.value) and math.isfinite(bad.value) and widths[-1] <= 0.5 * widths[-3]:
            below, above = -good.value * weight[True], bad.value * weight[False]
            share = below / (below + above)
        place = good.place * (bad.place / good.place) ** share
        step = 1.0 if whole else 0.4 * _TOLERANCE * low
        place = min(max(round(place) if whole else place, low + step), high - step)
        new = at(place)
        good, bad = (new, bad) if new.keeps else (good, new)
        weight = {new.keeps: 1.0, (not new.keeps): 0.5 * weight[not new.keeps] if new.keeps is last else 1.0}
        last = new.keeps
    return good.place


def _near(one: float, other: float, whole: bool) -> bool:
    gap = abs(one - other)
    return gap <= 1 if whole else gap <= _TOLERANCE * min(one, other)
