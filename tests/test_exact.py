"""Containment: lower <= exact <= upper, against values that share no code with the package (tests/oracle.py)."""

import json
from math import log
from pathlib import Path

import numpy as np
import pytest

import pld_accountant as pa

DATA = Path(__file__).parent / "data"
EXACT = json.loads((DATA / "exact.json").read_text())["cases"]
PUBLISHED = json.loads((DATA / "exact_epsilon.json").read_text())["cases"]
for _case in EXACT:
    for _direction, _method in _case["method"].items():
        if _method == "contour, float64":  # both contours may err alike, by as much as they promise
            _case["agreement"][_direction] = 1e-11
KNOWN = [(c, d) for c in EXACT for d in ("remove", "add") if c["epsilon"][d] is not None]


def compose(parts):
    return pa.compose([(pa.Gaussian(s) if q == 1.0 else pa.SampledGaussian(s, q), n) for s, q, n in parts])


def name(entry):
    case, direction = entry
    return f"{case['tag']}-{case['steps'][:2]}-{case['delta']}-{direction}".replace(" ", "")


def check(bounds, exact, agreement):
    """Containment, where the stored value itself is only known to `agreement` and to half a unit of a double."""
    if bounds.status != pa.Status.CERTIFIED:
        assert (bounds.lower, bounds.upper) == (0.0, np.inf)
        return False
    own = exact * (agreement + 2.0**-53)
    assert bounds.lower <= exact + own
    assert bounds.upper >= exact - own
    assert bounds.lower <= bounds.estimate <= bounds.upper
    return True


@pytest.mark.parametrize("entry", KNOWN, ids=name)
def test_epsilon_contains_the_exact_value(entry):
    case, direction = entry
    exact = case["epsilon"][direction]
    bounds = compose(case["steps"]).epsilon(case["delta"], direction=direction)
    if check(bounds, exact, case["agreement"][direction]) and exact > 1e-3:
        assert bounds.width <= 1e-6 * exact


def test_what_is_not_certified_is_rare():
    refused = [
        name(entry) for entry in KNOWN[::5]
        if compose(entry[0]["steps"]).epsilon(entry[0]["delta"], direction=entry[1]).status != pa.Status.CERTIFIED
    ]  # fmt: skip
    assert len(refused) <= 0.01 * len(KNOWN[::5]), refused


@pytest.mark.parametrize("case", PUBLISHED[::4], ids=lambda c: f"{c['steps'][0]}-{c['delta']}")
def test_both_directions_contain_the_larger(case):
    parts = [(p["noise_multiplier"], p["sample_rate"], p["count"]) for p in case["steps"]]
    bounds = compose(parts).epsilon(case["delta"])
    assert check(bounds, max(case["epsilon"].values()), 1e-9)  # what two computations agreed to when they were made


@pytest.mark.parametrize(
    "entry", [e for e in KNOWN if e[0]["epsilon"][e[1]] > 1e-9 and e[0]["agreement"][e[1]] < 1e-14][::4], ids=name
)
def test_delta_contains_the_exact_value(entry):
    """delta(epsilon(delta)) = delta; the stored epsilon's last digit moves log delta by theta epsilon 2^-53."""
    case, direction = entry
    epsilon = case["epsilon"][direction]
    composition = compose(case["steps"])
    bounds = composition.delta(epsilon, direction=direction)
    if bounds.status != pa.Status.CERTIFIED:
        assert (bounds.lower, bounds.upper) == (0.0, np.inf)
        return
    step = 1e-6 * epsilon
    slope = log(composition.delta(epsilon, direction=direction).estimate) - log(
        composition.delta(epsilon + step, direction=direction).estimate
    )
    moved = 1.0 + 2.0 * abs(slope) / 1e-6 * 2.0**-53 + 2.0**-50
    assert bounds.lower <= case["delta"] * moved
    assert bounds.upper >= case["delta"] / moved


def test_a_person_is_bounded_by_the_bucket_above_and_below():
    """One composition a person: the ledger's bounds contain the exact value of that person's own ratios."""
    cases = [
        c for c in EXACT
        if c["tag"] in ("mixed", "homogeneous", "published", "giant")
        and c["epsilon"]["remove"] is not None and c["epsilon"]["add"] is not None
        and len({q for _, q, _ in c["steps"]}) == 1
        and sum(n for *_, n in c["steps"]) <= 1_000_000
    ][::3]  # fmt: skip
    for case in cases:
        sigma = min(s for s, _, _ in case["steps"])
        ledger = pa.Ledger(2, noise_multiplier=sigma, sample_rate=case["steps"][0][1], max_grad_norm=3.0)
        for s, _, n in case["steps"]:
            ledger.record(np.array([3.0 * sigma / s, 10.0]), repeat=n)
        bounds = ledger.epsilon(case["delta"])
        exact = max(case["epsilon"].values())
        # the division above may have moved the norm by an ulp
        if check(bounds[0], exact, 1e-12) and len(case["steps"]) > 1 and sigma >= 0.5:
            assert bounds.upper[0] - bounds.lower[0] <= 0.05 * bounds.upper[1] + 1e-12


def test_a_ledger_from_norms_contains_the_exact_value():
    case = PUBLISHED[1]
    norms = np.full((10_000, 3), 7.0)
    norms[:, 2] = 0.0
    ledger = pa.Ledger.from_norms(norms, noise_multiplier=2.0, sample_rate=0.005, max_grad_norm=5.0)
    bounds = ledger.epsilon(case["delta"])
    exact = max(case["epsilon"].values())
    for person in (0, 1):
        assert check(bounds[person], exact, 1e-9)
        assert bounds.upper[person] <= exact * (1.0 + 1e-3)
    assert bounds.lower[2] == 0.0
    assert bounds.upper[2] == 0.0


def test_upper_alone_is_the_same_promise():
    """Asked for alone, upper is an upper bound too; lower and estimate are then NaN."""
    rng = np.random.default_rng(3)
    norms = np.exp(rng.normal(-1.0, 1.0, 40))
    ledger = pa.Ledger(40, noise_multiplier=1.5, sample_rate=0.01, max_grad_norm=1.0)
    ledger.record(norms, repeat=3000)
    everything, alone = ledger.epsilon(1e-6), ledger.epsilon(1e-6, bounds="upper")
    assert np.isnan(alone.lower).all()
    assert (alone.upper >= everything.lower).all()
    np.testing.assert_allclose(alone.upper, everything.upper, rtol=1e-9)
