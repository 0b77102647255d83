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
    export_both(here)
    onnx.save(deconv_1(), here / "deconv_1.onnx")
    onnx.save(ir_3(), here / "ir_3.onnx")
    sizes = {"demo": (8, 8), "dynamo": (8, 10), "legacy": (8, 10), "deconv_1": (3, 4), "ir_3": (4, 4)}
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
    "compare": "compare {0}.onnx",
    "report": "report {0}.onnx -o {0}.html --iterations 0",
    "bench": "bench {0}.onnx",
}
NOTHING = {
    "check": (0, "nothing found"),
    "fix": (0, "dry run, nothing written: nothing to change"),
    "canonicalise": (0, "no node changed, equal results on random inputs"),
}
OPEN = (3, "numbers such as --size batch=1 --size height=64 --size width=64 (sizes={'width': 64, ...})")
EXPECTED = {
    "demo": {
        **NOTHING,
        "inspect": (0, "smallest input: 8x8, then in steps of 1x1"),
        "lower": (0, "3 changes, for OpenVINO"),
        "run": (0, "demo-y.npy: 1x2x8x8 float32"),
        "compare": (0, "all 85 values agree"),
        "report": OPEN,
        "bench": OPEN,
    },
    "dynamo": {
        **NOTHING,
        "inspect": (0, "fused from ScatterND"),
        "check": (1, "1 finding; for the rules see docs/semantics.md in the source of unpool"),
        "fix": (0, "ScatterND into zeros -> MaxUnpool-11 (kernel_shape=[2, 2], strides=[2, 2])"),
        "upgrade": (0, "nodes changed, equal results on random inputs"),
        "lower": (0, "positions found again by comparing with the result of node_max_pool2d_with_indices__0"),
        "run": (0, "dynamo-y.npy: 1x1x8x10 float32"),
        "compare": (0, "all 14 values agree (14 bit for bit)"),
    },
    "legacy": {
        **NOTHING,
        "inspect": (0, "smallest input: 8x10, the only one that it takes"),
        "upgrade": (0, "ConvTranspose-11 -> ConvTranspose-22"),
        "lower": (0, "nothing to change, the model as it was, for OpenVINO"),
        "run": (0, "legacy-y.npy: 1x1x8x10 float32"),
        "compare": (0, "all 2 values"),
    },
    "deconv_1": {
        **NOTHING,
        "inspect": (0, "ConvTranspose-1 "),
        "upgrade": (0, "ConvTranspose-1 -> ConvTranspose-22"),
        "canonicalise": (0, "ConvTranspose-1 (output_shape=[6, 8]) -> ConvTranspose-1"),
        "lower": (0, "2 changes, for OpenVINO"),
        "run": (0, "deconv_1-y.npy: 1x1x6x8 float32"),
        "compare": (0, "1 value agrees"),
    },
    "ir_3": {
        **NOTHING,
        "inspect": (0, "MaxPool->y   MaxPool-8"),
        "upgrade": (0, "MaxPool->y: MaxPool-8 -> MaxPool-22"),
        "lower": (0, "MaxPool->y: MaxPool-8 -> MaxPool-12"),
        "run": (0, "ir_3-y.npy: 1x1x2x2 float32"),
        "compare": (0, "all 2 values agree (2 bit for bit)"),
        "report": (0, "accuracy: no element is off"),
    },
}


@pytest.mark.sample(5)
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
    assert code in (0, 1) or (done.stdout == "" and len(done.stderr.splitlines()) == 1)
    made = {path.suffix for path in set(folder.iterdir()) - before}
    suffix = {"run": ".npy", "report": ".html"}.get(verb, ".onnx")
    assert made == ({suffix} if code == 0 and " -o " in VERBS[verb] else set()), made


ALONE = {
    "explain maxpool size=7 kernel_shape=3": (0, "MaxPool-22: 7 -> 5"),
    "completion bash": (0, "_UNPOOL_COMPLETE=complete_bash"),
    "completion tcsh": (2, "invalid value for 'SHELL': 'tcsh' is not one of 'bash', 'zsh', 'fish', 'powershell'."),
    "export thing -o m.onnx --example 1x3x8x8": (2, "thing: expected module:callable"),
    "export": (2, "error: unpool export: missing argument 'MODULE:CALLABLE'. See unpool export --help"),
    "run": (2, "error: unpool run: missing argument 'MODEL'. See unpool run --help"),
    "lower demo.onnx -o x.onnx": (2, "missing option '--for'. Choose from: openvino, tensorrt, coreml,"),
    "run demo.onnx -i demo.npy -o y.npy --nosuch": (2, "error: unpool run: no such option: --nosuch."),
    "inspect demo.onnx --provider openvino": (
        2,
        "invalid value for '--provider': 'openvino' is not one of 'onnxruntime', 'cuda'.",
    ),
    "run demo.onnx -i demo.npy -o y.npy --threads 0": (2, "invalid value for '--threads'"),
    "lower demo.onnx --for tflit -o x.onnx": (2, "'any'. Did you mean tflite? See unpool lower --help"),
    "completion BASH": (0, "_UNPOOL_COMPLETE=complete_bash"),
    "insepct demo.onnx": (2, "error: unpool: no such command 'insepct'. Did you mean 'inspect'? See unpool --help"),
    "fix demo.onnx": (2, "unpool fix: needs -o OUTPUT or --dry-run"),
    "upgrade demo.onnx --opset 99 -o x.onnx": (4, "expected an opset from 20, for this model, to "),
    "compare demo.onnx --against foo": (2, "expected some of unpool, onnxruntime, reference, openvino, torch"),
    "inspect demo.onnx --size heigth=3": (3, "sizes: expected names from batch, height, width"),
    "bench demo.onnx --size heigth=3": (3, "got heigth. Did you mean height?"),
    "check demo.onnx --size height=0": (2, "--size: expected NAME=NUMBER from 1 on, such as height=64, got 'height=0'"),
    "--version": (0, "unpool "),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", ALONE)
def test_words(words, folder, monkeypatch):
    """Verbs without a model, and slips of the keyboard: a code, one line, and no file."""
    monkeypatch.chdir(folder)
    before = set(folder.iterdir())
    done = CliRunner().invoke(app, words.split())
    code, line = ALONE[words]

    assert (done.exit_code, set(folder.iterdir())) == (code, before), done.output
    assert line in done.output
    assert code == 0 or (done.stdout == "" and len(done.stderr.splitlines()) == 1)


WORDS_IN_CAPITALS = {
    "lower demo.onnx --for OpenVINO -o x.onnx": "x.onnx",
    "run demo.onnx -i demo.npy -o y.npy --layout NCHW --compat ORT --index-space Auto": "y.npy",
    "run demo.onnx -i demo.npy -o made/ --format NPZ": "made/demo.npz",
}


@pytest.mark.parametrize("words", WORDS_IN_CAPITALS)
def test_the_case_of_words_does_not_count(words, folder, monkeypatch):
    """Options that take one of a few words take it in capitals too."""
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, words.split())

    assert done.exit_code == 0, done.output
    assert (folder / WORDS_IN_CAPITALS[words]).exists()
