"""The commands on many people: `epsilon` and `compare` of a log of norms, `report` of a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .. import validate
from . import options
from .kinds import load_ledger
from .options import INPUT, OUTPUT, example, user_errors
from .running import check_files, finish, progress_bars, question_of, read_log

__all__ = ["compare", "epsilon", "report"]


@options.command(
    short_help="The epsilon of every example in a log of gradient norms.",
    epilog=example(
        "epsilon norms.npy --noise-multiplier 2 --sample-rate 0.005 --max-grad-norm 5 --delta 1e-5",
        "--orientation steps --out eps.csv --figure hist.png",
    ),
)
@options.of_a_log
@click.option("--out", type=OUTPUT, help="A row per example, as .parquet, .csv or .npz.")
@click.option("--figure", type=OUTPUT, help="The histogram, as .png or .pdf.")
@options.json_file
@click.option("--ledger", "ledger_file", type=OUTPUT, help="The ledger of counted norms, for `report`.")
def epsilon(
    norms: Path,
    out: Path | None,
    figure: Path | None,
    json_file: Path | None,
    ledger_file: Path | None,
    quiet: bool,
    quantiles: Sequence[float],
    **given: Any,
) -> None:
    """The epsilon of every example in a log of gradient norms.

    NORMS holds the norm of every example's gradient at every step, before clipping, also for examples that were not
    sampled: .npy, .npz, .parquet, .zarr or .h5, a row per step and a column per example.

    NORMS may be an event table instead: a Parquet file or folder, or a CSV with a header, with the columns person and
    norm (or sensitivity), and perhaps count or step, noise_multiplier, sample_rate and group; the rows are in any
    order.

    NORMS may be a ledger, or a journal of a training run, too; then it holds all parameters of the steps.
    """
    from ..report import calls
    from ..report.individuals import assess
    from ..report.summary import summarise

    wanted, question = calls.planned(out, figure, json_file), question_of(given)
    check_files([*wanted, (ledger_file, ())], (norms, given["groups"]))
    bars = progress_bars(quiet)
    read = read_log(norms, bars, **given)
    with bars("Accounting", "examples") as show:
        people = assess(read.ledger, **question, **read.about, progress=show)
    found = summarise(people, quantiles)
    writers = calls.result_writers(found, out, figure, None)
    if ledger_file is not None:
        writers[ledger_file] = read.ledger.save
    finish(found.as_dict(), found.text(), json_file, quiet, writers, read.note)


@options.command(
    short_help="PLD, Gaussian and Renyi accounting of every example side by side.",
    epilog=example(
        "compare norms.npy --noise-multiplier 2 --sample-rate 0.005 --max-grad-norm 5 --delta 1e-5",
        "--orientation steps --people 100 --figure three.png",
    ),
)
@options.of_a_log
@click.option("--people", type=click.IntRange(min=1), help="Number of people, drawn at random.  [default: all]")
@options.number("--min-delta", required=False)
@click.option("--out", type=OUTPUT, help="A row per example, as .parquet, .csv or .npz.")
@click.option("--figure", type=OUTPUT, help="The three accountings, as .png or .pdf.")
@options.json_file
def compare(
    norms: Path,
    min_delta: float | None,
    out: Path | None,
    figure: Path | None,
    json_file: Path | None,
    quiet: bool,
    quantiles: Sequence[float],
    **given: Any,
) -> None:
    """PLD, Gaussian and Renyi accounting of every example side by side; NORMS as in `epsilon`."""
    from ..report import calls, comparison

    question = question_of(given)
    check_files(calls.planned(out, figure, json_file), (norms, given["groups"]))
    with user_errors():
        comparison.check_min_delta(min_delta, question["delta"])
    bars = progress_bars(quiet)
    read = read_log(norms, bars, **given)
    with user_errors(), bars("Comparing", "examples") as show:
        more = {"min_delta": min_delta, "probabilities": quantiles, "progress": show}
        found = comparison.compare(read.ledger, **question, **read.about, **more)
    writers = calls.result_writers(found, out, figure, None)
    finish(found.as_dict(), found.text(), json_file, quiet, writers, read.note)


@options.command(
    short_help="One HTML page on everybody's epsilon from a ledger, with charts and tables.",
    epilog=example("report ledger.npz --delta 1e-5 --groups labels.npy --out report.html"),
)
@click.argument("ledger_file", metavar="LEDGER", type=INPUT)
@options.delta
@options.direction
@options.groups
@options.min_group
@options.seconds
@options.json_file
@options.quiet
@click.option(
    "--deltas",
    callback=options.numbers(validate.delta),
    help="Further deltas for the table, separated by commas.  [default: --delta times 1e2, 1e-1, 1e-3 and 1e-5]",
)
@click.option("--title", default="Individual privacy loss", show_default=True, help="The heading.")
@click.option("--out", type=OUTPUT, required=True, help="The page, as .html.")
def report(
    ledger_file: Path,
    groups: Path | None,
    json_file: Path | None,
    quiet: bool,
    deltas: Sequence[float] | None,
    title: str,
    out: Path,
    **question: Any,
) -> None:
    """One HTML page on everybody's epsilon, with charts and tables.

    LEDGER is a file written by `record`, by `epsilon ... --ledger LEDGER` or by `Ledger.save`, or a journal.
    """
    from ..files.fingerprint import fingerprint
    from ..files.groups import read_labels
    from ..report import outputs
    from ..report.content import gather
    from ..report.html.page import page_writer
    from ..report.individuals import assess

    bars = progress_bars(quiet)
    check_files([(out, outputs.PAGE_ENDINGS), (json_file, ())], (ledger_file, groups))
    with user_errors():
        ledger = load_ledger(ledger_file)
        labels = None if groups is None else read_labels(groups, ledger.num_examples, people=ledger.people)
        source = fingerprint(ledger_file)
    with bars("Accounting", "examples") as show:
        found = assess(ledger, **question, labels=labels, source=source, progress=show)
    with user_errors(), bars("Further deltas", "examples") as show:
        gathered = gather(ledger, found, deltas, progress=show, seconds=question["seconds"])
    finish(gathered.summary.as_dict(), "", json_file, quiet, {out: page_writer(gathered, title)})
