"""`unpool doctor`, `unpool completion`, `python -m unpool`, and what is said while kernels are compiled."""

import io
import json
import logging
import os
import subprocess
import sys
import time
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unpool import doctor
from unpool.cli.app import app
from unpool.cli.errors import show_compiling
from unpool.kernels.cpu.machine import cache

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_doctor_says_what_is_there():
    """Every topic has its lines, and --json has the same."""
    lines = CliRunner().invoke(app, ["doctor"])
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert lines.exit_code == 0
    assert list(found) == [
        "versions",
        "processor",
        "kernels",
        "cache",
        "cache of models",
        "extras",
        "devices",
        "problems",
    ]
    for topic in list(found)[:-1]:
        assert set(found[topic]) <= {line.split(":")[0].strip() for line in lines.stdout.splitlines()}
    assert found["cache"]["bytes"] >= 0
    assert "CPUExecutionProvider" in found["devices"]["onnxruntime"]
    assert Path(found["kernels"]["library for onnxruntime"]).is_file()


def test_doctor_names_what_is_missing(monkeypatch):
    """A module that is not there is named with what it is for, and how to get it."""
    monkeypatch.setattr(doctor, "missing_modules", lambda names: [name for name in names if name == "skimage"])
    assert "  demo: missing skimage, for unpool demo: pip install '.[demo]'" in str(doctor.examine()).splitlines()


def test_doctor_knows_all_extras():
    """The extras for users are those of the project, with the modules of their packages."""
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    names = packages_distributions()
    for extra, (_, modules) in doctor.EXTRAS.items():
        wanted = " ".join(declared[extra]).lower()
        for module in modules:
            assert any(name.lower() in wanted for name in names.get(module, [module])), (extra, module)
    assert set(declared) - set(doctor.EXTRAS) == {"conformance", "bench", "docs", "test", "release", "zoo", "all"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_script(shell):
    """Each shell gets the script of typer, which asks this command."""
    done = CliRunner().invoke(app, ["completion", shell], prog_name="unpool")
    assert done.exit_code == 0
    assert "_UNPOOL_COMPLETE" in done.stdout
    assert f"complete_{shell}" in done.stdout


def test_module_runs_as_the_command_and_completes():
    """`python -m unpool` is the command; asked by a shell, it completes."""
    ask = os.environ | {"_UNPOOL_COMPLETE": "complete_bash", "COMP_WORDS": "unpool insp", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "unpool"], capture_output=True, text=True, env=ask, check=False)
    assert done.stdout.split() == ["inspect"]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "spent", "said"), [(Terminal(), 2.4, True), (Terminal(), 0.9, False), (io.StringIO(), 9, False)]
)
def test_compiling_is_told_on_a_terminal(stream, spent, said):
    """More than a second of compiling gives one line with the seconds; less, or no terminal, gives none."""
    times = iter([0.0])
    with show_compiling(stream, lambda: next(times, spent)):
        pass
    assert stream.getvalue() == ("\rcompiling once, 2 s; later runs find it in the cache\n" if said else "")


def test_clock_counts_what_is_compiled_on_the_way_once(caplog):
    """A kernel that another one calls belongs to that; the log names the outer one."""
    before = cache.compile_seconds()
    with caplog.at_level(logging.INFO, "unpool"):
        cache.note_start("outer")
        cache.note_start("inner")
        time.sleep(0.01)
        cache.note_end("inner")
        cache.note_end("outer")
    assert cache.compile_seconds() - before >= 0.01
    assert [message.split(" is compiled")[0] for message in caplog.messages] == ["kernels: outer"]
    assert cache.compile_seconds() == cache.compile_seconds()
