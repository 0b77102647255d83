"""What depends on the system: each row of the table in docs/platforms.md, on Linux, with the other system faked."""

import ctypes
import errno
import logging
import ntpath
import os
import re
import signal
import subprocess
import sys
import types
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.streams.test_run import StoppedError, content, stop_after
from tests.support import models, windows_disk
from unpool import InferenceSession, memory, streams
from unpool.cli import launcher
from unpool.cli.errors import BROKEN_PIPE, UNFIT, guard
from unpool.files import FileSet, WriteError, lock, targets, write
from unpool.files.locks import lock_of
from unpool.graph import data_file
from unpool.graph.data_file import OutsideFolderError, find_data_file
from unpool.images import sink
from unpool.images.npy import npy_layout
from unpool.images.sink import OutputSpec
from unpool.kernels.cpu.machine import checked_files, host
from unpool.runtime.streams.checkpoint import partial_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fakes other systems with /proc of Linux")

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(3).standard_normal((1, 1, 70, 50)).astype(np.float32)
TILE = (32, 32)
FORMATS = ("npy", "tif", "zarr", "nii")


@pytest.fixture(scope="module")
def session():
    """One output of the size of the input."""
    return InferenceSession(models.model("g (float[1, 1, h, w] x) => (float[1, 1, h, w] y) { y = Abs (x) }"))


@pytest.fixture
def windows(tmp_path, monkeypatch):
    """A disk that behaves as on Windows."""
    windows_disk.install(monkeypatch)


def write_new(folder):
    """Two files, which appear together."""
    with FileSet() as files:
        for name in ("a", "b"):
            with files.open(folder / name) as stream:
                stream.write(b"new")


def run(session, target, **words):
    """The model over X, in six tiles."""
    return streams.run(session, {"x": X}, target, TILE, **words)


# Files


def test_the_disk_of_windows_refuses_open_files(windows, tmp_path):
    """What the other tests rely on: renaming, deleting and syncing fail as there."""
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "file"
    with path.open("wb"):
        for change in (path.unlink, lambda: path.rename(tmp_path / "new"), lambda: os.replace(path.parent, tmp_path)):
            with pytest.raises(PermissionError):
                change()
    with path.open("rb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        os.fsync(file.fileno())
    with pytest.raises(PermissionError):
        os.open(path.parent, os.O_RDONLY)


def test_files_are_written_on_windows(windows, tmp_path):
    """A set of new and replaced files appears, and no other file stays."""
    (tmp_path / "a").write_bytes(b"old")
    write_new(tmp_path)
    assert content(tmp_path) == {"a": b"new", "b": b"new"}


def test_a_file_that_is_open_elsewhere_keeps_its_content(windows, tmp_path):
    """Windows refuses to replace it: the error names it, other files are restored, and nothing else stays."""
    (tmp_path / "a").write_bytes(b"old a")
    (tmp_path / "b").write_bytes(b"old b")
    with (tmp_path / "b").open("rb"), pytest.raises(WriteError, match=r"b: cannot be written"):
        write_new(tmp_path)
    assert content(tmp_path) == {"a": b"old a", "b": b"old b"}


def test_an_untouched_file_is_not_restored(tmp_path, monkeypatch, caplog):
    """After a refused rename its backup, a hard link, is only deleted, and no warning says that it was not restored."""
    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, "replace", windows_disk.functions()["replace"])
    with caplog.at_level(logging.WARNING), pytest.raises(WriteError), (tmp_path / "a").open("rb"):
        write(tmp_path / "a", b"new")
    assert (content(tmp_path), caplog.records) == ({"a": b"old"}, [])


def test_a_rename_is_repeated_while_a_scanner_has_the_file_open(windows, tmp_path, monkeypatch):
    """Windows refuses to rename it in that moment."""
    plain, count = os.replace, []

    def replace(path, place):
        count.append(path)
        if len(count) < 3:
            raise PermissionError(errno.EACCES, "Access is denied")
        plain(path, place)

    monkeypatch.setattr(os, "replace", replace)
    (tmp_path / "a").write_bytes(b"new")
    targets.replace(tmp_path / "a", tmp_path / "b")
    assert (len(count), content(tmp_path)) == (3, {"b": b"new"})
    count.clear()
    monkeypatch.setattr(targets, "PAUSES", ())  # as on other systems
    with pytest.raises(PermissionError):
        targets.replace(tmp_path / "b", tmp_path / "c")


def test_a_lock_is_released_on_windows(windows, tmp_path):
    """The lock file is closed before it is deleted; one that another process has open stays, and is free."""
    target = tmp_path / "y.npy"
    with lock([target]):
        assert sys.modules["msvcrt"].held
        with pytest.raises(WriteError, match="is writing it"), lock([target]):
            pass
    assert (sys.modules["msvcrt"].held, list(tmp_path.iterdir())) == (set(), [])
    with lock([target]):
        waiting = lock_of(target).open("rb")
    assert (sys.modules["msvcrt"].held, lock_of(target).exists()) == (set(), True)
    waiting.close()
    with lock([target]):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_is_opened_in_binary_mode(tmp_path, monkeypatch):
    """Windows would write a carriage return otherwise."""
    plain, seen = os.open, []
    monkeypatch.setattr(os, "O_BINARY", os.O_NOCTTY, raising=False)  # a flag that changes nothing
    monkeypatch.setattr(os, "open", lambda path, flags, *mode: seen.append(flags) or plain(path, flags, *mode))
    with lock([tmp_path / "y.npy"]):
        assert seen[0] & os.O_NOCTTY


def test_names_that_differ_in_case_are_one_file_there(tmp_path, monkeypatch):
    """Where names have no case, as on Windows and macOS, two such outputs exclude each other."""
    plain_open, plain_stat = os.open, os.stat

    def folded(path):
        return path.with_name(path.name.casefold()) if isinstance(path, Path) and path.parent == tmp_path else path

    with lock([tmp_path / "Y.npy", tmp_path / "y.npy"]):
        pass
    monkeypatch.setattr(os, "open", lambda path, *words, **more: plain_open(folded(path), *words, **more))
    monkeypatch.setattr(os, "stat", lambda path, **words: plain_stat(folded(path), **words))
    with pytest.raises(WriteError, match="is writing it"), lock([tmp_path / "Y.npy", tmp_path / "y.npy"]):
        pass


@pytest.mark.parametrize("name", ["aux.tif", "CON", "nul.tar.gz", "com1.npy", "lpt².npy", "y.", "y ", "a:b.npy", "a?"])
def test_names_that_windows_reserves_are_refused_there(name, tmp_path, monkeypatch, session):
    """By one error, before a lock file or a folder is made; other systems have such files."""
    write(tmp_path / name, b"content")
    (tmp_path / name).unlink()
    monkeypatch.setattr(targets, "IS_WINDOWS", True)
    attempts = (
        lambda: write(tmp_path / name, b""),
        lambda: run(session, tmp_path / name),
        lambda: lock_of(tmp_path / name),
    )
    for attempt in attempts:
        with pytest.raises(WriteError, match="Windows reserves the name"):
            attempt()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["y.npy", "auxiliary.tif", "console", "com10.npy", ".hidden", "a b.npy"])
def test_names_that_resemble_reserved_ones_are_written(name, windows, tmp_path):
    """A device's name with more letters is the name of a file."""
    write(tmp_path / name, b"content")
    assert content(tmp_path) == {name: b"content"}


def test_space_is_not_reserved_without_posix_fallocate(tmp_path, monkeypatch):
    """On macOS and Windows a file gets its size alone; a full disk is an error of a later write."""
    monkeypatch.delattr(os, "posix_fallocate")
    (tmp_path / "y").write_bytes(b"a")
    sink.reserve(tmp_path / "y", 1000)
    assert content(tmp_path) == {"y": b"a" + bytes(999)}


# Runs in tiles


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_ends_on_windows(form, windows, session, tmp_path):
    """The journal is closed before it is deleted, and so is every other file; an earlier output is replaced."""
    for _ in range(2):
        run(session, tmp_path / f"y.{form}")
        assert {path.name for path in tmp_path.iterdir()} == {f"y.{form}", f".y.{form}.done"}


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_is_resumed_on_windows(form, windows, session, tmp_path):
    """An interrupted run gives the bytes of another; one without a finished tile leaves nothing."""
    target = tmp_path / f"y.{form}"
    run(session, tmp_path / f"whole.{form}")
    with pytest.raises(StoppedError):
        run(session, target, on_progress=stop_after(2))
    assert partial_folder({"y": target}).is_dir()
    assert run(session, target, resume=True).progress.resumed >= 2
    assert content(target) == content(tmp_path / f"whole.{form}")


def test_a_failed_run_leaves_nothing_on_windows(windows, session, tmp_path, monkeypatch):
    """Its journal is closed before the folder is deleted."""

    def fail(*_):
        raise StoppedError

    monkeypatch.setattr("unpool.runtime.streams.jobs.compute_tile", fail)
    with pytest.raises(StoppedError):
        run(session, tmp_path / "y.npy")
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_open_elsewhere_is_written_later(windows, session, tmp_path):
    """The run keeps its data, and ends once the other program has closed the file."""
    target = tmp_path / "y.npy"
    target.write_bytes(b"old")
    with target.open("rb"), pytest.raises(WriteError, match=r"y\.npy: cannot be written"):
        run(session, target)
    assert target.read_bytes() == b"old"
    assert run(session, target, resume=True).progress.resumed == 6
    np.testing.assert_array_equal(np.load(target), np.abs(X))


def test_a_file_is_synced_for_writing(windows, tmp_path):
    """Windows syncs no other; a folder, which cannot be opened there, is left out."""
    (tmp_path / "y").write_bytes(b"")
    targets.sync_file(tmp_path / "y")
    targets.sync_folder(tmp_path)
    layout = sink.raw_format(npy_layout)
    spec = OutputSpec((1, 1, 4, 4), np.dtype(np.float32), 1, (1, 1, 4, 4))
    layout.create(tmp_path / "y.npy", spec)
    layout.open(tmp_path / "y.npy", spec).write((slice(None),) * 4, np.ones((1, 1, 4, 4), np.float32))
    assert np.load(tmp_path / "y.npy").sum() == 16


# Data files of models


class WindowsPaths:
    """`os` for paths of Windows; in Python 3.13 and later a path without a drive is not absolute."""

    sep, pardir = "\\", ".."
    path = types.SimpleNamespace(**{**vars(ntpath), "isabs": lambda path: bool(ntpath.splitdrive(path)[0])})


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("data.bin", "data.bin"),
        ("below/data.bin", r"below\data.bin"),
        (r"below\data.bin", r"below\data.bin"),
        ("below/../data.bin", "data.bin"),
        ("../out", None),
        (r"below\..\..\out", None),
        (r"C:\out", None),
        ("C:out", None),
        ("D:/models/out", None),
        ("/out", None),
        (r"\out", None),
        (r"\\server\share\out", None),
        ("//server/share/out", None),
    ],
)
def test_locations_of_data_files_on_windows(location, name, monkeypatch):
    """Slashes and backslashes separate folders there; drives, shares and the root lead out of the folder."""
    monkeypatch.setattr(data_file, "os", WindowsPaths)
    if name is None:
        with pytest.raises(OutsideFolderError, match="the name leaves the folder of the model"):
            find_data_file(r"C:\models\m.onnx", location)
    else:
        assert find_data_file(r"C:\models\m.onnx", location) == (r"C:\models", name)


@pytest.mark.parametrize("part", ["data.bin", "below"])
def test_a_later_link_is_not_followed_without_folder_descriptors(part, tmp_path, monkeypatch):
    """Without O_NOFOLLOW and `dir_fd`, the file that was opened has to lie where its name says."""
    monkeypatch.setattr(data_file, "_WALKS", False)
    monkeypatch.setattr(data_file, "_NO_LINK", 0)
    monkeypatch.setattr(data_file, "_FLAGS", os.O_RDONLY)
    (tmp_path / "s/below").mkdir(parents=True)
    (tmp_path / "s/below/data.bin").write_bytes(b"0123")
    file = find_data_file(tmp_path / "s/m.onnx", "below/data.bin")
    with file.open() as stream:
        assert stream.read() == b"0123"
    replaced = tmp_path / "s/below" if part == "below" else tmp_path / "s/below/data.bin"
    replaced.rename(tmp_path / "other")
    replaced.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="a link replaced it"):
        file.open()


# Memory and processor


@pytest.fixture
def no_proc(tmp_path, monkeypatch):
    """A system without /proc and control groups."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "cgroup_folders", lambda _: [])
    memory._hard_limit.cache_clear()
    yield
    memory._hard_limit.cache_clear()


def test_memory_of_macos(no_proc, monkeypatch):
    """The peak is in bytes there, and stands for what is used; all memory of the machine counts as free."""
    monkeypatch.setattr(sys, "platform", "darwin")
    usage = types.SimpleNamespace(ru_maxrss=300 << 20)
    monkeypatch.setattr(memory.resource, "getrusage", lambda _: usage)
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (memory.resource.RLIM_INFINITY,) * 2)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert (memory.peak_rss(), memory.rss()) == (300 << 20, 300 << 20)
    assert (memory.available(), memory.memory_limit()) == (machine, machine)
    memory.trim_heap()  # does nothing


def test_memory_of_windows(no_proc, monkeypatch):
    """Its own functions state all four figures; a record that they do not fill states none."""

    def fill_machine(reference):
        record = reference._obj
        assert ctypes.sizeof(record) == record.size == 64
        record.total, record.free, record.commit_free = 16 << 30, 3 << 30, 9 << 30

    def fill_process(process, reference, size):
        assert (process.value, size, reference._obj.size) == (2**64 - 1, 72, 72)
        reference._obj.now, reference._obj.peak = 200 << 20, 500 << 20

    functions = types.SimpleNamespace(GlobalMemoryStatusEx=fill_machine, K32GetProcessMemoryInfo=fill_process)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(memory, "resource", None)
    monkeypatch.setattr(ctypes, "WinDLL", lambda name: {"kernel32": functions}[name], raising=False)
    assert (memory.available(), memory.memory_limit()) == (9 << 30, 16 << 30)
    assert (memory.rss(), memory.peak_rss()) == (200 << 20, 500 << 20)
    memory._hard_limit.cache_clear()
    functions.GlobalMemoryStatusEx = lambda _: 0
    assert (memory.available(), memory.memory_limit()) == (memory.UNKNOWN, memory.UNKNOWN)


def test_automatic_tiles_fit_without_proc(no_proc, session, monkeypatch, tmp_path):
    """Where free memory is unknown, half of the machine's is the limit, and not an address space."""
    monkeypatch.setattr(memory, "_hard_limit", cache(lambda: 300 << 20))
    large = np.broadcast_to(np.float32(1), (1, 1, 3000, 3000))
    progress = streams.run(session, {"x": large}, tmp_path / "y.npy").progress
    assert progress.tiles > 1


def test_a_processor_without_proc(tmp_path, monkeypatch):
    """Its name is that of Python's `platform`, and its second cache is unknown."""
    plain = Path.read_text

    def read_text(path, *words, **more):
        if path.is_relative_to("/proc"):
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return plain(path, *words, **more)

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(host, "_CACHES", tmp_path / "none")
    monkeypatch.setattr(host.platform, "processor", lambda: "arm")
    for function in (host.processor_name, host.second_cache_bytes):
        function.cache_clear()
    try:
        assert (host.processor_name(), host.second_cache_bytes()) == ("arm", 0)
    finally:
        for function in (host.processor_name, host.second_cache_bytes):
            function.cache_clear()


@pytest.mark.parametrize(
    ("system", "variables", "folder"),
    [
        ("win32", {"LOCALAPPDATA": "/local"}, "/local"),
        ("win32", {}, "/home/me/AppData/Local"),
        ("darwin", {"XDG_CACHE_HOME": "/xdg"}, "/home/me/Library/Caches"),
        ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg"),
        ("linux", {}, "/home/me/.cache"),
    ],
)
def test_the_folder_of_caches(system, variables, folder, monkeypatch):
    """That of the user, where each system has it."""
    for name in ("LOCALAPPDATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", system)
    assert checked_files._user_cache() == Path(folder)


def test_everything_imports_without_posix(tmp_path):
    """Without fork, affinity, fcntl and resource, from the first import on: pools, also by threads, and a lock."""
    script = """
import os, sys, time, types
for name in NAMES:
    if hasattr(os, name):
        delattr(os, name)
sys.modules.update(dict.fromkeys(("fcntl", "resource")))
sys.modules["msvcrt"] = types.SimpleNamespace(locking=lambda *_: None, LK_NBLCK=1, LK_UNLCK=2)
import numpy as np
import unpool
from unpool import memory
from unpool.files import lock
from unpool.kernels.cpu.machine import host, threads, work_queue
from pathlib import Path
threads.max_threads = lambda: 2
large = np.arange(1 << 20, dtype=np.float32).reshape(4, 16, 128, 128)
for pause in (0, 0, 0.01):  # workers poll, and then wait in Python
    time.sleep(pause)
    assert unpool.max_pool(large, kernel_shape=[2, 2], strides=[2, 2], threads=2).max() == large.max()
x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
values, indices = unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], return_indices=True)
with lock([Path("y.npy")]):
    print(indices.ravel().tolist(), host.available_cores() == os.cpu_count(), memory.resource, work_queue.SLEEP)
"""
    code = f"NAMES = {windows_disk.NAMES!r}\n{script}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[5, 7, 13, 15] True None 0.0\n", "")


# The command


def test_ctrl_break_ends_cleanly(monkeypatch, tmp_path):
    """SIGBREAK, which Windows sends when a console is closed, ends the command as SIGTERM does."""
    monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR1, raising=False)
    monkeypatch.delattr(signal, "SIGHUP")
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, signal.SIG_DFL)
        with launcher.end_cleanly():
            assert signal.SIG_DFL not in map(signal.getsignal, before)
            with pytest.raises(SystemExit) as ended, FileSet() as files, files.open(tmp_path / "y"):
                signal.raise_signal(signal.SIGUSR1)
            assert ended.value.code == 128 + signal.SIGUSR1
            with pytest.raises(SystemExit), targets.defer_signals(), ExitStack() as stack:
                stack.callback(lambda: (signal.raise_signal(signal.SIGUSR1), (tmp_path / "last").touch()))
        assert [path.name for path in tmp_path.iterdir()] == ["last"]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_reader_that_leaves_on_windows(monkeypatch, capfd):
    """Windows calls a closed pipe an invalid argument; where standard output is no pipe, that is another error."""
    monkeypatch.setattr(targets, "IS_WINDOWS", True)
    for error, is_pipe, code in (
        (OSError(errno.EINVAL, "Invalid argument"), True, BROKEN_PIPE),
        (OSError(errno.EINVAL, "Invalid argument", "a?b"), True, UNFIT),
        (OSError(errno.EINVAL, "Invalid argument"), False, UNFIT),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), False, BROKEN_PIPE),
    ):
        reading, writing = os.pipe() if is_pipe else (os.open(os.devnull, os.O_RDWR), os.open(os.devnull, os.O_RDWR))
        os.close(reading)
        with os.fdopen(writing, "w") as stdout, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stdout)
            with pytest.raises(SystemExit) as ended, guard(quiet=True):
                raise error
        assert ended.value.code == code
    assert capfd.readouterr().err.count("error: ") == 2


# The table


def test_the_table_names_tests_that_exist():
    """Every row of "What depends on the system" has one."""
    page = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
    section = page.partition("## What depends on the system\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 10
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 5, row
        names = re.findall(r"`(?:(\w+\.py)::)?(test_\w+)`", cells[4])
        assert names, row
        for file, name in names:
            (path,) = ROOT.joinpath("tests").rglob(file or "test_other_systems.py")
            assert f"def {name}(" in path.read_text(encoding="utf-8"), row
