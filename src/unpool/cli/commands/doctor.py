"""The command `unpool doctor`: its options."""

from unpool.cli.exits import guard
from unpool.cli.options import Json


def doctor(as_json: Json = False) -> None:
    """Say what this machine offers: versions, processor, Numba, its cache, extras that are missing, devices."""
    with guard():
        from unpool.cli import console
        from unpool.doctor import examine

        found = examine()
        console.say_report(found.lines, found.document, as_json)
