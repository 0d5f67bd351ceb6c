"""`PartitionJob`: the events of some people in, a table with a row for each of them out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import validate
from .events import ids
from .events.source import arrow_events, own_names
from .events.table import Events, read_events
from .files.fingerprint import Source
from .laplace_ledger import ledger_of
from .mechanisms.base import directions
from .report.individuals import Individuals, assess
from .report.outputs import arrow_table, empty_table, table_writer, write_all
from .report.provenance import provenance
from .report.summary import summarise
from .results import joined
from .threads import limited

__all__ = ["PartitionJob"]

_BLOCK_BYTES = 1 << 27  # of the counts of the people who are solved together
_BYTES_A_BUCKET = 6

_LAST = threading.local()  # the ledger whose tables the next one of this thread uses: tables have no lock


@dataclass(frozen=True)
class PartitionJob:
    """Everybody's epsilon from the events of a part of the people: a function of a table, for any cluster.

    Parameters
    ----------
    delta : float
        In (0, 1).
    max_grad_norm : float
        Clipping norm of a person's contribution to a step.
    schedule : sequence of (noise multiplier, sample rate, steps)
        The steps of a person who takes part in every step, in all partitions alike; nobody may have taken more.  If
        all steps have one noise multiplier or one sample rate, the events need no column of it.
    direction : {"both", "remove", "add"}
    buckets : int
        As in `Ledger`.
    columns : mapping of str to str, optional
        The table's names of the columns of events, as in `Ledger.from_events`.
    noise : {"gaussian", "laplace"}
        The noise of the steps.  "gaussian" counts as `Ledger`, "laplace" as `LaplaceLedger`, whose norms are L1 norms.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Notes
    -----
    All events of a person must be in one partition.  Nobody else's events change a person's true epsilon, so partitions
    may be formed in any way.  They and the order of the work may move a person's bounds by a small part of the distance
    between them; the true value always lies between them.

    A job is small and can be pickled, so that a cluster can send it to its workers.  The tables that all people share
    are made by the first call in a thread and kept for the next.  A call works in one thread.

    **Error**: as `Ledger.record`.
    **Cost**: memory for the events of the partition and 128 MiB for counts; about 0.5 microseconds an event and 50 a
    person.  The first call in a thread makes the tables: some seconds.

    Examples
    --------
    >>> job = PartitionJob(1e-5, max_grad_norm=1, schedule=[(2, 0.01, 200)])
    >>> found = job({"person": ["ann", "bob", "ann"], "norm": [0.3, 1.0, 0.5], "count": [100, 50, 10]})
    >>> found.column_names[0], found["id"].to_pylist()
    ('id', ['ann', 'bob'])
    """

    delta: float
    max_grad_norm: float
    schedule: Sequence[tuple[float, float, int]]
    direction: str = "both"
    buckets: int = 256
    columns: Mapping[str, str] | None = None
    noise: str = "gaussian"

    def __post_init__(self) -> None:
        validate.delta(self.delta)
        validate.clipping_norm(self.max_grad_norm)
        validate.buckets(self.buckets)
        directions(self.direction)
        stated = tuple(validate.schedule(self.schedule))
        if not stated:
            raise ValueError("the schedule must have a step")
        object.__setattr__(self, "schedule", stated)
        own_names(self.columns)
        ledger_of(self.noise)
        object.__setattr__(self, "columns", None if self.columns is None else dict(self.columns))

    def __call__(self, events: Any) -> Any:
        """A row for each person of a partition.

        Parameters
        ----------
        events : pyarrow.Table, pandas.DataFrame, polars.DataFrame, or mapping of arrays
            All events of some people, as in `Ledger.from_events`; it may be empty.

        Returns
        -------
        pandas.DataFrame or pyarrow.Table
            A data frame for a data frame of pandas, with plain texts; otherwise a table of Arrow, whose metadata are
            those of a result file.

        Raises
        ------
        ValueError
            As `Ledger.from_events`.
        """
        pandas = type(events).__module__.partition(".")[0] == "pandas"
        table = arrow_events(events, self.columns)
        found = self._solved(table, None)
        if found is None:
            made = empty_table(ids.as_ids(table.column("person")).type, "group" in table.column_names)
        else:
            made = arrow_table(found, summarise(found).as_dict())
        return _plain(made) if pandas else made

    def in_batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same for a partition that arrives in batches of rows, as from Spark's ``mapInPandas``.

        The batches are joined before anything is counted: a person's events may lie in several of them.
        """
        import pandas

        parts = [batch for batch in batches if len(batch)]
        if parts:
            yield self(pandas.concat(parts, ignore_index=True))

    def write(self, events: Any, path: str | os.PathLike[str], *, source: Source | None = None) -> int:
        """Write the results of a partition to a Parquet file, whole or not at all; nothing if nobody is in it.

        Parameters
        ----------
        events : path or table
            As in `Ledger.from_events`.
        path : path
            Ends in .parquet.
        source : Source, optional
            Where the events come from, for the provenance.

        Returns
        -------
        int
            Number of people.

        Raises
        ------
        ValueError, OSError
            As `Ledger.from_events` and `write_results`.
        """
        found = self._solved(arrow_events(events, self.columns), source)
        if found is None:
            return 0
        write_all({Path(path): table_writer(found, ".parquet", summarise(found).as_dict())})
        return found.num_examples

    def _solved(self, table: Any, source: Source | None) -> Individuals | None:
        """Everybody of a partition, block by block; None if nobody is in it."""
        if not table.num_rows:
            return None
        events = self._read(table)
        width = len(self.schedule) * self.buckets * _BYTES_A_BUCKET
        size = max(_BLOCK_BYTES // width, 1024)
        starts = range(0, len(events.people), size)
        with limited(1):
            blocks = [self._block(events.part(a, min(a + size, len(events.people)))) for a in starts]
        return _joined(blocks, source)

    def _read(self, table: Any) -> Events:
        return read_events(table, max_grad_norm=self.max_grad_norm, schedule=self.schedule)

    def _block(self, events: Events) -> Individuals:
        ledger = ledger_of(self.noise).from_events(events, max_grad_norm=self.max_grad_norm, buckets=self.buckets)
        last = getattr(_LAST, "ledger", None)
        if last is not None:
            ledger._share_tables(last)
        found = assess(ledger, self.delta, self.direction, labels=events.labels)
        _LAST.ledger = ledger.select(ledger.people[:1])  # which keeps the tables, and one person's counts
        return found


def _joined(blocks: Sequence[Individuals], source: Source | None) -> Individuals:
    """One after another; what is the same for all people is the first block's."""
    first = blocks[0]
    people = np.concatenate([b.people for b in blocks if b.people is not None])
    return replace(
        first,
        epsilon=joined([b.epsilon for b in blocks]),
        rdp_epsilon=np.concatenate([b.rdp_epsilon for b in blocks]),
        labels=None if first.labels is None else np.concatenate([b.labels for b in blocks if b.labels is not None]),
        people=people,
        provenance=provenance(source),
    )


def _plain(table: Any) -> Any:
    """A data frame of pandas with texts where the table has a dictionary: Spark knows no categories."""
    frame = table.to_pandas()
    for name in frame.columns:
        if frame[name].dtype == "category":
            frame[name] = frame[name].astype(str)
    return frame
