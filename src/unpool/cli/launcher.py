"""Entry point of the command: checks for the `run` extra, then runs the command line."""

import json
import signal
import sys
from types import FrameType

from unpool.cli.errors import SIGNAL_BASE, UNSUPPORTED, prepare_streams, print_error
from unpool.extras import EXTRAS, missing_extra, missing_modules

RUN_EXTRA = EXTRAS["run"][1]
ANSWERS = (["--version"], ["doctor"], ["doctor", "--json"])
"""Command lines that work without the extra."""


def end_cleanly() -> None:
    """Let the wish to end raise SystemExit, so that temporary files go; a signal that is ignored stays so."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # SIGHUP is not everywhere
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(SIGNAL_BASE + number)


def main() -> None:
    """Run the command line; without the extra it says which one to install, and exits with 4."""
    end_cleanly()
    prepare_streams()
    missing = missing_modules(RUN_EXTRA)
    if not missing:
        from unpool.cli.app import app

        app(prog_name="unpool")
    elif sys.argv[1:] in ANSWERS:
        print(_answer(sys.argv[1:]))  # noqa: T201 - rich may be among the missing
    else:
        print_error(f"{missing_extra('the command unpool', 'run', missing)}. See unpool doctor")
        raise SystemExit(UNSUPPORTED)


def _answer(words: list[str]) -> str:
    """The output of a command line that works without the extra."""
    if words == ["--version"]:
        from importlib.metadata import version

        return f"unpool {version('unpool')}"
    from unpool.doctor import examine

    found = examine()
    return json.dumps(found.document, indent=2) if "--json" in words else str(found)
