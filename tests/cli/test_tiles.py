"""`--tile` and `--max-memory` of the command, and what `inspect` says about tiles."""

import json

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from tests.support import models
from unpool.cli.app import app


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with a model and an image, as the current one."""
    monkeypatch.chdir(tmp_path)
    onnx.save(models.halves(), "m.onnx")
    np.save("x.npy", np.random.default_rng(0).random((1, 1, 30, 41), np.float32))
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("words", [("--tile", "8x12"), ("--tile", "auto"), ("--max-memory", "100GiB")])
def test_tiles_give_the_same_file(here, words):
    """Whatever the tiles, the file is that of the untiled run."""
    assert invoke("run", "m.onnx", "-i", "x.npy", "-o", "whole.npy").exit_code == 0
    done = invoke("run", "m.onnx", "-i", "x.npy", "-o", "tiled.npy", *words)
    assert done.exit_code == 0, done.output
    assert (here / "tiled.npy").read_bytes() == (here / "whole.npy").read_bytes()


@pytest.mark.parametrize(
    ("code", "words", "says"),
    [
        (2, ("--tile", "8by8"), "expected auto or sizes"),
        (2, ("--max-memory", "much"), "such as 2GiB"),
        (2, ("--tile", "8x8", "--max-memory", "1GiB"), "Leave one of them out"),
        (2, ("--tile", "8"), "Write --tile 8x8."),
        (2, ("--tile", "8x8x8"), "Write --tile 8x8."),
        (3, ("--max-memory", "1MiB"), "--max-memory 1 MiB is too small: this run needs at least about"),
    ],
)
def test_options_that_do_not_fit(here, code, words, says):
    """Words that mean nothing exit with 2, sizes that do not fit the model or the memory with 3."""
    done = invoke("run", "m.onnx", "-i", "x.npy", "-o", "y.npy", *words)
    assert (done.exit_code, (here / "y.npy").exists()) == (code, False)
    assert says in done.output + done.stderr


def test_inspect_says_how_far_outputs_see(here):
    """Total stride, receptive field, halo, and a forecast of memory for a size; or the node that forbids tiles."""
    done = invoke("inspect", "m.onnx", "--size", "height=64", "--size", "width=128", "--json")
    found = json.loads(done.stdout)["tiles"]
    axis = {"step": "2", "field": 3, "before": 1, "after": 0}
    assert (found["stride"], found["outputs"], found["refusal"]) == ([2, 2], {"y": [axis, axis]}, None)
    assert found["bytes"] > 32 * 64 * 4
    onnx.save(models.model("pool (float[1, 1, h, w] x) => (float[1, 1, 1, 1] y) { y = GlobalMaxPool (x) }"), "g.onnx")
    assert "pools the whole image" in invoke("inspect", "g.onnx").stdout
