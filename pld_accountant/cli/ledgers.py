"""The commands on files of ledgers and of other kinds: `record`, `merge`, `verify` and `describe`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..rounding import people_and_steps
from . import options
from .kinds import as_text, described, load_ledger
from .options import INPUT, OUTPUT, example, user_errors
from .running import check_files, finish, progress_bars, read_log

if TYPE_CHECKING:
    from ..files.fingerprint import Source
    from ..report.individuals import AnyLedger, Individuals

__all__ = ["describe", "merge", "record", "verify"]

_DIFFERS = 1  # exit status
_NEAR = 1.0 - 1e-6  # bounds this close to each other, relative, are the same: they depend on what was asked before


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
        if len({path.resolve() for path in ledgers}) < len(ledgers):
            raise ValueError("LEDGERS names a file twice, whose steps would be counted twice")
        whole: Any = load_ledger(ledgers[0])
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

    With --results everything that a ledger determines is computed anew: everybody's bounds, the worst case and the
    parameters.  The exit status is 1 if the results have other people or another schedule, say something else, or have
    a bound that promises more than the new one proves.  A guarantee other than a ledger's own, as that of a filter, is
    printed.  Groups, and the log that a ledger was made of, are not checked.
    """
    from ..report.reading import read_results

    check_files([(json_file, ())], (ledger_file, results))
    with user_errors():
        ledger = load_ledger(ledger_file)
        found = None if results is None else read_results(results).individuals
    facts = _of_ledger(ledger, ledger_file) | {"ledger": str(ledger_file), "whole": True}
    lines = [f"{ledger_file}: whole; {people_and_steps(ledger.num_examples, ledger.steps)}"]
    differs = False
    if found is not None:
        other = _others(found, ledger)
        facts["results"] = {"file": str(results)}
        if other:
            lines.append(f"{results}: results of {other} than the ledger's")
            differs = True
        else:
            with progress_bars(quiet)("Accounting", "examples") as show:
                told, other = _compared(found, ledger, show)
            facts["results"] |= told
            lines.append(
                f"{results}: bounds of {told['same']:,} people are the same, of {told['overlap']:,} differ but agree, "
                f"of {told['contradict']:,} contradict the ledger"
            )
            if told["below"]:
                lines.append(f"{results}: the upper bounds of {told['below']:,} people are below what is proven")
            lines += [f"{results}: {one} than the ledger's" for one in other.split("; ") if other]
            if found.guarantee != ledger.guarantee:
                facts["results"]["guarantee"] = found.guarantee.sentence
                lines.append(f"{results}: a guarantee that a ledger cannot confirm: {found.guarantee.sentence}")
            differs = bool(told["contradict"] or told["below"] or other)
        facts["results"]["other"] = other or None
    finish(facts, "\n".join(lines), json_file, quiet)
    return _DIFFERS if differs else 0


def _others(found: Individuals, ledger: AnyLedger) -> str:
    """The sign that results are not the ledger's at all; empty if there is none."""
    import numpy as np

    people = np.arange(found.num_examples) if found.people is None else found.people
    if found.schedule != ledger.schedule:
        return "another schedule"
    return "" if np.array_equal(people.astype(str), ledger.people.astype(str)) else "other people"


def _compared(found: Individuals, ledger: AnyLedger, show: Callable[[int, int], None]) -> tuple[dict[str, int], str]:
    """Numbers of people by how their bounds compare with new ones, and what else is not the ledger's."""
    import numpy as np

    from ..report.individuals import assess

    anew = assess(ledger, found.delta, str(found.parameters["direction"]), progress=show)
    own, new = found.epsilon, anew.epsilon
    apart = (new.lower > own.upper) | (own.lower > new.upper)
    same = (new.lower == own.lower) & (new.upper == own.upper)
    below = ~apart & (own.upper < new.upper * _NEAR)
    told = {
        "same": int(same.sum()),
        "overlap": int((~same & ~apart).sum()),
        "contradict": int(apart.sum()),
        "below": int(below.sum()),
    }
    worst, least = found.worst_case, anew.worst_case
    cases = {
        "other parameters": any(found.parameters.get(name) != value for name, value in anew.parameters.items()),
        "another number of steps": found.steps != anew.steps,
        "another origin of the schedule": found.schedule_from_events != anew.schedule_from_events,
        "a smaller worst case": worst.upper < least.upper * _NEAR or worst.lower > least.upper,
        "smaller Renyi bounds": bool(np.any(found.rdp_epsilon < anew.rdp_epsilon * _NEAR))
        or found.worst_case_rdp < anew.worst_case_rdp * _NEAR,
    }
    return told, "; ".join(words for words, true in cases.items() if true)


def _of_ledger(ledger: AnyLedger, source: Source | Path | None = None) -> dict[str, Any]:
    """The facts of a ledger, and of the file from which it was made or read."""
    from ..report.provenance import provenance
    from ..report.summary import schedule_facts

    return {
        "provenance": provenance(source),
        "kind": "facts of a ledger",
        "num_examples": ledger.num_examples,
        "steps": ledger.steps,
        "schedule": schedule_facts(ledger.schedule),
        **ledger.run_parameters,
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
