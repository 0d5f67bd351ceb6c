"""The folder for machine code: only a private one is trusted, because what lies in it is run."""

import os

import pytest

from pld_accountant.kernels import _jit

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="users have no numbers")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The temporary folder for machine code, which is not there yet; numba finds no other."""
    monkeypatch.setattr(_jit.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(_jit.numba.config, "reload_config", lambda: None)
    monkeypatch.setattr(_jit, "_disk_cache_works", lambda: "NUMBA_CACHE_DIR" in os.environ)
    yield tmp_path / f"pld-accountant-numba-{os.getuid()}"
    os.environ.pop("NUMBA_CACHE_DIR", None)


def test_a_new_folder_is_private(folder):
    assert _jit._prepare_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    del os.environ["NUMBA_CACHE_DIR"]
    assert _jit._prepare_cache(), "the folder of an earlier run"


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702, 0o1777])
def test_a_folder_that_others_can_write_to_is_not_used(folder, mode):
    folder.mkdir()
    folder.chmod(mode)
    assert not _jit._prepare_cache()
    assert "NUMBA_CACHE_DIR" not in os.environ


def test_a_link_and_a_folder_of_another_user_are_not_used(folder, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert not _jit._prepare_cache()
    folder.unlink()
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(_jit.os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    folder.rename(tmp_path / f"pld-accountant-numba-{os.getuid()}")
    assert not _jit._prepare_cache()
