"""Progress bars for the command line: shown on a terminal after one second of work, removed when the work ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["progress_bar"]

_SHOWN_AFTER = 1.0
_REDRAWN_EVERY = 0.5


@contextmanager
def progress_bar(description: str, unit: str, *, hidden: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to be called with (done, total); the bar is on standard error.

    If it is `hidden`, nothing is drawn.  The bar is also drawn before the first report, because compilation or tables
    can delay that report.
    """
    from tqdm import tqdm

    over = threading.Event()
    options: dict[str, Any] = {"disable": True if hidden else None, "leave": False, "unit_scale": True}
    with tqdm(desc=description, unit=f" {unit}", delay=_SHOWN_AFTER, **options) as bar:

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
            # tqdm does not clear a bar that only `redraw` drew.
            if not bar.disable:
                bar.clear()
