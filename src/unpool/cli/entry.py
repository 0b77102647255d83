"""Where the command starts: look for the `run` extra, then hand over to the commands."""

import signal
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from types import FrameType

from unpool.cli.exits import SIGNALLED, UNSUPPORTED
from unpool.cli.standard_streams import prepare

RUN_EXTRA = ("typer", "rich", "onnx", "onnxruntime", "PIL", "tifffile")


def missing_modules(names: Iterable[str]) -> list[str]:
    """Names of the modules that cannot be imported here, in the order given; none is imported.

    >>> missing_modules(["sys", "a_module_that_nobody_wrote"])
    ['a_module_that_nobody_wrote']
    """
    return [name for name in names if find_spec(name) is None]


def end_cleanly() -> None:
    """Let the wish to end raise SystemExit, so that temporary files go; a signal that is ignored stays so."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # SIGHUP is not everywhere
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(SIGNALLED + number)


def main() -> None:
    """Run the command line; exits 4 and names the extra when it is not installed."""
    end_cleanly()
    prepare()
    missing = missing_modules(RUN_EXTRA)
    if missing and sys.argv[1:2] == ["doctor"]:
        from unpool.doctor import examine

        print(examine())  # noqa: T201 - without rich
        return
    if missing:
        print(  # noqa: T201 - rich may be among the missing
            f"error: the command unpool needs {', '.join(missing)}. Run: pip install 'unpool[run]'",
            file=sys.stderr,
        )
        raise SystemExit(UNSUPPORTED)
    from unpool.cli.app import app

    app(prog_name="unpool")
