"""A disk that fails at the n-th thing it is asked for, and what a folder holds before and after."""

import errno
import io
import os
import sys
from contextlib import contextmanager
from pathlib import Path

OPERATIONS = ("open", "fsync", "link", "replace", "unlink", "mkdir", "chmod", "rmdir")
ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS, errno.EXDEV, errno.ENOENT)


class Disk:
    """Counts what is asked of the disk, and does `act` instead of (or before) the request number `at`."""

    def __init__(self, at, act):
        self.at, self.act, self.count, self.asked = at, act, 0, []

    def ask(self, name):
        self.asked.append(name)
        self.count += 1
        if self.count - 1 == self.at:
            self.act()

    def function(self, name, original):
        def asked(*arguments, **options):
            if is_of_the_writer(sys._getframe(1)):
                self.ask(name)
                if name == "fsync":  # really syncing takes time and tells nothing
                    return None
            return original(*arguments, **options)

        return asked

    def open(self, original):
        disk = self

        class File(io.FileIO):
            def write(self, content):
                disk.ask("write")
                return super().write(content)

        def opened(path, mode="r", *arguments, **options):
            if mode != "x+b":
                return original(path, mode, *arguments, **options)
            disk.ask("create")
            return io.BufferedRandom(File(path, "x+"))

        return opened


@contextmanager
def failing(monkeypatch, at, act):
    """Let request number `at` of the writer fail by `act`."""
    disk = Disk(at, act)
    with monkeypatch.context() as patched:
        for name in OPERATIONS:
            patched.setattr(os, name, disk.function(name, getattr(os, name)))
        patched.setattr(io, "open", disk.open(io.open))
        yield disk


def is_of_the_writer(frame):
    """Whether a function is called by `unpool.files`, itself or through a Path."""
    while frame.f_globals["__name__"] == "pathlib":
        frame = frame.f_back
    return frame.f_globals["__name__"].startswith("unpool.files")


def raising(number):
    def act():
        raise OSError(number, os.strerror(number))

    return act


def contents(folder: Path):
    """Every file below a folder with its bytes, and every folder with None."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
