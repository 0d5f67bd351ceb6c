"""Other accountants asked the same question, each in a process of its own with a limit on time and memory.

``ask(name, parts, delta)`` returns epsilon, bounds if the accountant gives any, and seconds of processor time; an
accountant that is not installed, raises, or takes too long is reported as such.  Install them with
``pip install -e '.[peers]'``.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import subprocess
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

# The first word is the package.
NAMES = ("dp-accounting", "dp-accounting 1e-5", "dp-accounting RDP", "prv-accountant 0.1", "prv-accountant 0.01")
MEMORY = 10 << 30


def dp_accounting_pld(parts: list, delta: float, interval: float, pessimistic: bool = True) -> dict:
    """Connect the dots (below: privacy buckets): each mechanism composed with itself, then all together."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = None
    start = time.process_time()
    for sigma, q, n in parts:
        one = pld.from_gaussian_mechanism(
            sigma, sampling_prob=q, value_discretization_interval=interval, pessimistic_estimate=pessimistic
        )
        one = one.self_compose(n)
        total = one if total is None else total.compose(one)
    return {"epsilon": float(total.get_epsilon_for_delta(delta)), "seconds": time.process_time() - start}


def dp_accounting_laplace(parts: list, delta: float) -> dict:
    """`dp_accounting_pld` at its default for Laplace noise; the first number of a part is its scale."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = None
    start = time.process_time()
    for scale, q, n in parts:
        one = pld.from_laplace_mechanism(scale, sampling_prob=q).self_compose(n)
        total = one if total is None else total.compose(one)
    return {"epsilon": float(total.get_epsilon_for_delta(delta)), "seconds": time.process_time() - start}


def dp_accounting_releases(parts: list, delta: float) -> dict:
    """`dp_accounting_pld` for four mechanisms of the benchmark of ledgers, each so many times."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    start = time.process_time()
    sigma = parts[0][0]
    kinds = (
        pld.from_discrete_gaussian_mechanism(sigma),
        pld.from_discrete_laplace_mechanism(1.0 / sigma),
        pld.from_randomized_response(0.8, 4),
        pld.from_laplace_mechanism(sigma),
    )
    total = None
    for kind, (_, _, n) in zip(kinds, parts, strict=True):
        if n:
            one = kind.self_compose(n)
            total = one if total is None else total.compose(one)
    return {"epsilon": float(total.get_epsilon_for_delta(delta)), "seconds": time.process_time() - start}


def dp_accounting_both(parts: list, delta: float, interval: float) -> dict:
    """Its pessimistic and its optimistic estimate."""
    above, below = (dp_accounting_pld(parts, delta, interval, side) for side in (True, False))
    return {
        "epsilon": above["epsilon"], "lower": below["epsilon"], "upper": above["epsilon"],
        "seconds": above["seconds"] + below["seconds"],
    }  # fmt: skip


def dp_accounting_rdp(parts: list, delta: float) -> dict:
    """Renyi accounting at the library's own orders."""
    import dp_accounting
    from dp_accounting import rdp

    start = time.process_time()
    accountant = rdp.RdpAccountant()
    for sigma, q, n in parts:
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(event, n)
    return {"epsilon": float(accountant.get_epsilon(delta)), "seconds": time.process_time() - start}


def prv(parts: list, delta: float, eps_error: float) -> dict:
    """Estimate with certified ends; the error of delta as its documentation advises, a thousandth."""
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    start = time.process_time()
    mechanisms = [PoissonSubsampledGaussianMechanism(noise_multiplier=s, sampling_probability=q) for s, q, _ in parts]
    counts = [n for _, _, n in parts]
    accountant = PRVAccountant(
        prvs=mechanisms, max_self_compositions=counts, eps_error=eps_error, delta_error=delta / 1000
    )
    lower, estimate, upper = accountant.compute_epsilon(delta, counts)
    return {
        "epsilon": float(estimate), "lower": float(lower), "upper": float(upper),
        "seconds": time.process_time() - start,
    }  # fmt: skip


def answer(name: str, parts: list, delta: float) -> dict:
    """The answer of one accountant, in this process."""
    if name.startswith("prv"):
        return prv(parts, delta, float(name.split()[1]))
    if name.endswith("Laplace"):
        return dp_accounting_laplace(parts, delta)
    if name.endswith("releases"):
        return dp_accounting_releases(parts, delta)
    if name.endswith("RDP"):
        return dp_accounting_rdp(parts, delta)
    if name.startswith("dp-accounting both"):
        return dp_accounting_both(parts, delta, float(name.split()[2]))
    return dp_accounting_pld(parts, delta, 1e-5 if name.endswith("1e-5") else 1e-4)


def ask(name: str, parts: list, delta: float, seconds: float = 120.0) -> dict:
    """The answer of one accountant, or {"status": why there is none}."""
    if find_spec(name.split(maxsplit=1)[0].replace("-", "_")) is None:
        return {"status": "missing"}
    question = json.dumps([name, parts, delta])
    try:
        done = subprocess.run(
            [sys.executable, str(Path(__file__)), question, f"{seconds:.0f}"],
            capture_output=True, text=True, timeout=20 * seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"status": f"over {seconds:.0f} s"}
    if done.returncode == -signal.SIGXCPU:
        return {"status": f"over {seconds:.0f} s"}
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {"status": "crashed"}


def versions() -> dict:
    """What is installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in ("dp-accounting", "prv-accountant"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]), int(sys.argv[2]) + 5))  # whatever else the machine does
    warnings.simplefilter("ignore")
    try:
        result = answer(*json.loads(sys.argv[1]))
        if not math.isfinite(result["epsilon"]):
            result["status"] = str(result["epsilon"])
            result["epsilon"] = None
    except MemoryError:
        result = {"status": "out of memory"}
    except Exception as error:
        result = {"status": f"raises {type(error).__name__}", "message": str(error)[:200]}
    result["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(result))


if __name__ == "__main__":
    main()
