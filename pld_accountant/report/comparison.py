"""PLD, Gaussian and Renyi accounting of the same people: `Comparison`, which `compare` makes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import validate
from ..files.fingerprint import Source
from ..notions import gdp
from ..results import Bounds
from ..rounding import exact, finite_or_none, quantile_name, rounded_up
from .histogram import checked, quantiles
from .individuals import MIN_GROUP, QUANTILES, Individuals, assess
from .provenance import provenance_line
from .summary import columns, summarise, wrapped

if TYPE_CHECKING:
    from ..ledger import Ledger

__all__ = ["Comparison", "check_min_delta", "compare", "with_mu"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Each person's epsilon at one delta, by three accountings.

    Attributes
    ----------
    individuals : Individuals
        By privacy loss distributions and by Renyi accounting.
    mu : Bounds of ndarray of shape (num_examples,)
        The smallest mu whose Gaussian curve lies above the person's curve wherever the latter is at least `min_delta`.
    gaussian_epsilon : ndarray of shape (num_examples,)
        The epsilon at the same delta of the upper bound of mu; inf if mu has no bound.
    worst_case_mu, worst_case_gaussian : float
        The same for a person clipped at every step.
    min_delta : float
    full_batch : bool
        True if everybody took part in every step.  The run then is mu-GDP; else mu is a description only.
    probabilities : sequence of float in [0, 1]
        Quantiles to report.
    """

    individuals: Individuals
    mu: Bounds
    gaussian_epsilon: np.ndarray
    worst_case_mu: float
    worst_case_gaussian: float
    min_delta: float
    full_batch: bool
    probabilities: Sequence[float] = QUANTILES

    def __repr__(self) -> str:
        return f"Comparison({self.individuals!r}, mu={self.mu!r})"

    @property
    def gaussian_sentence(self) -> str:
        """The meaning of the Gaussian epsilons, in words."""
        if self.individuals.parameters.get("noise") == "laplace":
            return (
                "The Gaussian epsilon is the epsilon of mu, the root of the summed squares of what the pure DP of each "
                "step implies without sampling, or the worst case's mu if that is smaller. The curve of mu lies above "
                f"the person's own curve wherever delta is at least {exact(self.min_delta)}. No central limit theorem "
                "is used."
            )
        if self.full_batch:
            return (
                "The Gaussian epsilon is the epsilon of mu, the root of the summed squares of the steps, up to "
                "rounding by buckets: full-batch steps are mu-GDP. No central limit theorem is used."
            )
        return (
            "The Gaussian epsilon is descriptive: it is the epsilon of the smallest mu whose Gaussian curve lies above "
            f"the person's own curve, by PLD, wherever delta is at least {exact(self.min_delta)}. No central limit "
            "theorem is used. Sampled steps are not mu-GDP for this mu: below that delta, their curve leaves the curve "
            "of every small mu. For norms fixed beforehand, (epsilon, delta of mu + "
            f"{exact(self.min_delta)})-DP holds for every epsilon."
        )

    @property
    def by_kind(self) -> dict[str, tuple[np.ndarray, float]]:
        """For each accounting, the epsilon of every person and of the worst case."""
        people = self.individuals
        return {
            "PLD": (people.epsilon.upper, people.worst_case.upper),
            "Gaussian": (self.gaussian_epsilon, self.worst_case_gaussian),
            "Renyi": (people.rdp_epsilon, people.worst_case_rdp),
        }

    def ratio(self, kind: str) -> np.ndarray:
        """Epsilon by "Gaussian" or "Renyi" over epsilon by PLD, for people whose two values are finite and above 0."""
        one, other = self.by_kind[kind][0], self.by_kind["PLD"][0]
        sound = np.isfinite(one) & np.isfinite(other) & (other > 0)
        return one[sound] / other[sound]

    def as_dict(self) -> dict[str, Any]:
        """A mapping for JSON without single people; a value that is not finite becomes None."""
        probabilities = self.individuals.shown(self.probabilities)
        by_kind = {
            kind: {
                "worst_case": finite_or_none(worst),
                "quantiles": [
                    {"probability": p, "epsilon": finite_or_none(value)}
                    for p, value in zip(probabilities, quantiles(values, probabilities).values, strict=True)
                ],
            }
            for kind, (values, worst) in self.by_kind.items()
        }
        return {
            **summarise(self.individuals, probabilities).as_dict(),
            "by": by_kind,
            "min_delta": self.min_delta,
            "worst_case_mu": finite_or_none(self.worst_case_mu),
            "gaussian": self.gaussian_sentence,
        }

    def text(self) -> str:
        """Text for the terminal.  Printed epsilons are upper bounds, rounded up."""
        probabilities = self.individuals.shown(self.probabilities)
        people, kinds = self.individuals, self.by_kind
        by = [quantiles(values, probabilities).values for values, _ in kinds.values()]
        rows: list[Sequence[str]] = [(f"epsilon at delta = {exact(people.delta)}", *kinds)]
        for number, probability in enumerate(probabilities):
            rows.append((quantile_name(probability), *(rounded_up(values[number]) for values in by)))
        rows.append((people.worst_label, *(rounded_up(worst) for _, worst in kinds.values())))
        blocks = [summarise(people).heading(), columns(rows)]
        lines = [self._ratio_line(kind) for kind in ("Gaussian", "Renyi")]
        blocks.append("\n".join(line for line in lines if line))
        blocks += [wrapped(sentence) for sentence in people.caveats()]
        without = int(np.count_nonzero(np.isinf(self.gaussian_epsilon)))
        if without:
            blocks.append(f"Without a certified mu: {without:,} of {people.num_examples:,} people.")
        blocks.append(wrapped(self.gaussian_sentence))
        blocks.append(wrapped(f"What is proven: {people.proven}") + "\n" + wrapped(f"[{people.guarantee.reference}]"))
        blocks.append(wrapped(provenance_line(people.provenance)))
        return "\n\n".join(block for block in blocks if block)

    def _ratio_line(self, kind: str) -> str:
        ratio = self.ratio(kind)
        if not len(ratio) or self.individuals.few:
            return ""
        middle, most = np.median(ratio), ratio.max()
        return f"{kind} over PLD: {middle:.3f} in the median, {most:.3f} at most."


def check_min_delta(min_delta: float | None, delta: float) -> float:
    """`min_delta`, or its default, the smaller of 1e-10 and `delta`.

    Raises
    ------
    ValueError
        If it is larger than `delta`: the Gaussian curve would then say nothing at `delta`.
    """
    if min_delta is None:
        return min(1e-10, delta)
    least = validate.positive(min_delta, "min_delta")
    if least > delta:
        raise ValueError(f"min_delta must be above 0 and at most delta={delta:g}, got {min_delta!r}")
    return least


def compare(
    ledger: Ledger,
    delta: float,
    *,
    min_delta: float | None = None,
    direction: str = "both",
    labels: np.ndarray | None = None,
    index: np.ndarray | None = None,
    parameters: Mapping[str, Any] | None = None,
    probabilities: Sequence[float] = QUANTILES,
    source: Source | str | os.PathLike[str] | None = None,
    min_group: int = MIN_GROUP,
    seconds: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compute every person's epsilon by PLD, by Renyi accounting, and by the Gaussian curve above the PLD curve.

    Parameters
    ----------
    min_delta : float, optional
        As in `Ledger.mu`, at most `delta`; by default the smaller of 1e-10 and `delta`.
    direction, labels, parameters, source, min_group, progress
        As in `calls.summarise`.
    index : ndarray of int, optional
        Each person's number, by default the ids of the ledger.
    probabilities : sequence of float in [0, 1]
        Quantiles to report.
    seconds : float, optional
        A limit of time for everybody's epsilons, and again for everybody's mu.

    Raises
    ------
    ValueError
        For a `min_delta` above `delta`, or a ledger that has no mu.

    **Error**: all three are upper bounds of the true epsilon at `delta`; the Gaussian one because min_delta <= delta.

    **Cost**: the cost of `Ledger.mu`.
    """
    if not hasattr(ledger, "mu"):
        raise ValueError(f"ledger must be a Ledger or a LaplaceLedger for Gaussian accounting, got {ledger!r}")
    least = check_min_delta(min_delta, validate.delta(delta))
    checked(probabilities)
    people = assess(
        ledger,
        delta,
        direction,
        labels=labels,
        index=index,
        parameters=parameters,
        source=source,
        min_group=min_group,
        seconds=seconds,
        progress=progress,
    )
    mu = ledger.mu(least, direction, seconds=seconds)
    worst = float(ledger.worst_case().mu(least, direction).upper)
    return with_mu(people, mu, worst, least, tuple(probabilities))


def with_mu(
    people: Individuals, mu: Bounds, worst_case_mu: float, min_delta: float, probabilities: Sequence[float]
) -> Comparison:
    """The comparison of individuals whose mu is known."""
    return Comparison(
        people,
        mu,
        _gaussian_epsilon(people.delta, np.asarray(mu.upper)),
        worst_case_mu,
        float(_gaussian_epsilon(people.delta, np.array([worst_case_mu]))[0]),
        min_delta,
        all(rate == 1.0 for _, rate, _ in people.schedule),
        probabilities,
    )


def _gaussian_epsilon(delta: float, mu: np.ndarray) -> np.ndarray:
    finite = np.isfinite(mu)
    out = np.full(mu.shape, np.inf)
    out[finite] = gdp.epsilon(delta, mu[finite])
    return out
