"""Releases of onnxruntime that have no check of MaxUnpool's indices, or that are too old for the library."""

import os
import subprocess
import sys

import onnx
import pytest

import unpool.onnxruntime
from tests.support.c_program import needs_shipped_kernels

pytestmark = [pytest.mark.slow, needs_shipped_kernels]

HAS_OLDEST = sys.version_info < (3, 13)  # the releases that have wheels for it
UNCHECKED = ["1.17.0", "1.24.4"] if HAS_OLDEST else ["1.24.4"]
"""The first release that the library works with, and the last one without a check of its own."""

UNPOOL = """<ir_version: 8, opset_import: ["" : 16]>
test (float[1, 1, 4] x, int64[1, 1, 4] indices) => (float[1, 1, 8] y) {
    y = MaxUnpool <kernel_shape = [2], strides = [2]> (x, indices) }"""

RUN = """
import sys
import numpy, onnxruntime
release, path, library, index = sys.argv[1:]
assert onnxruntime.__version__ == release, onnxruntime.__version__
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
if library:
    options.add_session_config_entry("unpool.trust_plans", "1")
    options.register_custom_ops_library(library)
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
indices = numpy.array([[[0, 3, int(index), 6]]])
print(session.run(None, {"x": numpy.array([[[1, 2, 3, 4]]], numpy.float32), "indices": indices})[0].tolist())
"""


@pytest.fixture(scope="module")
def install(tmp_path_factory):
    """A function that installs a release of onnxruntime, and returns the environment in which Python finds it."""

    def install_release(release):
        folder = tmp_path_factory.mktemp(release)
        numpy = ["numpy==1.26.4"] if HAS_OLDEST else []  # older releases need NumPy 1
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, "--target", str(folder), f"onnxruntime=={release}", *numpy], capture_output=True, text=True
        )
        if done.returncode and "No matching distribution" in done.stderr:
            pytest.skip("no network, or an index without old releases")
        assert done.returncode == 0, done.stderr
        return os.environ | {"PYTHONPATH": str(folder)}

    return install_release


@pytest.fixture(scope="module", params=UNCHECKED)
def release(request, install):
    """A release without a check, and its environment."""
    return request.param, install(request.param)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model, and as it was compiled: a program of an old release has no planner of unpool's."""
    folder, made = tmp_path_factory.mktemp("models"), onnx.parser.parse_model(UNPOOL)
    onnx.save(made, folder / "model.onnx")
    onnx.save(unpool.onnxruntime.compile(made), folder / "compiled.onnx")
    return folder


def run(release, environment, path, library, index):
    command = [sys.executable, "-P", "-c", RUN, release, str(path), library, str(index)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("index", [8, -1, 2**40, -(2**63)])
def test_an_index_out_of_range_is_a_status(release, models, index):
    """With the library; the words are unpool's."""
    done = run(*release, models / "compiled.onnx", unpool.onnxruntime.get_library_path(), index)
    assert done.returncode == 1
    assert f"MaxUnpool-11: indices need values from 0 to 7, got {index} at [0, 0, 2]" in done.stderr


def test_an_index_in_range_is_computed(release, models):
    """By the same library."""
    done = run(*release, models / "compiled.onnx", unpool.onnxruntime.get_library_path(), 5)
    assert (done.returncode, done.stdout) == (0, "[[[1.0, 0.0, 0.0, 2.0, 0.0, 3.0, 4.0, 0.0]]]\n"), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="tried with the packages for Linux")
@pytest.mark.parametrize("index", [8, 2**40])
def test_without_the_library_the_process_ends(release, models, index):
    """By a signal: no error that a program could handle."""
    assert run(*release, models / "model.onnx", "", index).returncode < 0


@pytest.mark.skipif(not HAS_OLDEST, reason="no package of so old a release is for this Python")
def test_an_older_release_is_refused(install, models):
    """With what it takes."""
    done = run("1.16.3", install("1.16.3"), models / "compiled.onnx", unpool.onnxruntime.get_library_path(), 5)
    assert done.returncode == 1
    assert "unpool: onnxruntime 1.17 or later is needed. Install a newer one." in done.stderr
