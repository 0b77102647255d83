"""InferenceSession is made from a path or bytes, with or without options, and says what it cannot load."""

import json
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal
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
    source = {"str": str(path), "Path": path, "bytes": net.content}[kind]

    (z,) = ort.InferenceSession(source).run(None, net.feed)
    assert np.array_equal(z, net.z)


@pytest.mark.parametrize("by_name", [True, False])
def test_the_parameters_are_those_of_onnxruntime(ort, net, by_name):
    """All four have onnxruntime's names and order."""
    words = {"path_or_bytes": net.content, "sess_options": ort.SessionOptions()}
    words |= {"providers": ["CPUExecutionProvider"], "provider_options": [{}]}
    session = ort.InferenceSession(**words) if by_name else ort.InferenceSession(*words.values())
    assert np.array_equal(session.run(None, net.feed)[0], net.z)


@pytest.mark.parametrize("names", [None, ["ConstantFolding"], {"ConstantFolding", "MatMulAddFusion"}])
def test_optimizers_may_be_disabled_by_name(ort, net, names):
    """`disabled_optimizers` is None, a list or a set of names, and results stay the same."""
    session = ort.InferenceSession(net.content, disabled_optimizers=names)

    assert np.array_equal(session.run(None, net.feed)[0], net.z)


def pair(node):
    """The bytes of a model of one node on two numbers."""
    return models.model(f"g (float[2] x) => (float[2] z) {{ z = {node} }}").SerializeToString()


REFUSED = {
    "None": (None, TypeError, None),
    "a number": (3, TypeError, None),
    "a missing file": ("nowhere.onnx", NoSuchFile, r"nowhere\.onnx"),
    "a file that is no model": ("notes.onnx", InvalidProtobuf, r"notes\.onnx"),
    "bytes that are no model": (b"no model at all", InvalidProtobuf, None),
    "no bytes at all": (b"", InvalidArgument, None),
    "an unknown operator": (pair("Nonesuch (x)"), (InvalidGraph, Fail), "Nonesuch"),
    "a value that nothing makes": (pair("Add (x, nowhere)"), (InvalidGraph, InvalidArgument, Fail), "nowhere"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_loaded_is_an_error_of_onnxruntime(ort, name, own_folder):
    """Its message names the file, the operator or the value."""
    source, kind, words = REFUSED[name]
    Path("notes.onnx").write_bytes(b"no model at all")
    with pytest.raises(kind, match=words):
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
    session = ort.InferenceSession(net.content, options)

    assert np.array_equal(session.run(None, net.feed)[0], net.z)


@pytest.mark.parametrize(("key", "value"), ENTRIES, ids=[key for key, _ in ENTRIES])
def test_no_entry_changes_results(ort, net, key, value):
    """Well-known entries, and unknown ones, are kept, and results stay the same."""
    options = ort.SessionOptions()
    options.add_session_config_entry(key, value)
    session = ort.InferenceSession(net.content, options)

    assert np.array_equal(session.run(None, net.feed)[0], net.z)
    assert session.get_session_options().get_session_config_entry(key) == value


def test_the_callers_options_are_not_changed(ort, net):
    """A session leaves the options of its caller as they were."""
    options = ort.SessionOptions()
    before = {name: getattr(options, name) for name, _ in OPTIONS}
    ort.InferenceSession(net.content, options)

    assert {name: getattr(options, name) for name, _ in OPTIONS} == before


def test_options_may_come_from_the_model(ort, monkeypatch):
    """Where the environment says so, a session takes its options from the model's metadata."""
    words = {"session_options": {"inter_op_num_threads": 5, "intra_op_num_threads": 2}}
    content = with_words(plain().content, metadata={"ort_config": json.dumps(words)})
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    options = ort.InferenceSession(content).get_session_options()

    assert (options.inter_op_num_threads, options.intra_op_num_threads) == (5, 2)


def test_options_in_the_model_are_not_read_unasked(ort):
    """Metadata with options alone changes nothing."""
    content = with_words(plain().content, metadata={"ort_config": '{"session_options": {"intra_op_num_threads": 2}}'})

    assert ort.InferenceSession(content).get_session_options().intra_op_num_threads == 0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nodes_in_another_order_are_sorted(ort, net, seed):
    """Nodes may stand in any order, as long as none needs its own output."""
    model = onnx.load_from_string(net.content)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    random.Random(seed).shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes[::-1] if seed == 0 else nodes)

    assert_array_equal(ort.InferenceSession(model.SerializeToString()).run(None, net.feed)[0], net.z)


@pytest.mark.parametrize("reads", ["u", "r"])
def test_nodes_that_need_each_other_are_refused(ort, reads):
    """A cycle of one node or of several is a Fail that says so."""
    model = onnx.load_from_string(pools().content)
    model.graph.node[0].input[0] = reads
    with pytest.raises(Fail, match="acyclic"):
        ort.InferenceSession(model.SerializeToString())
