"""Values of the mechanisms that others tested, or that closed forms and sums give: our bounds contain every one.

`tests/data/mechanism_values.json` names the source of each value; those of this project name their formula and digits.
"""

import json
from pathlib import Path

import pytest

import pld_accountant as pa

FACTS = json.loads((Path(__file__).parent.parent / "data" / "mechanism_values.json").read_text())
ASKED = [f for f in FACTS if f["at"].get("delta", 1.0) > 0.0 and f["at"].get("epsilon", 0.0) >= 0.0]
ASKED = [f for f in ASKED if f["quantity"] in ("epsilon", "delta")]


def step(kind, p):
    """The mechanism of one entry's parameters."""
    rate = p.get("sample_rate", p.get("sampling_probability", 1.0))
    if kind == "Laplace":
        return pa.PoissonSampled(pa.Laplace(p["scale"] / p.get("sensitivity", 1.0)), rate)
    if kind == "discrete Laplace":
        return pa.PoissonSampled(pa.DiscreteLaplace(p["a"], p["sensitivity"]), rate)
    if kind == "discrete Gaussian":
        bound = p.get("truncation_bound")
        return pa.PoissonSampled(pa.DiscreteGaussian(p["sigma"], p["sensitivity"], truncation_bound=bound), rate)
    if kind == "k-ary randomized response":
        return pa.RandomizedResponse(p["noise_parameter"], p["buckets"], neighbours=p["neighbours"])
    if kind == "Gaussian, Poisson-sampled, replace-one":
        noise = p["noise_multiplier"] if "noise_multiplier" in p else p["standard_deviation"] / p["sensitivity"]
        return pa.ReplaceOneSampledGaussian(noise, rate)
    if kind.startswith("mixture"):
        return pa.GaussianMixture(p["standard_deviation"], p["sensitivities"], p["probabilities"])
    if kind.startswith("random allocation"):
        return pa.RandomAllocation(p["noise_multiplier"], p["steps"], p["selected"])
    if kind.startswith("truncated"):
        return pa.TruncatedPoisson(p["noise_multiplier"], rate, p["truncated_batch_size"], p["dataset_size"])
    if kind.startswith("exponential"):
        return pa.PermuteAndFlip(p["epsilon"])
    return pa.ApproximateDP(p["epsilon"], p["delta"])


def composition(kind, p):
    """What `compose` gets for one entry."""
    if kind.startswith("tree"):
        if "cycle_length" in p:
            rate = p["cycle_length"] * p["batch_size"] / p["num_samples"]
            return pa.compose(pa.BandedMatrix(p["noise_multiplier"], rate, p["steps"], p["cycle_length"]))
        return pa.compose(pa.TreeAggregation(p["noise_multiplier"], p["steps"], p["trees"]))
    if kind.startswith("random allocation"):
        return pa.compose([(step(kind, p), p["epochs"])])
    several = p.get("steps", 1)
    if not isinstance(several, list):
        return pa.compose([(step(kind, p), several)])
    return pa.compose([(step(kind, p | one), one.get("count", 1)) for one in several])


def case(fact):
    """Compositions of ten different mixtures take minutes."""
    steps = fact["params"].get("steps", 1)
    slow = isinstance(steps, list) and len(steps) > 5
    return pytest.param(fact, id=fact["id"], marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("fact", [case(f) for f in ASKED])
def test_bounds_contain_the_value(fact):
    if fact.get("expect_fail"):
        pytest.skip("the source's own value is wrong")
    found = composition(fact["mechanism"], fact["params"])
    ask = found.epsilon if fact["quantity"] == "epsilon" else found.delta
    at = fact["at"]["delta" if fact["quantity"] == "epsilon" else "epsilon"]
    bounds = ask(at, fact["params"].get("direction", "both"))
    if fact["mechanism"].startswith("truncated"):
        # theirs is another pair that dominates; `test_truncated_poisson` enumerates data sets
        assert bounds.upper <= fact["exact"] * (1 + 3e-4)
    elif fact.get("exact") is not None:
        # the exact value is a double
        unit = 4e-15 * abs(fact["exact"])
        assert bounds.lower - unit <= fact["exact"] <= bounds.upper + unit
        width = 4e-4 if fact["mechanism"].startswith("random allocation") else 1e-4
        assert bounds.upper - bounds.lower <= width * bounds.upper + 1e-12
    else:
        width = fact["tolerance"].get("abs", 0.0) + fact["tolerance"].get("rel", 0.0) * abs(fact["expected"])
        assert bounds.lower - width <= fact["expected"]
        if fact["relation"] == "equal":
            assert fact["expected"] <= bounds.upper + width


RANDOMIZED = [f for f in FACTS if f["quantity"] == "rdp" and f["mechanism"].startswith("k-ary")]
RANDOMIZED = [f for f in RANDOMIZED if f["at"]["alpha"] != "inf" and f["at"]["alpha"] > 1.0 and f.get("exact")]


@pytest.mark.parametrize("fact", RANDOMIZED, ids=lambda f: f["id"])
def test_renyi_divergences_of_randomized_response(fact):
    p = fact["params"]
    step = pa.RandomizedResponse(p["noise_parameter"], p["buckets"], neighbours=p["neighbours"])
    found = float(pa.compose([(step, 1)]).rdp(fact["at"]["alpha"]))
    assert fact["exact"] * (1.0 - 1e-14) <= found <= fact["exact"] * (1.0 + 1e-9)
