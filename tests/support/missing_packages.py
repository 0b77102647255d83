"""Runs commands and snippets of Python in processes in which some modules cannot be imported."""

import os
import shlex
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr
from io import StringIO
from multiprocessing import forkserver, get_context
from typing import NamedTuple

PRELOADED = (
    "unpool.cli.run", "unpool.cli.windows", "unpool.execute", "unpool.runtime.compare.compare",
    "unpool.runtime.lower.lower", "unpool.runtime.report.report", "unpool.runtime.rewrite.fix", "unpool.streams",
)  # fmt: skip
"""What several commands need; each of these would take its time in every process."""


class Outcome(NamedTuple):
    """How a command or a snippet ended: its exit code, what it said on stderr, and the files that it wrote."""

    code: int
    said: str
    written: list[str]


def processes():
    """One process per call, each a fork of a server that has loaded the command line and nothing optional."""
    context = get_context("forkserver")
    forkserver._forkserver._stop()  # the only one of this process, which may have loaded anything for earlier tests
    context.set_forkserver_preload(["unpool.cli.app", *PRELOADED])
    return ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1)


def hide(modules):
    """Make modules impossible to import here; where they are loaded, unpool is forgotten too, to be imported anew."""
    if any(module in sys.modules for module in modules):
        for name in [name for name in sys.modules if name.partition(".")[0] in ("unpool", *modules)]:
            del sys.modules[name]
    sys.modules.update(dict.fromkeys(modules))


def run_commands(commands, hidden, folder):
    """The outcomes of commands, in a process for them all."""
    hide(hidden)
    return [run_command(words, (), folder) for words in commands]


def run_command(words, hidden, folder):
    """The outcome of a command, in an empty folder inside `folder`."""
    hide(hidden)
    os.chdir(tempfile.mkdtemp(dir=folder))
    said, code = StringIO(), 0
    sys.argv = ["unpool", *shlex.split(words)]
    with redirect_stderr(said), open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout = nowhere
        try:
            from unpool.cli.launcher import main

            main()
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            sys.stdout = sys.__stdout__
    return Outcome(code, said.getvalue(), os.listdir())


def run_python(snippet, hidden, folder):
    """The outcome of a snippet: 4 where it raises the error of a missing package, which is a ModuleNotFoundError."""
    hide(hidden)
    os.chdir(folder)
    from unpool.errors import MissingExtraError, UnpoolError

    try:
        exec(snippet, {})
    except MissingExtraError as error:
        is_both = isinstance(error, UnpoolError) and isinstance(error, ModuleNotFoundError)
        return Outcome(4 if is_both and error.name in hidden else 1, f"{error}\n", [])
    return Outcome(0, "", [])
