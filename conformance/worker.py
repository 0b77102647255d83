"""A process of its own for every runtime: one that dies or is too slow costs one answer and is started again."""

import importlib
import os
import re
import signal
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from conformance.runtimes import NoMapping, Shapes

SECONDS_PER_ANSWER = 20.0
SECONDS_TO_START = 300.0
LONGEST_MESSAGE = 240
MOST_LINES = 20  # of what a process printed before it died
FOLDERS = re.compile(r"(?:[\w.+-]*[/\\])+(?=[\w.+-])")


@dataclass(frozen=True, eq=False)
class Answer:
    """What came back.

    Attributes:
        kind: "outputs", "shapes" (of the outputs), "refused", "crashed" (it died, was too slow or broke) or "n/a" (it
            cannot be asked).
        outputs: of kind "outputs".
        shapes: of kind "shapes".
        message: of the other kinds; one line.
        details: of kind "crashed": the traceback, or the last lines that the process printed.
    """

    kind: str
    outputs: tuple[np.ndarray, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    message: str = ""
    details: str = ""


class WorkerError(RuntimeError):
    """A worker process did not start."""


class Worker:
    """The parent's side of one runtime.

    Args:
        module: name of the module with `version` and `answer`, or the path of its file, which ends in `.py`.
        seconds: allowed for one answer.
    """

    def __init__(self, module: str, seconds: float = SECONDS_PER_ANSWER) -> None:
        self.module = module
        self.seconds = seconds
        self.starts = 0
        self.version = ""
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._log = Path(self._folder.name) / "stderr"
        self._process: Any = None
        self._pipe: Connection | None = None

    def __enter__(self) -> "Worker":
        try:
            self._started()
        except WorkerError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._folder.cleanup()

    def ask(self, model: bytes, feeds: Mapping[str, np.ndarray]) -> Answer:
        """The runtime's answer for a serialized model and its inputs."""
        pipe = self._started()
        try:
            pipe.send((model, dict(feeds)))
            if pipe.poll(self.seconds):
                return pipe.recv()  # type: ignore[no-any-return]
            message = f"no answer in {self.seconds:g} s"
        except (EOFError, OSError):
            self._process.join(self.seconds)
            message = end_of(self._process.exitcode)
        self._stop()
        return Answer("crashed", message=message, details="\n".join(self._last_lines(MOST_LINES)))

    def _started(self) -> Connection:
        """The pipe to a process that is ready."""
        if self._pipe is not None:
            return self._pipe
        context = get_context("spawn")
        pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self.module, str(self._log)), daemon=True)
        self._process.start()
        theirs.close()
        self.starts += 1
        self._pipe = pipe
        try:
            if not pipe.poll(SECONDS_TO_START):
                raise WorkerError(
                    f"{self.module}: expected a start within {SECONDS_TO_START:g} s. Is the machine busy?"
                )
            self.version = pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(self.seconds)
            last = (self._last_lines(1) or [""])[-1]
            raise WorkerError(
                f"{self.module}: expected a process that starts, it said: {last}. "
                "Install the extras run, torch and conformance."
            ) from error
        return pipe

    def _last_lines(self, count: int) -> list[str]:
        """The last lines that the process printed."""
        return self._log.read_text(errors="replace").strip().splitlines()[-count:]

    def _stop(self) -> None:
        """End the process, whatever it does."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def end_of(exitcode: int | None) -> str:
    """How a process ended, in words.

    >>> end_of(3), end_of(-11)
    ('the process ended with exit code 3', 'the process ended with SIGSEGV')
    """
    if exitcode is not None and exitcode < 0:
        return f"the process ended with {signal.Signals(-exitcode).name}"
    return f"the process ended with exit code {exitcode}"


def serve(pipe: Connection, module: str, log: str) -> None:
    """The child's side: answer until the parent goes; what is printed goes to the log."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    runtime = load(module)
    pipe.send(runtime.version())
    while True:
        try:
            model, feeds = pipe.recv()
        except EOFError:
            return
        pipe.send(reply(runtime, model, feeds))


def load(module: str) -> Any:
    """A module, by its name or by the path of its file."""
    if not module.endswith(".py"):
        return importlib.import_module(module)
    loader = SourceFileLoader(Path(module).stem, module)
    loaded = ModuleType(loader.name)
    loader.exec_module(loaded)
    return loaded


def reply(runtime: Any, model: bytes, feeds: Mapping[str, np.ndarray]) -> Answer:
    """One answer; an exception is a refusal, unless the runtime has a class for those and this is another one."""
    try:
        outputs = runtime.answer(model, feeds)
        if isinstance(outputs, Shapes):
            return Answer("shapes", shapes=tuple(outputs))
        return Answer("outputs", tuple(np.array(output) for output in outputs))
    except NoMapping as reason:
        return Answer("n/a", message=str(reason))
    except Exception as error:
        message = one_line(error, getattr(runtime, "NOISE", ()))
        if isinstance(error, getattr(runtime, "REFUSAL", Exception)):
            return Answer("refused", message=message)
        return Answer("crashed", message=message, details=traceback.format_exc().strip())


def one_line(error: Exception, noise: Sequence[str] = ()) -> str:
    r"""The exception's class and message without line breaks, noise, folders and what is too long.

    >>> one_line(ValueError("in /build/src/pool.cc:12: kernel\n  is 0"), ["in "])
    'ValueError: pool.cc:12: kernel is 0'
    """
    text = " ".join(str(error).split())
    for pattern in noise:
        text = re.sub(pattern, "", text)
    text = f"{type(error).__name__}: {FOLDERS.sub('', text.strip())}"
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE].rstrip()} …"
