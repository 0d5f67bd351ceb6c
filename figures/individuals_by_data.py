"""Individual losses beside the worst case, on three data sets.

Run ``python figures/individuals_by_data.py --data DIR`` (three minutes; each run is kept in the work folder).

DP-SGD with noise multiplier 2, rate 0.005 and 10,000 steps: the worst case is epsilon = 1.004 at delta = 1e-5.  The
norms of 1,000 examples drawn at random are recorded at every step.
"""

from __future__ import annotations

from typing import Any

import common
import datasets
import numpy as np
import sampled
from common import COLOURS

import pld_accountant as pa

DELTA = 1e-5
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "adult": "Adult"}
STYLES = {"mnist": ("#0072B2", "-"), "fashion-mnist": ("#CC79A7", "--"), "adult": ("#009E73", "-.")}


def main() -> None:
    """One line for each data set: the share of examples below each epsilon."""
    given = common.arguments(__doc__)
    figure, axes = common.panels(height=3.2)
    facts: dict[str, Any] = {"delta": DELTA}
    for settings in (sampled.MNIST, sampled.FASHION, sampled.ADULT):
        data = datasets.load(settings.data, given.data)
        watched, log, accuracy = sampled.watch(settings, data, given.work)
        ledger = pa.Ledger.from_norms(log, **settings.accounting)
        found, worst = np.sort(ledger.epsilon(DELTA).upper), ledger.worst_case().epsilon(DELTA).upper
        colour, style = STYLES[settings.data]
        name = f"{NAMES[settings.data]}: median {np.median(found):.3f}, accuracy {100 * accuracy:.1f} %"
        axes.step(found, 100 * np.arange(1, len(found) + 1) / len(found), color=colour, ls=style, lw=2, label=name)
        some = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)
        facts[settings.data] = {
            "accuracy": accuracy,
            "worst case": worst,
            "quantiles": some,
            "epsilon": np.quantile(found, some),
            "epsilon by Renyi": np.quantile(ledger.rdp_epsilon(DELTA), some),
            "mean": found.mean(),
            "mean over the worst case": found.mean() / worst,
            "under half the worst case": float(np.mean(found < worst / 2)),
            "median of each class": {
                name: np.median(ledger.epsilon(DELTA, bounds="upper").upper[data.y[watched] == k])
                for k, name in enumerate(data.classes)
            },
        }
        print(settings.data, flush=True)
    axes.axvline(worst, color=COLOURS["worst case"], lw=1.3, label=f"Worst case: {worst:.4f}")
    axes.set_xscale("log")
    axes.set_xticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"])
    axes.minorticks_off()
    axes.set_ylim(0, 101)
    common.dress(axes, r"Individual privacy loss $\varepsilon$ at $\delta = 10^{-5}$", "Examples below (%)")
    common.legend(axes, loc="upper left")
    common.keep(given.out, "individuals-by-data", figure, facts)


if __name__ == "__main__":
    main()
