"""What the commands share: progress bars, the log that they read, and the text and files that they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from .kinds import holds_ledger, load_ledger
from .options import PROGRAM, STDOUT, user_errors

if TYPE_CHECKING:
    from ..ledger import Ledger

__all__ = ["Log", "check_files", "finish", "progress_bars", "question_of", "read_log"]


def progress_bars(quiet: bool) -> Callable[[str, str], Any]:
    from .progress import progress_bar

    return partial(progress_bar, hidden=quiet)


def finish(
    facts: Mapping[str, Any],
    text: str,
    json_file: Path | None,
    quiet: bool,
    writers: Mapping[Path, Callable[[Any], None]] | None = None,
    note: str = "",
) -> None:
    """Write the files, and `facts` as JSON beside them or alone on standard output; print the text unless `quiet`.

    The note goes to standard error.
    """
    from ..report import outputs

    files = dict(writers or {})
    if json_file not in (None, STDOUT):
        files[json_file] = outputs.json_writer(facts)
    with user_errors():
        outputs.write_all(files)
    if note:
        click.echo(note, err=True)
    if json_file == STDOUT:
        click.echo(outputs.json_text(facts), nl=False)
    elif not quiet:
        if text:
            click.echo(text)
        _echo_written(files)


def question_of(given: dict[str, Any]) -> dict[str, Any]:
    """Take the arguments of `assess` out of those of a command; the others are those of `read_log`."""
    return {name: given.pop(name) for name in ("delta", "direction", "min_group", "seconds")}


def check_files(wanted: Iterable[tuple[Path | None, Sequence[str]]], inputs: Iterable[Path | None]) -> None:
    from ..report import outputs

    with user_errors():
        outputs.check(
            [(path, endings) for path, endings in wanted if path not in (None, STDOUT)],
            inputs=[path for path in inputs if path is not None],
        )


def _echo_written(files: Iterable[Path]) -> None:
    if files:
        click.echo(f"\nWritten: {', '.join(str(path) for path in files)}")


class Log(NamedTuple):
    """A log as it was read, with the parameters for the outputs in `facts`.

    `index` holds the people's numbers in the log, or None if the ledger has ids.
    """

    ledger: Any
    labels: Any
    index: Any
    facts: dict[str, Any]
    source: Any
    note: str

    @property
    def about(self) -> dict[str, Any]:
        """The arguments of `assess` and `compare` that stand here."""
        return {"labels": self.labels, "index": self.index, "parameters": self.facts, "source": self.source}


def read_log(
    norms: Path,
    bars: Callable[[str, str], Any],
    *,
    orientation: str | None,
    dataset: str | None,
    examples: int | None,
    columns: Mapping[str, str] | None,
    groups: Path | None,
    schedule: Sequence[tuple[float, float, int]] | None = None,
    people: int | None = None,
    compressed: bool = False,
    **parameters: Any,
) -> Log:
    """Read a log of norms, or an event table: a CSV, or Parquet with a column of people."""
    import numpy as np

    from ..events.source import is_events_file

    given = {"orientation": orientation, "dataset": dataset, "examples": examples}
    of_events: dict[str, Any] = {"columns": columns, "schedule": schedule}
    with user_errors():
        if not norms.exists():
            raise ValueError(f"{norms} does not exist")
        if holds_ledger(norms):
            return _read_ledger(norms, bars, {**parameters, **of_events, **given}, groups, people)
        events = is_events_file(norms, columns)
    from ..laplace_ledger import ledger_of

    parameters["buckets"] = parameters["buckets"] or 256
    kind = ledger_of(parameters.pop("noise") or "gaussian")
    if events:
        return _read_events(kind, norms, bars, given | {"groups": groups}, of_events, people, compressed, parameters)
    if useless := [name for name, value in {**of_events, "compressed": compressed}.items() if value]:
        person = (columns or {}).get("person", "person")
        told = f"{norms.name} is no event table: it has no column {person!r}; so it takes no {_flag(useless[0])}"
        raise click.UsageError(told)
    missing = [name for name in ("noise_multiplier", "sample_rate", "max_grad_norm") if parameters[name] is None]
    if missing:
        raise click.UsageError(f"Missing {', '.join(f'option {_flag(name)!r}' for name in missing)}.")
    from ..files.fingerprint import fingerprint
    from ..files.groups import read_labels
    from ..files.norm_log import PeopleSubset, open_norms

    with user_errors(), open_norms(norms, orientation=orientation, dataset=dataset, people=examples) as log:
        everybody = log.shape[1]
        labels = None if groups is None else read_labels(groups, everybody, hint=log.hint)
        facts = {**parameters, "norms": norms.name, "orientation": log.orientation}
        index, source = np.arange(everybody), cast(Any, log)
        if people is not None and people < everybody:
            index = np.sort(np.random.default_rng(0).choice(everybody, people, replace=False))
            labels, source = None if labels is None else labels[index], PeopleSubset(log, index)
            facts["sample"] = f"{people} of {everybody} people"
        with bars("Reading", "steps") as show:
            ledger = kind.from_norms(source, **parameters, progress=show)
        with bars("Fingerprint", "bytes") as show:
            return Log(ledger, labels, index, facts, fingerprint(norms, progress=show), _assumption(log))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _read_events(
    kind: type[Ledger],
    path: Path,
    bars: Callable[[str, str], Any],
    of_a_log: Mapping[str, Any],
    of_events: Mapping[str, Any],
    people: int | None,
    compressed: bool,
    parameters: Mapping[str, Any],
) -> Log:
    from ..events.table import read_events
    from ..files.fingerprint import fingerprint

    useless = [name for name, value in of_a_log.items() if value is not None]
    if useless:
        where = "; the column 'group' holds the groups" if "groups" in useless else ""
        raise click.UsageError(f"{path.name} is an event table, which takes no {_flag(useless[0])}{where}")
    if parameters["max_grad_norm"] is None:
        raise click.UsageError("Missing option '--max-grad-norm'.")
    with user_errors():
        of_steps = {name: value for name, value in parameters.items() if name != "buckets"}
        with bars("Reading", "events") as show:
            events = read_events(path, **of_events, **of_steps, progress=show)
        with bars("Counting", "people"):
            ledger = kind.from_events(events, **parameters, compressed=compressed)
    labels = events.labels
    facts = {name: value for name, value in parameters.items() if value is not None} | {"events": path.name}
    with user_errors(), bars("Fingerprint", "bytes") as show:
        source = fingerprint(path, progress=show)
    return _of_some(ledger, labels, people, facts, source)


def _read_ledger(
    path: Path,
    bars: Callable[[str, str], Any],
    of_steps: Mapping[str, Any],
    groups: Path | None,
    people: int | None,
) -> Log:
    """Read a ledger or a journal, which hold all parameters of the steps."""
    from ..files.fingerprint import fingerprint
    from ..files.groups import read_labels

    if useless := [name for name, value in of_steps.items() if value is not None]:
        raise click.UsageError(f"{path.name} holds the parameters of its steps, and takes no {_flag(useless[0])}")
    ledger = load_ledger(path)
    labels = None if groups is None else read_labels(groups, ledger.num_examples, people=ledger.people)
    facts = {"ledger": path.name}
    with bars("Fingerprint", "bytes") as show:
        source = fingerprint(path, progress=show)
    return _of_some(ledger, labels, people, facts, source)


def _of_some(ledger: Any, labels: Any, people: int | None, facts: dict[str, Any], source: Any) -> Log:
    """Everybody of a ledger, or some people drawn at random."""
    import numpy as np

    if people is not None and people < ledger.num_examples:
        chosen = np.sort(np.random.default_rng(0).choice(ledger.num_examples, people, replace=False))
        facts["sample"] = f"{people} of {ledger.num_examples} people"
        ledger, labels = ledger.select(ledger.people[chosen]), None if labels is None else labels[chosen]
    return Log(ledger, labels, None, facts, source, "")


def _assumption(log: Any) -> str:
    """A note on a log whose orientation was assumed; empty for any other log."""
    if not log.assumed:
        return ""
    read = f"{log.name} does not state its orientation and was read as {log.shape[0]} steps of {log.shape[1]} people"
    return f"{PROGRAM}: note: {read}, with a row per step; --orientation or --examples settles it"
