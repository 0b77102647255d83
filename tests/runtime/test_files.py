"""Files appear together or not at all, whatever the disk does."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.disk_faults import ERRORS, contents, failing, raising
from unpool.errors import FileError, MissingFileError
from unpool.files import FileSet, WriteError, write

NEW = {"a.bin": b"new a", "b.bin": b"new b" * 3000, "c.bin": b"new c"}
POSIX = pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")


def earlier(folder: Path) -> None:
    """Two of the three files are there already."""
    folder.joinpath("a.bin").write_bytes(b"old a")
    folder.joinpath("c.bin").write_bytes(b"old c")


def write_all(folder: Path, out="", names=tuple(NEW), meanwhile=lambda written: None) -> None:
    """Write all files; `meanwhile` gets the temporary ones by name when they are complete."""
    written = {}
    with FileSet() as files:
        if out:
            files.make_folder(folder / out)
        for name in names:
            with files.open(folder / out / name) as stream:
                stream.write(NEW[Path(name).name])
                written[name] = stream.name
        meanwhile(written)


def test_a_set_of_files_appears(tmp_path):
    """New files and replaced ones hold the new content, and nothing else is left."""
    earlier(tmp_path)
    write_all(tmp_path)
    assert contents(tmp_path) == NEW


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("out", ["", "new"], ids=["replacing", "folder"])
def test_a_fault_at_any_moment_leaves_all_or_nothing(tmp_path, monkeypatch, number, out):
    """Whichever request to the disk fails, all files are new, or all are as they were, and no other file stays."""
    at = 0
    while True:
        for path in tmp_path.iterdir():
            path.unlink() if path.is_file() else [*map(Path.unlink, path.iterdir()), path.rmdir()]
        earlier(tmp_path)
        before = contents(tmp_path)
        new = {**before, out: None, **{f"{out}/{name}": content for name, content in NEW.items()}} if out else NEW
        with failing(monkeypatch, at, raising(number)) as disk:
            try:
                write_all(tmp_path, out)
                expected = new
            except FileError:
                expected = before
        assert contents(tmp_path) == expected, disk.asked[-1]
        if disk.count <= at:
            break
        at += 1
    assert at > 15
    assert expected == new


def test_ctrl_c_at_any_moment_leaves_all_or_nothing(tmp_path, monkeypatch):
    """Ctrl-C is not lost, and never leaves some of the files, or other ones."""
    at = 0
    while True:
        for path in tmp_path.iterdir():
            path.unlink()
        earlier(tmp_path)
        before = contents(tmp_path)
        with failing(monkeypatch, at, lambda: signal.raise_signal(signal.SIGINT)) as disk:
            try:
                write_all(tmp_path)
            except KeyboardInterrupt:
                assert contents(tmp_path) in (before, NEW), disk.asked[-1]
            else:
                assert disk.count <= at
                break
        at += 1
    assert at > 15


def test_a_process_that_ends_at_once_leaves_whole_files(tmp_path):
    """A process that is killed anywhere in between leaves every target with its old or its new content."""
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom tests.support.disk_faults import failing\n"
        "from tests.runtime.test_files import write_all\nfrom pytest import MonkeyPatch\n"
        "with failing(MonkeyPatch(), int(sys.argv[1]), lambda: os._exit(9)): write_all(Path(sys.argv[2]))"
    )
    old = {"a.bin": b"old a", "b.bin": None, "c.bin": b"old c"}
    root = Path(__file__).parents[2]
    for at in (9, 15, 100):
        for path in tmp_path.iterdir():
            path.unlink()
        earlier(tmp_path)
        done = subprocess.run([sys.executable, "-c", script, str(at), str(tmp_path)], cwd=root, check=False)
        found = {name: (tmp_path / name).read_bytes() if (tmp_path / name).exists() else None for name in NEW}
        assert all(found[name] in (old[name], NEW[name]) for name in NEW)
        if done.returncode == 0:
            break
        assert done.returncode == 9
    assert found == NEW


def test_what_a_block_raises_takes_its_file_away(tmp_path):
    """An exception while one file is written leaves the others to appear."""

    def write_and_fail(files):
        with files.open(tmp_path / "b.bin") as stream:
            stream.write(b"b")
            raise ZeroDivisionError

    with FileSet() as files:
        with files.open(tmp_path / "a.bin") as stream:
            stream.write(b"a")
        with pytest.raises(ZeroDivisionError):
            write_and_fail(files)
    assert contents(tmp_path) == {"a.bin": b"a"}


def test_a_file_that_vanishes_is_an_error(tmp_path):
    """Somebody who removes a temporary file gets no half of the set."""
    earlier(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(WriteError, match=r"b\.bin: cannot be written"):
        write_all(tmp_path, meanwhile=lambda written: Path(written["b.bin"]).unlink())
    assert contents(tmp_path) == before


def test_places_that_are_no_files(tmp_path):
    """A missing folder, a file as a folder, and a name that is too long are named."""
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path / "none" / "a.bin", tmp_path / "file" / "a.bin"):
        with pytest.raises(MissingFileError, match="no such folder"):
            write(place, b"")
    with pytest.raises(WriteError, match="cannot be written"):
        write(tmp_path / ("long" * 80), b"")


def test_the_longest_name_is_written(tmp_path):
    """Names of temporary files do not grow with the name of the file."""
    write(tmp_path / ("n" * 255), b"content")
    assert contents(tmp_path) == {"n" * 255: b"content"}


@POSIX
def test_devices_are_not_replaced(tmp_path):
    """A pipe is no place for a file; it stays one."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WriteError, match="device or pipe"):
        write(tmp_path / "pipe", b"")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@POSIX
def test_the_mode_of_a_replaced_file_is_kept(tmp_path):
    """A file that only its owner may read stays so; a new one has the mode of any new file."""
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o600)
    (tmp_path / "plain").write_bytes(b"")
    for name in ("a", "b"):
        write(tmp_path / name, b"new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert (tmp_path / "b").stat().st_mode == (tmp_path / "plain").stat().st_mode


@POSIX
def test_a_link_stays_a_link(tmp_path):
    """The file behind a link is replaced; a link to nothing gets its file."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    (tmp_path / "free").symlink_to(tmp_path / "folder" / "made")
    for name in ("link", "free"):
        write(tmp_path / name, b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_bytes() == (tmp_path / "folder" / "made").read_bytes() == b"new"


@POSIX
def test_two_names_of_one_file_are_refused(tmp_path):
    """Where two results would be one file, none is written."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to(tmp_path / "one")
    with pytest.raises(WriteError, match="is the same file as another output"):
        write_all(tmp_path, names=("one/a.bin", "two/a.bin"))
    assert list((tmp_path / "one").iterdir()) == []


@POSIX
def test_the_wish_to_end_leaves_nothing(tmp_path):
    """A command that is told to end in the middle of its files takes them away, and says so by its exit code."""
    script = (
        "import os, signal, sys, time\nfrom pathlib import Path\nfrom unpool.cli.launcher import end_cleanly\n"
        "from unpool.files import FileSet\n"
        "with end_cleanly(), FileSet() as files, files.open(Path(sys.argv[1]) / 'a.bin') as stream:\n"
        "    stream.write(b'a'); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert contents(tmp_path) == {}


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    """The message names the file, the reason and what to do."""
    with failing(monkeypatch, 1, raising(errno.ENOSPC)), pytest.raises(WriteError) as caught:
        write(tmp_path / "a.bin", b"x" * 100000)
    assert str(caught.value) == (
        f"{tmp_path / 'a.bin'}: cannot be written ({os.strerror(errno.ENOSPC)}); earlier files are as they were. "
        "Free disk space, or choose another path."
    )
