"""Output files that are whole or absent: permissions, links, pipes, several at once, and what killed runs leave."""

import errno
import os
import socket
import stat
import subprocess
import sys
import threading

import pytest

from pld_accountant.files.atomic import atomic_file, atomic_files, destination

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions, links and pipes")


def write(path, content=b"new"):
    with atomic_file(path) as file:
        file.write(content)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_missing_folder_is_told_with_the_file_that_was_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as told:
        write(tmp_path / "absent" / "ledger.npz")
    assert told.value.filename == str(tmp_path / "absent" / "ledger.npz")


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_new_file_is_private_and_an_old_one_keeps_its_permissions(tmp_path, mask):
    path, old = tmp_path / "file", os.umask(mask)
    try:
        write(path)
        assert mode(path) == 0o600
        for kept in (0o644, 0o640, 0o400):
            path.chmod(kept)
            write(path)
            assert mode(path) == kept
    finally:
        os.umask(old)


@pytest.mark.parametrize("stage", ["fsync", "flush"])
def test_no_file_is_replaced_if_one_cannot_be_written(tmp_path, monkeypatch, stage):
    """The first file is complete when the second one fails."""
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_text("old")
    synced = []

    def full(descriptor):
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(28, "No space left on device")

    if stage == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    with pytest.raises((OSError, ValueError)), atomic_files(paths) as files:
        for file in files:
            file.write(b"new")
        if stage == "flush":  # the bytes in the buffer have nowhere to go
            os.close(files[1].fileno())
    assert os.listdir(tmp_path) == ["a"]
    assert paths[0].read_text() == "old"


def test_a_full_disk_is_told_with_the_file(tmp_path):
    with pytest.raises(OSError, match=r"No space left.*eps\.csv") as raised, atomic_file(tmp_path / "eps.csv"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == str(tmp_path / "eps.csv") and not list(tmp_path.iterdir())


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("there", "absent"):
        target, link = tmp_path / "folder" / name, tmp_path / f"to-{name}"
        if name == "there":
            target.write_text("old")
        link.symlink_to(target)
        write(link)
        assert link.is_symlink() and target.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path / "folder")) == ["absent", "there"]


def test_folders_devices_and_circles_are_refused_and_stay(tmp_path):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "to-null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    for path, message in [
        (tmp_path, "is a folder"),
        (tmp_path / "circle", "symbolic links"),
        (tmp_path / "socket", "neither a file nor a pipe"),
        ("/dev/null", "neither a file nor a pipe"),
        (tmp_path / "to-null", "neither a file nor a pipe"),
    ]:
        with pytest.raises(OSError, match=message):
            destination(path)
        if not str(path).endswith("null"):  # a failure would replace the system's
            with pytest.raises(OSError, match=message):
                write(path)
    assert sorted(os.listdir(tmp_path)) == ["circle", "socket", "to-null"]


def test_a_pipe_gets_the_bytes_and_stays(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe)
    reader.join(10)
    assert got == [b"new"] and stat.S_ISFIFO(os.stat(pipe).st_mode)


SCRIPT = """
import sys
from pld_accountant.files.atomic import atomic_file
print("before", flush=True)
with atomic_file("/dev/stdout") as file:
    file.write(b"content\\n")
print("after")
"""


def test_standard_output_gets_the_bytes_in_order_where_it_leads(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        subprocess.run([sys.executable, "-c", SCRIPT], stdout=file, check=True)
    through = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, check=True).stdout
    assert (tmp_path / "file").read_bytes() == through == b"before\ncontent\nafter\n"


def test_a_failed_writer_leaves_a_pipe_empty(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(RuntimeError), atomic_file(pipe) as file:
        file.write(b"half")
        raise RuntimeError("stopped")


KILLED = """
import os, sys
from pld_accountant.files.atomic import atomic_file
with atomic_file(sys.argv[1]) as file:
    print(flush=True)
    sys.stdin.read()
    os._exit(1)
"""


def test_the_next_write_removes_what_a_killed_run_left_but_nothing_of_a_living_run(tmp_path):
    path = tmp_path / "out[1].csv"
    mine = [".out[1].csv.mine.part", ".other.csv.abcdefgh.part", ".out1.csv.abcdefgh.part"]
    for name in mine:
        (tmp_path / name).write_text("")
    (tmp_path / ".out[1].csv.pipe0000.part").symlink_to(tmp_path / "nowhere")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        (living,) = {p.name for p in tmp_path.glob(".out[[]1].csv.*.part")} - {*mine, ".out[1].csv.pipe0000.part"}
        write(path)
        assert (tmp_path / living).exists()
        process.kill()
    assert (tmp_path / living).exists()
    write(path)
    assert sorted(os.listdir(tmp_path)) == sorted([*mine, ".out[1].csv.pipe0000.part", "out[1].csv"])
