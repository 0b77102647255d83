"""The command as a process: what it imports, the streams it is left with, and what it says without its extra."""

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest
from rich.console import Console

from unpool.cli import console, errors, launcher
from unpool.cli.errors import BROKEN_PIPE, INTERRUPTED, UNFIT, UNSUPPORTED, UsageError, guard
from unpool.cli.inputs import read_stdin
from unpool.cli.outputs import refuse_terminal
from unpool.graph.peek import BEGINNINGS, detect_file_kind

HEAVY = {"numba", "torch", "triton", "dask", "onnx", "onnxruntime", "PIL", "tifffile"}
COMMAND = [sys.executable, "-m", "unpool"]


def test_light_commands_start_light():
    """Help, explain and completion load no runtime, framework or compiler."""
    code = "import sys; from unpool.cli import main\ntry: main()\nfinally: print('\\n', *sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code, "explain", "MaxPool"], capture_output=True, text=True)
    assert "MaxPool-22" in done.stdout
    assert HEAVY & set(done.stdout.split()) == set()


def test_a_reader_that_leaves_is_no_error():
    """`unpool explain MaxPool | head -1` ends as other commands do, without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run([*COMMAND, "explain", "MaxPool"], stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_an_error():
    """What cannot be printed is no success, for options of Typer's own too."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (UNFIT, "error: output: no space left on device\n")


@pytest.mark.skipif(os.name == "nt", reason="closes streams as shells of Unix do")
def test_closed_streams_are_no_fault():
    """An error that nobody can read still has its code."""
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND, "explain", "Foo"])
    assert done.returncode == UNSUPPORTED


def test_dashes_need_open_streams(monkeypatch):
    """`-` for a closed stream is refused before any work."""
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(UsageError, match="standard input is closed"):
        read_stdin()
    with pytest.raises(UsageError, match="standard output is closed"):
        refuse_terminal()


def test_letters_that_an_encoding_lacks(monkeypatch):
    """They become escapes, and no traceback; names that would steer a terminal do so everywhere."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    errors.prepare_streams()
    console.say("a\x1b[2J−é")
    sys.stdout.flush()
    assert written.getvalue() == b"a\\x1b[2J\\u2212\\xe9" + os.linesep.encode()


def test_narrow_tables_keep_every_letter():
    """A column that is too narrow goes on in the next line."""
    rows = console.table(("node", "why"))
    rows.add_row(console.cell("node_max_pool2d_with_indices"), console.cell("onnxruntime's"))
    narrow = Console(width=20, file=io.StringIO())
    narrow.print(rows)
    lines = narrow.file.getvalue().splitlines()[3:]
    assert "".join(line.split()[0] for line in lines if line.strip()) == "node_max_pool2d_with_indices"


def test_an_interrupted_import_is_an_interruption(capsys):
    """Modules in C turn Ctrl-C while they are loaded into an ImportError."""
    with pytest.raises(SystemExit) as ended, guard():
        raise ImportError("initialization failed") from KeyboardInterrupt()
    assert (ended.value.code, capsys.readouterr().err) == (INTERRUPTED, "error: interrupted\n")


def test_what_is_said_without_the_extra(monkeypatch, capsys):
    """The version and the diagnosis can be had; all else names the packages as pip does."""
    monkeypatch.setattr(launcher, "missing_modules", lambda _: ["rich", "PIL"])
    said = {}
    for words in ("--version", "doctor --json", "inspect m.onnx"):
        monkeypatch.setattr(sys, "argv", ["unpool", *words.split()])
        with pytest.raises(SystemExit, match=str(UNSUPPORTED)) if "inspect" in words else nullcontext():
            launcher.main()
        said[words] = capsys.readouterr()
    assert said["--version"].out.startswith("unpool ")
    assert json.loads(said["doctor --json"].out)["extras"]["run"]["for"] == "whole models and the command line"
    assert (
        "rich and pillow are not installed. In a clone of unpool, run: pip install '.[run]'"
        in said["inspect m.onnx"].err
    )


def test_signals_end_the_process_again_after_the_command(monkeypatch, capsys):
    """A process that runs a command and goes on, and children that it forks, end by SIGTERM as they did before."""
    monkeypatch.setattr(sys, "argv", ["unpool", "--version"])
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit):
            launcher.main()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_files_that_people_take_for_models():
    """Each is recognised by how it begins, and the advice is a sentence to be ended with a full stop."""
    for at, beginning, kind, advice in BEGINNINGS:
        assert detect_file_kind(bytes(at) + beginning.upper() + bytes(9)) == (kind, advice)
    assert detect_file_kind(bytes(range(128, 200))) is None
