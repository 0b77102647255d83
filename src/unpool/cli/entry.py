"""Where the command starts: look for the `run` extra, then hand over to the commands."""

import sys
from collections.abc import Iterable
from importlib.util import find_spec

from unpool.cli.exits import UNSUPPORTED

RUN_EXTRA = ("typer", "rich", "onnx", "onnxruntime", "PIL", "tifffile")


def missing_modules(names: Iterable[str]) -> list[str]:
    """Names of the modules that cannot be imported here, in the order given; none is imported.

    >>> missing_modules(["sys", "a_module_that_nobody_wrote"])
    ['a_module_that_nobody_wrote']
    """
    return [name for name in names if find_spec(name) is None]


def main() -> None:
    """Run the command line; exits 4 and names the extra when it is not installed."""
    missing = missing_modules(RUN_EXTRA)
    if missing:
        print(  # noqa: T201 - rich may be among the missing
            f"error: the command unpool needs {', '.join(missing)}. Run: pip install 'unpool[run]'",
            file=sys.stderr,
        )
        raise SystemExit(UNSUPPORTED)
    from unpool.cli.app import app

    app(prog_name="unpool")
