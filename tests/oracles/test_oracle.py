"""The oracles against each other, closed forms and sums, before anything is held against them."""

import json
from math import log
from pathlib import Path

import mpmath
import numpy as np
import oracle_few
import oracle_lattice
import pytest
from oracle_plan import Plan, Steps

pytestmark = pytest.mark.slow  # minutes, and some GiB: the oracle's own check, run when the oracle changes

DATA = Path(__file__).parent.parent / "data"
EXACT = json.loads((DATA / "exact.json").read_text())["cases"]
SETTLED = [(c, d) for c in EXACT for d in ("remove", "add") if c["epsilon"][d] is not None]

# log10 delta to many digits, computed at another time by other means.
GOLDEN = [
    ([(1.0, 0.01, 1000)], 1.8, "remove", -4.90737202180233507),
    ([(1.0, 0.01, 1000)], 1.4, "add", -4.91042208044005342),
    ([(2.0, 0.03, 300)], 1.1, "remove", -5.00235643199298941),
    ([(2.0, 0.005, 10_000)], 1.0, "remove", -4.97345185338768253),
    ([(2.0, 0.005, 10_000)], 3.0, "remove", -28.2811527617634990),
    ([(2.0, 0.005, 10_000)], 7.0, "remove", -99.6296926103495520),  # this one by tests/oracle.py, at four contours
    ([(2.0, 0.005, 6000), (8.0, 0.005, 4000)], 1.0, "remove", -7.01268950785343304),
]


@pytest.fixture
def oracle():
    pytest.importorskip("flint")
    import oracle as module

    return module


@pytest.mark.parametrize(("parts", "epsilon", "direction", "expected"), GOLDEN)
def test_golden_values(oracle, parts, epsilon, direction, expected):
    value = oracle.delta(parts, epsilon, direction)
    assert value.agreement < 1e-16
    # those were made for the decimal 0.01, these are for the double next to it
    assert abs(value.value - expected) < 2e-15


def test_moments_are_the_binomial_sums(oracle):
    """At an integer order the moment generating function is a finite sum (Mironov, Talwar and Zhang 2019)."""
    f = oracle.flint()
    for sigma, q, order in ((0.7, 0.2, 2), (2.0, 0.005, 33), (1.0, 0.9, 7)):
        steps = Steps(((sigma, q, 1),), "remove")
        value = oracle.phi(steps.parts[0], steps, Plan(order - 1.0, 1.0, 3, 70.0))[0].real
        with mpmath.workdps(60):
            s, r = mpmath.mpf(sigma), mpmath.mpf(q)
            total = mpmath.fsum(
                mpmath.binomial(order, k) * (1 - r) ** (order - k) * r**k * mpmath.exp((k * k - k) / (2 * s * s))
                for k in range(order + 1)
            )
            expected = f.arb(mpmath.nstr(total, 50))
        assert abs(float(value / expected - 1)) < 1e-30


def test_contour_meets_the_closed_form_at_rate_one(oracle):
    parts = [(30.0, 1.0, 50), (40.0, 1.0, 17)]
    steps = Steps(tuple(parts), "add")
    for delta in (1e-3, 1e-12, 1e-80):
        exact = oracle.epsilon(parts, delta, "add")
        assert exact.method == "closed form"
        _, theta = oracle.oracle_plan.guess_epsilon(steps, log(delta))
        for contour in oracle.contours(steps, exact.value, log(delta), theta):
            assert abs(float(contour.epsilon(delta, exact.value)) / exact.value - 1.0) < 1e-15


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q"), [(2.0, 0.3), (0.5, 0.01), (30.0, 0.1), (1000.0, 1e-4), (0.2, 0.9)])
def test_one_step_in_closed_form(sigma, q, direction):
    """The stable form against the plain one in 60 digits, on both sides of the end of the support."""
    for epsilon in np.array([-0.5, -0.01, 0.0, 0.3, 1.0, 4.0]) * min(1.0, q * 3.0 / sigma):
        with mpmath.workdps(60):
            s, r, e = mpmath.mpf(sigma), mpmath.mpf(q), mpmath.mpf(float(epsilon))
            odds = (mpmath.exp(e if direction == "remove" else -e) - (1 - r)) / r
            if odds <= 0:
                exact = 1 - mpmath.exp(e) if direction == "remove" else mpmath.mpf(0)
            else:
                x = s * s * mpmath.log(odds) + mpmath.mpf(1) / 2
                if direction == "remove":
                    base, moved = mpmath.ncdf(-x / s), mpmath.ncdf((1 - x) / s)
                    exact = (1 - r) * base + r * moved - mpmath.exp(e) * base
                else:
                    base, moved = mpmath.ncdf(x / s), mpmath.ncdf((x - 1) / s)
                    exact = base - mpmath.exp(e) * ((1 - r) * base + r * moved)
        value = float(oracle_few.one_step(epsilon, sigma, q, direction))
        assert abs(value - float(exact)) <= 4e-14 * (1.0 + sigma) * float(exact)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_few_steps_by_quadrature_and_by_contour(direction):
    parts = [(2.0, 0.3, 2)]
    contour = oracle_few.delta(parts, 0.2, direction)
    direct = oracle_few.direct(parts, 0.2, direction)
    assert abs(10.0**contour.value / direct - 1.0) < 1e-12


def test_float_and_arb_contours_agree(oracle):
    for parts, delta in (([(2.0, 0.3, 10)], 1e-6), ([(1.0, 0.1, 40), (6.0, 0.1, 90)], 1e-20)):
        for direction in ("remove", "add"):
            arb = oracle.epsilon(parts, delta, direction)
            few = oracle_few.epsilon(parts, delta, direction)
            assert abs(arb.value / few.value - 1.0) < 1e-11


QUICK = [
    (c, d) for c, d in SETTLED
    if c["tag"] in ("known", "published", "homogeneous") and c["method"][d] in ("contour, Arb", "closed form")
    and min(s for s, _, _ in c["steps"]) >= 0.7 and min(q for _, q, _ in c["steps"]) >= 1e-3
]  # fmt: skip


@pytest.mark.parametrize("entry", QUICK[:: max(len(QUICK) // 12, 1)], ids=lambda e: f"{e[0]['steps'][:1]}-{e[1]}")
def test_stored_values_can_be_made_again(oracle, entry):
    case, direction = entry
    value = oracle.epsilon([tuple(p) for p in case["steps"]], case["delta"], direction)
    assert abs(value.value - case["epsilon"][direction]) <= 2.0**-52 * value.value


def test_values_published_by_others_are_met():
    """The 65 compositions were computed twice, by programs that share nothing; the first says it is good to 1e-9."""
    again = {json.dumps([c["steps"], c["delta"]]): c for c in EXACT}
    for case in json.loads((DATA / "exact_epsilon.json").read_text())["cases"]:
        parts = [[p["noise_multiplier"], p["sample_rate"], p["count"]] for p in case["steps"]]
        ours = again[json.dumps([parts, case["delta"]])]
        for direction in ("remove", "add"):
            assert abs(ours["epsilon"][direction] - case["epsilon"][direction]) <= 1e-9 * case["epsilon"][direction]


@pytest.mark.parametrize(
    ("parts", "direction", "exact"),
    [
        ([(2.0, 0.03, 300)], "remove", 1.0995837044945276),
        ([(1.0, 0.01, 1000)], "add", 1.4166619480361751),
        ([(1.0, 0.01, 1000)], "remove", 1.8282366665165768),
    ],
)
def test_the_papers_way_converges_to_the_same(parts, direction, exact):
    """Connect the dots lies above the truth by an amount that falls with the square of the step."""
    errors = [oracle_lattice.epsilon(parts, 1e-5, direction, step, 8.0) / exact - 1.0 for step in (8e-4, 4e-4, 2e-4)]
    assert errors[0] > errors[1] > errors[2] > 0.0
    np.testing.assert_allclose([errors[0] / errors[1], errors[1] / errors[2]], 4.0, rtol=0.01)
    assert abs((4.0 * errors[2] - errors[1]) / 3.0) < 1e-7  # the limit
