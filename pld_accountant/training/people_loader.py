"""`PeopleLoader`: a torch data loader that knows which records form the batch that it delivered last.

The number of a record travels with the record, through worker processes and pinned memory, and is taken off again just
before the batch is handed to the training loop.  The loop sees the batches of the original loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

__all__ = ["Batches", "PeopleError", "PeopleLoader", "batch_of"]


class PeopleError(RuntimeError):
    """The people of a batch cannot be told, so the step was not taken."""


class _Numbered(Dataset):
    """A data set whose records carry their number."""

    def __init__(self, records: Any) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> tuple[int, Any]:
        return int(number), self.records[number]

    def __getitems__(self, numbers: list[int]) -> list[tuple[int, Any]]:
        several = getattr(self.records, "__getitems__", None)
        found = several(numbers) if several is not None else [self.records[n] for n in numbers]
        return [(int(n), record) for n, record in zip(numbers, found, strict=True)]


class _Carried:
    """A batch with the numbers of its records; it cannot be used for anything else."""

    def __init__(self, people: np.ndarray, batch: Any) -> None:
        self.people, self.batch = people, batch

    def pin_memory(self) -> _Carried:
        """Torch calls this if the loader pins memory."""
        from torch.utils.data._utils.pin_memory import pin_memory

        return _Carried(self.people, pin_memory(self.batch))

    def _refuse(self, *_given: Any) -> Any:
        raise PeopleError(
            "this loader was made from the loader of individual accounting and has lost track of its people: iterate "
            "over the loader of individual accounting, or over BatchMemoryManager's with it as data_loader"
        )

    __iter__ = __len__ = __getitem__ = _refuse


class _Collated:
    """Collates records, and keeps their numbers beside the batch."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, records: list[tuple[int, Any]]) -> _Carried:
        people = np.array([number for number, _ in records], dtype=np.int64)
        return _Carried(people, self.collate([record for _, record in records]))


class Batches:
    """The batches that were handed out since the last step."""

    def __init__(self) -> None:
        self._waiting: list[np.ndarray] = []
        self._seen_whole = False

    def hand_out(self, people: np.ndarray) -> None:
        """A batch is given to the training loop."""
        if self._seen_whole:
            # a whole pass without training, for example an evaluation: its batches are not trained on any more
            self._waiting.clear()
            self._seen_whole = False
        self._waiting.append(people)

    def finish(self) -> None:
        """The loader has no more batches."""
        self._seen_whole = True

    def discard(self) -> None:
        """Forget the batches that were handed out and not trained on."""
        self._waiting.clear()

    def present(self, rows: int, invented: bool) -> np.ndarray:
        """The people of the batch that is being trained on, which has so many gradients.

        `invented`: whether an empty batch may come as one record of random numbers.

        Raises
        ------
        PeopleError
            If not exactly one batch was handed out since the last step, or if it has another size.
        """
        if not self._waiting:
            raise PeopleError(
                "this batch did not come from the loader of individual accounting, or was stepped on before (0 batches "
                "were drawn since the last step): write `loader = individual.loader` before the training loop"
            )
        if len(self._waiting) > 1:
            raise PeopleError(
                f"{len(self._waiting)} batches were drawn since the last step, so the people of this batch cannot be "
                "told: draw one batch from the loader of individual accounting for every step, step on empty batches, "
                "too (a skipped step shows who was sampled), and evaluate on a loader of its own; after an "
                "interrupted loop call discard()"
            )
        people = self._waiting[0]
        if len(people) != rows and not (invented and not len(people) and rows == 1):
            raise PeopleError(
                f"the last batch of the loader has {len(people)} records, but there are {rows} gradients: one gradient "
                "must belong to each record, in the order of the batch"
            )
        return people

    def taken(self) -> None:
        """The batch has been trained on."""
        self._waiting.clear()


class PeopleLoader(DataLoader):
    """The batches of another loader, whose people are known.

    Parameters
    ----------
    loader : DataLoader
        With a batch sampler.
    batches : Batches
    """

    def __init__(self, loader: DataLoader, batches: Batches) -> None:
        known = isinstance(loader.collate_fn, _Collated)  # made from a `PeopleLoader`
        self.batches = batches
        super().__init__(
            dataset=loader.dataset if known else _Numbered(loader.dataset),
            batch_sampler=loader.batch_sampler,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn if known else _Collated(loader.collate_fn),
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
        )

    @property
    def sample_rate(self) -> float:
        """The Poisson sampling rate."""
        return self.batch_sampler.sample_rate

    def __iter__(self) -> Iterator[Any]:
        for carried in super().__iter__():
            self.batches.hand_out(carried.people)
            yield carried.batch
        self.batches.finish()


def batch_of(dataset: Any, collate: Any, start: int, stop: int) -> Any:
    """The records `start` to `stop` as one batch."""
    if type(dataset) is torch.utils.data.TensorDataset and collate is torch.utils.data.default_collate:
        return list(dataset[start:stop])  # one slice instead of thousands of records
    several = getattr(dataset, "__getitems__", None)
    numbers = list(range(start, stop))
    return collate(several(numbers) if several is not None else [dataset[n] for n in numbers])
