"""unpool as a backend of onnx.backend: what `prepare`, `run`, `run_model`, `run_node` and the rest take and give."""

import importlib
import inspect
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.backend.base import Backend, BackendRep

import unpool
from tests.support import models
from unpool.runtime import onnx_backend

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports onnx.version
    ORT_BACKEND = importlib.import_module("onnxruntime.backend")

POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
X = models.random(1, 2, 4, 4)


def pool(outputs=("y",), operator="MaxPool", inputs=("x",), **attributes):
    """One node named the_node."""
    return helper.make_node(operator, inputs, outputs, "the_node", **(attributes or POOL))


def test_it_has_every_function_of_a_backend():
    """What onnx calls a backend has these functions, with these first parameters."""
    public = [name for name, _ in inspect.getmembers(Backend, inspect.ismethod)]
    assert sorted(public) == ["is_compatible", "prepare", "run_model", "run_node", "supports_device"]
    for name in public:
        theirs = list(inspect.signature(getattr(Backend, name)).parameters)
        assert list(inspect.signature(getattr(onnx_backend, name)).parameters) == theirs
    assert isinstance(onnx_backend.prepare(models.only_pool()), BackendRep)


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "array"])
def test_ways_to_feed(kind):
    """A list or tuple in order, a dict by name, and the bare array of a single input are the same."""
    x = models.random(1, 1, 4, 4)
    given = {"list": [x], "tuple": (x,), "dict": {"x": x}, "array": x}[kind]
    (got,) = onnx_backend.run_model(models.only_pool(), given)
    assert np.array_equal(got, unpool.max_pool(x, **POOL))


def test_outputs_by_name():
    """Outputs come in order and by name, all or those asked for."""
    prepared = onnx_backend.prepare(models.passed_through())
    x = models.random(1, 1, 4, 4)
    made = prepared.run([x])
    assert isinstance(made, tuple)
    assert [one.shape for one in made] == [(1, 1, 2, 2), (1, 1, 4, 4), (3,)]
    assert np.array_equal(made["x"], x)
    chosen = prepared.run([x], output_names=["table", "y"])
    assert [one.shape for one in chosen] == [(3,), (1, 1, 2, 2)]
    assert np.array_equal(chosen["y"], made["y"])


BAD_RUNS = {
    "too few": (lambda one: one.run([]), r"run: expected 1 inputs \(x\), got 0"),
    "too many": (lambda one: one.run([X, X]), r"run: expected 1 inputs \(x\), got 2"),
    "output": (
        lambda one: one.run([X[:, :1]], output_names=["z"]),
        "Invalid output name:z",
    ),
}


@pytest.mark.parametrize("name", BAD_RUNS)
def test_bad_runs_are_named(name):
    """A wrong number of inputs and an unknown output are errors of ours."""
    call, message = BAD_RUNS[name]
    with pytest.raises(unpool.UnpoolError, match=message):
        call(onnx_backend.prepare(models.only_pool()))


def test_options_of_the_session():
    """`prepare` takes the session's keywords, and every MaxPool is ours whatever they say."""
    prepared = onnx_backend.prepare(models.plain_pools(), "CPU:0", compat="ort", threads=1, exact=False)
    assert [one.runner for one in prepared.session.plan if one.operator == "MaxPool"] == ["unpool"]
    with pytest.raises(unpool.UnpoolError, match="compat"):
        onnx_backend.prepare(models.only_pool(), compat="none")


WAYS = {
    "run": lambda backend, model: backend.run(model, [X]),
    "run on one thread": lambda backend, model: backend.run(model, [X], intra_op_num_threads=1, logid="7"),
    "a path": lambda backend, model: backend.prepare(written(model)).run([X]),
    "bytes": lambda backend, model: backend.prepare(model.SerializeToString(), "CPU").run([X]),
    "any device": lambda backend, model: backend.prepare(model, None).run([X]),
    "a prepared model": lambda backend, model: backend.prepare(backend.prepare(model)).run([X]),
    "a session": lambda backend, model: backend.prepare(SESSIONS[backend](model.SerializeToString())).run(X),
    "one path of the graph": lambda backend, model: backend.prepare(model).run([X], only_execute_path_to_fetches=True),
}
SESSIONS = {onnx_backend: unpool.InferenceSession, ORT_BACKEND: onnxruntime.InferenceSession}


def written(model):
    """The path of the model in a file."""
    onnx.save(model, "model.onnx")
    return "model.onnx"


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("backend", SESSIONS, ids=["unpool", "onnxruntime"])
def test_it_is_called_as_the_backend_of_onnxruntime(backend, name, tmp_path, monkeypatch):
    """Models of each kind, devices and options are taken by both, with one result."""
    monkeypatch.chdir(tmp_path)
    (y,) = WAYS[name](backend, models.model(f"g (float[1, 2, 4, 4] x) => (float[1, 2, 2, 2] y) {{ {TEXT} }}"))
    assert np.array_equal(y, unpool.max_pool(X, **POOL))


TEXT = "y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)"


@pytest.mark.parametrize("backend", SESSIONS, ids=["unpool", "onnxruntime"])
def test_options_that_write_files_or_end_a_run_are_not_permitted(backend):
    """As in onnxruntime, an attribute that exists is refused by name, as a RuntimeError."""
    words = "enable_profiling", "profile_file_prefix", "optimized_model_filepath"
    for word in words:
        with pytest.raises(RuntimeError, match=f"SessionOptions attribute '{word}' is not permitted via the backend"):
            backend.prepare(models.only_pool().SerializeToString(), **{word: "x"})
    with pytest.raises(RuntimeError, match="RunOptions attribute 'terminate' is not permitted via the backend"):
        backend.prepare(models.only_pool().SerializeToString()).run([X[:, :1]], terminate=True)


def test_options_reach_the_session():
    """Options by keyword are set beside those of the caller, whose own stay as they are."""
    given = onnxruntime.SessionOptions()
    given.logid = "mine"
    prepared = onnx_backend.prepare(models.only_pool(), sess_options=given, intra_op_num_threads=1)
    options = prepared.session.get_session_options()
    assert (options.logid, options.intra_op_num_threads, given.intra_op_num_threads) == ("mine", 1, 0)


def test_unknown_keywords_are_ignored_with_a_warning():
    """Backends hand keywords on to each other, so an unknown one ends nothing; a similar name is said."""
    with pytest.warns(UserWarning, match="'thread' is neither a keyword .* Did you mean threads?"):
        prepared = onnx_backend.prepare(models.only_pool(), thread=1)
    with pytest.warns(UserWarning, match="'names' is neither a keyword nor an attribute of RunOptions, and is ignored"):
        assert len(prepared.run([X[:, :1]], names=["y"])) == 1


def test_a_map_is_a_value():
    """The dict for the only input of a model is a feed by name only if the input is no map."""
    model = models.model(
        """g (map(int64, float) words) => (float[1, N] z) {
            z = ai.onnx.ml.DictVectorizer <int64_vocabulary = [1, 2]> (words)
        }""",
        imports=', "ai.onnx.ml" : 3',
    )
    prepared = onnx_backend.prepare(model)
    for inputs in ({2: 3.0}, [{2: 3.0}], {"words": {2: 3.0}}):
        assert prepared.run(inputs)[0].tolist() == [[0.0, 3.0]]


def test_devices():
    """There is the CPU, and nothing else."""
    assert all(map(onnx_backend.supports_device, ("CPU", "CPU:0", "cpu")))
    assert not any(map(onnx_backend.supports_device, ("CUDA", "CUDA:1", "")))
    assert not onnx_backend.is_compatible(models.only_pool(), "CUDA")
    for call in (onnx_backend.prepare, lambda *given: onnx_backend.run_model(given[0], [X], given[1])):
        with pytest.raises(unpool.UnsupportedError, match="expected device 'CPU', got 'CUDA'"):
            call(models.only_pool(), "CUDA")
    with pytest.raises(unpool.UnsupportedError, match="expected device 'CPU', got 'CUDA'"):
        onnx_backend.run_node(pool(), [X], "CUDA")


def test_compatible_models():
    """A model is compatible if its nodes can run; an invalid one is an error, as it is for `prepare`."""
    assert onnx_backend.is_compatible(models.segnet())
    odd = helper.make_node("Odd", ["x"], ["y"], domain="elsewhere")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([odd], "g", values[:1], values[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("elsewhere", 1)]
    assert not onnx_backend.is_compatible(helper.make_model(graph, opset_imports=imports, ir_version=8))
    broken = models.only_pool()
    broken.graph.node[0].input[0] = "nowhere"
    with pytest.raises(unpool.ModelError, match="nowhere"):
        onnx_backend.is_compatible(broken)


def test_run_node_of_ours():
    """One node gives all its outputs, at the version that opset_version selects."""
    y, indices = onnx_backend.run_node(pool(["y", "i"]), [X])
    assert np.array_equal(y, unpool.max_pool(X, **POOL))
    assert indices.dtype == np.int64
    with pytest.raises(unpool.UnsupportedError, match=r"the_node.* Indices exist from opset 8 on"):
        onnx_backend.run_node(pool(["y", "i"]), [X], opset_version=7)


def test_run_node_of_the_channels_last_domain():
    """opset_version is then that domain's."""
    node = pool()
    node.domain = models.NHWC
    (got,) = onnx_backend.run_node(node, [np.moveaxis(X, 1, -1)], opset_version=12)
    assert np.array_equal(np.moveaxis(got, -1, 1), unpool.max_pool(X, **POOL))


def test_run_node_with_inputs_left_out():
    """Nothing, or None, stands for an optional input without a name or with one that is left out."""
    w = models.random(2, 1, 2, 2)
    node = pool(operator="ConvTranspose", inputs=["x", "w", ""], strides=[2, 2])
    expected = unpool.conv_transpose(X, w, strides=[2, 2])
    for inputs in ([X, w], [X, w, None]):
        assert np.array_equal(onnx_backend.run_node(node, inputs)[0], expected)


def test_run_node_that_reads_a_name_twice():
    """The name is one input of the model."""
    assert np.array_equal(onnx_backend.run_node(helper.make_node("Add", ["x", "x"], ["y"]), [X, X])[0], X + X)


def test_run_node_of_others():
    """Sequences, strings and several outputs go in and out; what the session falls back for, too."""
    made = onnx_backend.run_node(helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1), [[X, X]])
    assert np.array_equal(made[0], np.concatenate([X, X], axis=1))
    first, second = onnx_backend.run_node(helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2), [X])
    assert np.array_equal(np.concatenate([first, second], axis=1), X)
    (same,) = onnx_backend.run_node(helper.make_node("Identity", ["x"], ["y"]), [np.array(["a", "bc"])])
    assert same.tolist() == ["a", "bc"]


def test_outputs_info_tells_types():
    """Where onnx cannot infer the type of an output it has to be told; elsewhere it may be."""
    gelu = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft")
    with pytest.raises(unpool.UnpoolError, match="QuickGelu: the type of y cannot be inferred"):
        onnx_backend.run_node(gelu, [X], opset_version=1)
    (got,) = onnx_backend.run_node(gelu, [X], outputs_info=[(np.dtype(np.float32), X.shape)], opset_version=1)
    np.testing.assert_allclose(got, X / (1 + np.exp(-1.702 * X)), rtol=1e-5)
    (pooled,) = onnx_backend.run_node(pool(), [X], outputs_info=[(np.float32, (1, 2, 2, 2))])
    assert pooled.shape == (1, 2, 2, 2)


def test_run_node_with_a_wrong_number_of_inputs():
    """The names that wait for an input are listed."""
    with pytest.raises(unpool.UnpoolError, match=r"run_node: expected 2 inputs \(x, w\), got 1"):
        onnx_backend.run_node(pool(operator="ConvTranspose", inputs=["x", "w"], strides=[2, 2]), [X])
