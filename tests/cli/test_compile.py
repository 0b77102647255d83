"""`unpool compile`: a model for programs without Python."""

import json
from importlib import import_module
from importlib.resources import files

import onnx
import pytest

from tests.support.command import invoke
from unpool.execute.plans import library_file

needs_kernels = pytest.mark.skipif(library_file() is None, reason="without shipped kernels, nothing is compiled")
COINS = str(files("unpool") / "data" / "coins.onnx")


def compile(tmp_path, *options, model=COINS):
    return invoke("compile", model, "-o", str(tmp_path / "out.onnx"), *options)


@needs_kernels
def test_a_model_is_written(tmp_path):
    """Its nodes are of the domain, and the message says what runs it."""
    done = compile(tmp_path, "--shape", "image=1,1,32,48", "--shape", "image=1,1,64,48")
    assert done.exit_code == 0, done.stderr
    made = onnx.load(tmp_path / "out.onnx")
    count = sum(node.domain == "unpool" for node in made.graph.node)
    assert count > 0
    assert done.stdout.startswith(f"{tmp_path / 'out.onnx'}: {count} nodes of unpool\n")
    assert "unpool.trust_plans=1" in done.stdout


@needs_kernels
def test_the_result_as_json(tmp_path):
    """The files, the number of nodes and the library."""
    done = compile(tmp_path, "--shape", "image=1,1,32,48", "--json")
    document = json.loads(done.stdout)
    assert document.keys() == {"model", "output", "data", "nodes", "library"}
    assert document["output"] == str(tmp_path / "out.onnx")


def test_an_installation_without_kernels_says_so(tmp_path, monkeypatch):
    """Nothing is written, and the line names the two ways out."""
    monkeypatch.setattr(import_module("unpool.onnxruntime.compile_model"), "library_file", lambda: None)
    done = compile(tmp_path, "--shape", "image=1,1,32,48")
    assert done.exit_code == 3
    assert "Install a wheel that has kernels, or run python -m unpool.build." in done.stderr
    assert list(tmp_path.iterdir()) == []


@needs_kernels
@pytest.mark.parametrize(("options", "words"), [
    ((), "input image needs [?, 1, ?, ?]"),
    (("--shape", "image=1,1"), "input image needs"),
    (("--shape", "other=1,1"), "has no input other; it has image"),
    (("--shape", "image"), "expected NAME=SIZES such as x=1,3,480,640, got 'image'"),
    (("--shape", "image=1,-1,8,8"), "expected NAME=SIZES"),
    (("--shape", "image=1,1,32,48", "--level", "v3"), "not of 'v3'. Install a wheel"),
])  # fmt: skip
def test_wrong_options_are_one_line(tmp_path, options, words):
    """Nothing is written."""
    done = compile(tmp_path, *options)
    assert done.exit_code in (2, 3)
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
