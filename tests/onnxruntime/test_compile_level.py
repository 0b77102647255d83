"""Models that are compiled for a lower level of processors than this one's, in an installation that has its kernels."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import unpool
from tests.onnxruntime.test_compile import model
from tests.support.c_program import assert_host_gives, needs_linux, needs_shipped_kernels, needs_zig
from unpool.errors import UnpoolError
from unpool.execute.plans import kernel_level, shipped_levels

pytestmark = needs_shipped_kernels

POOL = "max_pool.tiles._make_kernel(float32, 2"
"""Text in the names of the kernels of the test's model."""

COMPILE = """
import sys
import onnx
import unpool.onnxruntime
from unpool.execute.plans import kernel_level
path, level = sys.argv[1:]
compiled = unpool.onnxruntime.compile(path, shapes=[{"x": (1, 3, 4, 6)}, {"x": (1, 3, 8, 16)}], level=level, exact=True)
onnx.save(compiled, path)
print(kernel_level())
"""


def pool():
    return model(
        """test (float[1, 3, h, w] x) => (float[1, 3, m, n] y) {
        y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }"""
    )


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    """A copy of unpool with the kernel of that model for the lowest level, too, and this level."""
    levels = {"x86-64-v3": "x86-64-v2", "x86-64-v4": "x86-64-v2"}
    if kernel_level() not in levels:
        pytest.skip("there is no level below that of this processor")
    folder, level = tmp_path_factory.mktemp("installation"), levels[kernel_level()]
    package = shutil.copytree(Path(unpool.__file__).parent, folder / "unpool", ignore=lambda *_: ["__pycache__"])
    manifest = package / "libraries" / "manifest.json"
    content = json.loads(manifest.read_text())
    if level not in content["libraries"]:
        command = [sys.executable, "-m", "unpool.build", "--level", level, "--only", POOL, "--jobs", "1"]
        subprocess.run([*command, "--output", str(folder)], check=True, capture_output=True)
        content["libraries"] |= json.loads((folder / "manifest.json").read_text())["libraries"]
        manifest.write_text(json.dumps(content))
        (library,) = folder.glob("unpool_*")
        library.rename(package / "libraries" / library.name)
    return folder, level


@pytest.mark.slow
@needs_linux
@needs_zig
def test_a_lower_level_runs_in_a_c_program(installation, host, tmp_path):
    """Its plans name the library of that level, whose kernels compute the same bits for each of the shapes."""
    folder, level = installation
    path, environment = tmp_path / "model.onnx", os.environ | {"PYTHONPATH": str(folder)}
    onnx.save(pool(), path)
    command = [sys.executable, "-P", "-c", COMPILE, str(path), level]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, kernel_level()), done.stderr  # that process has its own
    (node,) = onnx.load(path).graph.node
    assert f"unpool_{level.replace('-', '_')}.".encode() in node.attribute[0].s
    operators = next((folder / "unpool" / "onnxruntime" / "lib").glob("libunpool*"))
    for shape in ((1, 3, 4, 6), (1, 3, 8, 16)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = unpool.max_pool(x, kernel_shape=(2, 2), strides=(2, 2))
        assert_host_gives(host, path, x, expected, tmp_path, library=operators)


def test_the_level_of_this_process_needs_no_other_one():
    """Under its name, and as native."""
    shapes = {"x": (1, 3, 4, 6)}
    plans = [
        unpool.onnxruntime.compile(pool(), shapes=shapes, level=level, exact=True).graph.node[0].attribute[0].s
        for level in (None, "native", kernel_level())
    ]
    assert plans[0] == plans[1] == plans[2]


def test_a_level_without_kernels_is_refused():
    """With the levels that there are, and what to do."""
    with pytest.raises(UnpoolError, match=rf"has the kernels of {', '.join(shipped_levels())}, not of 'v1'\. Install"):
        unpool.onnxruntime.compile(pool(), level="v1")


def test_a_level_above_the_processor_is_refused(monkeypatch):
    """Weights are packed by its kernels."""
    monkeypatch.setattr("unpool.onnxruntime.compile_process.shipped_levels", lambda: [kernel_level(), "x86-64-v9"])
    with pytest.raises(UnpoolError, match=rf"cannot run the kernels of x86-64-v9, .* or for {kernel_level()}\."):
        unpool.onnxruntime.compile(pool(), level="x86-64-v9")


def test_an_error_of_the_other_process_is_raised_here(monkeypatch):
    """With its class and its words."""
    monkeypatch.setattr("unpool.onnxruntime.compile_process.check_level", lambda level: None)
    monkeypatch.setattr("unpool.onnxruntime.compile_model.kernel_level", lambda: "another")
    with pytest.raises(UnpoolError, match=r"input x needs \[1, 3, \?, \?\], got \[1, 1\]"):
        unpool.onnxruntime.compile(pool(), level=kernel_level(), shapes={"x": (1, 1)})
