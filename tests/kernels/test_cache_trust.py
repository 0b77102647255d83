"""Files of a cache are read only if nobody but this user and root could have written them."""

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from unpool.kernels.cpu.machine import checked_files
from unpool.kernels.cpu.machine.checked_files import CheckedFiles

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no owners and modes of POSIX")

USER = 12345  # the number of a user that no test machine has


class Marker:
    """An object that makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.path,)


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To another user; only root can, so that others become another user."""
    if os.geteuid() == 0:
        os.chown(path, USER, USER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: USER)


CHANGES = {
    "folder of another user": lambda folder, _, patch: give_away(folder, patch),
    "file of another user": lambda _, file, patch: give_away(file, patch),
    "folder that all can write": lambda folder, *_: folder.chmod(0o777),
    "folder that all can write, with a sticky bit": lambda folder, *_: folder.chmod(0o1777),
    "file that all can write": lambda _, file, __: file.chmod(0o666),
}


@pytest.fixture
def saved(tmp_path) -> tuple[CheckedFiles, Path, Path, Path]:
    """Files with an object that leaves a mark when it is read; their folder, the only file, and the mark."""
    checked_files._warn_once.cache_clear()
    files, mark = CheckedFiles("kernels", 1, folders=[tmp_path / "cache"]), tmp_path / "mark"
    files.save("key", Marker(mark))
    (file,) = (tmp_path / "cache").glob("*/*")
    return files, file.parent, file, mark


@pytest.mark.parametrize("change", CHANGES)
def test_what_others_could_write_is_not_unpickled(saved, change, monkeypatch, caplog) -> None:
    """It is as if it was not there, and one line says why, however often it is asked for."""
    files, folder, file, mark = saved
    CHANGES[change](folder, file, monkeypatch)
    with caplog.at_level(logging.WARNING, "unpool"):
        assert [files.load("key"), files.load("key")] == [None, None]
    assert not mark.exists()
    (said,) = caplog.messages
    assert str(folder) in said
    assert "NUMBA_CACHE_DIR" in said


@pytest.mark.parametrize("is_of_root", [False, True])
def test_the_next_folder_is_taken(tmp_path, monkeypatch, is_of_root) -> None:
    """Where others could write to the first, which is not read, or this user cannot, as in an image of root's."""
    files = CheckedFiles("kernels", 1, folders=[tmp_path / "first", tmp_path / "second"])
    files.save("key", 1)
    if is_of_root:
        monkeypatch.setattr(os, "access", lambda path, _: not str(path).startswith(str(tmp_path / "first")))
    else:
        next((tmp_path / "first").iterdir()).chmod(0o777)
    assert files.load("key") == (1 if is_of_root else None)
    files.save("other", 2)
    assert files.load("other") == 2
    assert len(list((tmp_path / "second").glob("*/*"))) == 1


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o077])
def test_new_files_are_trusted_with_every_umask(tmp_path, umask) -> None:
    """Nobody else may write to them, even if other new files of this user are for all."""
    before = os.umask(umask)
    try:
        files = CheckedFiles("kernels", 1, folders=[tmp_path / "cache"])
        files.save("key", "object")
    finally:
        os.umask(before)
    assert files.load("key") == "object"


@pytest.mark.parametrize(("group", "members", "is_read"), [("me", [], True), ("me", ["you"], False), ("us", [], False)])
def test_a_private_group_may_write(tmp_path, monkeypatch, group, members, is_read) -> None:
    """Many systems give every user a group of the same name, and let it write: it has no other members."""
    import grp
    import pwd

    checked_files._is_private.cache_clear()
    files = CheckedFiles("kernels", 1, folders=[tmp_path])
    files.save("key", 1)
    (folder,) = tmp_path.iterdir()
    folder.chmod(0o775)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("me", "x", 1, 1, "", "/", "/bin/sh")))
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((group, "x", 1, members)))
    assert files.load("key") == (1 if is_read else None)
    checked_files._is_private.cache_clear()


@pytest.mark.parametrize("system", [sys.platform, "win32"])
def test_other_files_are_read(saved, monkeypatch, system) -> None:
    """Those of this user, and all on Windows, which has no owners and keeps the folders of users apart."""
    files, folder, _, mark = saved
    if system == "win32":
        monkeypatch.delattr(os, "geteuid")
        monkeypatch.setattr(sys, "platform", system)
        folder.chmod(0o777)
    files.load("key")
    assert mark.exists()
