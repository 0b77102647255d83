"""Each verb as a new user types it, on each kind of model that users bring: how it ends, and what it says."""

import shutil
import warnings
from importlib.resources import as_file, files

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn
from typer.testing import CliRunner

from tests.support import models
from unpool.cli.app import app

POOL = "kernel_shape = [2, 2], strides = [2, 2]"


class RoundTrip(nn.Module):
    """A pool and the unpooling back, as torch's own exporter decomposes it."""

    def __init__(self):
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x):
        return self.unpool(*self.pool(x), output_size=x.shape[2:])


def deconv_1():
    """ConvTranspose-1 with output_shape."""
    grow = "grow (float[1, 1, 3, 4] x) => (float[1, 1, 6, 8] y)"
    body = "y = ConvTranspose <output_shape = [6, 8], strides = [2, 2]> (x, w)"
    return models.model(f"{grow} {{ {body} }}", opset=9, w=np.ones((1, 1, 2, 2), np.float32))


def ir_3():
    """The oldest IR with opsets, where a weight is an input too."""
    head = "net (float[1, 1, 4, 4] x, float[1, 1, 1, 1] w) => (float[1, 1, 2, 2] y)"
    made = models.model(f"{head} {{ t = Conv (x, w) y = MaxPool <{POOL}> (t) }}", opset=8, ir=3)
    made.graph.initializer.append(numpy_helper.from_array(np.full((1, 1, 1, 1), 2, np.float32), "w"))
    return made


def export_both(here):
    """What each of torch's own exporters writes; they warn of themselves."""
    x, grow = torch.rand(1, 1, 8, 10), nn.Sequential(nn.MaxPool2d(2), nn.ConvTranspose2d(1, 1, 2, stride=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place, whole = str(here / "dynamo.onnx"), {"verbose": False, "external_data": False}
        torch.onnx.export(RoundTrip().eval(), (x,), place, dynamo=True, **whole)
        torch.onnx.export(grow.eval(), (x,), str(here / "legacy.onnx"), dynamo=False, opset_version=17)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One file per kind of model, and an input for each."""
    here = tmp_path_factory.mktemp("models")
    with as_file(files("unpool") / "data" / "coins.onnx") as path:
        shutil.copy(path, here / "demo.onnx")
    (here / "broken.onnx").write_bytes((here / "demo.onnx").read_bytes()[:5000])
    export_both(here)
    onnx.save(deconv_1(), here / "deconv_1.onnx")
    onnx.save(ir_3(), here / "ir_3.onnx")
    sizes = {"demo": (8, 8), "dynamo": (8, 10), "legacy": (8, 10), "deconv_1": (3, 4), "ir_3": (4, 4), "broken": (8, 8)}
    for name, size in sizes.items():
        np.save(here / f"{name}.npy", np.random.default_rng(0).random((1, 1, *size), np.float32))
    return here


VERBS = {
    "inspect": "inspect {0}.onnx",
    "check": "check {0}.onnx",
    "fix": "fix {0}.onnx --dry-run",
    "upgrade": "upgrade {0}.onnx --opset 22 -o {0}-22.onnx",
    "canonicalise": "canonicalise {0}.onnx -o {0}-explicit.onnx",
    "lower": "lower {0}.onnx --for openvino -o {0}-openvino.onnx",
    "run": "run {0}.onnx -i {0}.npy -o {0}-y.npy",
}
NOTHING = {
    "check": (0, "nothing found"),
    "fix": (0, "dry run, nothing written: nothing to change"),
    "canonicalise": (0, "no node changed, equal results on random inputs"),
}
BROKEN = (3, "error: broken.onnx: expected an ONNX model, got something else")
EXPECTED = {
    "demo": {
        **NOTHING,
        "inspect": (0, "smallest input: 8x8, then in steps of 1x1"),
        "lower": (0, "3 changes, for OpenVINO"),
        "run": (0, "demo-y.npy: 1x2x8x8 float32"),
    },
    "dynamo": {
        **NOTHING,
        "inspect": (0, "raised from ScatterND"),
        "check": (1, "1 finding; rules are those of docs/semantics.md"),
        "fix": (0, "ScatterND into zeros -> MaxUnpool-11 (kernel_shape=[2, 2], strides=[2, 2])"),
        "upgrade": (0, "nodes changed, equal results on random inputs"),
        "lower": (0, "MaxUnpool-11 -> the choice of node_max_pool2d_with_indices__0, found by comparing"),
        "run": (0, "dynamo-y.npy: 1x1x8x10 float32"),
    },
    "legacy": {
        **NOTHING,
        "inspect": (0, "smallest input: 8x10, the only one that it takes"),
        "upgrade": (0, "ConvTranspose-11 (pads=[0, 0, 0, 0]) -> ConvTranspose-22"),
        "lower": (0, "nothing to change, the model as it was, for OpenVINO"),
        "run": (0, "legacy-y.npy: 1x1x8x10 float32"),
    },
    "deconv_1": {
        **NOTHING,
        "inspect": (0, "ConvTranspose-1 "),
        "upgrade": (0, "ConvTranspose-1 (output_shape=[6, 8]) -> ConvTranspose-22 (output_shape=[6, 8])"),
        "canonicalise": (0, "ConvTranspose-1 (output_shape=[6, 8]) -> ConvTranspose-1"),
        "lower": (0, "2 changes, for OpenVINO"),
        "run": (0, "deconv_1-y.npy: 1x1x6x8 float32"),
    },
    "ir_3": {
        **NOTHING,
        "inspect": (0, "2 nodes, Conv->t to MaxPool->y   1 Conv, 1 MaxPool"),
        "upgrade": (0, "MaxPool->y: MaxPool-8 -> MaxPool-22"),
        "lower": (0, "MaxPool->y: MaxPool-8 -> MaxPool-12"),
        "run": (0, "ir_3-y.npy: 1x1x2x2 float32"),
    },
    "broken": dict.fromkeys(VERBS, BROKEN),
}


@pytest.mark.parametrize(("model", "verb"), [(model, verb) for model, said in EXPECTED.items() for verb in said])
def test_transcript(model, verb, folder, monkeypatch):
    """The exit code, the line that matters, no traceback, and no file where it failed."""
    monkeypatch.chdir(folder)
    before = set(folder.iterdir())
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, VERBS[verb].format(model).split())
    code, line = EXPECTED[model][verb]

    assert done.exit_code == code, done.output
    assert line in done.output
    assert "Traceback" not in done.output
    assert code != 0 or done.stderr == ""
    made = {path.suffix for path in set(folder.iterdir()) - before}
    assert made == ({".npy" if verb == "run" else ".onnx"} if code == 0 and " -o " in VERBS[verb] else set()), made


def test_all_nodes_are_listed_on_request(folder, monkeypatch):
    """With --all, inspect has a line for each of them."""
    monkeypatch.chdir(folder)
    short, long = (CliRunner().invoke(app, ["inspect", "demo.onnx", *words]).stdout for words in ((), ("--all",)))
    assert "6 nodes, node_sub to node_relu_1" in " ".join(short.split())
    assert len(long.splitlines()) > len(short.splitlines()) + 30
    assert "node_relu_1 " not in short.replace("to node_relu_1", "")
