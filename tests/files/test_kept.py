"""Files between processes: whose they are, where they lie, and which are removed first."""

import os
import stat
from types import ModuleType

import numpy as np
import pytest

from pld_accountant.files import kept

needs_owners = pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners")
ARRAYS = {"a": np.arange(3.0)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", str(tmp_path / "new" / "kept"))
    return tmp_path / "new" / "kept"


@pytest.fixture
def path(folder):
    path = kept.file_of("some", "code", [1, "x"])
    kept.write(path, "some", 1, {"b": 2}, ARRAYS)
    return path


def test_a_file_is_read_by_its_writer_only(path):
    header, arrays = kept.read(path, "some", 1)
    assert header == {"b": 2}
    np.testing.assert_array_equal(arrays["a"], ARRAYS["a"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_another_version_or_kind_is_not_read(path):
    assert kept.read(path, "some", 2) is None
    assert kept.read(path, "other", 1) is None
    assert kept.read(path.with_name("absent"), "some", 1) is None


def test_parameters_decide_the_name(folder):
    assert kept.file_of("some", "code", [1, "x"]) == kept.file_of("some", "code", [1, "x"])
    assert kept.file_of("some", "code", [1, "x"]) != kept.file_of("some", "code", [1, "y"])
    assert kept.file_of("some", "code", [1, "x"]) != kept.file_of("some", "other code", [1, "x"])
    assert kept.file_of("some", "code", 0.1).parent == folder
    assert kept.file_of("some", None, 0.1) is None  # sources that cannot be read


def test_code_is_that_of_all_modules(tmp_path):
    """One character in a module of a package, or in a module of its own, changes the digest."""

    def code():
        package, alone = ModuleType("package"), ModuleType("alone")
        package.__path__, alone.__file__ = [str(tmp_path / "package")], str(tmp_path / "alone.py")
        return kept.code_of(package, alone)

    (tmp_path / "package").mkdir()
    paths = tmp_path / "package" / "__init__.py", tmp_path / "package" / "inside.py", tmp_path / "alone.py"
    assert code() is None
    digests = []
    for path in paths:
        path.write_text("x = 1\n")
    for path in paths:
        digests.append(code())
        path.write_text("x = 2\n")
    assert len({*digests, code()}) == 4


@needs_owners
def test_what_somebody_else_may_have_written_is_not_read(path, monkeypatch):
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert kept.read(path, "some", 1) is None
    monkeypatch.undo()
    for mode in (0o620, 0o602):
        path.chmod(mode)
        assert kept.read(path, "some", 1) is None
    path.chmod(0o644)
    assert kept.read(path, "some", 1) is not None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_not_waited_for(path):
    path.unlink()
    os.mkfifo(path, 0o600)
    assert kept.read(path, "some", 1) is None


def test_flipped_bits_and_cut_files_are_found(path):
    whole, rng = path.read_bytes(), np.random.default_rng(3)
    for count in range(200):
        cut = bytearray(whole)
        cut[int(rng.integers(len(cut)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(cut) if count % 3 else whole[: int(rng.integers(len(whole)))])
        found = kept.read(path, "some", 1)
        # some bits of a zip archive mean nothing
        assert found is None or found[1]["a"].tobytes() == ARRAYS["a"].tobytes()


def test_a_folder_that_cannot_be_written_to_is_no_error(folder):
    folder.parent.mkdir()
    folder.write_text("not a folder")
    kept.write(kept.file_of("some", "code", 1), "some", 1, {}, ARRAYS)
    kept.remove_oldest("some", 0)
    assert folder.read_text() == "not a folder"


def test_the_files_used_last_stay(folder):
    paths = [kept.file_of("some", "code", n) for n in range(4)]
    for age, one in enumerate(paths):
        kept.write(one, "some", 1, {}, ARRAYS)
        os.utime(one, (1e9 - age, 1e9 - age))
    other = kept.file_of("other", "code", 1)
    kept.write(other, "other", 1, {}, ARRAYS)
    os.utime(other, (1, 1))
    size = paths[0].stat().st_size
    assert kept.read(paths[3], "some", 1) is not None  # the oldest becomes the newest
    kept.remove_oldest("some", 2 * size + 1)
    assert [one.exists() for one in paths] == [True, False, False, True]
    assert other.exists()


def test_a_folder_is_found(monkeypatch):
    monkeypatch.delenv("PLD_ACCOUNTANT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert kept.cache_folder().as_posix() == "/x/pld_accountant"
    monkeypatch.setenv("PLD_ACCOUNTANT_CACHE", "")
    assert kept.cache_folder() is None
    assert kept.file_of("some", "code", 1) is None
    kept.remove_oldest("some", 0)
