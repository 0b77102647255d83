"""Exit codes, and the one place where an exception becomes a line on stderr.

0 ok   1 findings, a mismatch, or inputs left out   2 usage   3 a model or an input cannot be read or does not fit
4 unsupported, or an extra is missing   130 interrupted   141 nobody reads the output   128 + the number of a signal
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from unpool.cli.standard_streams import discard, flush
from unpool.display import display_line
from unpool.errors import MissingExtraError, UnpoolError, UnsupportedError
from unpool.extras import extra_of, missing_extra, missing_modules

OK = 0
FINDINGS = 1
USAGE = 2
UNFIT = 3
UNSUPPORTED = 4
SIGNALLED = 128
INTERRUPTED = 130
UNREAD = 141


class UsageError(UnpoolError):
    """The options contradict each other or do not suit the files they are used with."""


def exit_code(error: BaseException) -> int:
    """Exit code of an expected error.

    >>> from unpool.errors import MissingFileError
    >>> [exit_code(error("what happened")) for error in (UsageError, MissingFileError, UnsupportedError)]
    [2, 3, 4]
    """
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, (UnsupportedError, MissingExtraError)):
        return UNSUPPORTED
    return UNFIT


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
    """Turn expected errors into one line on stderr and an exit code, and warnings into one line each.

    On a terminal it is said how long kernels are compiled, unless `quiet`.
    """
    from unpool.cli.compiling import compiling_told

    with warnings.catch_warnings(), nullcontext() if quiet else compiling_told(sys.stderr):
        warnings.showwarning = _show_warning
        try:
            yield
            flush()
        except BrokenPipeError as error:
            discard()
            raise SystemExit(UNREAD) from error
        except (UnpoolError, OSError, MemoryError, KeyboardInterrupt) as error:
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
