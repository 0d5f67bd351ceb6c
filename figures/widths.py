"""How near the certified bounds are, and how far down they hold: no data needed.

Run ``python figures/widths.py`` (a minute).

Left: the distance of the bounds of 200 made-up people, whose norms shrink as in a training run, by the number of
buckets.  Right: epsilon of the worst case down to delta = 1e-100, by PLD and by Renyi accounting.
"""

from __future__ import annotations

import time
from typing import Any

import common
import numpy as np
from common import COLOURS

import pld_accountant as pa

STEPS, SETTING = 10_000, {"noise_multiplier": 2.0, "sample_rate": 0.005, "max_grad_norm": 1.0}
BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024)
EXPONENTS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def norms(people: int = 200, rows: int = 100, seed: int = 0) -> np.ndarray:
    """Log-normal scales over people and steps, shrinking with the steps; each row stands for many steps."""
    rng = np.random.default_rng(seed)
    scale = rng.lognormal(-1.0, 0.8, people)
    shrinking = 0.3 + 0.7 * np.exp(-3 * np.arange(rows)[:, None] / rows)
    return scale * shrinking * rng.lognormal(0, 0.4, (rows, people))


def widths() -> dict[str, list[float]]:
    """Median and largest distance of the bounds over the person's own upper bound, and seconds."""
    rows = norms()
    out: dict[str, list[float]] = {"buckets": [], "median": [], "largest": [], "over the worst case": []}
    worst = pa.compose([(pa.SampledGaussian(SETTING["noise_multiplier"], SETTING["sample_rate"]), STEPS)])
    for buckets in BUCKETS:
        ledger = pa.Ledger(rows.shape[1], **SETTING, buckets=buckets)
        ledger.record(np.repeat(rows, STEPS // len(rows), axis=0))
        found = ledger.epsilon(1e-5)
        width = found.upper - found.lower
        out["buckets"].append(buckets)
        out["median"].append(float(np.median(width / found.upper)))
        out["largest"].append(float(np.max(width / found.upper)))
        out["over the worst case"].append(float(np.max(width)) / worst.epsilon(1e-5).upper)
    return out


def tails() -> dict[str, Any]:
    """Bounds of the worst case's epsilon, and the Renyi one, at powers of ten."""
    run = pa.compose([(pa.SampledGaussian(SETTING["noise_multiplier"], SETTING["sample_rate"]), STEPS)])
    out: dict[str, Any] = {"log10 delta": [], "lower": [], "upper": [], "Renyi": [], "seconds": []}
    for k in EXPONENTS:
        begin = time.process_time()
        found = run.epsilon(10.0**-k)
        out["seconds"].append(round(time.process_time() - begin, 2))
        out["log10 delta"].append(-k)
        out["lower"].append(found.lower)
        out["upper"].append(found.upper)
        out["Renyi"].append(run.rdp_epsilon(10.0**-k))
    return out


def main() -> None:
    """Both panels."""
    given = common.arguments(__doc__)
    near, far = widths(), tails()
    figure, (left, right) = common.panels(1, 2, height=3.2)
    for name, style in (("median", "o-"), ("largest", "o--")):
        left.loglog(near["buckets"], 100 * np.array(near[name]), style, color=COLOURS["PLD"], ms=4, lw=1.7,
                    label=f"{name.capitalize()} of 200 people")  # fmt: skip
    left.set_xticks(near["buckets"], [f"{b:,}" for b in near["buckets"]])
    left.set_yticks([0.1, 1, 10, 100], ["0.1 %", "1 %", "10 %", "100 %"])
    left.set_ylim(0.1, 400)
    left.minorticks_off()
    common.dress(left, "Buckets", r"Distance of the bounds over $\varepsilon$")
    common.legend(left, loc="upper right", handlelength=3.5)
    exponents = np.array(far["log10 delta"])
    right.plot(-exponents, far["Renyi"], color=COLOURS["Renyi"], lw=2.6, label="Renyi accounting")
    right.plot(-exponents, far["upper"], color=COLOURS["PLD"], lw=1.6, label="PLD, certified upper bound")
    right.plot(-exponents, far["lower"], ".", color=COLOURS["text"], ms=4, label="PLD, certified lower bound")
    right.set_xticks(range(0, 101, 20), [f"$10^{{-{k}}}$" if k else "1" for k in range(0, 101, 20)])
    right.set_xlim(0, 102)
    right.set_ylim(0, None)
    common.dress(right, r"$\delta$", r"$\varepsilon$ of the worst case")
    common.legend(right, loc="upper left")
    gap = np.max(np.array(far["upper"]) - np.array(far["lower"]))
    facts = {"buckets": near, "tail": far, "largest distance down to 1e-100": gap, "steps": STEPS, **SETTING}
    common.keep(given.out, "widths", figure, facts)


if __name__ == "__main__":
    main()
