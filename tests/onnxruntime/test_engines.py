"""Nodes that onnxruntime refuses run in onnx's ReferenceEvaluator, as nodes of onnxruntime's session."""

import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph

import unpool
from tests.support import models
from tests.support.library_sessions import session_of as library_session
from unpool.onnxruntime import InferenceSession
from unpool.onnxruntime.engine import engine_node, find_engine
from unpool.onnxruntime.errors import FallbackWarning

KINDS = [np.float16, np.float32, np.float64, np.int8, np.int32, np.uint8, np.uint64, np.bool_, ml_dtypes.bfloat16]


class Sum:
    """An engine: the sum of its inputs, in their type."""

    def __init__(self, dtype=np.float32):
        self.output_dtypes = [np.dtype(dtype)]

    def compute(self, inputs, allocate):
        """Write the sum."""
        total = inputs[0].astype(self.output_dtypes[0])
        for array in inputs[1:]:
            total = total + array
        allocate(0, total.shape)[...] = total


def session_of(engine, inputs=1, dtype=np.float32, shape=("n", 3)):
    """A session of a model of one engine and an Identity."""
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    names = [f"x{number}" for number in range(inputs)]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [engine_node(engine, names, ["y"], "sum"), onnx.helper.make_node("Identity", ["y"], ["z"])],
        "g",
        [info(name, element, shape) for name in names],
        [info("z", element, None)],
        value_info=[info("y", element, None)],
    )
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("unpool", 1)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    return library_session(model)


def refused():
    """A float64 Conv, which onnxruntime lacks, between nodes that it has."""
    return models.model(
        "g (double[1, 1, n] x) => (double[1, 1, m] y) { a = Relu (x) [turn] c = Conv (a, w) y = Neg (c) }",
        w=np.full((1, 1, 1), 2.0),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_reads_and_writes_every_type_of_whole_bytes(kind):
    """Values go in and out as they are."""
    engine, x = Sum(kind), np.arange(6).reshape(2, 3).astype(kind)
    session = session_of(engine, dtype=kind)
    element = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    binding, z = session.io_binding(), np.zeros_like(x)
    for bind, name, array in ((binding.bind_input, "x0", x), (binding.bind_output, "z", z)):
        bind(name, "cpu", 0, element, array.shape, array.ctypes.data)
    session.run_with_iobinding(binding)
    assert z.tobytes() == x.tobytes()


def test_an_engine_has_any_number_of_inputs():
    """More than an operator of unpool has, and arrays without elements."""
    engine = Sum()
    session = session_of(engine, inputs=20)
    for rows in (2, 0):
        feed = {f"x{number}": np.full((rows, 3), number, np.float32) for number in range(20)}
        (z,) = session.run(None, feed)
        np.testing.assert_array_equal(z, np.full((rows, 3), 190, np.float32))


def test_inputs_of_an_engine_cannot_be_written():
    """They are onnxruntime's memory, which other nodes may read."""

    class Writer(Sum):
        def compute(self, inputs, allocate):
            inputs[0][...] = 0

    engine = Writer()
    with pytest.raises(Fail, match="read-only"):
        session_of(engine).run(None, {"x0": np.ones((2, 3), np.float32)})


def test_an_engine_that_is_gone_is_an_error_of_the_run():
    """A model with an engine serves the process and the object that it was made for."""
    session = session_of(Sum())
    with pytest.raises(Fail, match="no engine"):
        session.run(None, {"x0": np.ones((2, 3), np.float32)})
    with pytest.raises(unpool.UnpoolError, match="no engine"):
        find_engine(-1)


def test_engines_run_in_many_threads_at_the_same_time():
    """Each run has its own inputs and outputs."""
    engine = Sum()
    session, wrong = session_of(engine, inputs=2), []

    def work(number):
        for _ in range(50):
            (z,) = session.run(None, {name: np.full((number, 3), number, np.float32) for name in ("x0", "x1")})
            if not np.array_equal(z, np.full((number, 3), 2 * number)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_only_refused_nodes_leave_onnxruntime():
    """The warning and the plan name them; the others, of any type, stay."""
    with pytest.warns(FallbackWarning, match=r"'turn': Could not find an implementation for Conv\(11\)") as caught:
        session = InferenceSession(refused())
    assert [(row.node, row.runner) for row in session.plan] == [("turn", "reference")]
    assert {each.filename for each in caught} == {__file__}
    x = models.random(1, 1, 5, dtype=np.float64)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -2 * np.maximum(x, 0))


def test_a_model_in_bytes_has_engines_too():
    """A model that unpool has read from bytes is as it came when its refused nodes are looked for."""
    with pytest.warns(FallbackWarning):
        session = InferenceSession(models.bfloat16().SerializeToString())
    assert [row.runner for row in session.plan] == ["unpool", "reference", "unpool"]


def test_a_refused_node_in_a_body_leaves_onnxruntime_alone():
    """The If and the other nodes of its bodies stay."""
    model = models.model(
        """g (bool k, double[1, 1, 4] x) => (double[1, 1, 4] y) {
            y = If (k) <then_branch = a () => (double[1, 1, 4] p) {
                    c = Conv (x, w) p, i = MaxPool <kernel_shape = [1]> (c) },
                else_branch = b () => (double[1, 1, 4] q) { q = Neg (x) }>
        }""",
        w=np.full((1, 1, 1), 2.0),
    )
    with pytest.warns(FallbackWarning, match="'Conv->c'"):
        session = InferenceSession(model)
    assert {row.node: row.runner for row in session.plan} == {"Conv->c": "reference", "MaxPool->p": "unpool"}
    x = models.random(1, 1, 4, dtype=np.float64)
    for keep, expected in ((True, 2 * x), (False, -x)):
        np.testing.assert_array_equal(session.run(None, {"k": np.array(keep), "x": x})[0], expected)


def test_bindings_profiles_and_asynchronous_runs_work(tmp_path):
    """An engine is a node of onnxruntime's session."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
    options.intra_op_num_threads = 2
    with pytest.warns(FallbackWarning):
        session = InferenceSession(refused(), options)
    x = models.random(1, 1, 5, dtype=np.float64)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    done, results = threading.Event(), []
    session.run_async(None, {"x": x}, lambda found, *_: (results.extend(found), done.set()), None)
    assert done.wait(60)
    for y in (*binding.copy_outputs_to_cpu(), *results):
        np.testing.assert_array_equal(y, -2 * np.maximum(x, 0))
    assert '"op_name" : "Engine"' in Path(session.end_profiling()).read_text()


ATEN = {"imports": ', "org.pytorch.aten" : 1'}
REFUSED = {
    "an operator that the evaluator does not know either": (
        models.model("g (float[1] x) => (float[1] y) { y = Nothing (x) }"), InvalidGraph, "Nothing",
    ),
    "an operator of torch, with the exporter": (
        models.model("g (float[1, 2, 6, 8] x) => (float z) { z = org.pytorch.aten.max_unpool2d (x, x) }", **ATEN),
        Fail, r"max_unpool2d .* unpool.torch.export",
    ),
    "an invalid node, which does not go to the evaluator": (
        models.model("g (double[1, 4] x) => (double[4, 1] y) { y = Transpose <perm = [1, 7]> (x) }"), Fail, "perm",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_runtime_takes_is_onnxruntimes_error(name):
    """Its words say what is wrong."""
    model, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        InferenceSession(model)


def test_a_node_that_fails_in_a_run_is_named():
    """The error is one of onnxruntime's run."""
    model = models.model(
        "g (double[1, c, 4] x) => (double[1, 1, 4] y) { [turn] y = Conv (x, w) }", w=np.ones((1, 1, 1))
    )
    with pytest.warns(FallbackWarning):
        session = InferenceSession(model)
    with pytest.raises(Exception, match="turn"):
        session.run(None, {"x": np.ones((1, 2, 4))})
