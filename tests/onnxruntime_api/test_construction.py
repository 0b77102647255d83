"""InferenceSession is made from a path or bytes, with or without options, and says what it cannot load."""

import json
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile

from tests.onnxruntime_api.nets import plain, pools, with_words
from tests.support import models

OPTIONS = [
    ("enable_cpu_mem_arena", False),
    ("enable_mem_pattern", False),
    ("enable_mem_reuse", False),
    ("use_deterministic_compute", True),
    ("intra_op_num_threads", 1),
    ("inter_op_num_threads", 2),
    ("log_severity_level", 4),
    ("log_verbosity_level", 1),
    ("logid", "some words"),
]
ENTRIES = [
    ("session.set_denormal_as_zero", "1"),
    ("session.disable_prepacking", "1"),
    ("session.intra_op.allow_spinning", "0"),
    ("session.inter_op.allow_spinning", "0"),
    ("session.force_spinning_stop", "1"),
    ("session.use_env_allocators", "0"),
    ("session.use_device_allocator_for_initializers", "1"),
    ("session.use_ort_model_bytes_directly", "0"),
    ("session.load_model_format", "ONNX"),
    ("session.dynamic_block_base", "4"),
    ("session.disable_quant_qdq", "1"),
    ("session.strict_shape_type_inference", "1"),
    ("session.allow_released_opsets_only", "1"),
    ("session.disable_cpu_ep_fallback", "0"),
    ("optimization.enable_gelu_approximation", "1"),
    ("optimization.disable_specified_optimizers", "ConstantFolding"),
    ("ep.context_enable", "0"),
    ("my.own.key", "anything"),
]


@pytest.mark.parametrize("kind", ["str", "Path", "bytes"])
def test_a_model_is_given_as_path_or_bytes(ort, net, kind, tmp_path):
    """The name of a file, a Path and the bytes load the same model."""
    path = tmp_path / "m.onnx"
    path.write_bytes(net.content)
    net.assert_right(ort.InferenceSession({"str": str(path), "Path": path, "bytes": net.content}[kind]))


def test_parameters_have_the_names_and_the_order_of_onnxruntime(ort, net):
    """All four of them."""
    given = (net.content, ort.SessionOptions(), ["CPUExecutionProvider"], [{}])
    names = ("path_or_bytes", "sess_options", "providers", "provider_options")
    net.assert_right(ort.InferenceSession(*given))
    net.assert_right(ort.InferenceSession(**dict(zip(names, given, strict=True))))


@pytest.mark.parametrize("names", [None, ["ConstantFolding"], {"ConstantFolding", "MatMulAddFusion"}])
def test_optimizers_may_be_disabled_by_name(ort, net, names):
    """`disabled_optimizers` is None, a list or a set of names, and results stay the same."""
    net.assert_right(ort.InferenceSession(net.content, disabled_optimizers=names))


def net_of(nodes):
    """The bytes of a model of two floats."""
    return models.model(f"g (float[2] x) => (float[2] z) {{ {nodes} }}").SerializeToString()


REFUSED = {
    "no source": (None, TypeError, None),
    "a number": (3, TypeError, None),
    "a path that leads nowhere": ("nowhere.onnx", NoSuchFile, r"nowhere\.onnx"),
    "bytes that are no protobuf": (b"no model at all", InvalidProtobuf, None),
    "a file that is no protobuf": ("notes.onnx", InvalidProtobuf, r"notes\.onnx"),
    "a model without a graph": (b"", InvalidArgument, None),
    "an unknown operator": (net_of("z = Nonesuch (x)"), (InvalidGraph, Fail), "Nonesuch"),
    "a value from nowhere": (net_of("z = Add (x, nowhere)"), (InvalidGraph, InvalidArgument, Fail), "nowhere"),
}


@pytest.mark.parametrize(("source", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_loaded_is_refused(ort, here, source, error, words):
    """With the class of onnxruntime, and the name of the file, operator or value."""
    Path("notes.onnx").write_bytes(b"no model at all")
    with pytest.raises(error, match=words):
        ort.InferenceSession(source)


@pytest.mark.parametrize("options", [3, "fast", {"intra_op_num_threads": 1}])
def test_options_of_another_kind_are_a_type_error(ort, net, options):
    """What is no SessionOptions is refused as a TypeError."""
    with pytest.raises(TypeError):
        ort.InferenceSession(net.content, options)


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_no_level_of_optimisation_changes_results(ort, net, level):
    """Every level runs the model."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    net.assert_right(ort.InferenceSession(net.content, options))


@pytest.mark.parametrize(("key", "value"), ENTRIES, ids=[key for key, _ in ENTRIES])
def test_no_entry_changes_results(ort, net, key, value):
    """Well-known entries, and unknown ones, are kept, and results stay the same."""
    options = ort.SessionOptions()
    options.add_session_config_entry(key, value)
    session = ort.InferenceSession(net.content, options)
    net.assert_right(session)
    assert session.get_session_options().get_session_config_entry(key) == value


def test_the_callers_options_are_not_changed(ort, net):
    """A session leaves the options of its caller as they were."""
    options = ort.SessionOptions()
    before = {name: getattr(options, name) for name, _ in OPTIONS}
    ort.InferenceSession(net.content, options)
    assert {name: getattr(options, name) for name, _ in OPTIONS} == before


def test_options_may_come_from_the_model(ort, monkeypatch):
    """Where the environment says so, and not unasked, a session takes its options from the model's metadata."""
    words = {"session_options": {"inter_op_num_threads": 5, "intra_op_num_threads": 2}}
    content = with_words(plain().content, metadata={"ort_config": json.dumps(words)})
    assert ort.InferenceSession(content).get_session_options().intra_op_num_threads == 0
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    options = ort.InferenceSession(content).get_session_options()
    assert (options.inter_op_num_threads, options.intra_op_num_threads) == (5, 2)


def test_external_data_lies_beside_the_file(ort, tmp_path):
    """Weights in a file of their own are found beside the model."""
    model = models.model(
        "g (float[1, 1, 4, 4] x) => (float[1, 1, 8, 8] z) { z = ConvTranspose <strides = [2, 2]> (x, k) }",
        k=np.ones((1, 1, 2, 2), np.float32),
    )
    path = models.save_with_external_data(model, tmp_path)
    x = plain().x
    assert np.array_equal(ort.InferenceSession(path).run(None, {"x": x})[0], np.kron(x, np.ones((2, 2))))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nodes_in_another_order_are_sorted(ort, net, seed):
    """Nodes may stand in any order, as long as none needs its own output."""
    model = onnx.load_from_string(net.content)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    random.Random(seed).shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes[::-1] if seed == 0 else nodes)
    net.assert_right(ort.InferenceSession(model.SerializeToString()))


@pytest.mark.parametrize("reads", ["u", "r"])
def test_nodes_that_need_each_other_are_refused(ort, reads):
    """A cycle of one node or of several is a Fail that says so."""
    model = onnx.load_from_string(pools().content)
    model.graph.node[0].input[0] = reads
    with pytest.raises(Fail, match="acyclic"):
        ort.InferenceSession(model.SerializeToString())
