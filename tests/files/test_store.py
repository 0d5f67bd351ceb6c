"""Files that are whole or absent."""

import os
import threading

import numpy as np
import pytest

from pld_accountant.files import store
from pld_accountant.files.atomic import atomic_file

KIND, HEADER = "a test", {"name": "x", "numbers": [1, 2.5]}
ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "b": np.array([1, 2, 3], dtype=np.uint16), "empty": np.zeros((0, 5))}


@pytest.fixture
def path(tmp_path):
    store.save(tmp_path / "file.npz", KIND, 1, HEADER, ARRAYS)
    return tmp_path / "file.npz"


def test_what_is_saved_is_loaded(path):
    header, arrays = store.load(path, KIND, 1)
    assert {k: header[k] for k in HEADER} == HEADER
    assert arrays.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], value)
        assert arrays[name].dtype == value.dtype
        assert arrays[name].shape == value.shape


def test_a_file_says_that_it_is_sensitive(path, tmp_path):
    store.save(tmp_path / "public.npz", KIND, 1, HEADER, ARRAYS, sensitive=False)
    assert "sensitive" not in store.header(tmp_path / "public.npz")
    assert store.header(path)["sensitive"] == store.SENSITIVE
    assert "sensitive" not in store.load(path, KIND, 1)[0]


@pytest.mark.parametrize("where", np.linspace(0.02, 0.98, 25))
def test_a_changed_byte_or_a_cut_file_is_refused(path, where):
    whole = path.read_bytes()
    place = int(where * len(whole))
    path.write_bytes(whole[:place])
    with pytest.raises(store.StoreError):
        store.load(path, KIND, 1)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
    try:  # a byte that decides nothing (a time stamp, padding) may change
        header, arrays = store.load(path, KIND, 1)
    except store.StoreError:
        return
    assert header["numbers"] == HEADER["numbers"]
    assert all(np.array_equal(arrays[k], v) for k, v in ARRAYS.items())


def test_another_kind_or_version_is_refused(path):
    with pytest.raises(store.StoreError, match="version"):
        store.load(path, KIND, 2)
    with pytest.raises(store.StoreError, match="not a 'other'"):
        store.load(path, "other", 1)


def test_a_file_of_something_else_is_refused_and_a_missing_one_is_missing(tmp_path):
    (tmp_path / "text").write_text("not a container")
    np.savez(tmp_path / "plain.npz", a=np.zeros(2))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("text", "plain.npz", "objects.npy"):
        with pytest.raises(store.StoreError):
            store.load(tmp_path / name, KIND, 1)
    with pytest.raises(FileNotFoundError):
        store.load(tmp_path / "nothing", KIND, 1)


def test_a_failed_write_leaves_the_old_file_and_no_other(path):
    before = path.read_bytes()
    with pytest.raises(RuntimeError), atomic_file(path) as file:
        file.write(b"half of it")
        raise RuntimeError("stopped")
    with pytest.raises(TypeError):
        store.save(path, KIND, 1, HEADER, {"a": np.array([object()])})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_saving_leaves_the_mask_of_permissions_alone(tmp_path, monkeypatch):
    """The mask belongs to the process: a thread that sets it, even for a moment, sets it for all threads."""
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the mask was changed"))
        threads = [
            threading.Thread(target=store.save, args=(tmp_path / f"{n}.npz", KIND, 1, HEADER, ARRAYS)) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        monkeypatch.undo()
        assert os.umask(before) == 0o027
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 4
