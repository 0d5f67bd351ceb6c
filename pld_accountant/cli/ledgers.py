"""The commands on files of ledgers and of other kinds: `record`, `merge`, `verify` and `describe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..rounding import people_and_steps
from . import options
from .kinds import as_text, described, load_ledger, schedule_facts
from .options import INPUT, OUTPUT, example, user_errors
from .running import check_files, finish, progress_bars, read_log

if TYPE_CHECKING:
    from ..files.fingerprint import Source
    from ..ledger import Ledger
    from ..results import Bounds

__all__ = ["describe", "merge", "record", "verify"]

_DIFFERS = 1  # exit status


@options.command(
    short_help="A ledger of a log of norms or of an event table.",
    epilog=example("record march.parquet --schedule 2:0.01:5000 --max-grad-norm 1 --out march.npz"),
)
@options.log_of_norms
@click.option("--compressed", is_flag=True, help="Keep the counts of an event table compressed.")
@click.option("--out", type=OUTPUT, required=True, help="The ledger.")
@options.json_file
@options.quiet
def record(norms: Path, out: Path, json_file: Path | None, quiet: bool, **log: Any) -> None:
    """A ledger of the norms in a log or an event table, without an epsilon; NORMS as in `epsilon`.

    Further steps and other people are added by `merge`.
    """
    check_files([(out, ()), (json_file, ())], (norms,))
    read = read_log(norms, progress_bars(quiet), groups=None, **log)
    ledger = read.ledger
    text = people_and_steps(ledger.num_examples, ledger.steps)
    finish(_of_ledger(ledger, read.source), text, json_file, quiet, {out: ledger.save}, read.note)


@options.command(
    short_help="One ledger of several.",
    epilog=example("merge spring.npz autumn.npz --out year.npz"),
)
@click.argument("ledgers", metavar="LEDGERS...", type=INPUT, nargs=-1, required=True)
@click.option("--same-steps", is_flag=True, help="The ledgers hold other people in the same steps, parts of one table.")
@click.option("--out", type=OUTPUT, required=True, help="The ledger of everybody and all steps.")
@options.json_file
@options.quiet
def merge(ledgers: tuple[Path, ...], same_steps: bool, out: Path, json_file: Path | None, quiet: bool) -> None:
    """One ledger of several: people are matched by id, or by number if nobody has an id.

    LEDGERS are files of ledgers, or journals of training runs.
    Without --same-steps the ledgers hold further steps, and a person who is missing in one took no part in its steps.
    """
    check_files([(out, ()), (json_file, ())], ledgers)
    bars = progress_bars(quiet)
    with user_errors(), bars("Merging", "ledgers") as show:
        whole = load_ledger(ledgers[0])
        for done, path in enumerate(ledgers[1:], 1):
            show(done, len(ledgers))
            whole.merge(load_ledger(path), same_steps=same_steps)
    finish(_of_ledger(whole), people_and_steps(whole.num_examples, whole.steps), json_file, quiet, {out: whole.save})


@options.command(
    short_help="Check a ledger, and results against it.",
    epilog=example("verify ledger.npz --results eps.parquet"),
)
@click.argument("ledger_file", metavar="LEDGER", type=INPUT)
@click.option(
    "--results", type=INPUT, help="Results as .parquet or in a folder, which are computed anew from the ledger."
)
@options.json_file
@options.quiet
def verify(ledger_file: Path, results: Path | None, json_file: Path | None, quiet: bool) -> int:
    """Check a ledger's checksum, parameters and counts, and results against it.

    With --results everybody's bounds are computed anew.  The exit status is 1 if the results have other people, another
    schedule, or bounds for somebody that no epsilon satisfies together with the new ones.
    """
    import numpy as np

    from ..report.reading import read_results

    check_files([(json_file, ())], (ledger_file, results))
    with user_errors():
        ledger = load_ledger(ledger_file)
        found = None if results is None else read_results(results).individuals
    facts = _of_ledger(ledger, ledger_file) | {"ledger": str(ledger_file), "whole": True}
    lines = [f"{ledger_file}: whole; {people_and_steps(ledger.num_examples, ledger.steps)}"]
    differs = False
    if found is not None:
        people = np.arange(found.num_examples) if found.people is None else found.people
        other = "another schedule" if found.schedule != ledger.schedule else ""
        if not np.array_equal(people.astype(str), ledger.people.astype(str)):
            other = other or "other people"
        facts["results"], differs = {"file": str(results), "other": other or None}, bool(other)
        if other:
            lines.append(f"{results}: results of {other} than the ledger's")
        else:
            with progress_bars(quiet)("Accounting", "examples") as show:
                anew = ledger.epsilon(found.delta, str(found.parameters["direction"]), progress=show)
            same, apart = _compared(found.epsilon, anew)
            overlap = found.num_examples - same - apart
            facts["results"] |= {"same": same, "overlap": overlap, "contradict": apart}
            lines.append(
                f"{results}: bounds of {same:,} people are the same, of {overlap:,} differ but agree, "
                f"of {apart:,} contradict the ledger"
            )
            differs = apart > 0
    finish(facts, "\n".join(lines), json_file, quiet)
    return _DIFFERS if differs else 0


def _compared(found: Bounds, anew: Bounds) -> tuple[int, int]:
    """The numbers of people whose bounds are the same, and whose bounds no epsilon satisfies together."""
    apart = (anew.lower > found.upper) | (found.lower > anew.upper)
    equal = (anew.lower == found.lower) & (anew.upper == found.upper)
    return int(equal.sum()), int(apart.sum())


def _of_ledger(ledger: Ledger, source: Source | Path | None = None) -> dict[str, Any]:
    """The facts of a ledger, and of the file from which it was made or read."""
    from ..report.provenance import provenance

    return {
        "provenance": provenance(source),
        "kind": "facts of a ledger",
        "num_examples": ledger.num_examples,
        "steps": ledger.steps,
        "schedule": schedule_facts(ledger.schedule),
        "max_grad_norm": ledger.max_grad_norm,
        "buckets": ledger.buckets,
    }


@options.command(
    short_help="The kind of a file: a ledger, a journal, a filter, results, events or a log.",
    epilog=example("describe ledger.npz"),
)
@click.argument("file", type=INPUT)
@options.json_file
@options.quiet
def describe(file: Path, json_file: Path | None, quiet: bool) -> None:
    """The kind of a file, its parameters, and numbers of people and steps; no person's number is printed."""
    check_files([(json_file, ())], (file,))
    with user_errors():
        facts = described(file)
    finish(facts, as_text(facts), json_file, quiet)
