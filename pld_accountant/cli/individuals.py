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
from .running import check_files, finish, progress_bars, read_log

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
    delta: float,
    direction: str,
    min_group: int,
    quiet: bool,
    quantiles: Sequence[float],
    seconds: float | None,
    **log: Any,
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

    wanted = calls.planned(out, figure, json_file)
    check_files([*wanted, (ledger_file, ())], (norms, log["groups"]))
    bars = progress_bars(quiet)
    read = read_log(norms, bars, **log)
    request = read.request(delta, direction, quantiles, min_group, seconds)
    with bars("Accounting", "examples") as show:
        found = calls.summary_of(request, show)
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
    delta: float,
    direction: str,
    min_delta: float | None,
    min_group: int,
    quiet: bool,
    quantiles: Sequence[float],
    out: Path | None,
    figure: Path | None,
    json_file: Path | None,
    seconds: float | None,
    **log: Any,
) -> None:
    """PLD, Gaussian and Renyi accounting of every example side by side; NORMS as in `epsilon`."""
    from ..report import calls, comparison

    check_files(calls.planned(out, figure, json_file), (norms, log["groups"]))
    with user_errors():
        comparison.check_min_delta(min_delta, delta)
    bars = progress_bars(quiet)
    read = read_log(norms, bars, **log)
    request = read.request(delta, direction, quantiles, min_group, seconds)
    with user_errors(), bars("Comparing", "examples") as show:
        found = comparison.comparison_of(request, min_delta, show)
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
    delta: float,
    direction: str,
    groups: Path | None,
    min_group: int,
    json_file: Path | None,
    quiet: bool,
    seconds: float | None,
    deltas: Sequence[float] | None,
    title: str,
    out: Path,
) -> None:
    """One HTML page on everybody's epsilon, with charts and tables.

    LEDGER is a file written by `record`, by `epsilon ... --ledger LEDGER` or by `Ledger.save`, or a journal.
    """
    from ..files.fingerprint import fingerprint
    from ..files.groups import read_labels
    from ..report import outputs
    from ..report.content import gather
    from ..report.html.page import page_writer
    from ..report.individuals import Request, assess

    bars = progress_bars(quiet)
    check_files([(out, outputs.PAGE_ENDINGS), (json_file, ())], (ledger_file, groups))
    with user_errors():
        ledger = load_ledger(ledger_file)
        labels = None if groups is None else read_labels(groups, ledger.num_examples, people=ledger.people)
        source = fingerprint(ledger_file)
    request = Request(ledger, delta, direction, labels, source=source, min_group=min_group, seconds=seconds)
    with bars("Accounting", "examples") as show:
        found = assess(request, show)
    with user_errors(), bars("Further deltas", "examples") as show:
        gathered = gather(ledger, found, deltas, progress=show, seconds=seconds)
    finish(gathered.summary.as_dict(), "", json_file, quiet, {out: page_writer(gathered, title)})
