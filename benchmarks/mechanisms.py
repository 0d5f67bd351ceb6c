"""Mechanisms and accountants: epsilon, error and time in one run; prints a table, writes results/mechanisms.json.

Run from the repository's root: ``python benchmarks/mechanisms.py``, with the extra ``peers``.  Each accountant answers
each question in a process of its own, twice; the second answer is timed, so that imports and compilation do not count.
Seconds are processor time.  "curve" is the time for the deltas of 200 epsilons, the composition included, where
dp-accounting has such a curve.  Errors are relative to the middle of this package's certified bounds; a negative error
of an upper bound means that it is none.  dp-accounting runs at its default grid of 1e-4 (connect the dots where it has
them), its RDP accountant at its own orders, and prv-accountant with an error of epsilon of 0.01.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "mechanisms.json"
DELTA = 1e-6
SECONDS = 120.0
PEERS = ("dp-accounting", "dp-accounting RDP", "prv-accountant")
SIGMA, RATE = 2.0, 0.005
MIXTURE = [math.comb(4, i) * RATE**i * (1.0 - RATE) ** (4 - i) for i in range(5)]

# name: steps for this package, and how each accountant writes them
CASES: dict[str, tuple[int, dict[str, Callable[[Any], Any]]]] = {
    "Gaussian": (100, {
        "ours": lambda pa: pa.Gaussian(10.0),
        "pld": lambda pld: pld.from_gaussian_mechanism(10.0),
        "rdp": lambda dp: dp.GaussianDpEvent(10.0),
        "prv": lambda prv: prv.GaussianMechanism(10.0),
    }),
    "sampled Gaussian": (1_000, {
        "ours": lambda pa: pa.SampledGaussian(SIGMA, RATE),
        "pld": lambda pld: pld.from_gaussian_mechanism(SIGMA, sampling_prob=RATE),
        "rdp": lambda dp: dp.PoissonSampledDpEvent(RATE, dp.GaussianDpEvent(SIGMA)),
        "prv": lambda prv: prv.PoissonSubsampledGaussianMechanism(noise_multiplier=SIGMA, sampling_probability=RATE),
    }),
    "sampled Gaussian, few and rare": (25, {
        "ours": lambda pa: pa.SampledGaussian(SIGMA, 0.001),
        "pld": lambda pld: pld.from_gaussian_mechanism(SIGMA, sampling_prob=0.001),
        "rdp": lambda dp: dp.PoissonSampledDpEvent(0.001, dp.GaussianDpEvent(SIGMA)),
        "prv": lambda prv: prv.PoissonSubsampledGaussianMechanism(noise_multiplier=SIGMA, sampling_probability=0.001),
    }),
    "sampled Gaussian, replace-one": (1_000, {
        "ours": lambda pa: pa.ReplaceOneSampledGaussian(SIGMA, RATE),
    }),
    "user of 4 records, sampled": (1_000, {
        "ours": lambda pa: pa.GroupGaussian(SIGMA, RATE, 4),
        "pld": lambda pld: pld.from_mixture_gaussian_mechanism(SIGMA, [0.0, 1.0, 2.0, 3.0, 4.0], MIXTURE),
    }),
    "Laplace": (300, {
        "ours": lambda pa: pa.Laplace(50.0),
        "pld": lambda pld: pld.from_laplace_mechanism(50.0),
        "rdp": lambda dp: dp.LaplaceDpEvent(50.0),
        "prv": lambda prv: prv.LaplaceMechanism(mu=1.0 / 50.0),
    }),
    "Laplace, few": (8, {
        "ours": lambda pa: pa.Laplace(1.0),
        "pld": lambda pld: pld.from_laplace_mechanism(1.0),
        "rdp": lambda dp: dp.LaplaceDpEvent(1.0),
        "prv": lambda prv: prv.LaplaceMechanism(mu=1.0),
    }),
    "sampled Laplace": (1_000, {
        "ours": lambda pa: pa.PoissonSampled(pa.Laplace(1.0), 0.01),
        "pld": lambda pld: pld.from_laplace_mechanism(1.0, sampling_prob=0.01),
        "rdp": lambda dp: dp.PoissonSampledDpEvent(0.01, dp.LaplaceDpEvent(1.0)),
    }),
    "sampled Laplace, few and rare": (25, {
        "ours": lambda pa: pa.PoissonSampled(pa.Laplace(1.0), 0.001),
        "pld": lambda pld: pld.from_laplace_mechanism(1.0, sampling_prob=0.001),
    }),
    "discrete Gaussian": (100, {
        "ours": lambda pa: pa.DiscreteGaussian(10.0),
        "pld": lambda pld: pld.from_discrete_gaussian_mechanism(10.0),
    }),
    "discrete Laplace": (100, {
        "ours": lambda pa: pa.DiscreteLaplace(0.05),
        "pld": lambda pld: pld.from_discrete_laplace_mechanism(0.05),
    }),
    "randomized response, 4 answers": (100, {
        "ours": lambda pa: pa.RandomizedResponse(0.9, 4),
        "pld": lambda pld: pld.from_randomized_response(0.9, 4),
        "rdp": lambda dp: dp.RandomizedResponseDpEvent(0.9, 4),
    }),
    "sampled discrete Gaussian": (1_000, {
        "ours": lambda pa: pa.PoissonSampled(pa.DiscreteGaussian(1.0), 0.1),
    }),
    "sampled discrete Gaussian, rare": (200, {
        "ours": lambda pa: pa.PoissonSampled(pa.DiscreteGaussian(3.0), 0.001),
    }),
    "sampled randomized response, 5 answers": (2_000, {
        "ours": lambda pa: pa.PoissonSampled(pa.RandomizedResponse(0.3, 5), 0.01),
    }),
    "random allocation, 1 of 100 batches": (10, {
        "ours": lambda pa: pa.RandomAllocation(SIGMA, 100),
    }),
    "100 of 20,000 records, replace-one": (1_000, {
        "ours": lambda pa: pa.FixedSizeBatch(2.0 * SIGMA, 100, 20_000),
        "rdp": lambda dp: dp.SampledWithoutReplacementDpEvent(20_000, 100, dp.GaussianDpEvent(SIGMA)),
    }),
    "Poisson batch cut at 1,024": (10_000, {
        "ours": lambda pa: pa.TruncatedPoisson(4.0, 0.02048, 1_024, 50_000),
        "pld": lambda pld: pld.from_truncated_subsampled_gaussian_mechanism(50_000, 0.02048, 1_024, 4.0),
    }),
    "matrix of 16 bands, sampled": (1, {
        "ours": lambda pa: pa.BandedMatrix(SIGMA, RATE, 4_000, 16),
    }),
    "tree aggregation of 1,024 leaves": (1, {
        "ours": lambda pa: pa.TreeAggregation(10.0, 1_024),
        "rdp": lambda dp: dp.SingleEpochTreeAggregationDpEvent(10.0, 1_024),
    }),
    "permute-and-flip, epsilon 0.1": (100, {
        "ours": lambda pa: pa.PermuteAndFlip(0.1),
    }),
    "zCDP, rho 0.001": (100, {
        "ours": lambda pa: pa.ZeroConcentratedDP(0.001),
        "rdp": lambda dp: dp.ZCDpEvent(0.001),
    }),
    "pure DP, epsilon 0.1": (100, {
        "ours": lambda pa: pa.PureDP(0.1),
        "pld": lambda pld: pld.from_privacy_parameters(privacy_parameters(0.1, 0.0)),
        "prv": lambda prv: prv.PureDPMechanism(0.1),
    }),
    "(0.1, 1e-8)-DP": (50, {
        "ours": lambda pa: pa.ApproximateDP(0.1, 1e-8),
        "pld": lambda pld: pld.from_privacy_parameters(privacy_parameters(0.1, 1e-8)),
        "prv": lambda prv: prv.ApproximateDPMechanism(0.1, 1e-8),
    }),
    "exponential mechanism, range 0.1": (100, {
        "ours": lambda pa: pa.ExponentialMechanism(0.1),
    }),
}  # fmt: skip

# of dp-accounting's RDP accountant, where it is not to add or remove a record
RELATION = {"100 of 20,000 records, replace-one": "REPLACE_ONE", "tree aggregation of 1,024 leaves": "REPLACE_SPECIAL"}


def privacy_parameters(epsilon: float, delta: float) -> Any:
    """dp-accounting's (epsilon, delta)."""
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    return DifferentialPrivacyParameters(epsilon, delta)


def answer(name: str, accountant: str) -> dict[str, Any]:
    """The answer of one accountant, in this process."""
    steps, ways = CASES[name]
    curve: Callable[[np.ndarray], Any] | None = None
    start = time.process_time()
    if accountant == "this package":
        import pld_accountant as pa

        start = time.process_time()
        made = ways["ours"](pa)
        parts = [(one, n * steps) for one, n in made] if isinstance(made, list) else [(made, steps)]
        bounds = pa.compose(parts).epsilon(DELTA)
        found = {"epsilon": bounds.estimate, "lower": bounds.lower, "upper": bounds.upper}

        def curve(epsilons: np.ndarray) -> Any:
            return pa.compose(parts).delta(epsilons)

    elif accountant == "dp-accounting":
        from dp_accounting.pld import privacy_loss_distribution as pld

        start = time.process_time()
        found = {"epsilon": float(ways["pld"](pld).self_compose(steps).get_epsilon_for_delta(DELTA))}

        def curve(epsilons: np.ndarray) -> Any:
            return ways["pld"](pld).self_compose(steps).get_delta_for_epsilon(epsilons)

    elif accountant == "dp-accounting RDP":
        import dp_accounting
        from dp_accounting import rdp

        start = time.process_time()
        relation = dp_accounting.NeighboringRelation[RELATION.get(name, "ADD_OR_REMOVE_ONE")]
        keep = rdp.RdpAccountant(neighboring_relation=relation)
        keep.compose(ways["rdp"](dp_accounting), steps)
        found = {"epsilon": float(keep.get_epsilon(DELTA))}
    else:
        import prv_accountant as prv

        start = time.process_time()
        accounted = prv.PRVAccountant(
            prvs=[ways["prv"](prv)], max_self_compositions=[steps], eps_error=0.01, delta_error=DELTA / 1_000
        )
        low, middle, high = accounted.compute_epsilon(DELTA, [steps])
        found = {"epsilon": float(high), "lower": float(low), "estimate": float(middle)}
    found["seconds"] = time.process_time() - start
    if curve is not None and "pld" in ways:
        start = time.process_time()
        curve(np.linspace(0.0, 2.0 * found["epsilon"], 200))
        found["curve_seconds"] = time.process_time() - start
    return found


KIND = {"dp-accounting": "pld", "dp-accounting RDP": "rdp", "prv-accountant": "prv", "this package": "ours"}


def ask(name: str, accountant: str) -> dict[str, Any]:
    """The second answer of a process of its own, or why there is none."""
    if KIND[accountant] not in CASES[name][1]:
        return {"status": "has none"}
    command = [sys.executable, __file__, "--ask", name, accountant]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2.0 * SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"status": f"over {SECONDS:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines or not lines[-1].startswith("{"):
        return {"status": done.stderr.strip().splitlines()[-1][:80] if done.stderr.strip() else "crashed"}
    return json.loads(lines[-1])


def versions() -> dict[str, str]:
    """What is installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in ("dp-accounting", "prv-accountant", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def main() -> None:
    """Ask everybody everything, print the table, write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ask", nargs=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.ask:
        answer(*options.ask)
        print(json.dumps(answer(*options.ask)))
        return
    rows = []
    print(f"epsilon at delta = {DELTA:g}\n{'mechanism':34}{'this package':>14}{'width':>9}{'s':>8}{'curve':>7}", end="")
    print("".join(f"{peer:>20}{'s':>7}{'curve':>7}" for peer in PEERS))
    for name, (steps, _) in CASES.items():
        answers = {accountant: ask(name, accountant) for accountant in ("this package", *PEERS)}
        ours = answers["this package"]
        middle = 0.5 * (ours["lower"] + ours["upper"])
        for found in answers.values():
            if "epsilon" in found:
                found["error"] = found["epsilon"] / middle - 1.0
        rows.append({"mechanism": name, "steps": steps, "delta": DELTA, "answers": answers})
        width = (ours["upper"] - ours["lower"]) / ours["upper"]
        print(f"{name + f' x {steps}':34}{middle:14.8g}{width:9.0e}{ours['seconds']:8.3f}", end="")
        print(f"{ours.get('curve_seconds', math.nan):7.2f}", end="")
        for peer in PEERS:
            found = answers[peer]
            shown = f"{found['error']:+.1e}" if "error" in found else found["status"][:19]
            print(
                f"{shown:>20}{found.get('seconds', math.nan):7.2f}{found.get('curve_seconds', math.nan):7.2f}", end=""
            )
        print(flush=True)
    options.out.write_text(json.dumps({"versions": versions(), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
