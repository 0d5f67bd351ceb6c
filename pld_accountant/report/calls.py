"""The work of the command line on a ledger, one call each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import validate
from ..files.fingerprint import Source
from ..results import Guarantee
from . import figures, outputs, summary
from .comparison import Comparison
from .content import gather
from .histogram import checked
from .html.page import page_writer
from .individuals import MIN_GROUP, QUANTILES, assess
from .outputs import Writer
from .summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .individuals import AnyLedger

__all__ = ["draw_histogram", "planned", "result_writers", "summarise", "write_report", "write_results"]

_MOST_BINS = 10_000

File = str | os.PathLike[str]


def summarise(
    ledger: AnyLedger,
    delta: float,
    *,
    labels: Any = None,
    probabilities: Sequence[float] = QUANTILES,
    direction: str = "both",
    parameters: Mapping[str, Any] | None = None,
    source: Source | File | None = None,
    min_group: int = MIN_GROUP,
    seconds: float | None = None,
    guarantee: Guarantee | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Everybody's epsilon in a few numbers: quantiles, groups, and the share under half the worst case.

    Parameters
    ----------
    ledger : Ledger, LaplaceLedger or MechanismLedger
    delta : float
        In (0, 1).
    labels : array_like of shape (num_examples,), optional
        The group of every person: integers or strings.
    probabilities : sequence of float in [0, 1]
        Quantiles to report; 0 is the smallest, 1 the largest epsilon.
    direction : {"both", "remove", "add"}
    parameters : mapping, optional
        Further parameters for the outputs, beside the ledger's.
    source : path, optional
        The file that the norms came from.  Its name and SHA-256 digest then stand in every output.
    min_group : int
        Nothing is shown about a group of fewer people; 1 shows everything.
    seconds : float, optional
        A limit of time: what is not proven by then is wider, and its status says so.
    guarantee : Guarantee, optional
        What is proven for the run, as ``IndividualSteps.guarantee`` or a filter's; by default the ledger's own.  It
        stands in every output.
    progress : callable, optional
        Called with (people done, people in all).

    Returns
    -------
    Summary
        ``print(found.text())`` prints it, ``found.as_dict()`` is the mapping for JSON, and ``found.individuals`` has
        each person's numbers.  `write_results` and `draw_histogram` take it.

    Raises
    ------
    ValueError
        For a bad argument.

    **Cost**: the cost of the ledger's `epsilon`.

    Examples
    --------
    >>> from pld_accountant.ledger import Ledger
    >>> ledger = Ledger(3, noise_multiplier=2, sample_rate=0.005, max_grad_norm=5)
    >>> ledger.record([0.0, 1.0, 7.5], repeat=10_000)
    >>> found = summarise(ledger, 1e-5, min_group=1)
    >>> found.as_dict()["worst_case"]["upper"] < 1.0042, found.under_half
    (True, Share(count=2, total=3))
    """
    checked(probabilities)
    people = assess(
        ledger,
        delta,
        direction,
        labels=labels,
        parameters=parameters,
        source=source,
        min_group=min_group,
        seconds=seconds,
        guarantee=guarantee,
        progress=progress,
    )
    return summary.summarise(people, probabilities)


def draw_histogram(found: Summary | Comparison, *, bins: int = 50) -> Figure:
    """Draw the number of people by epsilon: of a summary by PLD and Renyi accounting, of a comparison by all three.

    Parameters
    ----------
    found : Summary or Comparison
    bins : int
        Bins of equal width, at most, up to 10,000; fewer if most of them have too few people to be shown.

    Returns
    -------
    matplotlib.figure.Figure
        The caption holds the guarantee.  `write_results` writes the picture to a file.
    """
    _check_results(found)
    bins = validate.count(bins, "bins", least=1)
    if bins > _MOST_BINS:
        raise ValueError(f"bins must be at most {_MOST_BINS}, got {bins}")
    if isinstance(found, Comparison):
        return figures.draw_comparison(found, bins=bins)
    return figures.draw_histogram(found.individuals, bins=bins)


def _check_results(found: Any) -> None:
    if not isinstance(found, Summary | Comparison):
        raise TypeError(f"found must be what summarise, compare or read_results returned, got {type(found).__name__}")


def planned(out: Path | None, figure: Path | None, json: Path | None) -> list[tuple[Path, Sequence[str]]]:
    """The files that `result_writers` writes, each with its allowed endings, for `outputs.check`."""
    wanted = ((out, outputs.TABLE_ENDINGS), (figure, outputs.FIGURE_ENDINGS), (json, ()))
    found: list[tuple[Path, Sequence[str]]] = [(path, endings) for path, endings in wanted if path is not None]
    beside = None if out is None else outputs.companion(out)
    return found if beside is None else [*found, (beside, ())]


def result_writers(
    found: Summary | Comparison, out: Path | None, figure: Path | None, json_file: Path | None
) -> dict[Path, Writer]:
    """A writer for each requested file, and for the file beside a CSV table."""
    _check_results(found)
    facts, writers = found.as_dict(), {}
    if out is not None:
        more = {}
        if isinstance(found, Comparison):
            more = {"mu": np.asarray(found.mu.upper), "gaussian_epsilon": found.gaussian_epsilon}
        writers[out] = outputs.table_writer(found.individuals, out.suffix.lower(), facts, more=more)
        if (beside := outputs.companion(out)) is not None:
            writers[beside] = outputs.json_writer(outputs.table_facts(facts))
    if figure is not None:
        drawn, ending = draw_histogram(found), figure.suffix.lower()
        about = json.dumps({name: facts[name] for name in ("provenance", "delta", "parameters", "guarantee")})
        writers[figure] = lambda file: figures.write_figure(drawn, file, ending, about)
    if json_file is not None:
        writers[json_file] = outputs.json_writer(facts)
    return writers


def write_results(
    found: Summary | Comparison,
    out: File | None = None,
    *,
    figure: File | None = None,
    json: File | None = None,
) -> tuple[Path, ...]:
    """Write a table of everybody, the picture and the summary; all of them are written, or none.

    Parameters
    ----------
    found : Summary or Comparison
    out : path, optional
        A row per person, as .parquet, .csv or .npz.  The file ``eps.csv.meta.json`` beside ``eps.csv`` holds the
        provenance, the parameters and the guarantee; the other formats hold them inside.
    figure : path, optional
        The picture, as .png or .pdf.
    json : path, optional
        The summary as JSON.

    Returns
    -------
    tuple of Path
        The files written.

    Raises
    ------
    ValueError
        For a wrong ending, a missing folder, a file named twice, or no file at all.
    OSError
        If one file cannot be written; then none is.
    """
    paths = [None if path is None else Path(path) for path in (out, figure, json)]
    if not any(paths):
        raise ValueError("a file must be named: out, figure or json")
    outputs.check(planned(*paths))
    writers = result_writers(found, *paths)
    outputs.write_all(writers)
    return tuple(writers)


def write_report(
    ledger: AnyLedger,
    path: File,
    delta: float,
    *,
    labels: Any = None,
    deltas: Sequence[float] | None = None,
    title: str = "Individual privacy loss",
    direction: str = "both",
    source: Source | File | None = None,
    min_group: int = MIN_GROUP,
    seconds: float | None = None,
    guarantee: Guarantee | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write one HTML page on everybody's epsilon, with charts and tables, that needs no network and no script.

    Parameters
    ----------
    path : path
        Must end in .html.
    delta, labels, direction, source, min_group, guarantee, progress
        As in `summarise`.
    deltas : sequence of float, optional
        Further deltas for one table.  By default `delta` times 1e2, 1e-1, 1e-3 and 1e-5.
    title : str
        The heading.
    seconds : float, optional
        A limit of time for the bounds at `delta`, and again for those at the further deltas.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    ValueError
        For a bad argument, a wrong ending, a missing folder, or fewer people than `min_group`.
    OSError
        If the file cannot be written.

    **Cost**: the ledger's `epsilon`, and its upper bounds for every further delta.
    """
    file = Path(path)
    outputs.check([(file, outputs.PAGE_ENDINGS)])
    people = assess(
        ledger,
        delta,
        direction,
        labels=labels,
        source=source,
        min_group=min_group,
        seconds=seconds,
        guarantee=guarantee,
        progress=progress,
    )
    content = gather(ledger, people, deltas, progress=progress, seconds=seconds)
    outputs.write_all({file: page_writer(content, title)})
    return file
