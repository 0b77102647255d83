"""Standard streams as they were left: closed, in an encoding without some letters, or with nobody who reads on."""

import io
import os
import sys
from contextlib import suppress


def prepare() -> None:
    """Make all three safe to use: no file that is opened later takes the number of one that is closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Send what was printed; here it shows that nobody reads it, or that there is no space for it."""
    if sys.stdout is not None:
        sys.stdout.flush()


def discard() -> None:
    """Forget what was printed and cannot be sent, which Python would try once more when it ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
