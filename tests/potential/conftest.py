"""Games that take a second or two each."""

import pytest

from pld_accountant.potential.game import Run, build_game

RUNS = {
    "noisy": Run(2.0, (0.03,), ((1.1, 1e-5),), 7.0),
    "little noise": Run(1.0, (0.02,), ((2.0, 1e-5),), 5.0),
    "two rates": Run(2.0, (0.03, 0.01), ((1.1, 1e-5), (0.6, 1e-5)), 7.0),
    "one step": Run(0.6, (0.1,), ((8.0, 1e-5),), 1.0),
}


@pytest.fixture(scope="session")
def games():
    """A function from a name to a game, which is built once."""
    built = {}

    def game(name):
        if name not in built:
            built[name] = build_game(RUNS[name])
        return built[name]

    return game
