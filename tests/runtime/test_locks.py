"""Locks of outputs: who comes second is refused and learns by whom, and no lock file stays or blocks for ever."""

import errno
import logging
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path

import pytest

from unpool.errors import MissingFileError
from unpool.files import FileSet, WriteError, find_overlap, locks
from unpool.files.locks import FileLocks, lock, lock_of

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals, forks and links of POSIX")


def is_free(target):
    """Whether nobody holds the lock of a file."""
    try:
        with lock([target]):
            return True
    except WriteError:
        return False


def test_a_lock_is_a_file_that_names_the_process(tmp_path):
    """Beside the output while it is held, and gone afterwards."""
    with lock([tmp_path / "y.npy"]):
        assert (tmp_path / ".y.npy.lock").read_text().startswith(f"unpool {os.getpid()} ")
    assert list(tmp_path.iterdir()) == []


def test_the_second_is_refused_and_told_by_whom(tmp_path):
    """Whoever shares one of several outputs gets none of them, in any order, and the first one keeps its own."""
    a, b, c = (tmp_path / name for name in "abc")
    with lock([b, a]):
        for targets in ([a], [b], [c, b], [a, c]):
            with pytest.raises(WriteError) as caught:
                FileLocks().take(targets)
            held = next(target for target in (a, b) if target in targets)
            assert str(caught.value) == (
                f"{held}: process {os.getpid()} is writing it. Wait for it to end, or choose another output."
            )
        assert is_free(c)
        assert sorted(path.name for path in tmp_path.iterdir()) == [".a.lock", ".b.lock"]
    assert is_free(a)


@POSIX
def test_a_process_that_is_killed_blocks_nobody(tmp_path):
    """SIGKILL leaves the lock file; the next process takes it over, and removes it when it is done."""
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom unpool.files import lock\n"
        "with lock([Path(sys.argv[1])]): os.kill(os.getpid(), signal.SIGKILL)"
    )
    target = tmp_path / "y.npy"
    done = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert lock_of(target).exists()
    assert is_free(target)
    assert not lock_of(target).exists()


def test_a_lock_file_that_is_replaced_meanwhile_does_not_count(tmp_path, monkeypatch):
    """Between opening and locking, the holder may unlink the file, or another one may take its name: both are seen."""
    target, plain, seen = tmp_path / "y.npy", locks.try_lock, []

    def replaced_first(descriptor):
        seen.append(descriptor)
        if len(seen) < 3:
            lock_of(target).unlink()
        if len(seen) == 2:
            lock_of(target).touch()
        return plain(descriptor)

    monkeypatch.setattr(locks, "try_lock", replaced_first)
    with lock([target]):
        monkeypatch.undo()
        assert len(seen) == 3
        assert not is_free(target)


@POSIX
def test_a_forked_process_does_not_hold_the_lock(tmp_path):
    """A child that was forked meanwhile has the file open; once released here, the output is free."""
    target = tmp_path / "y.npy"
    with warnings.catch_warnings(), lock([target]):
        warnings.filterwarnings("ignore", ".*use of fork.*", DeprecationWarning)
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        assert is_free(target)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_file_system_without_locks_is_said_once(tmp_path, monkeypatch, caplog):
    """A network file system may have none: then a warning says so, and the work goes on."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fake = types.SimpleNamespace(flock=refuse, LOCK_EX=2, LOCK_NB=4, LOCK_UN=8)
    monkeypatch.setitem(sys.modules, "fcntl", fake)
    monkeypatch.setattr(locks, "_warned_devices", set())
    with caplog.at_level(logging.WARNING, "unpool.files"), lock([tmp_path / "a"]), lock([tmp_path / "b"]):
        pass
    (message,) = [record.getMessage() for record in caplog.records]
    assert "has no locks" in message
    assert "not kept apart" in message
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_somebody_else_is_no_lock_file(tmp_path):
    """A file that happens to have the name keeps its content, and so does a folder."""
    target = tmp_path / "y.npy"
    for content in (b"notes", b"unpool notes: keep", b"unpool 7 host\nnotes", b"\0" * 600 + b"notes", b"\0" * 600):
        lock_of(target).write_bytes(content)
        with pytest.raises(WriteError, match=r"\.y\.npy\.lock: is not a lock file of unpool\. Move it"):
            FileLocks().take([target])
        assert lock_of(target).read_bytes() == content
    lock_of(target).unlink()
    lock_of(target).mkdir()
    with pytest.raises(WriteError, match=r"\.y\.npy\.lock: is not a lock file of unpool\. Move it"):
        FileLocks().take([target])
    assert lock_of(target).is_dir()
    with pytest.raises(MissingFileError, match="no such folder"):
        FileLocks().take([tmp_path / "none" / "y.npy"])


@pytest.mark.parametrize("content", [b"", b"\0" * 30, b"unpool ", b"unpool 41", b"unpool 41 host", b"unpool 41 host\n"])
def test_what_a_dead_process_left_is_taken_over(content, tmp_path):
    """Also where a full disk or a power cut has kept only the beginning of it, or zeros."""
    lock_of(tmp_path / "y.npy").write_bytes(content)
    with lock([tmp_path / "y.npy"]):
        assert lock_of(tmp_path / "y.npy").read_bytes().startswith(b"unpool %d " % os.getpid())
    assert list(tmp_path.iterdir()) == []


@POSIX
@pytest.mark.parametrize("kind", ["pipe", "socket", "link", "link to nothing"])
def test_what_is_no_file_is_no_lock_file(kind, tmp_path, monkeypatch):
    """The message names what is in the way, which stays."""
    monkeypatch.chdir(tmp_path)  # addresses of sockets are short
    place = Path(".y.npy.lock")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(place))
    else:
        place.symlink_to("victim")
        if kind == "link":
            Path("victim").write_bytes(b"")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(WriteError, match=r"\.y\.npy\.lock: is not a lock file of unpool\. Move it"):
        FileLocks().take([Path("y.npy")])
    assert sorted(tmp_path.iterdir()) == before
    assert kind != "link" or Path("victim").read_bytes() == b""


def test_a_lock_file_that_cannot_be_opened_is_named(tmp_path, monkeypatch):
    """Another user's, who lets nobody read it: the message says which file to remove."""
    lock_of(tmp_path / "y.npy").write_bytes(b"")

    def refuse(path, *words):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(WriteError, match=r"\.y\.npy\.lock: cannot be written \(Permission denied\)"):
        FileLocks().take([tmp_path / "y.npy"])


def test_the_name_of_a_machine_is_one_word(tmp_path, monkeypatch):
    """Otherwise the next process would take the lock file for one of somebody else."""
    monkeypatch.setattr(platform, "node", lambda: "my machine\n" * 40)
    with lock([tmp_path / "y.npy"]):
        assert locks.HOLDER.fullmatch(lock_of(tmp_path / "y.npy").read_bytes())
        with pytest.raises(WriteError, match=rf"process {os.getpid()} is writing it"):
            FileLocks().take([tmp_path / "y.npy"])


@POSIX
def test_a_link_and_its_file_have_one_lock(tmp_path):
    """Two names of one output exclude each other; the longest name has a lock, too."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.npy").symlink_to(tmp_path / "folder" / "y.npy")
    (tmp_path / "other").symlink_to(tmp_path / "folder")
    with lock([tmp_path / "link.npy"]):
        assert not is_free(tmp_path / "folder" / "y.npy")
        assert not is_free(tmp_path / "other" / "y.npy")
    assert is_free(tmp_path / ("n" * 255))


def test_many_files_take_few_descriptors(tmp_path):
    """Of a set of very many files the first ones are locked, so that the process keeps files to open."""
    many = FileLocks()
    many.take(tmp_path / f"{number:04}" for number in range(locks.MAX_LOCKS + 50))
    assert len(list(tmp_path.iterdir())) == locks.MAX_LOCKS
    targets = [tmp_path / name for name in ("0000", "0150", "0151")]
    with many.hold(targets):  # further ones while they are written
        assert not any(map(is_free, targets))
    assert [is_free(target) for target in targets] == [False, True, True]
    many.release()
    assert list(tmp_path.iterdir()) == []


def test_sets_of_files_exclude_each_other(tmp_path):
    """A file that another set is about to write is refused, and that set appears as it was meant."""
    with FileSet() as files:
        with files.open(tmp_path / "a") as stream:
            stream.write(b"first")
        with pytest.raises(WriteError, match="is writing it"), FileSet() as others:
            others.locks.take([tmp_path / "b", tmp_path / "a"])
        with pytest.raises(WriteError, match="is writing it"), FileSet() as others, others.open(tmp_path / "a"):
            pass
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"first"}


def test_outputs_and_inputs_are_apart(tmp_path):
    """Equal, inside, around, by a link and by a hard link are seen; a name that only begins alike is not."""
    (tmp_path / "a.zarr" / "0").mkdir(parents=True)
    (tmp_path / "x.npy").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "a.zarr")
    os.link(tmp_path / "x.npy", tmp_path / "hard.npy")
    sources = [tmp_path / "a.zarr" / "0", tmp_path / "x.npy"]
    for name in ("a.zarr", "a.zarr/0", "a.zarr/0/new/y.npy", "link", "link/0/y.npy", "hard.npy", "b/../x.npy"):
        assert find_overlap([tmp_path / "y", tmp_path / name], sources) == tmp_path / name
    assert find_overlap([tmp_path / name for name in ("a.zarr2", "a.zarr/1", "x.npy.part", "b/x.npy")], sources) is None
