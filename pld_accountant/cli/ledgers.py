"""The commands on files of ledgers and of other kinds: `merge`, `verify` and `describe`."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import click

from . import options
from .options import FILE, STDOUT, example, user_errors
from .running import check_files, echo_written, progress_bars

__all__ = ["describe", "merge", "verify"]

_DIFFERS = 1  # exit status


@options.command(
    short_help="One ledger of several.",
    epilog=example("merge spring.npz autumn.npz --out year.npz"),
)
@click.argument("ledgers", metavar="LEDGERS...", type=FILE, nargs=-1, required=True)
@click.option("--same-steps", is_flag=True, help="The ledgers hold other people in the same steps, parts of one table.")
@click.option("--out", type=FILE, required=True, help="The ledger of everybody and all steps.")
@options.quiet
def merge(ledgers: tuple[Path, ...], same_steps: bool, out: Path, quiet: bool) -> None:
    """One ledger of several: people are matched by id, or by number if nobody has an id.

    Without --same-steps the ledgers hold further steps, and a person who is missing in one took no part in its steps.
    """
    from ..ledger import Ledger
    from ..report import outputs

    check_files([(out, ())], ledgers)
    bars = progress_bars(quiet)
    with user_errors(), bars("Merging", "ledgers") as show:
        whole = Ledger.load(ledgers[0])
        for done, path in enumerate(ledgers[1:], 1):
            show(done, len(ledgers))
            whole.merge(Ledger.load(path), same_steps=same_steps)
        outputs.write_all({out: whole.save})
    if not quiet:
        click.echo(f"{whole.num_examples:,} people, {whole.steps:,} steps")
        echo_written([out])


@options.command(
    short_help="Check a ledger, and results against it.",
    epilog=example("verify ledger.npz --results eps.parquet"),
)
@click.argument("ledger_file", metavar="LEDGER", type=FILE)
@click.option("--results", type=FILE, help="Results as .parquet, which are computed anew from the ledger.")
@options.quiet
def verify(ledger_file: Path, results: Path | None, quiet: bool) -> int:
    """Check a ledger's checksum, parameters and counts, and results against it.

    With --results everybody's bounds are computed anew.  The exit status is 1 if the results have other people, another
    schedule, or bounds for somebody that no epsilon satisfies together with the new ones.
    """
    import numpy as np

    from ..ledger import Ledger
    from ..report.reading import read_results

    with user_errors():
        ledger = Ledger.load(ledger_file)
        found = None if results is None else read_results(results).individuals
    say = (lambda text: None) if quiet else click.echo
    say(f"{ledger_file}: whole; {ledger.num_examples:,} people, {ledger.steps:,} steps")
    if found is None:
        return 0
    people = np.arange(found.num_examples) if found.people is None else found.people
    if found.schedule != ledger.schedule or not np.array_equal(people.astype(str), ledger.people.astype(str)):
        what = "another schedule" if found.schedule != ledger.schedule else "other people"
        say(f"{results}: results of {what} than the ledger's")
        return _DIFFERS
    with progress_bars(quiet)("Accounting", "examples") as show:
        anew = ledger.epsilon(found.delta, str(found.parameters["direction"]), progress=show)
    apart = (anew.lower > found.epsilon.upper) | (found.epsilon.lower > anew.upper)
    equal = (anew.lower == found.epsilon.lower) & (anew.upper == found.epsilon.upper)
    say(f"{results}: bounds of {int(equal.sum()):,} people are the same, of {int(apart.sum()):,} contradict the ledger")
    return _DIFFERS if apart.any() else 0


@options.command(
    short_help="The kind of a file: a ledger, a filter, results, events or a log.",
    epilog=example("describe ledger.npz"),
)
@click.argument("file", type=FILE)
@click.option("--json", "json_file", type=FILE, help="The description as JSON; only - is possible.")
def describe(file: Path, json_file: Path | None) -> None:
    """The kind of a file, its parameters, and numbers of people and steps; no person's number is printed."""
    from ..report.outputs import json_text

    if json_file not in (None, STDOUT):
        raise click.UsageError("--json of describe must be -, the standard output")
    with user_errors():
        facts = _described(file)
    if json_file == STDOUT:
        click.echo(json_text(facts), nl=False)
    else:
        click.echo("\n".join(f"{name.replace('_', ' ')}: {_short(value)}" for name, value in facts.items()))


def _described(file: Path) -> dict[str, Any]:
    from ..events.source import is_events_file
    from ..files import store
    from ..files.norm_log import open_norms

    if file.is_file() and zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            ours = {"header.npy", "sha256.npy"} <= set(archive.namelist())
        if ours:
            header = store.header(file)
            return {"kind": header.pop("kind"), "version": header.pop("version"), **header}
    if file.suffix.lower() == ".parquet" and file.is_file():
        from ..files.formats import require

        schema = require("pyarrow.parquet", "parquet", f"reading {file}").read_schema(file)
        if b"pld_accountant" in (schema.metadata or {}):
            return _of_results(file)
    if is_events_file(file):
        from ..events.source import arrow_events

        table = arrow_events(file)
        return {"kind": "event table", "events": table.num_rows, "columns": table.schema.names}
    with open_norms(file, orientation=None, dataset=None, people=None) as log:
        return {
            "kind": "log of norms",
            "steps": log.shape[0],
            "people": log.shape[1],
            "orientation": f"{log.orientation} ({'assumed' if log.assumed else 'stated'})",
        }


def _of_results(file: Path) -> dict[str, Any]:
    from ..report.reading import read_results

    found = read_results(file).as_dict()
    wanted = ("delta", "num_examples", "steps", "parameters", "schedule", "worst_case", "not_certified", "renyi_only")
    return {"kind": "results", **{name: found[name] for name in (*wanted, "guarantee", "provenance")}}


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(one)}" for name, one in value.items())
    if isinstance(value, list):
        return "; ".join(_short(one) for one in value)
    return str(value)
