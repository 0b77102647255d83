"""A copy of the checkout in which one fault at a time is tried."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutations.record import Mutation

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "tools", "docs", "pyproject.toml")
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "--tb=no", "-p", "no:cacheprovider")
EXAMPLES = "tests/operators/test_semantics.py"
FILES = (
    "operators/test_random",
    "docs/test_semantics_doc",
    "operators/test_contract",
    "operators/test_bad_input",
    "operators/test_properties",
)
SUITE: tuple[tuple[str, ...], ...] = (
    (EXAMPLES, "-k", "function or oracle"),
    tuple(f"tests/{name}.py" for name in FILES),
)
MINUTES = 15
FAILED = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutation on a line; `killer` is the first test that failed, or None where all passed."""

    mutation: Mutation
    line: int
    killer: str | None


class UntriedError(Exception):
    """The tests could not run, which says nothing about a fault."""


class Workplace:
    """A folder with a copy of the sources and tests, and a folder for the compiled kernels of the copy."""

    def __init__(self, folder: Path) -> None:
        self.pristine, self.root, self.cache = folder / "pristine", folder / "work", folder / "cache"
        for name in COPIED:
            copy(ROOT / name, self.pristine / name)
        copy(self.pristine, self.root)
        self.is_prepared = False

    def prepare(self) -> None:
        """Run the whole selection without a fault, which also compiles the kernels.

        Raises:
            UntriedError: a test fails, or the tests import another unpool than the copy.
        """
        code = "import unpool; print(unpool.__file__)"
        found = subprocess.run([sys.executable, "-c", code], **self._settings(self.cache), check=True).stdout
        if not Path(found.strip()).is_relative_to(self.root):
            raise UntriedError(f"the copy in {self.root} should be imported, got {found.strip()}")
        killer = self._first_failure(SUITE, self.cache)
        if killer is not None:
            raise UntriedError(f"without any fault, the tests should pass, but {killer} failed")
        self.is_prepared = True

    def judge(self, mutation: Mutation) -> Verdict:
        """Apply the fault, run the examples of its rule, then the others, then whole files; undo it.

        Raises:
            UntriedError: the old text does not occur exactly once, or the tests cannot run.
        """
        line = mutation.line(self.pristine)
        if not line:
            raise UntriedError(f"{mutation.rule}, {mutation.file}: expected exactly once: {mutation.old}")
        target = self.root / mutation.path
        target.write_text(mutation.patched(self.pristine), encoding="utf-8")
        try:
            contract = ((EXAMPLES, "-k", f"function-{mutation.rule}-"), *SUITE)
            stages: tuple[tuple[str, ...], ...] = ((mutation.suite,),) if mutation.suite else contract
            if not mutation.file.startswith("kernels/"):
                return Verdict(mutation, line, self._first_failure(stages, self.cache))
            with tempfile.TemporaryDirectory(dir=self.root) as empty:
                return Verdict(mutation, line, self._first_failure(stages, Path(empty)))
        finally:
            shutil.copy2(self.pristine / mutation.path, target)

    def _first_failure(self, stages: Sequence[Sequence[str]], cache: Path) -> str | None:
        for arguments in stages:
            try:
                done = subprocess.run([*PYTEST, *arguments], **self._settings(cache), check=False)
            except subprocess.TimeoutExpired as cause:
                raise UntriedError(f"pytest {' '.join(arguments)} ran for {MINUTES} minutes") from cause
            if done.returncode == 1:
                return FAILED.findall(done.stdout)[0]
            if done.returncode != 0:
                raise UntriedError(
                    f"pytest {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
                )
        return None

    def _settings(self, cache: Path) -> dict[str, object]:
        """Where and how a process runs; the bytecode of faults is not kept, as two may share size and second."""
        environment = os.environ | {
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1" if self.is_prepared else "",
            "NUMBA_CACHE_DIR": str(cache),
            "UNPOOL_KERNELS": "compiled",
            "COLUMNS": "400",
        }
        return {"cwd": self.root, "env": environment, "capture_output": True, "text": True, "timeout": 60 * MINUTES}


def copy(source: Path, target: Path) -> None:
    """A file or a folder with its times, without bytecode."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
