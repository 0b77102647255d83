"""What SessionOptions ask for reaches the partitions and the model, and the caller's object stays as it is."""

import pickle

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as theirs

import unpool
from tests.support import models
from unpool.runtime import requirements
from unpool.runtime.backends.ort_options import PartitionOptions, clone, config_entry, partition_options

SQUARE = np.arange(9, dtype=np.float32).reshape(3, 3)
SPINNING, SPIN_DURATION = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"
BASIC = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC


def product():
    """A product with SQUARE."""
    return models.model("g (float[3, 3] x) => (float[3, 3] y) { y = MatMul (x, w) }", w=SQUARE)


def pooled():
    """A MaxPool with Indices between two nodes of onnxruntime."""
    graph = """g (float[1, 1, 4] x) => (float[1, 1, 2] z) {
        r = Relu (x)
        y, i = MaxPool <kernel_shape = [2], strides = [2]> (r)
        f = Cast <to = 1> (i)
        z = Add (y, f)
    }"""
    return models.model(graph)


def value_of(array):
    """An OrtValue."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def test_a_copy_has_everything():
    """Attributes, entries, sizes of axes and initializers are copied, and the original does not change."""
    options, weights = onnxruntime.SessionOptions(), value_of(2 * SQUARE)
    options.logid, options.enable_mem_pattern, options.graph_optimization_level = "mine", False, BASIC
    options.intra_op_num_threads = 3
    options.add_session_config_entry("my.own", "7")
    options.add_free_dimension_override_by_name("N", 3)
    options.add_initializer("w", weights)
    copy = clone(options)
    options.logid = "other"

    assert (copy.logid, copy.enable_mem_pattern, copy.graph_optimization_level) == ("mine", False, BASIC)
    assert (copy.intra_op_num_threads, copy.get_session_config_entry("my.own")) == (3, "7")
    assert options.intra_op_num_threads == 3
    theirs_session = onnxruntime.InferenceSession(product().SerializeToString(), copy)
    assert np.array_equal(theirs_session.run(None, {"x": SQUARE})[0], SQUARE @ (2 * SQUARE))


def test_no_file_is_written_beside(tmp_path, monkeypatch):
    """Profiling and the optimised model are those of the session: no partition writes one."""
    monkeypatch.chdir(tmp_path)
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.optimized_model_filepath = "o.onnx"
    session = unpool.InferenceSession(pooled(), options)

    assert [path.name for path in tmp_path.iterdir()] == ["o.onnx"]
    assert session.get_session_options().enable_profiling


def test_the_callers_object_gets_no_entries():
    """What partitions need is not left behind in the options of the caller."""
    options = onnxruntime.SessionOptions()
    unpool.InferenceSession(pooled(), options)

    for key in ("session.force_spinning_stop", "session.load_model_format"):
        with pytest.raises(RuntimeError):
            options.get_session_config_entry(key)


def test_partitions_have_the_entries_and_the_level():
    """Entries and attributes reach the partitions; those of threads and logs are the session's."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = BASIC, 1
    options.add_session_config_entry("my.own", "7")
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    made = partition_options(options, 2)

    assert (made.copy.graph_optimization_level, made.copy.log_severity_level, made.copy.intra_op_num_threads) == (
        BASIC,
        1,
        2,
    )
    assert made.copy.get_session_config_entry("my.own") == "7"
    assert made.copy.get_session_config_entry("session.intra_op.allow_spinning") == "1"
    assert made.copy.get_session_config_entry("session.force_spinning_stop") == "1"


@pytest.mark.parametrize(
    ("version", "asked", "expected"),
    [
        ("1.31.1", {}, ("1", "20")),
        ("1.26.0.dev20260401", {}, ("1", "20")),
        ("1.25.1", {}, ("0", None)),
        ("1.31.1", {SPINNING: "1"}, ("1", None)),
        ("1.31.1", {SPINNING: "0"}, ("0", None)),
        ("1.31.1", {SPIN_DURATION: "300"}, (None, "300")),
    ],
)
def test_partitions_spin_for_a_moment(version, asked, expected, monkeypatch):
    """Where onnxruntime can be told for how long, and the caller says nothing else."""
    monkeypatch.setattr(requirements.onnxruntime, "__version__", version)
    options = onnxruntime.SessionOptions()
    for key, value in asked.items():
        options.add_session_config_entry(key, value)
    made = partition_options(options, 2).copy

    assert (config_entry(made, SPINNING), config_entry(made, SPIN_DURATION)) == expected


def test_a_lent_object_comes_back_as_it_was():
    """The caller's own object has a partition's attributes while the partition is made, also where that fails."""
    own = onnxruntime.SessionOptions()
    own.enable_profiling, own.intra_op_num_threads = True, 5
    lent = PartitionOptions(partition_options(own, 1).copy, own)

    def fail():
        with lent.session_options() as options:
            assert options is own
            assert (own.enable_profiling, own.intra_op_num_threads) == (False, 1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (own.enable_profiling, own.intra_op_num_threads) == (True, 5)


def test_what_a_caller_sets_meanwhile_stays():
    """Another thread may change the lent object: a partition has all attributes of the copy, and the change is kept."""
    own = onnxruntime.SessionOptions()
    own.logid = "first"
    lent = PartitionOptions(partition_options(own, 1).copy, own)
    own.logid = "second"
    with lent.session_options():
        assert own.logid == "first"
        own.logid = "third"

    assert own.logid == "third"


def test_operators_of_a_library_are_loaded_with_the_callers_object(monkeypatch):
    """A node of a foreign domain is loaded with the object that the library was registered with."""
    node = helper.make_node("Mine", ["x"], ["y"], domain="my.own")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.own", 1)])
    own, seen = onnxruntime.SessionOptions(), []

    class Recording(onnxruntime.InferenceSession):
        def __init__(self, model, options, *others, **named):
            seen.append(options is own)
            super().__init__(model, options, *others, **named)

    monkeypatch.setattr(requirements.onnxruntime, "InferenceSession", Recording)
    with pytest.raises(unpool.UnpoolError):
        unpool.InferenceSession(model, own)
    assert any(seen)


@pytest.mark.parametrize(
    ("array", "message"),
    [(SQUARE.astype(np.float64), "expected FLOAT.*got DOUBLE"), (SQUARE[:2], r"expected shape \[3, 3\].*got \[2, 3\]")],
)
def test_initializers_fit_the_model(array, message):
    """A tensor of another type or shape than the model's is refused, not read as something else."""
    options, weights = onnxruntime.SessionOptions(), value_of(array)
    options.add_initializer("w", weights)

    with pytest.raises(unpool.UnpoolError, match=message) as caught:
        unpool.InferenceSession(product(), options)
    assert isinstance(caught.value, theirs.InvalidArgument)


def test_initializers_of_bodies_are_replaced():
    """A tensor inside a body is replaced by its name too, as onnxruntime does."""
    graph = """g (bool c, float[1, 1, 4] x) => (float[1, 1, 2] z) {
        z = If (c) <
            then_branch = a () => (float[1, 1, 2] p) <float[1] w = {2}> {
                u = MaxPool <kernel_shape = [2], strides = [2]> (x)
                p = Mul (u, w)
            },
            else_branch = b () => (float[1, 1, 2] q) { q = MaxPool <kernel_shape = [2], strides = [2]> (x) }
        >
    }"""
    options, factor = onnxruntime.SessionOptions(), value_of(np.float32([7]))
    options.add_initializer("w", factor)
    feed = {"c": np.array(True), "x": np.float32([[[1, 3, 4, 2]]])}
    model = models.model(graph)

    for session in (unpool.InferenceSession(model, options), unpool.InferenceSession(model, options, exact=True)):
        assert session.run(None, feed)[0].tolist() == [[[21, 28]]]


def test_the_model_of_the_caller_is_not_changed():
    """A ModelProto stays as it is, whatever the options bring to it."""
    options, weights, model = onnxruntime.SessionOptions(), value_of(2 * SQUARE), product()
    before = model.SerializeToString()
    options.add_initializer("w", weights)
    (y,) = unpool.InferenceSession(model, options).run(None, {"x": SQUARE})

    assert np.array_equal(y, SQUARE @ (2 * SQUARE))
    assert model.SerializeToString() == before


def test_the_cpu_may_not_be_forbidden():
    """Options that forbid the CPU are refused: there unpool runs."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")

    with pytest.raises(theirs.Fail, match="disable_cpu_ep_fallback"):
        unpool.InferenceSession(pooled(), options)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_the_optimised_model_gives_the_same(tmp_path, kind):
    """The file holds folded weights and plain activations, and gives the same; onnxruntime lacks double."""
    graph = f"""g ({kind}[1, 2, 4, 4] x) => ({kind}[A, B, C, D] z) {{
        u = ConvTranspose <strides = [2, 2]> (x, k)
        m = Mul (u, w)
        z = Relu (m)
    }}"""
    dtype = np.float32 if kind == "float" else np.float64
    k = np.arange(24, dtype=dtype).reshape(2, 3, 2, 2) - 9
    model = models.model(graph, k=k, w=dtype([2]))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    options.log_severity_level = 4
    feed = {"x": np.arange(32, dtype=dtype).reshape(1, 2, 4, 4) - 11}
    (expected,) = unpool.InferenceSession(model, options).run(None, feed)

    assert [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node] == ["ConvTranspose", "Relu"]
    assert np.array_equal(unpool.InferenceSession(tmp_path / "o.onnx").run(None, feed)[0], expected)
    if kind == "float":
        assert np.array_equal(onnxruntime.InferenceSession(tmp_path / "o.onnx").run(None, feed)[0], expected)


def test_an_optimised_model_that_onnxruntime_does_not_run(tmp_path):
    """Without onnxruntime the weights go into the file that the entries name, and its own format is refused."""
    graph = "g (double[1, 2, 4, 4] x) => (double[A, B, C, D] z) { z = ConvTranspose (x, k) }"
    model = models.model(graph, k=np.arange(24.0).reshape(2, 3, 2, 2))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "50")
    feed = {"x": np.ones((1, 2, 4, 4))}
    (expected,) = unpool.InferenceSession(model, options).run(None, feed)

    assert (tmp_path / "weights.bin").stat().st_size == 24 * 8
    assert np.array_equal(unpool.InferenceSession(tmp_path / "o.onnx").run(None, feed)[0], expected)

    options.optimized_model_filepath = str(tmp_path / "o.ort")
    with pytest.raises(unpool.UnsupportedError, match=r"own format.*Name a file that ends in \.onnx"):
        unpool.InferenceSession(model, options)


def test_an_optimised_model_needs_a_folder(tmp_path):
    """A place where no file can be written is named."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "nowhere" / "o.onnx")

    with pytest.raises(unpool.FileError, match="nowhere"):
        unpool.InferenceSession(pooled(), options)


def with_config(text):
    """A model with these words on options in its metadata."""
    model = pooled()
    helper.set_model_props(model, {"ort_config": text})
    return model


def test_options_of_the_model_count_alone(monkeypatch, tmp_path):
    """Where the environment says so, the model's options replace the caller's, in partitions too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads, options.logid = 3, "mine"
    words = '{"session_options": {"intra_op_num_threads": 1, "graph_optimization_level": 1, "enable_profiling": 1}}'
    session = unpool.InferenceSession(with_config(words), options)

    for one in (session, *session._model.ort_sessions):
        made = one.get_session_options()
        assert (made.intra_op_num_threads, made.inter_op_num_threads, made.logid) in ((1, 0, ""), (1, 1, ""))
        assert made.graph_optimization_level == BASIC
    assert session.get_session_options().enable_profiling
    assert session.run(None, {"x": np.float32([[[1, 3, 4, 2]]])})[0].tolist() == [[[4, 6]]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["{nonsense", '{"session_options": {"intra_op_num_threads": "two"}}'])
def test_bad_options_of_the_model_are_refused(monkeypatch, words):
    """Words that onnxruntime cannot read are named."""
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    with pytest.raises(unpool.UnpoolError, match="ort_config"):
        unpool.InferenceSession(with_config(words))


def test_partitions_run_their_nodes_in_parallel():
    """Mode and number of threads reach the partitions, and are said by the session."""
    options = onnxruntime.SessionOptions()
    options.execution_mode, options.inter_op_num_threads = onnxruntime.ExecutionMode.ORT_PARALLEL, 2
    session = unpool.InferenceSession(pooled(), options)

    for one in (session, session._model.ort_sessions[0]):
        made = one.get_session_options()
        assert (made.execution_mode, made.inter_op_num_threads) == (onnxruntime.ExecutionMode.ORT_PARALLEL, 2)


def test_options_that_onnxruntime_refuses():
    """A loading that is cancelled before it begins is one here too."""
    options = onnxruntime.SessionOptions()
    options.set_load_cancellation_flag(True)

    with pytest.raises(theirs.ModelLoadCanceled) as caught:
        unpool.InferenceSession(pooled(), options)
    assert isinstance(caught.value, unpool.UnpoolError)


def test_external_data_of_bytes(tmp_path):
    """An entry names the folder of the data of a model that is bytes; the file has to be there."""
    model = product()
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "w.bin", 0, SQUARE.nbytes)
    model.graph.initializer[0].ClearField("raw_data")
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    with pytest.raises(unpool.MissingFileError, match=r"w\.bin"):
        unpool.InferenceSession(model, options, threads=1)

    (tmp_path / "w.bin").write_bytes(SQUARE.tobytes())
    for source in (model, model.SerializeToString()):
        session = unpool.InferenceSession(source, options, threads=1)
        assert np.array_equal(session.run(None, {"x": SQUARE})[0], SQUARE @ SQUARE)
    assert model.graph.initializer[0].external_data


def test_weights_from_memory_beside_weights_from_files(tmp_path):
    """Options that bring one of two files are refused, as onnxruntime refuses them."""
    graph = "g (float[3, 3] x) => (float[3, 3] y) { u = MatMul (x, w) y = Add (u, b) }"
    model = models.model(graph, w=SQUARE, b=SQUARE)
    for tensor in model.graph.initializer:
        onnx.external_data_helper.set_external_data(tensor, f"{tensor.name}.bin", 0, SQUARE.nbytes)
        tensor.ClearField("raw_data")
        (tmp_path / f"{tensor.name}.bin").write_bytes(SQUARE.tobytes())
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    content = (2 * SQUARE).tobytes()
    options = onnxruntime.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [content], [len(content)])

    with pytest.raises(theirs.Fail):
        onnxruntime.InferenceSession(tmp_path / "m.onnx", options)
    with pytest.raises(theirs.Fail, match=r"b\.bin") as caught:
        unpool.InferenceSession(tmp_path / "m.onnx", options, threads=1)
    assert isinstance(caught.value, unpool.UnpoolError)


def test_what_cannot_be_said_in_words_is_not_pickled():
    """A session whose options bring weights or sizes is refused: its twin would be without them."""
    options, weights = onnxruntime.SessionOptions(), value_of(2 * SQUARE)
    options.add_initializer("w", weights)
    sized = onnxruntime.SessionOptions()
    sized.add_free_dimension_override_by_name("N", 2)
    model = models.model("g (float[N] x) => (float[N] y) { y = Neg (x) }").SerializeToString()

    for session in (
        unpool.InferenceSession(product().SerializeToString(), options),
        unpool.InferenceSession(model, sized),
    ):
        with pytest.raises(unpool.UnsupportedError, match="initializers, sizes"):
            pickle.dumps(session)
    again = pickle.loads(pickle.dumps(unpool.InferenceSession(model, onnxruntime.SessionOptions())))
    assert again.run(None, {"x": np.float32([3])})[0].tolist() == [-3]
