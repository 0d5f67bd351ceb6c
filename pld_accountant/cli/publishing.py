"""The command `release`: a private summary of a ledger that may be published."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from .. import validate
from . import options
from .kinds import load_ledger
from .options import INPUT, OUTPUT, example, user_errors
from .running import check_files, finish

__all__ = ["release"]


@options.command(
    short_help="A differentially private histogram of everybody's epsilon, to be published.",
    epilog=example("release ledger.npz --delta 1e-5 --epsilon 0.5 --edges 0.5,1,1.5,2 --json published.json"),
)
@click.argument("ledger_file", metavar="LEDGER", type=INPUT)
@options.delta
@options.number("--epsilon", required=False)
@options.number("--rho", required=False)
@click.option(
    "--edges",
    required=True,
    callback=options.numbers(partial(validate.positive, name="edges")),
    help="Ends of the cells of the histogram, ascending, separated by commas; chosen without the data.",
)
@options.groups
@click.option("--group-names", help="The public list of groups, separated by commas; needed with --groups.")
@options.json_file
@click.option("--book", type=OUTPUT, help="Write the ledger with the cost of the release added for everybody.")
@options.quiet
def release(
    ledger_file: Path,
    delta: float,
    epsilon: float | None,
    rho: float | None,
    edges: Sequence[float],
    groups: Path | None,
    group_names: str | None,
    json_file: Path | None,
    book: Path | None,
    quiet: bool,
) -> None:
    """Count people by epsilon and group, and add noise, so that the counts may be published.

    LEDGER is a file written by `record`, by `epsilon ... --ledger LEDGER` or by `Ledger.save`, or a journal.  Each call
    is a new release with its own cost.  The page on publishing states the conditions of the guarantee.
    """
    from ..files.groups import read_labels
    from ..publishing import release as release_counts

    check_files([(json_file, ()), (book, ())], (ledger_file, groups))
    with user_errors():
        ledger: Any = load_ledger(ledger_file)
        labels = None if groups is None else read_labels(groups, ledger.num_examples, people=ledger.people)
        names = None if group_names is None else [name.strip() for name in group_names.split(",")]
        found = release_counts(
            ledger, delta, epsilon=epsilon, rho=rho, edges=edges, labels=labels, groups=names, book=book is not None
        )
    finish(found.as_dict(), found.text(), json_file, quiet, {} if book is None else {book: ledger.save})
