"""The list of passes: which run, what switches each of them off, and models that are large enough for them."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

import unpool
from tests.passes.cases import CASES, conv, prelu, waves
from tests.support import models, models_old
from tests.support.passes import check, operators
from unpool.onnxruntime.passes import NAMES, PASSES

PLANES = conv("pads = [1, 1, 1, 1]", (128, 128, 3, 3), (1, 128, 40, 40))
VOLUMES = conv("pads = [1, 1, 1, 1, 1, 1]", (16, 16, 3, 3, 3), (1, 16, 20, 21, 22))
LINES = conv("pads = [9, 9], dilations = [3]", (64, 64, 7), (1, 64, 3000), "{x}, w, b")
FIRES = {
    "inline": models.with_function,
    "lift_opset": lambda: models_old.segnet_6().model,
    "fuse_unpool": CASES["an unpooling as torch writes it"].model,
    "reduce_strength": prelu(np.float32([[[0.2]]]), "LeakyRelu", (1, 3, 64, 64)).model,
    "convert_conv": VOLUMES.model,
    "fuse_snake": waves(shape=(1, 4, 10000)).model,
    "fuse_activation": CASES["Relu (t)"].model,
}
"""By pass a model that it changes."""


def test_every_pass_has_a_model():
    """And a reason why it stands where it does."""
    assert set(FIRES) == NAMES
    assert all(each.why for each in PASSES)


def basic():
    """Options that are not those of the highest level, at which a model stays as it is written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return options


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.name)
def test_a_pass_runs_unless_it_is_switched_off(each, tmp_path, monkeypatch):
    """By its name among the disabled optimizers, by the level of the options, and with exact=True if it rounds."""
    model = FIRES[each.name]()
    words = (
        [] if each.is_needed else [{"disabled_optimizers": [each.name, "ConstantFolding"]}, {"sess_options": basic()}]
    )
    words += [] if each.is_exact else [{"exact": True}]
    for number, given in enumerate([{}, *words]):
        monkeypatch.setenv("UNPOOL_DUMP", str(tmp_path / str(number)))
        unpool.InferenceSession(model, **given)
        dumped = {path.stem.partition("_")[2] for path in tmp_path.glob(f"{number}/*.onnx")}
        assert (each.name in dumped) == (number == 0), given


SIZES = {
    "two axes": (PLANES, True),
    "two axes of any size": (replace(PLANES, dims="N, 128, H, W"), True),
    "three maps, the last of a generator": (conv("pads = [3, 3, 3, 3]", (3, 32, 7, 7), (1, 32, 64, 64)), True),
    "three axes": (VOLUMES, True),
    "three axes of any size": (replace(VOLUMES, dims="N, 16, D, H, W"), True),
    "few elements of three axes": (conv("pads = [1, 1, 1, 1, 1, 1]", (16, 16, 3, 3, 3), (1, 16, 6, 5, 6)), False),
    "many maps of a large window": (conv("pads = [3, 3, 3, 3]", (16, 32, 7, 7), (1, 32, 64, 64)), False),
    "dilated": (conv("pads = [2, 2, 2, 2], dilations = [2, 2]", (64, 64, 3, 3), (1, 64, 40, 40)), False),
    "few elements": (conv("pads = [1, 1, 1, 1]", (16, 16, 3, 3), (1, 16, 7, 7)), False),
    "one by one": (conv("", (64, 64, 1, 1), (1, 64, 40, 40)), False),
    "one axis": (LINES, True),
    "one axis of any length": (replace(LINES, dims="N, 64, L"), True),
    "three taps in groups of one axis": (conv("pads = [1, 1], group = 4", (32, 8, 3), (2, 32, 9000)), True),
    "few elements of one axis": (conv("pads = [3, 3]", (16, 16, 7), (1, 16, 50)), False),
    "one tap of one axis": (conv("", (64, 64, 1), (1, 64, 9000)), False),
    "one channel of one axis": (conv("pads = [5, 5]", (64, 1, 11), (1, 1, 9000)), False),
    "channel by channel of one axis": (conv("pads = [3, 3], group = 64", (64, 1, 7), (1, 64, 9000)), False),
    "a small Snake": (waves(), False),
    "a small Mish": (CASES["Mish"], False),
    "a small Mish of three nodes": (CASES["a Mish of three nodes"], False),
    "a small Elu": (CASES["Elu"], False),
    "an Elu of a batch of few elements": (replace(CASES["Elu"], dims="n, 3, 4, 17"), False),
    "an Elu of any length": (replace(CASES["Elu"], dims="n, 3, 4, l"), True),
    "a small Softmax": (CASES["Softmax of channels"], False),
    "a Softmax of the channels of an image": (replace(CASES["Softmax of channels"], shape=(1, 21, 32, 40)), True),
    "a small Gather": (CASES["Gather of windows"], False),
    "a Gather of windows of channels": (replace(CASES["Gather of windows"], shape=(1, 100, 40)), True),
    "a small Einsum": (CASES["Einsum of channels"], False),
    "an Einsum of the channels of an image": (replace(CASES["Einsum of channels"], shape=(2, 4, 32, 40)), True),
}


@pytest.mark.parametrize("name", SIZES)
def test_nodes_are_replaced_where_that_saves_time(name):
    """More than a node, and reading and writing other layouts, costs; results are the same but for rounding."""
    case, is_replaced = SIZES[name]
    x = models.random(*case.shape)
    session = check(case.optimizer, case.model(), {"x": x}, case.limit(x))
    assert (operators(session) == case.after) == is_replaced
