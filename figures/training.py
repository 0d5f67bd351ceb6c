"""Exact, capped and observed epsilons of the same people: ``python figures/training.py`` writes training.png and .pdf.

The numbers are those of ``benchmarks/training.py``, from its results file.
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
NAMES = {
    "watched": "exact norms\n(certified)",
    "caps": "caps\n(certified)",
    "observed": "observed when sampled\n(estimates, no bounds)",
}


def main() -> None:
    """Draw the picture."""
    found = json.loads((HERE.parent / "benchmarks" / "results" / "training.json").read_text())
    exact = np.array(found["people"]["watched"])
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    bins = np.linspace(0, found["worst_case"] * 1.02, 52)
    for panel, (name, title) in zip(panels, NAMES.items(), strict=True):
        values = np.array(found["people"][name])
        panel.hist(values, bins=bins, color="C0" if name != "observed" else "C1")
        panel.axvline(found["worst_case"], color="black", linestyle="--", label="worst case")
        panel.axvline(np.median(values), color="C3", label=f"median {np.median(values):.3f}")
        below = np.mean(values < exact)
        note = "" if name == "watched" else f"\n{below:.0%} of people below their exact epsilon"
        panel.set_title(title + note, fontsize=9)
        panel.set_xlabel("epsilon at delta = 1e-5")
        panel.legend(fontsize=8)
    panels[0].set_ylabel(f"people, of {len(exact)}")
    for ending in ("png", "pdf"):
        figure.savefig(
            HERE / f"training.{ending}", dpi=150, metadata={"CreationDate": None} if ending == "pdf" else None
        )


if __name__ == "__main__":
    main()
