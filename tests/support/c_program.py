"""The program of examples/onnxruntime in C, which runs a model without Python, and what a machine needs for it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import unpool.onnxruntime
from unpool.execute.plans import library_file

EXAMPLES = Path(__file__).parents[2] / "examples" / "onnxruntime"

needs_shipped_kernels = pytest.mark.skipif(
    library_file() is None, reason="the kernels of this installation are not shipped"
)
needs_zig = pytest.mark.skipif(
    find_spec("ziglang") is None, reason="a wheel is tested without zig, which compiles the program"
)
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the example is built for Linux")


def compile_host(folder, source, *options, compiler="cc"):
    """The program of a source file, and the environment in which it finds onnxruntime."""
    library = folder / "libonnxruntime.so.1"
    library.symlink_to(next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*.*")))
    command = [sys.executable, "-m", "ziglang", compiler, "-O1", *options, str(EXAMPLES / source), str(library)]
    subprocess.run([*command, "-lpthread", "-o", str(folder / "run_model")], check=True)
    return [folder / "run_model"], {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture(scope="session")
def host(tmp_path_factory):
    """The command of the program, and its environment."""
    return compile_host(tmp_path_factory.mktemp("host"), "c/run_model.c")


def run_host(host, path, x, folder, *counts, entry=None, library=None):
    """The process that runs the model of a path on x, with an entry of the configuration; and y, None if it fails."""
    command, environment = host
    x.tofile(folder / "x")
    words = [*command, *(("-e", entry) if entry else ()), library or unpool.onnxruntime.get_library_path()]
    words += [path, ",".join(map(str, x.shape)), folder / "x", folder / "y", *counts]
    done = subprocess.run(
        list(map(str, words)), env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return done, np.fromfile(folder / "y", np.float32) if done.returncode == 0 else None


def assert_host_gives(host, path, x, expected, folder, *counts, **given):
    """The program ends with these bits."""
    done, y = run_host(host, path, x, folder, *counts, **given)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(y.reshape(expected.shape), expected, equal_nan=True)
