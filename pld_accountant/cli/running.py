"""What the commands share: progress bars, the log that they read, and the text and files that they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from .options import PROGRAM, STDOUT, user_errors

__all__ = ["Log", "check_files", "echo_written", "progress_bars", "read_log", "tell"]


def progress_bars(quiet: bool) -> Callable[[str, str], Any]:
    from .progress import progress_bar

    return partial(progress_bar, hidden=quiet)


def tell(found: Any, note: str, written: Iterable[Path], json_file: Path | None, quiet: bool) -> None:
    """Print the JSON if it goes to standard output, else the text and the names of the files unless `quiet`."""
    from ..report.outputs import json_text

    if note:
        click.echo(note, err=True)
    if json_file == STDOUT:
        click.echo(json_text(found.as_dict()), nl=False)
    elif not quiet:
        click.echo(found.text())
        echo_written(written)


def check_files(wanted: Iterable[tuple[Path | None, Sequence[str]]], inputs: Iterable[Path | None]) -> None:
    from ..report import outputs

    with user_errors():
        outputs.check(
            [(path, endings) for path, endings in wanted if path is not None],
            inputs=[path for path in inputs if path is not None],
        )


def echo_written(files: Iterable[Path]) -> None:
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

    def request(self, delta: float, direction: str, quantiles: Sequence[float], min_group: int) -> Any:
        """The `report.individuals.Request` about this log."""
        from ..report.individuals import Request

        about = self.labels, self.index, self.facts, self.source
        return Request(self.ledger, delta, direction, *about, quantiles, min_group)


def read_log(
    norms: Path,
    bars: Callable[[str, str], Any],
    *,
    orientation: str | None,
    dataset: str | None,
    examples: int | None,
    columns: Mapping[str, str] | None,
    groups: Path | None,
    people: int | None = None,
    **parameters: Any,
) -> Log:
    """Read a log of norms, or an event table: Parquet with a column of people."""
    import numpy as np

    from ..events.source import is_events_file

    with user_errors():
        events = is_events_file(norms, columns)
    if events:
        of_a_log = {"orientation": orientation, "dataset": dataset, "examples": examples, "groups": groups}
        return _read_events(norms, bars, of_a_log, columns, people, parameters)
    if columns:
        raise click.UsageError(f"{norms.name} is no event table with a column of people, so it has no --columns")
    missing = [name for name in ("noise_multiplier", "sample_rate") if parameters[name] is None]
    if missing:
        raise click.UsageError(f"Missing {', '.join(f'option {_flag(name)!r}' for name in missing)}.")
    from ..files.fingerprint import fingerprint
    from ..files.groups import read_labels
    from ..files.norm_log import PeopleSubset, open_norms
    from ..ledger import Ledger

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
            ledger = Ledger.from_norms(source, **parameters, progress=show)
        with bars("Fingerprint", "bytes") as show:
            return Log(ledger, labels, index, facts, fingerprint(norms, progress=show), _assumption(log))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _read_events(
    path: Path,
    bars: Callable[[str, str], Any],
    of_a_log: Mapping[str, Any],
    columns: Mapping[str, str] | None,
    people: int | None,
    parameters: Mapping[str, Any],
) -> Log:
    import numpy as np

    from ..events.table import read_events
    from ..files.fingerprint import fingerprint
    from ..ledger import Ledger

    useless = [name for name, value in of_a_log.items() if value is not None]
    if useless:
        where = "; the column 'group' holds the groups" if "groups" in useless else ""
        raise click.UsageError(f"{path.name} is an event table, which takes no {_flag(useless[0])}{where}")
    with user_errors():
        of_steps = {name: value for name, value in parameters.items() if name != "buckets"}
        events = read_events(path, columns=columns, **of_steps)
        ledger = Ledger.from_events(events, **parameters)
    labels = events.labels
    facts = {name: value for name, value in parameters.items() if value is not None} | {"events": path.name}
    if people is not None and people < ledger.num_examples:
        chosen = np.sort(np.random.default_rng(0).choice(ledger.num_examples, people, replace=False))
        facts["sample"] = f"{people} of {ledger.num_examples} people"
        ledger, labels = ledger.select(ledger.people[chosen]), None if labels is None else labels[chosen]
    with user_errors(), bars("Fingerprint", "bytes") as show:
        return Log(ledger, labels, None, facts, fingerprint(path, progress=show), "")


def _assumption(log: Any) -> str:
    """A note on a log whose orientation was assumed; empty for any other log."""
    if not log.assumed:
        return ""
    read = f"{log.name} does not state its orientation and was read as {log.shape[0]} steps of {log.shape[1]} people"
    return f"{PROGRAM}: note: {read}, with a row per step; --orientation or --examples settles it"
