"""Games kept in memory and on disk, because one takes seconds to build.

A file is used if it can be trusted (`files.kept`), it is of this run and of the same code, and the inequalities hold at
random points.  Otherwise the game is built anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np

from .. import gauss_legendre, kernels, mechanisms, potential
from ..files import kept, store
from .check import is_supersolution
from .game import Game, Run, build_game

__all__ = ["kept_game"]

_KIND, _FILE_VERSION = "potential", 1
_POINTS = 20  # of the inequalities, for each direction and sample rate
_MOST_KEPT = 16  # in memory, a few megabytes each

_GAMES: OrderedDict[Run, Game] = OrderedDict()
_LOCK = threading.Lock()


def kept_game(run: Run) -> Game:
    """The game of a run: from memory, from a file, or built and kept.

    Raises
    ------
    ValueError
        See `build_game`.

    **Cost**: 0.5 seconds from a file; 2 to 60 seconds to build, with a progress bar on a terminal after one second.
    """
    with _LOCK:
        for same in (run, run._replace(theta=None)):
            game = _GAMES.get(same)
            if game is not None and run.theta in (None, game.theta):
                _GAMES.move_to_end(same)
                return game
    game = _read(run) or _read(run._replace(theta=None))
    if game is None or run.theta not in (None, game.theta):
        game = _build(run)
        _write(game)
    with _LOCK:
        _GAMES[game.run] = game
        while len(_GAMES) > _MOST_KEPT:
            _GAMES.popitem(last=False)
    return game


def _build(run: Run) -> Game:
    from tqdm import tqdm

    layout = "{desc}: {percentage:3.0f}% {bar} {elapsed}"
    with tqdm(desc="certifying a budget", total=1.0, delay=1.0, leave=False, disable=None, bar_format=layout) as bar:

        def report(part: float) -> None:
            bar.update(max(part - bar.n, 0.0))

        return build_game(run, report)


def _path(run: Run) -> Path | None:
    code = kept.code_of(kernels, mechanisms, potential, gauss_legendre)
    return kept.file_of(_KIND, code, [_FILE_VERSION, run._asdict()])


def _read(run: Run) -> Game | None:
    """The game of a file; None if there is none that can be used."""
    path = _path(run)
    found = path and kept.read(path, _KIND, _FILE_VERSION)
    if not path or not found:
        return None
    try:
        with store.refuse_invalid(path, _KIND):
            game = Game.from_file(run, *found)
            whole = is_supersolution(game, np.random.default_rng(), _POINTS)
    except store.StoreError:
        return None
    return game if whole else None


def _write(game: Game) -> None:
    """Keep a file of a game, if the folder can be written to."""
    path = _path(game.run)
    if path is not None:
        kept.write(path, _KIND, _FILE_VERSION, game.header(), game.arrays())
