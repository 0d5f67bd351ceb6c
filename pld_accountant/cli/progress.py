"""Progress bars for the command line: on a terminal, for what takes longer than a second, and gone when it
is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_bar"]

_SHOWN_AFTER = 1.0
_REDRAWN_EVERY = 0.5


@contextmanager
def progress_bar(description: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function to be called with (done, total); the bar is on standard error.

    It is drawn while nothing is reported too: the first report may have to wait for compilation or for
    tables.
    """
    from tqdm import tqdm

    over = threading.Event()
    with tqdm(desc=description, unit=f" {unit}", delay=_SHOWN_AFTER, disable=None, leave=False, unit_scale=True) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        def redraw() -> None:
            wait = _SHOWN_AFTER
            while not over.wait(wait):
                bar.refresh()
                wait = _REDRAWN_EVERY

        watch = threading.Thread(target=redraw, daemon=True)
        if not bar.disable:
            watch.start()
        try:
            yield report
        finally:
            over.set()
            if watch.is_alive():
                watch.join()
            # Cleared here: a bar that only `redraw` drew counts as never drawn.
            if not bar.disable:
                bar.clear()
