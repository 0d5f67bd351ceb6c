"""Progress bars for the command line: on a terminal, for what takes longer than a second, and gone when it
is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(description: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function to be called with (done, total); it draws on standard error."""
    from tqdm import tqdm

    with tqdm(
        desc=description, unit=f" {unit}", delay=1.0, disable=None, leave=False, unit_scale=True
    ) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report
