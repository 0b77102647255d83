"""Exit codes, exceptions as one line on stderr, and standard streams that are closed, full or no longer read.

0 ok   1 findings, a mismatch, or inputs left out   2 usage   3 a model or an input cannot be read or does not fit
4 unsupported, or an extra is missing   130 interrupted   141 broken pipe   128 + the number of a signal
"""

import errno
import io
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TextIO

from unpool.cli.stages import repeated
from unpool.display import display_line
from unpool.errors import MissingExtraError, UnpoolError, UnsupportedError
from unpool.extras import extra_of, missing_extra, missing_modules
from unpool.files import targets

OK, FINDINGS, USAGE, UNFIT, UNSUPPORTED = 0, 1, 2, 3, 4
SIGNAL_BASE, INTERRUPTED, BROKEN_PIPE = 128, 130, 141

_FIRST_LINE, _TICK = 1.0, 0.25  # seconds of compiling before the line appears, and between two of its updates


class UsageError(UnpoolError):
    """The options contradict each other or do not suit the files they are used with."""


def exit_code(error: BaseException) -> int:
    """Exit code of an expected error."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, UsageError):
        return USAGE
    return UNSUPPORTED if isinstance(error, (UnsupportedError, MissingExtraError)) else UNFIT


def one_line(error: BaseException) -> str:
    """The message of an error on a single line.

    >>> one_line(FileNotFoundError(2, "No such file or directory", "x.npy"))
    'x.npy: no such file or directory'
    """
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'output'}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return " ".join(str(error).split()) or type(error).__name__


def print_error(line: str) -> None:
    """Write one `error:` line to stderr."""
    print(f"error: {display_line(line)}", file=sys.stderr)  # noqa: T201 - the error channel of the command


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {display_line(' '.join(str(message).split()))}", file=sys.stderr)  # noqa: T201 - one line, no source


@contextmanager
def guard(*, quiet: bool = False) -> Iterator[None]:
    """Turn expected errors into an `error:` line and an exit code; unless `quiet`, show that kernels are compiled."""
    with warnings.catch_warnings(), nullcontext() if quiet else show_compiling(sys.stderr):
        warnings.showwarning = _show_warning
        try:
            yield
            if sys.stdout is not None:
                sys.stdout.flush()  # a broken pipe or a full disk raises here
        except (UnpoolError, OSError, MemoryError, KeyboardInterrupt) as error:
            if _is_broken_pipe(error):
                with suppress(OSError, ValueError, AttributeError):  # Python would write the rest again at its end
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise SystemExit(BROKEN_PIPE) from error
            print_error(one_line(error))
            raise SystemExit(exit_code(error)) from error
        except ImportError as error:
            if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
                print_error("interrupted")
                raise SystemExit(INTERRUPTED) from error
            module = (error.name or "").partition(".")[0]
            extra = extra_of(module)
            if extra is None or not missing_modules([module]):
                raise
            print_error(one_line(missing_extra("unpool", extra, [module])))
            raise SystemExit(UNSUPPORTED) from error


def _is_broken_pipe(error: BaseException) -> bool:
    """True if the reader of standard output has closed it; Windows often calls that an invalid argument."""
    if not targets.IS_WINDOWS or isinstance(error, BrokenPipeError):
        return isinstance(error, BrokenPipeError)
    is_unnamed = isinstance(error, OSError) and error.errno == errno.EINVAL and error.filename is None
    try:
        return is_unnamed and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def show_compiling(stream: TextIO = sys.stderr, seconds: Callable[[], float] | None = None) -> Iterator[None]:
    """Count on one line of a terminal the `seconds` spent compiling, by default by this process."""
    if not stream.isatty():
        yield
        return
    from unpool.warmup import compiling_seconds

    count = seconds or compiling_seconds
    start, shown = count(), 0.0

    def show() -> None:
        nonlocal shown
        spent = count() - start
        if spent > max(_FIRST_LINE, shown):
            shown = spent
            stream.write(f"\rcompiling once, {spent:.0f} s")
            stream.flush()

    try:
        with repeated(show, _TICK):
            yield
    finally:
        show()
        stream.write("; later runs find it in the cache\n" if shown else "")
        stream.flush()


def prepare_streams() -> None:
    """Make the standard streams safe to use: a file opened later cannot get the number of a closed one."""
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
