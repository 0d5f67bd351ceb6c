"""The smallest noise, most steps or largest sample rate that keep a target, of any mechanisms and of groups.

Epsilon, and the success of an attack, fall with the noise and rise with steps and sample rate, so a search narrows a
bracket.  At the end returned the certified upper bound keeps the target; at the other end of the bracket it exceeds the
target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from . import deadline, validate
from .composition import Composition, compose
from .mechanisms.base import Enclosed, Mechanism
from .mechanisms.renyi_boxes import RenyiBox
from .mechanisms.sampled_gaussian import SampledGaussian

__all__ = [
    "GroupClippingNorms",
    "GroupSampleRates",
    "calibrate",
    "calibrate_attack_success",
    "calibrate_group_clipping_norms",
    "calibrate_group_sample_rates",
    "calibrate_noise_multiplier",
    "calibrate_sample_rate",
    "calibrate_steps",
]

_TOLERANCE = 1e-6  # relative width of the last bracket
_ROUGH = 1e-3  # relative width of the bounds that are tried first
_SHARE = 0.125  # of the time that is left, for one evaluation
_LEAST_NOISE, _MOST_NOISE = 0.02, 1e8
_MOST_STEPS = 2**32 - 1  # the most steps of a ledger


@dataclass(frozen=True)
class _End:
    """A place and log(reached / target) there, which is at most 0 if the target is kept."""

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
    seconds: float | None = None,
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
    seconds : float, optional
        A limit of time, above 0.  When it is over, the answer is the end of the bracket that keeps the target.

    Returns
    -------
    float
        An int if `whole`.  The upper bound of epsilon was computed there, and is at most the target, whatever `make`
        does elsewhere.  A value nearer to the other end by a relative 1e-6, or by 1 if `whole`, was computed and is
        not proven to keep it, unless the time was over.

    Raises
    ------
    ValueError
        If an argument is out of its range, if neither end keeps the target, or if both do; the message says what is
        reached at the ends.
    TimeoutError
        If `seconds` are over before a value is proven to keep the target.

    **Cost**: about ten to twenty evaluations of `Composition.epsilon`.

    Examples
    --------
    >>> from pld_accountant.mechanisms.laplace import Laplace
    >>> scale = calibrate(lambda b: [(Laplace(b), 20)], 1.0, 1e-6, between=(1.0, 1000.0))
    >>> compose([(Laplace(scale), 20)]).epsilon(1e-6).upper <= 1.0
    True
    """
    target = validate.nonnegative(target_epsilon, "target_epsilon")
    dlt = _delta_or_zero(delta)
    if target == 0.0 and dlt == 0.0:
        raise ValueError("target_epsilon and delta must not both be 0: only what uses no data keeps this target")

    def excess(run: Composition) -> float:
        return _excess_of(run, target, dlt, direction)

    return _calibrated(make, excess, f"epsilon={target:.15g} at delta={dlt:.15g}", between, whole, seconds)


def calibrate_attack_success(
    make: Callable[[Any], Any],
    target_rate: float,
    false_positive_rate: float,
    *,
    between: tuple[float, float],
    whole: bool = False,
    direction: str = "both",
    seconds: float | None = None,
) -> float:
    """The last value of a parameter that keeps attack_success(false_positive_rate) <= target_rate; see `calibrate`.

    No test that accuses innocent records at the given rate then detects a record more often than at the target rate.
    For a target of the advantage, call `calibrate` with target_epsilon 0.

    Parameters
    ----------
    make, between, whole, direction, seconds
        As for `calibrate`.
    target_rate : float
        The rate of true positives, in (false_positive_rate, 1).
    false_positive_rate : float
        Above 0.

    Returns
    -------
    float
        An int if `whole`.  The upper bound of `Composition.attack_success` is at most the target there.

    Raises
    ------
    ValueError, TimeoutError
        As for `calibrate`.

    **Cost**: about ten to twenty evaluations of `Composition.attack_success`.

    References
    ----------
    Kulynych, Gomez, Kaissis, Calmon and Troncoso (2024), "Attack-aware noise calibration for differential privacy".

    Examples
    --------
    >>> noise = calibrate_attack_success(lambda s: [(SampledGaussian(s, 0.01), 1000)], 0.05, 0.01, between=(0.5, 50.0))
    >>> round(noise, 2)
    0.78
    """
    least = validate.delta(false_positive_rate, "false_positive_rate")
    target = validate.delta(target_rate, "target_rate")
    if target <= least:
        raise ValueError("target_rate must exceed false_positive_rate, which a test that uses no data reaches")

    def excess(run: Composition) -> float:
        return _excess(float(run.attack_success(least, direction, seconds=_part()).upper), target)

    what = f"attack_success={target:.15g} at false_positive_rate={least:.15g}"
    return _calibrated(make, excess, what, between, whole, seconds)


def _calibrated(
    make: Callable[[Any], Any],
    excess: Callable[[Composition], float],
    what: str,
    between: tuple[float, float],
    whole: bool,
    seconds: float | None,
) -> float:
    """See `calibrate`; `excess` is the value of an `_End`, and `what` the target in words."""
    validate.function(make, "make")
    try:
        first, last = between
    except (TypeError, ValueError):
        raise ValueError(f"between must be two numbers, got {between!r}") from None
    first, last = validate.positive(first, "between"), validate.positive(last, "between")
    if not first < last:
        raise ValueError(f"between must be two numbers, the smaller first, got {between!r}")
    if validate.flag(whole, "whole"):
        first, last = (validate.count(value, "between", least=1) for value in between)

    def at(place: float) -> _End:
        try:
            run = _composed(make(int(place) if whole else place))
        except ValueError as error:
            if place in (first, last):
                raise ValueError(f"make({place:g}), at an end of between, is refused: {error}") from error
            raise
        return _End(place, excess(run))

    with deadline.limited(seconds):
        low, high = at(first), at(last)
        if low.keeps == high.keeps:
            reached = f"the ends reach {_reached(low)} and {_reached(high)} of it"
            if low.keeps:
                raise ValueError(f"every value tried between {first:g} and {last:g} keeps {what}: {reached}")
            if deadline.left() <= 0.0:
                raise _too_late(what)
            raise ValueError(
                f"neither {first:g} nor {last:g} is proven to keep {what}: {reached}; move the ends of between"
            )
        place = _last_good(at, low, high, whole=whole)
    return int(place) if whole else place


def _delta_or_zero(value: Any) -> float:
    """A delta in (0, 1), or 0."""
    return validate.nonnegative(value, "delta") and validate.delta(value)


def _composed(run: Any) -> Composition:
    if isinstance(run, Composition):
        return run
    return compose([(run, 1)] if isinstance(run, (Mechanism, Enclosed, RenyiBox)) else run)


def _reached(end: _End) -> str:
    """The upper bound at one end as a multiple of the target, in words."""
    if not math.isfinite(end.value):
        return "none" if end.value < 0 else "infinitely much"
    return f"{math.exp(min(end.value, 700.0)):.4g} times"


def calibrate_noise_multiplier(
    target_epsilon: float,
    delta: float,
    sample_rate: float,
    steps: int,
    *,
    direction: str = "both",
    seconds: float | None = None,
) -> float:
    """The smallest noise multiplier with epsilon(delta) <= target_epsilon for a person clipped at every step.

    Parameters
    ----------
    target_epsilon : float
        At least 0, in nats.  At 0, delta bounds the advantage of every attack, `Composition.advantage`.
    delta, sample_rate : float
        In (0, 1) and (0, 1].
    steps : int
        At least 1.
    direction : {"both", "remove", "add"}
    seconds : float, optional
        A limit of time, above 0.  When it is over, the answer is the smallest noise multiplier that was tried and found
        to keep the target.

    Returns
    -------
    float
        With it, the upper bound of `Composition.epsilon` is at most the target.  With a noise multiplier that is
        smaller by a relative 1e-6, the upper bound exceeds the target, unless the time was over.

    Raises
    ------
    ValueError
        If an argument is out of its range, or if the answer lies outside of 0.02 to 1e8.
    TimeoutError
        If `seconds` are over before any noise multiplier is proven to keep the target.

    **Cost**: about ten evaluations of `Composition.epsilon`, of some milliseconds each; far beyond usual parameters (an
    epsilon of 1e5, a delta of 1e-100) of ten seconds each.

    Examples
    --------
    >>> round(calibrate_noise_multiplier(1.0, 1e-5, 0.005, 10_000), 4)
    2.0066
    """
    asked, what = _asked(target_epsilon, delta, direction)
    rate, number = validate.sample_rate(sample_rate), validate.count(steps, "steps", least=1)

    def at(sigma: float) -> _End:
        return _End(sigma, asked(sigma, rate, number))

    def further(end: _End) -> float:
        if end.place in (_LEAST_NOISE, _MOST_NOISE):
            if end.keeps:
                raise ValueError(f"even a noise multiplier below {_LEAST_NOISE:g} keeps {what}")
            raise ValueError(f"no noise multiplier up to {_MOST_NOISE:g} is proven to keep {what}")
        return max(end.place / 2, _LEAST_NOISE) if end.keeps else min(end.place * 2, _MOST_NOISE)

    with deadline.limited(seconds):
        return _last_good(at, *_bracket(at, at(1.0), further, what))


def calibrate_steps(
    target_epsilon: float,
    delta: float,
    noise_multiplier: float,
    sample_rate: float,
    *,
    direction: str = "both",
    seconds: float | None = None,
) -> int:
    """The largest number of steps with epsilon(delta) <= target_epsilon; otherwise as `calibrate_noise_multiplier`.

    Raises
    ------
    ValueError
        If an argument is out of its range, a single step is not proven to keep the target, or 2^32 - 1 steps keep it.

    Examples
    --------
    >>> calibrate_steps(1.0, 1e-5, 2.0, 0.005)
    9924
    """
    asked, what = _asked(target_epsilon, delta, direction)
    sigma, rate = validate.noise_multiplier(noise_multiplier), validate.sample_rate(sample_rate)

    def at(number: float) -> _End:
        return _End(number, asked(sigma, rate, int(number)))

    def further(end: _End) -> float:
        if end.place == 1 and not end.keeps:
            raise ValueError(f"not even a single step is proven to keep {what}")
        if end.place == _MOST_STEPS and end.keeps:
            raise ValueError(f"even {_MOST_STEPS} steps keep {what}")
        return min(end.place * 4, _MOST_STEPS) if end.keeps else max(end.place // 4, 1)

    with deadline.limited(seconds):
        return int(_last_good(at, *_bracket(at, at(256), further, what), whole=True))


def calibrate_sample_rate(
    target_epsilon: float,
    delta: float,
    noise_multiplier: float,
    steps: int,
    *,
    direction: str = "both",
    seconds: float | None = None,
) -> float:
    """The largest sample rate with epsilon(delta) <= target_epsilon, at most 1; otherwise as
    `calibrate_noise_multiplier`.

    A solution always exists: if a person is sampled with total probability at most delta, epsilon is 0.

    Examples
    --------
    >>> round(calibrate_sample_rate(1.0, 1e-5, 2.0, 10_000), 6)
    0.004981
    """
    asked, what = _asked(target_epsilon, delta, direction)
    sigma, number = validate.noise_multiplier(noise_multiplier), validate.count(steps, "steps", least=1)

    def at(rate: float) -> _End:
        return _End(rate, asked(sigma, rate, number))

    def further(end: _End) -> float:
        return 0.01 if end.place == 1.0 else end.place / 4

    with deadline.limited(seconds):
        full = at(1.0)
        return 1.0 if full.keeps else _last_good(at, *_bracket(at, full, further, what))


def _asked(target_epsilon: float, delta: float, direction: str) -> tuple[Callable[[float, float, int], float], str]:
    """`_excess_of` steps, and the target in words."""
    target, delta = validate.nonnegative(target_epsilon, "target_epsilon"), validate.delta(delta)

    def asked(sigma: float, rate: float, steps: int) -> float:
        return _excess_of(compose([(SampledGaussian(sigma, rate), steps)]), target, delta, direction)

    return asked, f"target_epsilon={target:.15g} at delta={delta:.15g}"


def _excess_of(run: Composition, target: float, delta: float, direction: str) -> float:
    """log(upper bound of epsilon / target), or, of a target of 0, log(upper bound of delta(0) / delta)."""
    if target == 0.0:
        return _excess(float(run.delta(0.0, direction, seconds=_part()).upper), delta)
    return _excess(_upper_epsilon(run, delta, direction, target), target)


def _upper_epsilon(run: Composition, delta: float, direction: str, target: float) -> float:
    """An upper bound, no closer than it takes to tell whether epsilon keeps the target."""
    rough = run.epsilon(delta, direction, seconds=_part(), tolerance=_ROUGH)
    decided = rough.upper <= target or rough.lower > target
    # if even this width is out of reach, a second question has the same answer
    if decided or rough.upper - rough.lower > _ROUGH * rough.upper:
        return float(rough.upper)
    return float(run.epsilon(delta, direction, seconds=_part()).upper)


def _part() -> float | None:
    """Seconds for one evaluation."""
    left = deadline.left()
    return max(_SHARE * left, 1e-3) if left < math.inf else None


def _too_late(what: str) -> TimeoutError:
    return TimeoutError(f"nothing was proven to keep {what} in the time allowed: allow more seconds")


def _excess(upper: float, target: float) -> float:
    """log(upper / target); its sign comes from the comparison, because the logarithms are rounded."""
    if upper == target:
        return 0.0
    size = abs(math.log(upper) - math.log(target)) if 0 < upper < math.inf else math.inf
    return max(size, 1e-300) if upper > target else -size


def _bracket(at: Callable[[float], _End], end: _End, further: Callable[[_End], float], what: str) -> tuple[_End, _End]:
    """Neighbouring places of which exactly one keeps the target; `further` gives the next place, or raises.

    After the limit of time, the last place, twice, if it keeps the target.
    """
    while deadline.left() > 0.0:
        following = at(further(end))
        if following.keeps != end.keeps:
            return end, following
        end = following
    if not end.keeps:
        raise _too_late(what)
    return end, end


def _last_good(at: Callable[[float], _End], one: _End, other: _End, *, whole: bool = False) -> float:
    """The end of the bracket that keeps the target, once the two ends are within the tolerance or the time is over.

    The method is regula falsi in logarithms with the Illinois correction for an end that does not move.  Every point
    is at least a small step away from both ends: if one end is at the root, the next point lies just across.  If two
    points do not halve the bracket, or a value is infinite, the next point is the middle.
    """
    good, bad = (one, other) if one.keeps else (other, one)
    weight = {True: 1.0, False: 1.0}
    widths = [math.inf, math.inf]
    last: bool | None = None
    while not _near(good.place, bad.place, whole) and deadline.left() > 0.0:
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


# ---------------------------------------------------------------------- groups of people with targets of their own


class GroupSampleRates(NamedTuple):
    """A sample rate for each group, and the noise multiplier that all share."""

    noise_multiplier: float
    sample_rates: tuple[float, ...]


class GroupClippingNorms(NamedTuple):
    """A clipping norm for each group; the noise has standard deviation noise_multiplier * max(max_grad_norms)."""

    noise_multiplier: float
    max_grad_norms: tuple[float, ...]


def calibrate_group_sample_rates(
    target_epsilons: Sequence[float],
    delta: float,
    steps: int,
    *,
    noise_multiplier: float | None = None,
    mean_sample_rate: float | None = None,
    sizes: Sequence[int] | None = None,
    direction: str = "both",
) -> GroupSampleRates:
    """A sample rate for each group of people that keeps the group's own target epsilon.

    Parameters
    ----------
    target_epsilons : sequence of float
        One for each group, above 0.
    delta : float
        In (0, 1).
    steps : int
        At least 1.
    noise_multiplier : float, optional
        The noise to keep: each group gets the largest rate that this noise allows it.
    mean_sample_rate, sizes : float and sequence of int, optional
        The expected size of a batch to keep, instead of the noise: the rate of a person drawn at random, and the number
        of people in each group.  The noise multiplier is then the smallest with which the rates reach this mean.
    direction : {"both", "remove", "add"}

    Returns
    -------
    GroupSampleRates
        With each group's rate, the upper bound of `Composition.epsilon` is at most the group's target.  The mean is at
        least `mean_sample_rate`; with a noise multiplier that is smaller by a relative 1e-6, it would be below.

    Raises
    ------
    ValueError
        If an argument is out of its range, or neither or both of noise_multiplier and mean_sample_rate are given, or if
        the noise multiplier lies outside of 0.02 to 1e8.

    Notes
    -----
    Every person enters a step by a coin of their own, with the probability of their group.  The groups and their sizes
    count as public.  A ledger or a filter has one sample rate: use one for each group.

    **Cost**: some calibrations of a rate for each group, about three seconds for three groups.

    References
    ----------
    Boenisch, Muehl, Dziedzic, Rinberg and Papernot (2023), arXiv 2303.17046, Section 4 ("Sample").

    Examples
    --------
    >>> found = calibrate_group_sample_rates([1.0, 2.0], 1e-5, 10_000, noise_multiplier=2.0)
    >>> [round(rate, 6) for rate in found.sample_rates]
    [0.004981, 0.009324]
    """
    targets = _targets(target_epsilons)
    validate.delta(delta)
    number = validate.count(steps, "steps", least=1)
    if (noise_multiplier is None) == (mean_sample_rate is None):
        raise ValueError("give either noise_multiplier or mean_sample_rate with sizes")
    if (mean_sample_rate is None) != (sizes is None):
        raise ValueError("sizes belong to mean_sample_rate: give both or neither")

    def rates_at(sigma: float) -> tuple[float, ...]:
        return tuple(calibrate_sample_rate(target, delta, sigma, number, direction=direction) for target in targets)

    if noise_multiplier is not None:
        sigma = validate.noise_multiplier(noise_multiplier)
        return GroupSampleRates(sigma, rates_at(sigma))

    wanted, weights = validate.sample_rate(mean_sample_rate), _weights(sizes, len(targets))
    tried: dict[float, tuple[float, ...]] = {}

    def at(sigma: float) -> _End:
        tried[sigma] = rates_at(sigma)
        return _End(sigma, math.log(wanted) - math.log(math.fsum(map(float.__mul__, weights, tried[sigma]))))

    def further(end: _End) -> float:
        if end.place in (_LEAST_NOISE, _MOST_NOISE):
            side = f"below {_LEAST_NOISE:g}" if end.keeps else f"above {_MOST_NOISE:g}"
            raise ValueError(f"mean_sample_rate={wanted:g} would need a noise multiplier {side}")
        return max(end.place / 1.25, _LEAST_NOISE) if end.keeps else min(end.place * 1.25, _MOST_NOISE)

    middle = math.fsum(map(float.__mul__, weights, targets))
    first = calibrate_noise_multiplier(middle, delta, wanted, number, direction=direction)
    found = _last_good(at, *_bracket(at, at(first), further, ""))
    return GroupSampleRates(found, tried[found])


def calibrate_group_clipping_norms(
    target_epsilons: Sequence[float],
    delta: float,
    sample_rate: float,
    steps: int,
    *,
    max_grad_norm: float,
    noise_multiplier: float | None = None,
    sizes: Sequence[int] | None = None,
    direction: str = "both",
) -> GroupClippingNorms:
    """A clipping norm for each group of people that keeps the group's own target epsilon, under one common noise.

    Parameters
    ----------
    target_epsilons : sequence of float
        One for each group, above 0.
    delta, sample_rate : float
        In (0, 1) and (0, 1].
    steps : int
        At least 1.
    max_grad_norm : float
        The unit of the answer, see the next two.
    noise_multiplier : float, optional
        The noise to keep: its standard deviation is noise_multiplier * max_grad_norm.
    sizes : sequence of int, optional
        Number of people in each group.  Without a noise multiplier, the clipping norm of a person drawn at random is
        max_grad_norm in the mean, and the noise follows.
    direction : {"both", "remove", "add"}

    Returns
    -------
    GroupClippingNorms
        For each group, the noise divided by the group's clipping norm is at least `calibrate_noise_multiplier` of the
        group's target, exactly; at that noise the upper bound of epsilon was computed.

    Raises
    ------
    ValueError
        As `calibrate_noise_multiplier`, or if neither or both of noise_multiplier and sizes are given.

    Notes
    -----
    Its noise multiplier belongs to the *largest* of the norms, and so to `Ledger`, filters and Opacus with this
    max_grad_norm; everybody in another group is clipped at the norm of the group, and recorded at most at it.  Groups
    and their sizes count as public.

    References
    ----------
    Boenisch, Muehl, Dziedzic, Rinberg and Papernot (2023), arXiv 2303.17046, Section 4 ("Scale").

    Examples
    --------
    >>> found = calibrate_group_clipping_norms([1.0, 2.0], 1e-5, 0.005, 10_000, max_grad_norm=5.0, sizes=[700, 300])
    >>> round(found.noise_multiplier, 4), [round(norm, 4) for norm in found.max_grad_norms]
    (1.2167, [4.185, 6.9017])
    """
    targets, clip = _targets(target_epsilons), validate.clipping_norm(max_grad_norm)
    if (noise_multiplier is None) == (sizes is None):
        raise ValueError("give either noise_multiplier or sizes")
    own = [calibrate_noise_multiplier(e, delta, sample_rate, steps, direction=direction) for e in targets]
    least = min(own)
    if noise_multiplier is None:
        weights = _weights(sizes, len(targets))
        noise = clip / math.fsum(weight / sigma for weight, sigma in zip(weights, own, strict=True))
    else:
        noise = clip * validate.noise_multiplier(noise_multiplier)
    largest = validate.clipping_norm(noise / least, "the largest clipping norm")
    # exact products: a clipping norm that is rounded up would exceed the target
    exact = Fraction(least) * Fraction(largest)
    return GroupClippingNorms(least, tuple(_rounded_down(exact / Fraction(sigma)) for sigma in own))


def _targets(target_epsilons: Any) -> tuple[float, ...]:
    if np.ndim(target_epsilons) != 1 or not len(target_epsilons):
        raise ValueError(f"target_epsilons must have a number for each group, got {target_epsilons!r}")
    return tuple(validate.positive(target, "target_epsilons") for target in target_epsilons)


def _weights(sizes: Any, groups: int) -> tuple[float, ...]:
    """The share of each group among all people."""
    if np.ndim(sizes) != 1 or len(sizes) != groups:
        raise ValueError(f"sizes must have a number for each of the {groups} groups, got {sizes!r}")
    numbers = [validate.count(size, "sizes", least=1) for size in sizes]
    return tuple(number / sum(numbers) for number in numbers)


def _rounded_down(value: Fraction) -> float:
    number = float(value)
    return number if Fraction(number) <= value else math.nextafter(number, 0.0)
