"""Contours: bounds contain independent values, and every term of their error is needed."""

import dataclasses
import json
from math import log
from pathlib import Path

import numpy as np
import oracle_few
import pytest
from scipy import special

import pld_accountant as pa
from pld_accountant import deadline
from pld_accountant.counting.counts import WholeCounts
from pld_accountant.engine import contour, contour_integral, schedule
from pld_accountant.engine.contour import Contour
from pld_accountant.engine.contour_integral import _TALL, _WIDE, integrate
from pld_accountant.engine.contour_parts import Part, Steps
from pld_accountant.engine.question import DeltaAt, EpsilonAt
from pld_accountant.engine.solver import bounds, solve
from pld_accountant.mechanisms.gaussian_mixture import GaussianMixtureSteps
from pld_accountant.mechanisms.mixed import mixed
from pld_accountant.mechanisms.positive_mixture import complex_expm1, complex_log1p
from pld_accountant.mechanisms.sampled_gaussian import SampledGaussianSteps
from pld_accountant.results import Method
from pld_accountant.tables.makers import TableMakers

EXACT = json.loads((Path(__file__).parents[1] / "data" / "exact.json").read_text())["cases"]
ALONE = (Contour(1e-6, most_people=4),)
RARE = [
    # few steps; many rare steps; two and three parts; little noise; much noise
    (1.29, 0.008, 3, 9.6e-10),
    (0.64, 3.3e-6, 22, 5.4e-6),
    (0.91, 3.1e-5, 32_774, 1e-14),
    (1.18, 2.1e-5, 169, 8.6e-13),
    (0.57, 1.5e-5, 12_558, 2e-5),
    (2.49, 1.1e-6, 3, 4.4e-14),
]


def alone(parts, question, direction, methods=ALONE):
    sigma, q, n = (np.array(v) for v in zip(*parts, strict=True))
    makers = TableMakers(SampledGaussianSteps(sigma, q, direction))
    found = solve(WholeCounts(n[None, :]), makers, question, methods=methods)
    return float(found.lower[0]), float(found.upper[0]), Method(found.method[0])


def test_exact_epsilons_lie_between_the_bounds():
    """Of all exact compositions, many of which are no work for contours; a contour that is found is right."""
    answered = 0
    for case in EXACT:
        parts = case["steps"]
        if len(parts) > 3 or any(q == 1.0 or s < 0.2 for s, q, _ in parts) or sum(n for *_, n in parts) < 2:
            continue
        for direction, exact in case["epsilon"].items():
            if exact is None:
                continue
            lower, upper, method = alone(parts, EpsilonAt(case["delta"]), direction)
            if method is Method.CONTOUR:
                answered += 1
                own = exact * (max(case["agreement"][direction], 1e-11) + 2.0**-53)
                assert lower <= exact + own
                assert upper >= exact - own
    assert answered > 10


@pytest.mark.parametrize(
    ("parts", "delta"),
    [
        ([(1.0, 0.01, 2)], 1e-5),
        ([(0.5, 1e-3, 2)], 1e-12),
        ([(0.7, 0.001, 1), (3.0, 0.02, 1)], 1e-10),
        ([(2.0, 1e-5, 2)], 1e-11),
        ([(1.1, 0.3, 2)], 1e-9),
    ],
)
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_few_steps_contain_the_nested_quadrature(parts, delta, direction):
    truth = oracle_few.direct_epsilon(parts, delta, direction)
    own = truth.value * (truth.agreement + 2.0**-53)
    lower, upper, method = alone(parts, EpsilonAt(delta), direction)
    assert lower <= truth.value + own
    assert upper >= truth.value - own
    if method is Method.CONTOUR:
        exact = np.log(oracle_few.direct(parts, truth.value, direction, 1e-19 * delta))
        lower, upper, method = alone(parts, DeltaAt(truth.value), direction)
        assert lower <= exact + 1e-11  # the quadrature's own error
        assert upper >= exact - 1e-11


@pytest.mark.parametrize(("sigma", "q", "steps", "delta"), RARE)
def test_rare_and_few_steps_are_answered_closely(sigma, q, steps, delta):
    """Both questions agree with each other, and with the other methods of the schedule."""
    parts = [(sigma, q, steps)]
    lower, upper, method = alone(parts, EpsilonAt(delta), "remove")
    assert method is Method.CONTOUR
    assert 0.0 < lower < upper <= lower * (1.0 + 1e-6)
    others = tuple(m for m in schedule.SINGLE if not isinstance(m, Contour))
    low, high, _ = alone(parts, EpsilonAt(delta), "remove", others)
    assert max(low, lower) <= min(high, upper)
    low, high, method = alone(parts, DeltaAt(upper), "remove")
    assert method is Method.CONTOUR
    assert low <= log(delta) + 1e-15
    low, high, _ = alone(parts, DeltaAt(lower), "remove")
    assert high >= log(delta) - 1e-15
    assert high - low < 1e-4


@pytest.mark.parametrize(
    ("mechanism", "steps", "delta", "by_others"),
    [
        (pa.GroupGaussian(0.75, 0.0021, 7), 13_710, 2.6e-14, (40.867515836710695, 40.87049530607653)),
        (pa.GroupGaussian(1.67, 9.7e-05, 2), 233, 2.9e-15, (0.017489074300062645, 0.01748919224092228)),
        (pa.SampledGaussian(1.06, 1.1e-06), 3_914, 1.5e-15, (0.001155840627683806, 0.0011558414993837038)),
        (pa.GroupGaussian(0.76, 0.011, 7), 7, 8.8e-05, (4.737772104318987, 4.737783243064565)),
    ],
)
def test_parts_of_sharp_integrands_are_bounded_closely(mechanism, steps, delta, by_others):
    """They took seconds.

    With M_low bounded by |M| + |M_mid| no panel of the first three has a small error.  The bound of the vertical line
    of the last one falls to 2e-7 and rises again.
    """
    found = pa.compose([(mechanism, steps)]).epsilon(delta, direction="remove")
    assert found.method == pa.Method.CONTOUR and found.width < 5e-7 * found.upper
    assert max(found.lower, by_others[0]) <= min(found.upper, by_others[1])


def test_several_kinds_of_rare_steps():
    parts = [(0.8, 1e-4, 3), (1.5, 1e-3, 20), (1.0, 1e-5, 500)]
    others = tuple(m for m in schedule.SINGLE if not isinstance(m, Contour))
    for direction in ("remove", "add"):
        low, high, _ = alone(parts, EpsilonAt(1e-9), direction, others)
        lower, upper, method = alone(parts, EpsilonAt(1e-9), direction)
        assert max(low, lower) <= min(high, upper)
        if direction == "remove":
            assert method is Method.CONTOUR and upper - lower <= 1e-6 * upper


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_steps_of_tiny_losses_beside_large_ones(direction):
    """The tiny losses end below every level at which the large ones are split."""
    parts = [(0.7, 2e-5, 10), (60.0, 1e-4, 1_000), (8.0, 1e-3, 50)]
    others = tuple(m for m in schedule.SINGLE if not isinstance(m, Contour))
    low, high, _ = alone(parts, EpsilonAt(1e-8), direction, others)
    lower, upper, _ = alone(parts, EpsilonAt(1e-8), direction)
    assert max(low, lower) <= min(high, upper)


def test_an_epsilon_of_zero():
    """delta(0) is 1.8253e-5 here: from there on epsilon is 0."""
    parts = [(0.58, 1.3e-6, 105)]
    assert alone(parts, EpsilonAt(1.8254e-5), "remove") == (0.0, 0.0, Method.CONTOUR)
    assert alone(parts, EpsilonAt(1.8252e-5), "remove")[1] > 0.0
    assert alone(parts, EpsilonAt(1.8e-5), "remove")[0] > 0.0
    at_zero = alone(parts, DeltaAt(0.0), "remove")
    assert at_zero[2] is Method.CONTOUR
    assert np.exp(at_zero[0]) == pytest.approx(np.exp(at_zero[1]), rel=1e-6) == pytest.approx(1.8253153e-5, rel=1e-6)


def test_a_rough_epsilon_of_zero_proves_nothing(monkeypatch):
    """A delta just below delta(0), where the rough composition says 0: the integral at 0 does not."""
    monkeypatch.setattr(contour.RoughComposition, "epsilon", lambda *given: 0.0)
    assert alone([(0.58, 1.3e-6, 105)], EpsilonAt(1.8252e-5), "remove")[2] is not Method.CONTOUR
    assert alone([(0.58, 1.3e-6, 105)], EpsilonAt(1.8254e-5), "remove") == (0.0, 0.0, Method.CONTOUR)


def law_of(sigma, q):
    law = SampledGaussianSteps(np.array([sigma]), np.array([q]), "remove").complex_law(0)
    assert law is not None
    return law


def value_and_error(sigma, q, steps, epsilon, delta):
    found = integrate(Steps([law_of(sigma, q)], np.array([steps]), True, log(delta)), epsilon, ((12.5, 4),))
    assert found is not None
    return found.value(epsilon)[0], found.error(epsilon), found.above(epsilon)


CASE = (1.29, 0.008, 3, 0.41085694, 9.6e-10)


@pytest.fixture(scope="module")
def truth():
    sigma, q, steps, epsilon, delta = CASE
    return oracle_few.direct([(sigma, q, steps)], epsilon, "remove", 1e-19 * delta) / delta


def test_the_value_is_within_its_error(truth):
    value, error, above = value_and_error(*CASE)
    assert abs(value - truth) <= error
    assert error + above < 1e-6


def test_a_coarse_rule_along_the_contour_is_covered(monkeypatch, truth):
    """Panels may err by a thousandth of delta each: then they do err, by less than the bound and not by much less."""
    monkeypatch.setattr(Steps.__init__, "__defaults__", (1e-2,))
    monkeypatch.setattr(contour_integral, "_USELESS", 10.0)
    monkeypatch.setattr(contour_integral._Contour, "_rest", lambda *given: 0.0)
    node, weight = np.polynomial.legendre.leggauss(18)
    monkeypatch.setattr(contour_integral, "_NODE", node)
    monkeypatch.setattr(contour_integral, "_WEIGHT", weight)
    monkeypatch.setattr(contour_integral, "_LOG_RULE", np.log(64 / 15 / (1 - 2.3**-2)) - 34.0 * np.log(2.3))
    value, error, _ = value_and_error(*CASE)
    assert abs(value - truth) <= error
    assert abs(value - truth) > 1e-7


def whole_contour(theta=8.0, low=-np.inf):
    sigma, q, steps, epsilon, delta = CASE
    law = Steps([law_of(sigma, q)], np.array([steps]), True, log(delta))
    return contour_integral._Contour(law, Part(low, np.inf, theta), epsilon)


@pytest.mark.parametrize("low", [-np.inf, 0.12])
def test_errors_of_the_moments_are_passed_on(low):
    """What the integrand changes by if M and M_mid are wrong, at many places of a panel, and by how much less."""
    one = whole_contour(low=low)
    one._open()
    a, step, (n,) = complex(one._c), 3.0, one._steps.counts
    bound = one._bound(a, step)
    assert bound is not None
    error = np.array([[2e-9, 3e-9]])
    nodes = a + one._direction * step * np.linspace(0.0, 1.0, 50)
    less, _, mid, _ = one._moments[0].values(nodes)
    outer = np.exp(one._offset - one._kappa * nodes) / np.abs(nodes * (nodes - 1.0))

    def integrand(whole, part):
        return (whole**n - (whole - part) ** n if one._split else whole**n) * outer

    right, closest = integrand(1.0 + less, mid), 0.0
    for turn in np.exp(1j * np.linspace(0.0, 6.0, 12)):
        # M is wrong by what M_low and M_mid are wrong by
        wrong = integrand(1.0 + less + turn * error[0, 0], mid - turn * error[0, 1])
        off = np.abs(wrong - right).max()
        assert off <= one._rule(bound, error)
        closest = max(closest, off / one._rule(bound, error))
    assert closest > 0.01


def test_the_rule_of_the_paths_is_part_of_the_error(monkeypatch):
    before = value_and_error(*CASE)[1]
    monkeypatch.setattr(contour_integral._Contour, "_rule", lambda *given: 3e-12)
    assert value_and_error(*CASE)[1] > before + 1e-11


@pytest.mark.parametrize("low", [-np.inf, 0.12])
def test_a_panel_without_nodes_errs_by_its_integral(low):
    one = whole_contour(low=low)
    one._open()
    shares = []
    for reach, step in ((0.0, 4.0), (20.0, 8.0), (60.0, 20.0), (150.0, 30.0)):
        a = one._c + reach * one._direction
        _, terms, _ = one._panel(a, step)
        shares.append(float(np.abs(terms).sum()) / np.pi / one._skipped(a, step).bound)
    assert 0.02 < max(shares) <= 1.0


def test_the_rule_of_the_paths_is_part_of_a_panel_without_nodes(monkeypatch):
    one = whole_contour()
    one._open()
    a = one._c + 60.0 * one._direction
    before = one._skipped(a, 20.0).bound
    monkeypatch.setattr(contour_integral._Contour, "_of_paths", lambda *given: 1e6)
    assert before < 1e6 <= one._skipped(a, 20.0).bound <= 1e6 + before


@pytest.mark.parametrize("rest", [8e-9, 8e-8])
def test_the_vertical_line_is_part_of_the_error(monkeypatch, rest):
    """Also a line that is accepted because further panels do not lower it."""
    monkeypatch.setattr(contour_integral._Contour, "_rest", lambda *given: rest)
    assert value_and_error(*CASE)[1] >= rest


def test_panels_without_nodes_are_part_of_the_error(monkeypatch):
    case = (0.64, 6.5e-6, 8021, 0.0087, 1.2e-6)
    before, own, added = value_and_error(*case)[1], contour_integral._Contour._skipped, []

    def skipped(self, a, step):
        found = own(self, a, step)
        added.append(1e-10 if found.bound < 1e-9 else 0.0)
        return dataclasses.replace(found, bound=found.bound + added[-1])

    monkeypatch.setattr(contour_integral._Contour, "_skipped", skipped)
    assert value_and_error(*case)[1] > before + 0.99 * sum(added) > before


def test_the_rest_of_the_contour_is_bounded(monkeypatch):
    """Along the vertical line from several places, against the integral of the modulus."""
    monkeypatch.setattr(contour_integral, "_TAKEN", np.inf)
    # a rough rest is no bound
    monkeypatch.setattr(contour_integral.ComplexMoments, "rough_beyond", lambda *given: (1e-300, 1e-300))
    one = whole_contour()
    assert one._open() < 1e-8
    closest = 0.0
    for reach in (60.0, 150.0, 400.0):
        a = one._c + reach * one._direction
        length, rest = 30.0 * abs(a), 0.0
        for start in np.linspace(0.0, length, 60)[:-1]:
            nodes = a + 1j * (start + length / 59 * 0.5 * (1.0 + contour_integral._NODE))
            value = (1.0 + one._moments[0].values(nodes)[0]) ** 3 * np.exp(one._offset - one._kappa * nodes)
            rest += float(np.abs(value / (nodes * (nodes - 1.0))) @ contour_integral._WEIGHT) * length / 118 / np.pi
        assert rest <= one._rest(a)
        closest = max(closest, rest / one._rest(a))
    assert closest > 1e-4


@pytest.mark.parametrize("low", [-np.inf, 0.12])
def test_a_rest_that_is_taken_is_no_rough_one(low):
    """Where a rough one is more than ten tolerances and less than a thousand, too."""
    one, between = whole_contour(low=low), 0
    one._open()
    for reach in np.geomspace(10.0, 2e3, 150):
        a = one._c + reach * one._direction
        (m,) = one._moments
        rough = one._line(a, *(np.array([value]) for value in m.rough_beyond(a)))
        proven = one._line(a, np.array([m.beyond(a)]), np.array([m.above(a)] if one._split else []))
        if one._rest(a) < contour_integral._TAKEN * one._steps.tolerance:
            assert one._rest(a) == proven
            between += rough > contour_integral._ACCEPTED * one._steps.tolerance and proven > 1.01 * rough
    assert between > 2


def test_what_the_paths_leave_out_is_part_of_the_error(monkeypatch, truth):
    """Paths that begin one standard deviation left of 0: delta is wrong, by less than the error."""
    own = contour_integral.ComplexMoments

    def beginning_at(begin):
        def make(law, low, high, _, end):
            return own(law, low, high, begin, end)

        monkeypatch.setattr(contour_integral, "ComplexMoments", make)

    beginning_at(1.0)
    monkeypatch.setattr(contour_integral, "choose_parts", lambda *_: ([Part(-np.inf, np.inf, 8.0)], 0.0))
    one = whole_contour()
    assert one._open() == np.inf  # so much is refused
    beginning_at(4.0)
    monkeypatch.setattr(contour_integral, "_USELESS", np.inf)
    value, error, _ = value_and_error(*CASE)
    assert 1e-9 < abs(value - truth) <= error


def test_losses_beyond_the_end_are_added_to_upper_bounds():
    sigma, q, steps, _, delta = CASE
    law = Steps([law_of(sigma, q)], np.array([steps]), True, log(delta))
    x = float(law.ends[0])
    mass = (1.0 - q) * special.ndtr(-x) + q * special.ndtr(1.0 / sigma - x)
    assert steps * mass <= law.beyond <= 1.001 * steps * mass + 1e-299
    assert value_and_error(*CASE)[2] >= law.beyond / delta > 0.0


def test_small_losses_are_bounded_where_they_are_not_integrated(monkeypatch, truth):
    """Without the part of losses below 0.4 epsilon the value is too small, by less than Chernoff's bound of it."""
    epsilon = CASE[3]
    part = Part(0.4 * epsilon, np.inf, 4.0)
    monkeypatch.setattr(contour_integral, "choose_parts", lambda *_: ([part], 16.0))
    value, error, above = value_and_error(*CASE)
    assert value + error < truth <= value + error + above
    sigma, q, steps, _, delta = CASE
    # delta(epsilon) is delta times `truth` here; without this bound the upper ends would be too small
    assert alone([(sigma, q, steps)], DeltaAt(epsilon), "remove")[1] >= log(delta * truth)
    lower, upper, _ = alone([(sigma, q, steps)], EpsilonAt(delta * truth), "remove")
    assert lower <= epsilon <= upper


def test_the_bound_of_small_losses_grows_towards_smaller_epsilons(monkeypatch):
    """An integral at a larger epsilon adds as much at this one as an integral there."""
    sigma, q, steps, epsilon, delta = CASE
    law = Steps([law_of(sigma, q)], np.array([steps]), True, log(delta))
    monkeypatch.setattr(contour_integral, "choose_parts", lambda *_: ([Part(0.4 * epsilon, np.inf, 4.0)], 16.0))
    far, here = integrate(law, 1.07 * epsilon, ((12.5, 4),)), integrate(law, epsilon, ((12.5, 4),))
    assert far is not None and here is not None
    assert far.above(epsilon) == pytest.approx(here.above(epsilon), rel=1e-9)
    moment = law.laws[0].log_moment(17.0, float(law.laws[0].places(np.array(0.4 * epsilon))))
    chernoff = np.exp(steps * moment - 16.0 * epsilon) / delta
    assert here.above(epsilon) == pytest.approx(chernoff + law.beyond / delta, rel=1e-9)
    assert far.above(epsilon) > 1.5 * far.above(1.07 * epsilon)
    assert abs(far.value(epsilon)[0] - here.value(epsilon)[0]) <= far.error(epsilon) + here.error(epsilon)


def test_contours_that_fall_too_slowly_are_given_up():
    falling = [10.0 ** (-0.1 * panel) for panel in range(40)]
    assert contour_integral._is_too_slow([1.0] * 16, 1e-9)
    assert not contour_integral._is_too_slow([1.0] * 15, 1e-9)
    # a tenth of the way in twenty panels; four times as fast serves
    assert not contour_integral._is_too_slow(falling, 1e-9)
    assert contour_integral._is_too_slow([*falling, 1.0, 10.0, 100.0], 1e-9)
    assert not contour_integral._is_too_slow([*falling, 1e-9], 1.1e-9)


@pytest.mark.parametrize("levels", [(0.3,), (0.3, 0.15), (0.3, 0.2, 0.12)])
def test_parts_add_up(monkeypatch, truth, levels):
    epsilon = CASE[3]
    ends = [np.inf, *(epsilon * level for level in levels)]
    tilts = (4.0, 16.0, 32.0)
    parts = [Part(low, high, t) for high, low, t in zip(ends, ends[1:], tilts, strict=False)]
    monkeypatch.setattr(contour_integral, "choose_parts", lambda *_: (parts, 64.0))
    value, error, above = value_and_error(*CASE)
    assert value - error <= truth <= value + error + above
    assert error < 1e-5


def test_an_integral_serves_epsilons_nearby(truth):
    sigma, q, steps, epsilon, delta = CASE
    law = Steps([law_of(sigma, q)], np.array([steps]), True, log(delta))
    found = integrate(law, epsilon, ((12.5, 4),))
    for factor in (0.93, 1.0, 1.2):
        exact = truth
        if factor != 1.0:
            exact = oracle_few.direct([(sigma, q, steps)], factor * epsilon, "remove", 1e-22 * delta) / delta
        value, slope = found.value(factor * epsilon)
        assert abs(value - exact) <= found.error(factor * epsilon) + 1e-13
        near = found.value(factor * epsilon * (1.0 + 1e-6))[0]
        assert slope == pytest.approx((value - near) / (factor * epsilon * 1e-6), rel=1e-4)
    assert found.error(epsilon) <= found.error(0.9 * epsilon)


@pytest.mark.parametrize("other", [-22.5, -17.0])
def test_an_integral_is_the_same_relative_to_another_delta(other):
    z, terms = np.array([5.0 + 3.0j, 6.0 + 40.0j]), np.array([0.4 + 3.0j, 0.2 - 0.1j])
    one = contour_integral.Integral(1.0, z, terms, 1e-7, 2.0, 9.0, beyond=1e-8, small=1e-6, theta=4.0)
    moved, factor = one.relative_to(-20.0, other), np.exp(-20.0 - other)
    for epsilon in (0.95, 1.0, 1.2):
        assert moved.value(epsilon) == pytest.approx(np.multiply(factor, one.value(epsilon)), rel=1e-12)
        assert moved.error(epsilon) == pytest.approx(factor * one.error(epsilon), rel=1e-12, abs=0.0)
        assert moved.above(epsilon) == pytest.approx(factor * one.above(epsilon), rel=1e-12, abs=0.0)


def test_guesses_on_either_side_take_one_integral(monkeypatch):
    sigma, q, steps, epsilon, delta = CASE
    parts, asked, low, high = [(sigma, q, steps)], [], [], []
    monkeypatch.setattr(contour, "integrate", lambda *given: (asked.append(given[1]), integrate(*given))[1])
    for number, guess in enumerate((0.95, 1.0, 1.05), start=1):
        monkeypatch.setattr(contour.RoughComposition, "epsilon", lambda *_, guess=guess: guess * epsilon)
        lower, upper, method = alone(parts, EpsilonAt(delta), "remove")
        assert len(asked) == number and method is Method.CONTOUR
        assert upper - lower <= 1e-6 * upper
        low.append(lower)
        high.append(upper)
    below, above = (
        oracle_few.direct(parts, end, "remove", 1e-19 * delta)
        for end in (min(high) * (1.0 + 1e-12), max(low) * (1.0 - 1e-12))
    )
    assert below <= delta <= above


@pytest.mark.parametrize(("place", "epsilon"), [(9.0, 0.93), (2.0, 1.0), (9.0, 1.0), (2.0, 1.3)])
def test_an_error_of_a_term_is_covered_at_another_epsilon(place, epsilon):
    """A term that is wrong by the bound, at the end of the range of Re z that matters most there."""
    wrong = contour_integral.Integral(1.0, np.array([place + 0j]), np.array([1e-9j * np.pi]), 1e-9, 2.0, 9.0)
    assert abs(wrong.value(epsilon)[0]) == pytest.approx(wrong.error(epsilon), rel=1e-9)


@pytest.mark.parametrize("error, high", [(1e-6, 0.0), (1e-6, 1e-3), (0.2, 0.0)])
def test_ends_are_proven(error, high):
    """delta falls like exp(-8 epsilon): both ends keep the error to their side, and the upper one `high` as well.

    A large error grows on the way to the lower end, which must then be looked for farther away.
    """
    term = np.array([1j * np.pi * np.exp(8.0)])
    own = 1.03  # the bound of small losses is half as large again at the root
    moved = term * np.exp(-8.0 * own)
    one = contour_integral.Integral(own, np.array([8.0 + 0j]), moved, error, 2.0, 9.0, small=high, theta=14.0)
    lower, upper = contour._ends(one, 1.0)
    for end, factor, added in ((lower, -1.0, 0.0), (upper, 1.0, high * np.exp(14.0 * (own - upper)))):
        off = error * np.exp(9.0 * (own - end)) + added
        assert factor * (np.exp(8.0 * (1.0 - end)) + factor * off - 1.0) < 0.0
        assert abs(end - 1.0) < (0.2 if error < 0.1 else 1.0) * off + 1e-7


@pytest.mark.parametrize("share", [0.5, 1.0 - 1e-9, 1.0 + 1e-6, 1.5])
def test_one_integral_shows_that_an_epsilon_is_below_a_known_one(share, monkeypatch):
    """If it is not below, the search goes on from there."""
    counts, question = WholeCounts(np.array([[900]])), EpsilonAt(1e-10)
    mechanism = pa.GroupGaussian(4.0, 2e-5, 8)
    makers = TableMakers(mechanism.steps([mechanism], "add"))
    full = solve(counts, makers, question, methods=ALONE)
    asked = []
    monkeypatch.setattr(contour, "integrate", lambda *given: (asked.append(given[1]), integrate(*given))[1])
    known = share * full.upper
    found = bounds(counts, makers, [question], methods=ALONE, known=[known])[0]
    assert asked[0] == pytest.approx(min(known[0], 1.1 * full.upper[0]), rel=1e-3)
    if share > 1.0:
        assert (found.lower[0], [found.upper[0]]) == (0.0, asked)
        assert full.lower[0] <= found.upper[0] <= known[0]
    else:
        assert found.lower[0] <= full.upper[0] and full.lower[0] <= found.upper[0]
        assert found.upper[0] - found.lower[0] <= 1e-6 * found.upper[0]
    assert found.method[0] == Method.CONTOUR


def test_an_epsilon_far_below_a_known_one(monkeypatch):
    """Delta at the known one is 1e-100, which no contour gives: nine seconds went by until other methods said so."""
    mechanism = pa.GroupGaussian(0.78, 1.2e-5, 2)
    makers, asked = TableMakers(mechanism.steps([mechanism], "add")), []
    monkeypatch.setattr(contour, "integrate", lambda *given: (asked.append(given[1]), integrate(*given))[1])
    counts, question = WholeCounts(np.array([[55_646]])), EpsilonAt(2.5e-14)
    found = bounds(counts, makers, [question], methods=ALONE, known=[np.array([0.5163])])[0]
    assert 0.0725102 < found.upper[0] == asked[0] < 0.08


@pytest.mark.parametrize("tolerance", [1e-8, 1e-5, 1e-3])
def test_a_larger_tolerance_takes_fewer_nodes(truth, tolerance):
    sigma, q, steps, epsilon, delta = CASE
    one = Steps([law_of(sigma, q)], np.array([steps]), True, log(delta), tolerance)
    found = integrate(one, epsilon, ((12.5, 4),))
    assert found is not None
    assert abs(found.value(epsilon)[0] - truth) <= found.error(epsilon) < 20.0 * tolerance
    exact = integrate(Steps([law_of(sigma, q)], np.array([steps]), True, log(delta)), epsilon, ((12.5, 4),))
    assert exact is not None
    assert found.z.size <= exact.z.size - (64 if tolerance > 1e-8 else 0)


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "log10_delta"),
    [(1 / 1.3758359951330716, 2.9952434881330962e-05, 282, -45.03), (1 / 1.546, 8.387e-6, 405, -56.87)],
)
def test_tiny_deltas_of_rare_steps_agree_with_other_methods(sigma, q, steps, log10_delta):
    """Powers of g beyond exp(60) at places of weights below exp(-60) decide how far a panel may reach."""
    run, question = [(sigma, q, steps)], EpsilonAt(10.0**log10_delta)
    others = tuple(m for m in schedule.SINGLE if not isinstance(m, Contour))
    low, high, _ = alone(run, question, "remove")
    makers = TableMakers(SampledGaussianSteps(np.array([sigma]), np.array([q]), "remove"))
    (other,) = bounds(WholeCounts(np.array([[steps]])), makers, [question], methods=others, width=1e-4)
    below, above = other.lower[0], other.upper[0]
    assert below < above < 1.001 * below
    assert low <= above and below <= high


@pytest.mark.parametrize("seed", range(2))
def test_the_integrand_stays_below_its_bound_on_every_panel(seed, monkeypatch):
    """At points of each panel's rectangle, or of its line, for random steps and deltas far down."""
    rng = np.random.default_rng(seed)
    bound, seen, lines = contour_integral._Contour._bound, [], []

    def checked(self, a, step, *, line=False):
        found = bound(self, a, step, line=line)
        if found is not None:
            u = rng.uniform(-1.0, 1.0, (2, 40))
            wide, tall = (1.0, 0.0) if line else (_WIDE, _TALL)
            places = a + self._direction * 0.5 * step * (1.0 + wide * u[0] + 1j * tall * u[1])
            less, error, mid, of_mid = self._moments[0].values(places)
            n, m = self._steps.counts[0], 1.0 + less
            log_size = -self._kappa * places.real + self._offset - np.log(np.abs(places * (places - 1.0)))
            log_size += n * np.log(np.abs(m))
            sure = error < 1e-9 * np.abs(m)
            if self._split:
                log_size += np.log(np.abs(complex_expm1(n * complex_log1p(-mid / m))))
                sure &= of_mid < 1e-9 * np.abs(mid)
            seen.extend(log_size[sure] - found.log_sup - found.log_more)
            if line:
                lines.extend(log_size[sure] - found.log_sup - found.log_more)
        return found

    monkeypatch.setattr(contour_integral._Contour, "_bound", checked)
    for _ in range(12):
        sigma, q, steps = 1.0 / rng.uniform(1.0, 2.0), 10.0 ** rng.uniform(-7, -3), int(10.0 ** rng.uniform(1, 4))
        with np.errstate(all="ignore"):
            alone([(sigma, q, steps)], EpsilonAt(10.0 ** rng.uniform(-60, -20)), "remove")
    assert len(seen) > 500
    assert max(seen) <= 0.0
    assert len(lines) > 50
    assert max(lines) > -4.0


def test_a_contradiction_holds_for_everybody_with_the_same_counts(monkeypatch):
    makers = TableMakers(SampledGaussianSteps(np.array([2.0]), np.array([0.01]), "remove"))
    ends = contour._ends
    monkeypatch.setattr(contour, "_ends", lambda *given: tuple(1.001 * end for end in ends(*given)))
    methods = schedule.SINGLE[0], Contour(0.0)
    found = solve(WholeCounts(np.array([[300], [300]])), makers, EpsilonAt(1e-5), methods=methods)
    assert found.contradicted.tolist() == [True, True]


def test_steps_without_contours_are_left_to_others():
    for parts in ([(1.0, 1.0, 3)], [(0.1, 0.01, 3)], [(1.0 + 0.1 * i, 1e-3, 2) for i in range(5)]):
        assert alone(parts, EpsilonAt(1e-6), "remove")[2] is not Method.CONTOUR
    little = pa.GroupGaussian(0.2, 0.001, 5)
    assert little.steps([little], "remove").complex_law(0) is None
    user = pa.GroupGaussian(2.0, 0.001, 50)  # 25 standard deviations, with a weight of 1e-150
    assert user.steps([user], "remove").complex_law(0) is not None
    replaced = pa.ReplaceOneSampledGaussian(1.0, 0.01)
    assert GaussianMixtureSteps([replaced.pair], "add").complex_law(0) is None


@pytest.mark.parametrize(
    ("mechanism", "steps", "delta"),
    [
        (pa.GroupGaussian(2.0, 1e-4, 2), 30, 1e-9),
        (pa.GroupGaussian(1.5, 1e-3, 3), 4, 1e-6),
        (pa.GroupGaussian(1.5, 1e-4, 7), 60, 1e-9),
        (pa.GroupGaussian(4.0, 2e-5, 8), 900, 1e-10),
        (pa.GroupGaussian(0.6, 1e-4, 13), 60, 1e-8),  # more than 20 standard deviations, where weights are little
        (pa.GroupGaussian(8.0, 1e-3, 100), 10, 1e-5),  # many factors
        (pa.GaussianMixture(1.0, [0.0, 0.5, 2.0], [0.98, 0.015, 0.005]), 6, 1e-7),
        (pa.ReplaceOneSampledGaussian(1.0, 1e-3), 100, 1e-8),
        (pa.ReplaceOneSampledGaussian(2.0, 1e-2), 3, 1e-6),
    ],
)
def test_mixtures_agree_with_other_methods(mechanism, steps, delta):
    makers = TableMakers(mechanism.steps([mechanism], "remove"))
    counts = WholeCounts(np.array([[steps]]))
    others = tuple(m for m in schedule.SINGLE if not isinstance(m, Contour))
    own = solve(counts, makers, EpsilonAt(delta), methods=ALONE)
    (other,) = bounds(counts, makers, [EpsilonAt(delta)], methods=others, width=1e-4)
    assert other.upper[0] <= other.lower[0] * (1.0 + 2e-4)
    assert Method(own.method[0]) is Method.CONTOUR
    assert 0.0 < own.lower[0] < own.upper[0] <= own.lower[0] * (1.0 + 1e-6)
    assert max(own.lower[0], other.lower[0]) <= min(own.upper[0], other.upper[0])
    back = solve(counts, makers, DeltaAt(float(own.upper[0])), methods=ALONE)
    assert back.lower[0] <= log(delta) + 1e-15


def random_steps(rng):
    """One to three kinds of steps, from anywhere in the range of parameters, and how often each runs."""
    parts = []
    for _ in range(int(rng.integers(1, 4))):
        sigma, steps = 10.0 ** rng.uniform(-1.0, 2.3), int(10.0 ** rng.uniform(0.0, 8.0))
        rate = float(rng.choice([10.0 ** rng.uniform(-12.0, 0.0), 1.0 - 10.0 ** rng.uniform(-9.0, -0.3), 1.0]))
        kinds = [
            pa.SampledGaussian(sigma, rate),
            pa.GroupGaussian(sigma, rate, int(rng.integers(1, 6))),
            pa.ReplaceOneSampledGaussian(sigma, rate),
            pa.GaussianMixture(sigma, rng.uniform(0.0, 3.0, 3).tolist(), rng.dirichlet(np.full(3, 0.3)).tolist()),
        ]
        parts.append((kinds[int(rng.integers(0, 4))], steps))
    return parts


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(8))
def test_any_parameters_end_in_bounds_or_in_none(seed):
    """Whatever the steps, delta and epsilon: no failure, no warning, no number that is not one, and no long search."""
    rng = np.random.default_rng(seed)
    for _ in range(6):
        parts = random_steps(rng)
        counts = WholeCounts(np.array([[n for _, n in parts]]))
        direction = ("remove", "add")[int(rng.integers(0, 2))]
        delta, epsilon = 10.0 ** rng.uniform(-300.0, 0.0), 10.0 ** rng.uniform(-9.0, 2.8)
        for question in (EpsilonAt(delta), DeltaAt(epsilon), DeltaAt(0.0)):
            makers = TableMakers(mixed([m.steps([m], direction) for m, _ in parts]))
            found = solve(counts, makers, question, methods=ALONE)
            assert found.lower[0] <= found.upper[0]


def test_the_work_of_one_part_is_limited(monkeypatch):
    """Long paths at a far tilt would take minutes; a part that costs more than the limit has no integral."""
    assert value_and_error(*CASE)
    monkeypatch.setattr(contour_integral, "_MOST_WORK", 1e4)
    sigma, q, steps, epsilon, delta = CASE
    law = Steps([law_of(sigma, q)], np.array([steps]), True, log(delta))
    assert integrate(law, epsilon, ((12.5, 4),)) is None


def test_no_integral_begins_after_the_deadline():
    sigma, q, steps, epsilon, delta = CASE
    law = Steps([law_of(sigma, q)], np.array([steps]), True, log(delta))
    with deadline.limited(1e-9), deadline.strict(), pytest.raises(deadline.OutOfTime):
        integrate(law, epsilon, ((12.5, 4),))
    assert integrate(law, epsilon, ((12.5, 4),)) is not None


def test_steps_of_several_families():
    mechanisms = [(pa.GroupGaussian(1.5, 1e-4, 2), 10), (pa.SampledGaussian(1.0, 1e-4), 20)]
    found = pa.compose(mechanisms).epsilon(1e-8)
    assert found.method == Method.CONTOUR
    alike = pa.compose([(pa.GaussianMixture(1.0, [0.0, 1.0], [1.0 - 1e-4, 1e-4]), 20), mechanisms[0]]).epsilon(1e-8)
    assert found.lower <= alike.upper and alike.lower <= found.upper


def test_a_delta_below_the_doubles_relative_to_it():
    lower, upper, method = alone([(1.0, 1e-4, 5)], EpsilonAt(1e-290), "remove")
    assert method is not Method.CONTOUR or 0.0 < lower < upper


def test_the_root_is_found_from_both_sides():
    sigma, q, steps, epsilon, delta = CASE
    found = integrate(Steps([law_of(sigma, q)], np.array([steps]), True, log(delta)), epsilon, ((12.5, 4),))
    for start in (0.7 * epsilon, epsilon, 1.5 * epsilon):
        assert contour._root(found, start) == pytest.approx(0.4108569, rel=1e-5)
    assert contour._root(found, 5.0 * epsilon) == pytest.approx(2.0 * epsilon, rel=1.0)


@pytest.mark.parametrize("kinds", [6, 16])
def test_many_kinds_of_steps_agree_with_the_transform(kinds):
    steps = SampledGaussianSteps(np.linspace(0.9, 2.0, kinds), np.geomspace(1e-3, 2e-2, kinds), "remove")
    counts = WholeCounts(np.arange(20, 20 + kinds)[None, :])
    methods = schedule.SINGLE[0], Contour(0.0, most_kinds=kinds)
    one, other = (solve(counts, TableMakers(steps), EpsilonAt(1e-6), methods=[method]) for method in methods)
    assert other.method.tolist() == [Method.CONTOUR]
    assert one.upper - one.lower < 1e-6 * one.upper and other.upper - other.lower < 1e-6 * other.upper
    assert one.lower <= other.upper and other.lower <= one.upper
