"""Games in memory and in files: what is damaged, foreign or wrong is built anew."""

import os

import numpy as np
import pytest

from pld_accountant import files
from pld_accountant.files import store
from pld_accountant.potential import kept
from pld_accountant.potential.game import Run

RUN = Run(1.0, (0.02,), ((2.0, 1e-5),), 5.0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder for the files, and nothing in memory."""
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(kept, "_GAMES", type(kept._GAMES)())
    return tmp_path / "kept"


@pytest.fixture
def builds(games, monkeypatch):
    """The runs that were built."""
    runs = []

    def build(run):
        runs.append(run)
        return games("little noise")._replace(run=run)

    monkeypatch.setattr(kept, "_build", build)
    return runs


def forget():
    kept._GAMES.clear()


def file_of(folder):
    (path,) = folder.iterdir()
    return path


def altered(path, change):
    """Write a file anew, with a right checksum, after a change of its arrays or numbers."""
    header, arrays = store.load(path, kept._KIND, kept._FILE_VERSION)
    change(header, arrays)
    store.save(path, kept._KIND, kept._FILE_VERSION, header, arrays)


def test_a_game_of_other_code_is_built_anew(folder, builds, monkeypatch):
    kept.kept_game(RUN)
    forget()
    monkeypatch.setattr(files.kept, "code_of", lambda *modules: "another digest")
    kept.kept_game(RUN)
    assert builds == [RUN, RUN] and len(list(folder.iterdir())) == 2


def test_a_game_is_built_once_and_read_afterwards(folder, builds):
    first = kept.kept_game(RUN)
    assert kept.kept_game(RUN) is first
    forget()
    again = kept.kept_game(RUN)
    assert builds == [RUN] and again is not first
    assert again.budget(2.0, 1e-5) == first.budget(2.0, 1e-5)
    assert again.theta == first.theta and again.run == RUN
    assert os.stat(file_of(folder)).st_size < 5e6


def test_an_order_that_was_found_serves_the_one_who_names_it(folder, builds):
    kept.kept_game(RUN._replace(theta=None))
    for _ in range(2):
        assert kept.kept_game(RUN).theta == 5.0
        forget()
    kept.kept_game(RUN._replace(theta=None))
    assert len(builds) == 1


def scaled(name, factor):
    def change(_header, arrays):
        arrays[name] = arrays[name] * factor

    return change


CHANGES = {
    "charges 3 % too small": scaled("charges", 0.97),
    "a start 5 % too low": scaled("remove_start", 0.95),
    "a wider cell": scaled("add_cells", np.array([1.0, 1.3, 1.0])),
    "not a number": scaled("remove_drift", np.nan),
    "a missing array": lambda h, a: a.pop("add_extra"),
    "an unknown array": lambda h, a: a.update(more=np.zeros(1)),
    "a short array": lambda h, a: a.update(add_start=a["add_start"][:-2]),
    "too many frequencies": scaled("add_cells", np.array([1.0, 1.0, 1.5])),
    "another run": lambda h, a: h["run"].update(noise_multiplier=0.5),
    "no order": lambda h, a: h.pop("theta"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_altered_file_is_built_anew(folder, builds, change):
    """The checksum is right, so the inequalities at random points decide."""
    first = kept.kept_game(RUN)
    altered(file_of(folder), change)
    forget()
    assert kept.kept_game(RUN).budget(2.0, 1e-5) == first.budget(2.0, 1e-5)
    assert len(builds) == 2
    forget()
    kept.kept_game(RUN)
    assert len(builds) == 2, "the new file is whole"


def test_flipped_bits_are_found(folder, builds):
    kept.kept_game(RUN)
    path = file_of(folder)
    whole, rng = path.read_bytes(), np.random.default_rng(6)
    for count in range(30):
        cut = bytearray(whole)
        cut[int(rng.integers(len(cut)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(cut) if count % 3 else whole[: int(rng.integers(len(whole)))])
        forget()
        assert kept.kept_game(RUN).budget(2.0, 1e-5) > 200


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners")
def test_a_file_of_somebody_else_is_not_read(folder, builds, monkeypatch):
    kept.kept_game(RUN)
    forget()
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    kept.kept_game(RUN)
    assert len(builds) == 2


def test_without_a_folder_or_without_the_right_to_write(folder, builds, monkeypatch):
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", "")
    kept.kept_game(RUN)
    folder.write_text("not a folder")
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", str(folder))
    forget()
    kept.kept_game(RUN)
    assert len(builds) == 2


def test_memory_holds_the_latest_games(folder, builds, monkeypatch):
    monkeypatch.setattr(kept, "_MOST_KEPT", 2)
    for epsilon in (1.0, 1.1, 1.2):
        kept.kept_game(RUN._replace(targets=((epsilon, 1e-5),)))
    assert len(kept._GAMES) == 2
