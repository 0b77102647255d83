"""The page of error messages: the installed runtimes say what it quotes, and what it advises helps."""

import contextlib
import io
import re
import warnings
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn
from torch.export import Dim

import unpool.torch
from tests.docs.blocks import ROOT
from tests.support import models
from tests.support.packages import pins

PAGE = (ROOT / "docs" / "error-messages.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALLED, NOT_RUN = PAGE.split("## Not reproduced by the tests")
ROW = re.compile(r"^\| `(.+?)` \| (.+) \| (.+) \|$", re.MULTILINE)
POOL = "kernel_shape = [2, 2], strides = [2, 2]"
X = models.random(1, 1, 4, 4)
ODD = torch.arange(25.0).view(1, 1, 5, 5)
ODD[..., 2, 2] = 100  # so that one index alone, 16, is outside of 4x4


class Levels(nn.Module):
    """Three pools and their unpoolings; `output_size` as a tensor's size, as numbers, or none."""

    def __init__(self, levels=3, sizes=lambda x: x.size()):
        super().__init__()
        self.levels, self.sizes = levels, sizes

    def forward(self, x):
        pooled = []
        for _ in range(self.levels):
            size = self.sizes(x)
            x, indices = F.max_pool2d(x, 2, return_indices=True)
            pooled.append((indices, size))
        for indices, size in reversed(pooled):
            x = F.max_unpool2d(x, indices, 2, output_size=size)
        return x


class Grown(nn.Module):
    """A transposed convolution to the size of the input."""

    def __init__(self):
        super().__init__()
        self.shrink, self.grow = nn.Conv2d(3, 4, 3, 2, 1), nn.ConvTranspose2d(4, 3, 3, 2, 1)

    def forward(self, x):
        return self.grow(self.shrink(x), output_size=x.size())


DIMS = {"dynamic_shapes": ({2: Dim("h"), 3: Dim("w")},)}
AXES = {"input_names": ["x"], "dynamic_axes": {"x": {2: "h", 3: "w"}}}
EXPORTS = {
    "fixed sizes, `dynamo=True`": {"dynamo": True},
    "dynamic sizes, `dynamo=True`": {"dynamo": True, **DIMS},
    "fixed sizes, `dynamo=False`": {"dynamo": False},
    "dynamic sizes, `dynamo=False`": {"dynamo": False, **AXES},
}
"""The words for each of the four ways to export."""


def exported(export, module, **words):
    """How many nodes of each operator the file has that a function with torch.onnx.export's arguments writes."""
    file = None if words["dynamo"] else io.BytesIO()
    with quiet():
        program = export(module.eval(), (torch.rand(1, 3, 45, 61),), file, verbose=False, **words)
    model = onnx.load_from_string(file.getvalue()) if program is None else program.model_proto
    return Counter(node.op_type for node in model.graph.node)


@contextlib.contextmanager
def quiet():
    """Warnings and logs of torch are no matter here."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def numbers(x):
    return [int(size) for size in x.shape[2:]]


def deterministic(module):
    """The module runs where torch is to be deterministic."""
    torch.use_deterministic_algorithms(True)
    try:
        return module(torch.rand(1, 1, 8, 8))
    finally:
        torch.use_deterministic_algorithms(False)


def accelerated(module):
    unpool.torch.accelerate(module)
    return module


class Modules(nn.Module):
    """A pool and an unpooling as modules, which `accelerate` replaces."""

    def __init__(self):
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x):
        return self.unpool(*self.pool(x))


def by_torch(module, **words):
    """What torch's function does, and ours in its place."""
    return lambda: exported(torch.onnx.export, module, **words), lambda: exported(unpool.torch.export, module, **words)


def by_session(graph, opset=17, ir=8, imports="", **feed):
    """What a session of onnxruntime does, and ours in its place; without a feed, it is loaded only."""
    content = models.model(graph, opset=opset, ir=ir, imports=imports).SerializeToString()

    def run(make):
        session = make(content)
        return session.run(None, feed) if feed else session

    return lambda: run(onnxruntime.InferenceSession), lambda: run(unpool.InferenceSession)


def by_lowering(graph, **words):
    """What OpenVINO does with a model, and with the lowered one."""
    model = models.model(graph, **words)
    return lambda: compiled(model), lambda: compiled(unpool.lower(model, "openvino").model)


def compiled(model):
    core = openvino.Core()
    return core.compile_model(core.read_model(model.SerializeToString()), "CPU")


def four_axes():
    """A pool of four spatial axes in OpenVINO, and in a session."""
    pool = (
        "g (float[1, 1, 2, 2, 2, 2] x) => (float[1, 1, 1, 1, 1, 1] y) { y = MaxPool <kernel_shape = [2, 2, 2, 2]> (x) }"
    )
    model, x = models.model(pool), models.random(1, 1, 2, 2, 2, 2)
    return lambda: compiled(model), lambda: unpool.InferenceSession(model).run(None, {"x": x})


def odd_size(export):
    """A model that pools 5x5 and unpools, in onnxruntime: as it is patched by hand, or exported with output_size."""
    if not export:
        content = models.model(UNPOOL.replace("[1, 1, 4, 4] x", "[1, 1, 5, 5] x")).SerializeToString()
    else:
        with quiet():
            program = unpool.torch.export(Levels(1).eval(), (torch.rand(1, 1, 5, 5),), input_names=["x"], verbose=False)
        content = program.model_proto.SerializeToString()
    return onnxruntime.InferenceSession(content).run(None, {"x": ODD.numpy()})


def old_opset(opset):
    with quiet():
        unpool.torch.export(Levels(1).eval(), (torch.rand(1, 1, 8, 8),), opset_version=opset, verbose=False)


UNPOOL = (
    f"g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] z) {{ y, i = MaxPool <{POOL}> (x) z = MaxUnpool <{POOL}> (y, i) }}"
)
DOUBLE = UNPOOL.replace("float", "double")
NHWC = "g (float[1, 4, 4, 1] x) => (float[1, 2, 2, 1] y) { y = com.ms.internal.nhwc.MaxPool <POOL> (x) }".replace(
    "POOL", POOL
)
PLANE = np.array([[[[0, 2], [4, 8]]]])
SAID = {
    "cond must be a bool, but got a Tensor": by_torch(Levels(), dynamo=False),
    "Exporting the operator 'aten::max_unpool2d' to ONNX opset version 20 is not supported": by_torch(
        Levels(1, numbers), dynamo=False
    ),
    "Expected derived min value of 8*_h - 3 to be >= 0. "
    "Please specify an appropriate min value for _h (currently 0).": by_torch(Levels(), dynamo=True, **DIMS),
    "Error when translating node %convolution": by_torch(Grown(), dynamo=True, **DIMS),
    "Found an invalid max index: 16 (output volumes are of size 4x4)": (
        lambda: Levels(1, lambda x: None)(ODD),
        lambda: Levels(1, lambda x: x.shape[2:])(ODD),
    ),
    "max_unpooling2d_forward_out does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True)'.": (
        lambda: deterministic(Modules()),
        lambda: deterministic(accelerated(Modules())),
    ),
    "Could not find an implementation for ConvTranspose(11) node with name ''": by_session(
        "g (double[1, 1, 2, 2] x, double[1, 1, 2, 2] w) => (double[1, 1, 3, 3] y) { y = ConvTranspose (x, w) }",
        x=X[..., :2, :2].astype(np.float64),
        w=X[..., 2:, 2:].astype(np.float64),
    ),
    "Could not find an implementation for MaxUnpool(11) node with name ''": by_session(DOUBLE, x=X.astype(np.float64)),
    "Could not find an implementation for MaxPool(22) node with name ''": by_session(
        f"g (bfloat16[1, 1, 4, 4] x) => (bfloat16[1, 1, 2, 2] y) {{ y = MaxPool <{POOL}> (x) }}", 22, 10
    ),
    "Could not find an implementation for MaxPool(11) node with name ''": by_session(
        NHWC, imports=f', "{models.NHWC}" : 11', x=X.reshape(1, 4, 4, 1)
    ),
    "Unsupported pooling size.": by_session(
        """g (float[1, 1, 2, 2, 2, 2] x) => (float[1, 1, 1, 1, 1, 1] y) {
            y = MaxPool <kernel_shape = [2, 2, 2, 2]> (x) }""",
        x=models.random(1, 1, 2, 2, 2, 2),
    ),
    "Pad should be smaller than kernel.": by_session(
        """g (float[1, 1, 4, 4] x) => (float[1, 1, a, b] y) {
            y = MaxPool <kernel_shape = [2, 2], pads = [2, 2, 2, 2]> (x) }""",
        x=X,
    ),
    "Compute output_shape is smaller than minimum required. output_shape:{1,1,3,3} inferred output shape:{1,1,4,4}": (
        by_session(
            f"""g (float[1, 1, 2, 2] y, int64[1, 1, 2, 2] i) => (float[1, 1, 3, 3] z) <int64[4] s = {{1, 1, 3, 3}}> {{
                z = MaxUnpool <{POOL}> (y, i, s) }}""",
            y=X[..., :2, :2],
            i=PLANE,
        )
    ),
    "Index value out of bounds. Got: 16. Valid range is [0, 16).": (lambda: odd_size(False), lambda: odd_size(True)),
    "No Op registered for MaxUnpool with domain_version of 8": (
        lambda: onnxruntime.InferenceSession(models.model(UNPOOL, opset=8, ir=7).SerializeToString()),
        lambda: old_opset(17),
    ),
    "No conversion rule found for operations: MaxUnpool-17": by_lowering(UNPOOL),
    "No conversion rule found for operations: com.ms.internal.nhwc.MaxPool": by_lowering(
        NHWC, imports=f', "{models.NHWC}" : 11'
    ),
    "Check 'ov::util::is_rank_compatible_any_of(data_rank, {3, 4, 5})' failed": four_axes(),
}
"""Messages, each with a call that ends in it and one that does what the page advises instead."""


def texts(error):
    """The messages of an exception and of those behind it."""
    while error is not None:
        yield str(error)
        error = error.__cause__


def test_every_message_of_an_installed_runtime_is_run():
    """The page quotes what this file runs, and nothing else but what it says it has not run."""
    assert {message for message, _, _ in ROW.findall(INSTALLED)} == SAID.keys()


@pytest.mark.sample(4)
@pytest.mark.parametrize("message", SAID)
def test_the_runtime_says_what_is_quoted(message):
    """Word for word, in the error or in the one behind it."""
    with pytest.raises(Exception) as caught, quiet():  # noqa: PT011  runtimes have classes of their own
        SAID[message][0]()
    assert any(message in text for text in texts(caught.value)), list(texts(caught.value))


@pytest.mark.sample(4)
@pytest.mark.parametrize("message", SAID)
def test_what_is_advised_helps(message):
    """The call of the last column ends without an error, and a file that it writes has one MaxUnpool per unpooling."""
    made = SAID[message][1]()
    if isinstance(made, Counter):
        assert made["MaxPool"] == made["MaxUnpool"]
        assert made["ScatterND"] == 0


def test_versions_are_those_of_the_tests():
    """The page names the versions that say so, which the README's command installs; a newer one may say it, too."""
    versions = pins(".ci/constraints.txt")
    assert (
        f"torch {versions['torch']}, onnxruntime {versions['onnxruntime']} and OpenVINO {versions['openvino']}." in PAGE
    )


def test_what_was_not_run_has_its_thread():
    """Messages that nothing here can say are quoted from a place that a reader can open."""
    rows = ROW.findall(NOT_RUN)
    assert len(rows) > 3
    assert all("](https://github.com/" in of for _, of, _ in rows)
    assert not {message for message, _, _ in rows} & SAID.keys()


@pytest.mark.slow
@pytest.mark.parametrize("way", EXPORTS)
def test_the_readme_says_what_torch_makes_of_each_export(way):
    """Alone torch does the first of the four ways, and the README quotes its errors; unpool writes MaxUnpools."""
    ours = exported(unpool.torch.export, Levels(), **EXPORTS[way])
    assert ours["MaxPool"] == ours["MaxUnpool"] > 0
    if way == next(iter(EXPORTS)):
        made = exported(torch.onnx.export, Levels(), **EXPORTS[way])
        assert (made["MaxPool"], made["ScatterND"]) == (2 * ours["MaxPool"], ours["MaxUnpool"])
        return
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of any class: the message counts
        exported(torch.onnx.export, Levels(), **EXPORTS[way])
    quoted = re.findall(r"`([^`]+)`", README[README.index("other three cases it fails") :].partition(".\n")[0])
    assert any(quote in text for quote in quoted for text in texts(raised.value))
