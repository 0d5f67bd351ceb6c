"""Compute tests/data/exact.json with the oracle: values over the whole range that the engine promises.

Run from the repository's root: ``python tests/make_reference.py [--only TAG]``; it takes about an hour on one core and
needs python-flint.  A value that the oracle cannot settle (two computations agreeing to 1e-11) in the time
allowed is recorded as null with the reason.  The file is written after every case; cases in it are not done again.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import oracle
import oracle_few
from oracle import Value

FILE = Path(__file__).parent.parent / "data" / "exact.json"
DELTAS = (1e-2, 1e-3, 1e-5, 1e-8, 1e-10, 1e-15, 1e-20, 1e-30, 1e-60, 1e-100)
ABOUT = (
    "epsilon(delta) of compositions of Poisson-sampled Gaussians, by removal and by addition of one record; 0 where "
    "delta(0) <= delta, null where the oracle did not settle (see 'notes').  steps: [noise_multiplier, sample_rate, "
    "count].  Made by tests/make_reference.py.  Methods: 'closed form' (sample_rate 1, 2000 bits), 'contour, Arb' "
    "(tests/oracle.py, 224 bits, two contours agreeing to 1e-16), 'contour, float64' (tests/oracle_few.py, two "
    "contours agreeing to 1e-11), 'nested quadrature' (up to three steps, two orders agreeing to 1e-11).  'agreement' "
    "is that relative difference.  All parameters are the doubles that the decimals mean."
)


def homogeneous(rng: np.random.Generator) -> list:
    """Random points of the whole range."""
    cases = []
    for _ in range(110):
        sigma = float(rng.choice([0.2, 0.3, 0.5, 0.7, 0.8, 1.0, 1.5, 2.0, 4.0, 10.0, 30.0, 100.0, 1000.0]))
        q = float(rng.choice([1e-6, 1e-5, 1e-4, 1e-3, 0.005, 0.01, 0.03, 0.1, 0.3, 0.5, 0.9]))
        n = int(rng.choice([100, 300, 1000, 3000, 10_000, 100_000, 1_000_000, 10_000_000]))
        cases.append(("homogeneous", [(sigma, q, n)], float(rng.choice(DELTAS))))
    return cases


def chosen() -> list:
    """Points that other accountants are known to fail at, and the corners."""
    cases = []
    for sigma, q, n in (
        (2.0, 0.005, 10_000), (1.0, 0.01, 10_000), (1.0, 1e-5, 10_000), (0.3, 0.01, 10_000), (0.3, 1e-5, 10_000),
        (100.0, 1e-5, 10_000), (2.0, 0.005, 1_000_000), (0.3, 0.01, 1000), (1.0, 0.02, 10_000),
    ):  # fmt: skip
        cases += [("known", [(sigma, q, n)], d) for d in (1e-5, 1e-10, 1e-15, 1e-30, 1e-100)]
    cases += [("known", [(sigma, 0.1, 10_000)], 1e-5) for sigma in (0.2, 0.3, 0.5)]  # epsilon above 745
    corners = [(s, q, n) for s in (0.2, 1000.0) for q in (1e-6, 0.99) for n in (100, 10_000_000)]
    cases += [("corner", [part], d) for part in corners for d in (1e-2, 1e-100)]
    cases += [
        ("large", [part], d)
        for part in ((0.5, 0.1, 10_000), (1.0, 0.5, 10_000), (0.2, 0.01, 10_000), (0.7, 0.05, 1_000_000))
        for d in (1e-2, 1e-5, 1e-30)
    ]
    full = ((100.0, 1.0, 420), (1000.0, 1.0, 1), (0.2, 1.0, 1), (10.0, 1.0, 50), (0.2, 1.0, 10_000_000))
    cases += [("full batch", [part], d) for part in full for d in (1e-2, 1e-5, 1e-30, 1e-100)]
    cases += [("full batch mixed", [(10.0, 1.0, 3), (33.0, 1.0, 700)], d) for d in (1e-5, 1e-60)]
    cases += [("full and sampled", [(50.0, 1.0, 20), (2.0, 0.005, 5000)], d) for d in (1e-5, 1e-30)]
    return cases


def few(rng: np.random.Generator) -> list:
    """One, two, three, five and ten steps."""
    cases = []
    for n in (1, 2, 3, 5, 10):
        for _ in range(9):
            sigma = float(rng.choice([0.3, 0.5, 1.0, 2.0, 5.0, 30.0]))
            q = float(rng.choice([1e-4, 1e-3, 0.01, 0.1, 0.3, 0.7]))
            # a delta well under q sigma-ish, so that epsilon is not 0
            delta = float(min(rng.choice(DELTAS), 10.0 ** np.floor(np.log10(0.03 * q / max(sigma, 1.0)))))
            cases.append(("few", [(sigma, q, n)], delta))
    cases += [("few", [(1.0, 0.1, 1), (4.0, 0.1, 1)], d) for d in (1e-4, 1e-12)]
    cases += [("few", [(0.8, 0.2, 1), (2.0, 0.2, 2)], d) for d in (1e-4, 1e-12)]
    return cases


def mixed(rng: np.random.Generator) -> list:
    """Many noise multipliers at one sample rate, as individuals have; some with several sample rates."""
    cases = []
    for i in range(50):
        size = int(rng.integers(2, 13))
        base = float(np.round(rng.uniform(0.5, 4.0), 3))
        rates = np.round(np.exp(rng.uniform(np.log(2e-4), np.log(0.3), 2)), 6)
        parts = []
        for j in range(size):
            sigma = float(np.round(base * np.exp(abs(rng.normal(0.0, 1.2))), 3))
            count = int(np.exp(rng.uniform(0.0, np.log(5e4))))
            parts.append((sigma, float(rates[j % 2 if i % 5 == 0 else 0]), count))
        cases.append(("mixed", parts, float(rng.choice(DELTAS))))
    return cases


def giant() -> list:
    """One large step among thousands of tiny ones."""
    tiny = [((30.0, 0.005, 10_000), 0.005), ((60.0, 0.05, 5000), 0.05), ((100.0, 0.001, 1_000_000), 0.001)]
    return [
        ("giant", [(sigma, q, 1), part], d)
        for part, q in tiny for sigma in (0.3, 0.7, 2.0) for d in (1e-3, 1e-5, 1e-10, 1e-30)
    ]  # fmt: skip


def published() -> list:
    """The compositions of exact_epsilon.json again, to more digits."""
    cases = json.loads((FILE.parent / "exact_epsilon.json").read_text())["cases"]
    keys = ("noise_multiplier", "sample_rate", "count")
    return [("published", [tuple(part[k] for k in keys) for part in c["steps"]], c["delta"]) for c in cases]


def settle(parts: list, delta: float, direction: str) -> Value:
    """epsilon by the first method that settles."""
    steps = sum(n for _, _, n in parts)
    if all(q == 1.0 for _, q, _ in parts):
        return oracle.epsilon(parts, delta, direction)
    if steps == 1:
        return oracle_few.direct_epsilon(parts, delta, direction)
    if steps == 2:
        return oracle_few.direct_epsilon(parts, delta, direction)
    # Arb where it is quick, float64 where that keeps the digits, Arb again; three steps by quadrature at last
    methods = [partial(oracle.epsilon, patience=3.0), oracle_few.epsilon, partial(oracle.epsilon, patience=25.0)]
    if steps <= 30:
        methods = methods[1:2]
    if steps == 3:
        methods.append(oracle_few.direct_epsilon)
    reasons = []
    for method in methods:
        try:
            return method(parts, delta, direction)
        except ArithmeticError as reason:
            reasons.append(str(reason))
    raise ArithmeticError("; ".join(reasons))


def late(*_) -> None:
    raise TimeoutError


def do(case: tuple, seconds: int) -> dict:
    """One case, both directions."""
    tag, parts, delta = case
    result: dict = {"tag": tag, "delta": delta, "steps": parts}
    result |= {"epsilon": {}, "method": {}, "agreement": {}, "notes": {}}
    for direction in ("remove", "add"):
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            value = settle(parts, delta, direction)
            result["epsilon"][direction] = value.value
            result["method"][direction] = value.method
            result["agreement"][direction] = value.agreement
        except (ArithmeticError, TimeoutError, MemoryError) as reason:
            result["epsilon"][direction] = None
            result["notes"][direction] = str(reason) or f"not settled in {seconds} s"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    return result


def write(cases: list[dict]) -> None:
    """One case a line."""
    lines = ",\n  ".join(json.dumps(c) for c in cases)
    FILE.write_text(f'{{"about": {json.dumps(ABOUT)},\n "cases": [\n  {lines}\n ]}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=70, help="of processor time for a value")
    parser.add_argument("--only", help="cases with this tag alone")
    parser.add_argument("--again", action="store_true", help="try once more what was not settled")
    options = parser.parse_args()
    signal.signal(signal.SIGPROF, late)
    rng = np.random.default_rng(20)
    cases = homogeneous(rng) + few(rng) + mixed(rng) + chosen() + giant() + published()
    done = json.loads(FILE.read_text())["cases"] if FILE.exists() else []
    if options.again:
        done = [c for c in done if None not in c["epsilon"].values()]
    known = {json.dumps([c["steps"], c["delta"]]) for c in done}
    for case in cases:
        key = json.dumps([case[1], case[2]])
        if key in known or (options.only and options.only != case[0]):
            continue
        known.add(key)
        start = time.perf_counter()
        done.append(do(case, options.seconds))
        taken = f"{time.perf_counter() - start:6.1f} s"
        print(taken, case, done[-1]["epsilon"], *done[-1]["notes"].values(), flush=True)
        write(done)


if __name__ == "__main__":
    main()
