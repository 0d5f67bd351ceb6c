"""The distance between the certified bounds of individuals by the number of buckets: no data needed.

Run ``python figures/widths.py`` (seconds): 200 synthetic people, whose norms shrink as in a training run.
"""

from __future__ import annotations

import common
import numpy as np
from common import COLOURS

import pld_accountant as pa

STEPS, SETTING = 10_000, {"noise_multiplier": 2.0, "sample_rate": 0.005, "max_grad_norm": 1.0}
BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024)
LINES = {
    "largest": ("Largest of 200 people", "PLD", "o--"),
    "median": ("Median of 200 people", "PLD", "o-"),
    "over the worst case": (r"Largest, over the worst case's $\varepsilon$", "worst case", "s:"),
}


def norms(people: int = 200, rows: int = 100, seed: int = 0) -> np.ndarray:
    """Log-normal norms over people and steps, shrinking with the steps; each row stands for many steps."""
    rng = np.random.default_rng(seed)
    scale = rng.lognormal(-1.0, 0.8, people)
    shrinking = 0.3 + 0.7 * np.exp(-3 * np.arange(rows)[:, None] / rows)
    return scale * shrinking * rng.lognormal(0, 0.4, (rows, people))


def widths(buckets: tuple[int, ...] = BUCKETS) -> dict[str, list[float]]:
    """Median and largest distance of the bounds over the person's upper bound, and over the worst case's epsilon."""
    rows = norms()
    out: dict[str, list[float]] = {"buckets": list(buckets), "median": [], "largest": [], "over the worst case": []}
    for number in buckets:
        ledger = pa.Ledger(rows.shape[1], **SETTING, buckets=number)
        for row in rows:
            ledger.record(row, repeat=STEPS // len(rows))
        found = ledger.epsilon(1e-5)
        width = found.upper - found.lower
        out["median"].append(float(np.median(width / found.upper)))
        out["largest"].append(float(np.max(width / found.upper)))
        out["over the worst case"].append(float(np.max(width)) / float(ledger.worst_case().epsilon(1e-5).upper))
    return out


def main() -> None:
    """Draw one panel."""
    given = common.arguments(__doc__)
    near = widths()
    figure, axes = common.panels(height=3.2)
    for name, (words, colour, style) in LINES.items():
        percent = 100 * np.array(near[name])
        axes.loglog(near["buckets"], percent, style, color=COLOURS[colour], ms=4, lw=1.7, label=words)
    axes.set_xticks(near["buckets"], [f"{b:,}" for b in near["buckets"]])
    axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    axes.set_ylim(0.003, 150)
    axes.minorticks_off()
    common.dress(axes, "Buckets", r"Distance of the bounds over $\varepsilon$")
    common.legend(axes, loc="lower left", handlelength=3.5)
    common.keep(given.out, "widths", figure, {**near, "steps": STEPS, "delta": 1e-5, **SETTING})


if __name__ == "__main__":
    main()
