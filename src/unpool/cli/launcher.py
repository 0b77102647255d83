"""Entry point of the command: checks for the `run` extra, then runs the command line."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from unpool.cli.errors import SIGNAL_BASE, UNSUPPORTED, prepare_streams, print_error
from unpool.extras import EXTRAS, missing_extra, missing_modules


@contextmanager
def end_cleanly() -> Iterator[None]:
    """Turn signals that end a process into SystemExit, so that temporary files are removed; ignored ones stay ignored.

    After the block, a signal ends the process, and every child that it forks, as before.
    SIGHUP is not on Windows. SIGBREAK is only there, sent by Ctrl-Break and by the end of a console or a session.
    """
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
    defaults = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in defaults:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in defaults:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(SIGNAL_BASE + number)


@end_cleanly()
def main() -> None:
    """Run the command line; without the extra it says which one to install, and exits with 4."""
    prepare_streams()
    missing = missing_modules(EXTRAS["run"][1])
    if not missing:
        from unpool.cli.app import app

        app(prog_name="unpool")
    elif sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        print(f"unpool {version('unpool')}")  # noqa: T201 - rich may be among the missing
    elif sys.argv[1:] in (["doctor"], ["doctor", "--json"]):
        from unpool.doctor import examine

        diagnosis = examine()
        as_json = "--json" in sys.argv
        print(json.dumps(diagnosis.document, indent=2) if as_json else diagnosis)  # noqa: T201 - as above
    else:
        print_error(f"{missing_extra('the command unpool', 'run', missing)}. See unpool doctor")
        raise SystemExit(UNSUPPORTED)
