"""The functions of `os` as on Windows, for files of this process: an open file is neither renamed nor deleted.

They look for open files in /proc. `NAMES` of POSIX are missing, folders cannot be opened, fsync takes only files that
are open for writing, and msvcrt locks in place of fcntl.
"""

import errno
import fcntl
import os
import shutil
import stat
import sys
import types
from contextlib import suppress
from pathlib import Path

from unpool.files import file_set, locks, targets

NAMES = (
    "chown", "fork", "getuid", "posix_fallocate", "register_at_fork", "sched_getaffinity", "sched_setaffinity",
    "sysconf", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK",
)  # fmt: skip
"""Names of `os` that Windows lacks."""


def install(monkeypatch):
    """Replace the functions until the end of the test."""
    for name in NAMES:
        monkeypatch.delattr(os, name, raising=False)
    if hasattr(os, "process_cpu_count"):  # of Python 3.13, which decided at its start to ask for the affinity
        monkeypatch.setattr(os, "process_cpu_count", os.cpu_count)
    for module in (file_set, locks, targets):
        monkeypatch.setattr(module, "IS_WINDOWS", True)
    monkeypatch.setattr(targets, "PAUSES", (0.001, 0.001))
    monkeypatch.setattr(shutil, "_use_fd_functions", False)  # `rmtree` by paths, as there
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt())
    for name, function in functions().items():
        monkeypatch.setattr(os, name, function)


def functions():
    """The functions of `os` that behave in another way there, by their names."""
    plain = {name: getattr(os, name) for name in ("open", "fsync", "replace", "rename", "unlink", "remove")}

    def open_file(path, flags, mode=0o777, *, dir_fd=None):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return plain["open"](path, flags, mode, dir_fd=dir_fd)

    def sync(descriptor):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")

    def guarded(name):
        def function(path, *places, **words):
            for place in (path, *places):
                refuse_open(place)
            return plain[name](path, *places, **words)

        return function

    changes = {name: guarded(name) for name in ("replace", "rename", "unlink", "remove")}
    return {"open": open_file, "fsync": sync, **changes}


def refuse_open(place):
    """The error of Windows for a file that this process has open, or for a folder of it."""
    if not os.path.lexists(place) or os.path.islink(place):
        return
    opened = open_files()
    for path in (Path(place), *Path(place).rglob("*")):
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) in opened:
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(place))


def open_files():
    """Device and inode of each file that this process has open; a file that is mapped counts."""
    places = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            status = os.stat(f"/proc/self/fd/{number}")
            places.add((status.st_dev, status.st_ino))
    return places


def msvcrt():
    """The module with `locking`, which locks a byte at the position of an open file until it is unlocked."""
    held = set()

    def locking(descriptor, mode, count):
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == locks.REGION
        key = os.fstat(descriptor).st_ino, count
        if mode == "lock" and key in held:
            raise PermissionError(errno.EACCES, "Permission denied")
        held.add(key) if mode == "lock" else held.remove(key)

    return types.SimpleNamespace(locking=locking, held=held, LK_NBLCK="lock", LK_UNLCK="unlock")
