"""Tables on disk: found again, never trusted, never in the way."""

import numpy as np
import pytest

from pld_accountant.tables import disk_cache

ROW = {"row": np.linspace(0.0, 1.0, 7)}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", str(tmp_path / "tables"))
    return tmp_path / "tables"


def test_a_key_depends_on_every_part(monkeypatch):
    parts = ("lattice", 2.0, 0.005, np.arange(3.0))
    others = [("lattice", 2.0, 0.005, np.arange(4.0)), ("lattice", np.nextafter(2.0, 3.0), 0.005, np.arange(3.0)),
              ("lattice", 2.0, 0.005, np.arange(3)), parts[:3], ("spectral", *parts[1:])]  # fmt: skip
    names = {disk_cache.key(*p) for p in (parts, *others)}
    assert len(names) == 6
    assert disk_cache.key(*parts) in names
    monkeypatch.setattr(disk_cache, "_code", lambda: "another release")
    assert disk_cache.key(*parts) not in names


def test_what_was_written_is_read(folder):
    name = disk_cache.key("x")
    assert disk_cache.read_arrays(name) is None
    disk_cache.write_arrays(name, ROW)
    np.testing.assert_array_equal(disk_cache.read_arrays(name)["row"], ROW["row"])
    assert [f.name for f in folder.iterdir()] == [f"{name}.npz"]


def test_a_damaged_or_renamed_file_is_as_good_as_none(folder):
    name = disk_cache.key("x")
    disk_cache.write_arrays(name, ROW)
    file = folder / f"{name}.npz"
    (folder / f"{disk_cache.key('y')}.npz").write_bytes(file.read_bytes())
    assert disk_cache.read_arrays(disk_cache.key("y")) is None
    file.write_bytes(file.read_bytes()[:-40])
    assert disk_cache.read_arrays(name) is None
    disk_cache.write_arrays(name, ROW)
    assert disk_cache.read_arrays(name) is not None


def test_it_can_be_switched_off_and_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", "")
    assert disk_cache.folder() is None
    disk_cache.write_arrays("name", ROW)
    assert disk_cache.read_arrays("name") is None
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", str(tmp_path / "a file" / "below"))
    disk_cache.write_arrays("name", ROW)
    assert disk_cache.read_arrays("name") is None


def test_the_folder_is_where_others_expect_it(monkeypatch, tmp_path):
    monkeypatch.delenv("PLD_ACCOUNTANT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert disk_cache.folder() == tmp_path / "pld-accountant"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert disk_cache.folder() == tmp_path / "home" / ".cache" / "pld-accountant"


def test_the_oldest_go_when_it_grows(folder, monkeypatch):
    import os

    for i in range(5):
        disk_cache.write_arrays(f"n{i}", ROW)
        os.utime(folder / f"n{i}.npz", (1000 + i, 1000 + i))
    size = (folder / "n0.npz").stat().st_size
    monkeypatch.setattr(disk_cache, "_LIMIT_BYTES", int(3.5 * size))
    disk_cache.write_arrays("n5", ROW)
    assert sorted(f.stem for f in folder.iterdir()) == ["n3", "n4", "n5"]


def test_a_lattice_from_the_disk_is_the_same_lattice(folder):
    from pld_accountant.tables.characteristic import SpectralMaker
    from pld_accountant.tables.grid import LatticeMaker

    spectral = SpectralMaker(np.array([1.0]), np.array([0.3]), "remove")
    needed = np.array([True])
    made = LatticeMaker(spectral, "upper", 1 << 10).table(1.0, 16.0, 20.0, needed)
    assert len(list(folder.iterdir())) >= 1
    read = LatticeMaker(spectral, "upper", 1 << 10).table(1.0, 16.0, 20.0, needed)
    np.testing.assert_array_equal(made.columns, read.columns)
