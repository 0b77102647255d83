"""The session that is onnxruntime's own: what its constructor does with models, options, passes and files."""

import logging
import pickle

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import unpool
from tests.support import models
from tests.support.library_sessions import plain_session
from unpool.onnxruntime import InferenceSession, passes
from unpool.onnxruntime.passes import Pass

ROUNDING = 1e-5
SPIN = "session.intra_op.spin_duration_us"


def outputs(session, seed=0):
    """The outputs of a session, for inputs whose open sizes are 8."""
    feed = {
        value.name: models.random(*(size if isinstance(size, int) else 8 for size in value.shape), seed=seed)
        for value in session.get_inputs()
    }
    return session.run(None, feed)


def assert_equal(got, expected, tolerance=0.0):
    """Two lists of outputs are the same, but for rounding: the tolerance is a part of the largest element."""
    assert [each.dtype for each in got] == [each.dtype for each in expected]
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max(initial=0))


def saved(model, folder):
    """The path of a model."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


SEGNET = models.segnet()


@pytest.mark.parametrize("kind", ["path", "str", "bytes", "bytearray", "ModelProto"])
def test_sources(tmp_path, kind):
    """A session is made from a path, bytes in either form, or a ModelProto that stays as it was, and gives the same."""
    before = SEGNET.SerializeToString(deterministic=True)
    given = {
        "path": saved(SEGNET, tmp_path),
        "str": str(saved(SEGNET, tmp_path)),
        "bytes": SEGNET.SerializeToString(),
        "bytearray": bytearray(SEGNET.SerializeToString()),
        "ModelProto": SEGNET,
    }[kind]
    assert_equal(outputs(InferenceSession(given)), outputs(plain_session(SEGNET)), ROUNDING)
    assert SEGNET.SerializeToString(deterministic=True) == before


NETWORKS = {
    "segnet": models.segnet,
    "volumes": models.unet3d,
    "branches": models.branches,
    "conditional": models.conditional,
    "loop": models.loop,
    "function": models.with_function,
    "dynamic": models.dynamic,
    "weights from nodes": models.weights_from_nodes,
    "old IR": models.old_ir,
    "pool alone": models.only_pool,
    "pools": models.plain_pools,
    "none of ours": models.none_of_ours,
    "an optional input": models.optional_input,
    "an unused output": models.unused_output,
    "inputs as outputs": models.passed_through,
    "another domain": models.foreign_types,
}


def feed_of(session):
    """Inputs of a session, True where it takes one bool."""
    made = {
        "tensor(bool)": lambda shape: np.ones([], bool),
        "tensor(float)": lambda shape: models.random(*(size if isinstance(size, int) else 8 for size in shape)),
        "tensor(int64)": lambda shape: np.array(3, np.int64).reshape([1] * len(shape)),
    }
    return {value.name: made[value.type](value.shape) for value in session.get_inputs() if value.type in made}


SAME_BITS = ("branches", "conditional", "loop", "dynamic", "pools", "another domain")


@pytest.mark.parametrize("name", NETWORKS)
def test_models_give_what_onnxruntime_gives(name):
    """Sub-graphs, functions, dynamic sizes, old files: onnxruntime's results, bit for bit where unpool sums nothing."""
    model = NETWORKS[name]()
    session, expected = InferenceSession(model), plain_session(model)
    feed = feed_of(expected)
    assert_equal(session.run(None, feed), expected.run(None, feed), 0 if name in SAME_BITS else ROUNDING)


def unpooling(dtype):
    """A pool, an unpool and a ConvTranspose."""
    name = helper.tensor_dtype_to_string(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))).split(".")[-1].lower()
    return models.model(
        f"""g ({name}[1, 3, 8, 6] x) => ({name}[1, 2, a, b] z) {{
            y, i = MaxPool <{models.POOL}> (x)
            u = MaxUnpool <{models.POOL}> (y, i)
            z = ConvTranspose (u, w)
        }}""",
        w=models.random(3, 2, 2, 2, dtype=dtype),
    )


@pytest.mark.parametrize(("size", "kernel"), [(4, "tiles"), ("w", "")])
def test_the_plan_names_kernels(size, kernel):
    """Where the model fixes all sizes; the kernel depends on them."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        pool (float[1, 3, 4, {size}] x) => (float[a, b, c, d] y, int64[a, b, c, d] i) {{
            y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        }}""")
    (row,) = InferenceSession(model).plan
    assert (row.kernel, row.text.endswith("; kernel tiles")) == (kernel, bool(kernel))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_types_that_onnxruntime_refuses(dtype):
    """MaxUnpool and ConvTranspose run in types that onnxruntime has no kernels for."""
    x = models.random(1, 3, 8, 6, dtype=dtype)
    (z,) = InferenceSession(unpooling(dtype)).run(None, {"x": x})
    y, i = unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], return_indices=True)
    u = unpool.max_unpool(y, i, kernel_shape=[2, 2], strides=[2, 2])
    assert_equal([z], [unpool.conv_transpose(u, models.random(3, 2, 2, 2, dtype=dtype))], ROUNDING)


def grown(end, **constants):
    """A ConvTranspose y, and the node behind it."""
    return models.model(
        f"""g (float[1, 3, 6, 5] x) => (float[1, 4, 12, 10] z) {{
            y = ConvTranspose <strides = [2, 2]> (x, w)
            {end}
        }}""",
        w=models.random(3, 4, 2, 2),
        **constants,
    )


def with_activation():
    """A ConvTranspose and the activation behind it."""
    return grown("z = LeakyRelu <alpha = 0.2> (y)")


def use_pass(monkeypatch, run):
    """Let sessions have one pass more."""
    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, Pass("of_the_test", run, frozenset(), "last")))


WIDE = models.model(
    """g (float[1, 64, 40, 40] x) => (float[1, 64, 40, 40] z) {
        a = Conv <pads = [1, 1, 1, 1], group = 2> (x, w)
        b = Identity (w)
        z = Conv <pads = [1, 1, 1, 1], group = 2> (a, b)
    }""",
    w=models.random(64, 32, 3, 3) / 17,
)
"""Two converted Convs of one large weight, the second one of another name."""


@pytest.fixture
def converting(monkeypatch):
    """Convs are converted, however small they are."""
    monkeypatch.setattr("unpool.passes.convert_conv._pays", lambda *_: True)


def test_passes_get_no_elements_of_large_weights(monkeypatch, converting):
    """A model in a pass takes a few kilobytes, and one whose weights are flipped gives what onnxruntime gives."""
    sizes = []
    use_pass(monkeypatch, lambda model, _: sizes.append(model.ByteSize()) or model)
    session = InferenceSession(WIDE)
    assert [row.operator for row in session.plan] == ["ConvTranspose", "ConvTranspose"]
    assert max(sizes) < 2000 < WIDE.ByteSize()
    assert_equal(outputs(session), outputs(plain_session(WIDE)), ROUNDING)


def test_a_pass_that_asks_for_large_weights_gets_them(converting):
    """All passes run again on the whole model: a PRelu is replaced by what its 2,048 slopes allow."""
    model = models.model(
        """g (float[1, 2048, 3, 3] x) => (float[1, 2048, 3, 3] z) {
            a = PRelu (x, slopes)
            z = Conv <pads = [1, 1, 1, 1], group = 2048> (a, w)
        }""",
        slopes=np.linspace(0.1, 0.9, 2048, dtype=np.float32).reshape(2048, 1, 1),
        w=models.random(2048, 1, 3, 3),
    )
    session = InferenceSession(model)
    assert [row.operator for row in session.plan] == ["Max", "ConvTranspose"]
    assert_equal(outputs(session), outputs(plain_session(model)), ROUNDING)


def warnings_of(caplog):
    """What the log says at level WARNING."""
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_pass_that_fails_is_skipped(monkeypatch, caplog):
    """The model stays as it was, and the log names the pass."""

    def run(model, context):
        raise ZeroDivisionError("division by zero")

    use_pass(monkeypatch, run)
    assert_equal(outputs(InferenceSession(SEGNET)), outputs(plain_session(SEGNET)), ROUNDING)
    (message,) = warnings_of(caplog)
    assert "of_the_test" in message


def test_a_model_that_onnxruntime_refuses_goes_as_it_came(monkeypatch, caplog):
    """What a pass made, and onnxruntime refuses, is replaced by the file, with the library; the log says so."""

    def run(model, context):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        changed.graph.node[0].op_type = "Nonesuch"
        return changed

    use_pass(monkeypatch, run)
    session = InferenceSession(unpooling(np.float64))
    assert session.run(None, {"x": models.random(1, 3, 8, 6, dtype=np.float64)})[0].dtype == np.float64
    (message,) = warnings_of(caplog)
    assert "Nonesuch" in message


def test_a_handler_of_signals_ends_a_pass(monkeypatch):
    """An exception of the caller's own, such as a time limit, is not one of a pass."""
    import signal

    class TimeLimitError(Exception):
        pass

    def stop(*_):
        raise TimeLimitError

    def run(model, context):
        signal.raise_signal(signal.SIGINT)
        return model

    use_pass(monkeypatch, run)
    before = signal.signal(signal.SIGINT, stop)
    try:
        with pytest.raises(TimeLimitError):
            InferenceSession(SEGNET)
    finally:
        signal.signal(signal.SIGINT, before)


def test_options_stay_as_they_were():
    """The caller's options get no library and no entries: another session of onnxruntime's has none of unpool's."""
    options = onnxruntime.SessionOptions()
    InferenceSession(SEGNET, options, threads=1)
    assert options.intra_op_num_threads == 0
    for name in ("unpool.registered", SPIN):
        with pytest.raises(RuntimeError):
            options.get_session_config_entry(name)


@pytest.mark.parametrize(
    "body",
    [
        """{ p, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
             z = MaxUnpool <kernel_shape = [2], strides = [2]> (p, i) }""",
        "{ z = MaxPool <kernel_shape = [3], pads = [1, 1]> (x) }",
    ],
)
def test_threads_that_wait_sleep_soon(body):
    """Beside nodes that unpool computes, and where the caller says nothing, threads spin for some microseconds only."""
    session = InferenceSession(models.model(f"g (float[1, 2, 8] x) => (float[1, 2, 8] z) {body}"))
    entry = session.get_session_options().get_session_config_entry(SPIN)
    assert 0 < int(entry) < 1000


@pytest.mark.parametrize(
    "body",
    [
        "{ z = Sigmoid (x) }",
        """<float[1] w = {0.25}> { z = PRelu (x, w) }""",  # becomes a LeakyRelu of onnxruntime
    ],
)
def test_threads_that_wait_as_in_onnxruntime(body):
    """Threads wait as onnxruntime's do where unpool computes no node."""
    options = onnxruntime.SessionOptions()
    session = InferenceSession(models.model(f"g (float[1, 2, 8] x) => (float[1, 2, 8] z) {body}"), options)
    for name in (SPIN, "session.intra_op.allow_spinning"):
        with pytest.raises(RuntimeError):
            session.get_session_options().get_session_config_entry(name)


@pytest.mark.parametrize(("key", "value"), [(SPIN, "70"), ("session.intra_op.allow_spinning", "1")])
def test_threads_that_wait_as_the_caller_says(key, value):
    """An entry of the caller about spinning is kept, and no other is added."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(key, value)
    own = InferenceSession(SEGNET, options).get_session_options()
    assert own.get_session_config_entry(key) == value
    if key != SPIN:
        with pytest.raises(RuntimeError):
            own.get_session_config_entry(SPIN)


def with_factor():
    """A ConvTranspose and a factor behind it."""
    return grown("z = Mul (y, f)", f=np.float32([2]))


@pytest.mark.parametrize(
    ("end", "name"), [("z = Mul (y, f)", "w"), ("z = Mul (y, f)", "f"), ("z = PRelu (y, f)", "f")], ids=str
)
def test_options_that_bring_weights_count(end, name):
    """A weight, a factor or a slope that options replace is not folded into others."""
    model = grown(end, f=np.float32([2]))
    options, other = onnxruntime.SessionOptions(), onnx.ModelProto.FromString(model.SerializeToString())
    (tensor,) = (tensor for tensor in other.graph.initializer if tensor.name == name)
    array = 3 * numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(array, name))
    value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
    options.add_initializer(name, value)
    assert_equal(outputs(InferenceSession(model, options)), outputs(plain_session(other)), ROUNDING)


def large_model():
    """A model whose weights are worth leaving in its file: 256 KiB, and an activation to fuse."""
    return models.model(
        """g (float[1, 64, 6, 5] x) => (float[1, 64, 12, 10] z) {
            a = Conv <pads = [1, 1, 1, 1]> (x, v)
            y = ConvTranspose <strides = [2, 2]> (a, w)
            z = Relu (y)
        }""",
        v=models.random(64, 64, 3, 3),
        w=models.random(64, 64, 4, 4)[:, :, :2, :2].copy(),
    )


@pytest.mark.parametrize("writes_file", [False, True], ids=["values", "bytes"])
def test_weights_in_the_file_of_the_model(tmp_path, writes_file):
    """Weights that stayed in the file while passes ran are those of the session, however onnxruntime gets them."""
    model = large_model()
    options = onnxruntime.SessionOptions()
    if writes_file:
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session = InferenceSession(saved(model, tmp_path), options)
    assert_equal(outputs(session), outputs(plain_session(model)), ROUNDING)


def test_a_file_that_is_replaced_while_it_is_loaded(tmp_path, monkeypatch):
    """The session has one of the two models, whole, and not the graph of one with the weights of the other."""
    path = saved(large_model(), tmp_path)
    other = large_model()
    for tensor in other.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(tensor), tensor.name))

    def run(model, context):
        saved(other, tmp_path)
        return model

    use_pass(monkeypatch, run)
    got = outputs(InferenceSession(path))
    assert any(np.allclose(got[0], outputs(plain_session(model))[0], atol=2e-2) for model in (large_model(), other))


def test_providers_are_set_for_the_same_model(tmp_path):
    """Setting providers makes the session again, with the passes and the library."""
    session = InferenceSession(saved(unpooling(np.float64), tmp_path))
    x = models.random(1, 3, 8, 6, dtype=np.float64)
    before = session.run(None, {"x": x})
    session.set_providers(["CPUExecutionProvider"])
    assert_equal(session.run(None, {"x": x}), before)


def test_the_plan_lists_nodes_and_reasons():
    """Every node of the three operators has a row with who computes it, and a code and a text why."""
    plan = InferenceSession(SEGNET).plan
    assert [(row.operator, row.runner, row.reason.name) for row in plan] == [
        ("MaxPool", "unpool", "INDICES"),
        ("MaxPool", "unpool", "INDICES"),
        ("MaxUnpool", "unpool", "MAX_UNPOOL"),
        ("ConvTranspose", "unpool", "FASTER"),
        ("MaxUnpool", "unpool", "MAX_UNPOOL"),
    ]


def test_a_session_is_pickled(tmp_path):
    """With its options, arguments and attributes; what a pickle cannot hold is refused."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    session = InferenceSession(saved(unpooling(np.float64), tmp_path), options, exact=True)
    session.label = "mine"
    again = pickle.loads(pickle.dumps(session))
    x = models.random(1, 3, 8, 6, dtype=np.float64)
    assert_equal(again.run(None, {"x": x}), session.run(None, {"x": x}))
    assert (again.semantics, again.label) == (session.semantics, "mine")
    made = again.get_session_options()
    assert made.log_severity_level == 3
    assert made.get_session_config_entry("session.set_denormal_as_zero") == "1"
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.float32([3]))
    options.add_initializer("f", value)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(InferenceSession(with_factor(), options))


def test_a_session_prints_as_its_model(tmp_path):
    """The name of the file, inputs, outputs and providers."""
    text = repr(InferenceSession(saved(unpooling(np.float64), tmp_path)))
    assert "x tensor(double) [1, 3, 8, 6] -> " in text
    assert text.startswith("<InferenceSession 'model.onnx': ")


def test_a_model_that_is_no_message_runs(monkeypatch):
    """A ModelProto of 2 GiB or more has no bytes: onnxruntime gets its large weights as values."""
    expected = outputs(InferenceSession(large_model()))
    monkeypatch.setattr("unpool.graph.weights.LARGEST_MESSAGE", 10_000)
    assert_equal(outputs(InferenceSession(large_model())), expected)


def test_arrays_of_bfloat16_go_in_and_come_out():
    """The types of ml_dtypes, which onnxruntime takes as OrtValues only."""
    body = "y, i = MaxPool <kernel_shape = [2]> (x)"
    model = models.model(f"g (bfloat16[1, 1, 4] x) => (bfloat16[1, 1, 3] y) {{ {body} }}", opset=22, ir=10)
    x = np.array([[[1, 3, 2, 4]]], ml_dtypes.bfloat16)
    (y,) = InferenceSession(model).run(None, {"x": x})
    assert (y.dtype, y.tolist()) == (x.dtype, [[[3, 3, 4]]])


def test_what_tools_read(tmp_path):
    """Tools get the source, a digest that follows the content, the graph after the passes, and other threads."""
    path = saved(with_activation(), tmp_path)
    session = InferenceSession(path)
    fewer = session.with_threads(1)
    assert session.source == str(path)
    assert fewer.get_session_options().intra_op_num_threads == 1
    assert [node.op_type for node in session.prepared_graph().graph.nodes] == ["ConvTranspose", "LeakyRelu"]
    assert session.fingerprint() == fewer.fingerprint()
    saved(SEGNET, tmp_path)
    assert session.fingerprint() != InferenceSession(with_activation()).fingerprint()


def test_an_image_that_is_smaller_than_a_window():
    """A pool of which nothing is left gives that to an InstanceNormalization, and the process goes on."""
    session = InferenceSession(
        models.model(
            """g (float[1, 3, h, w] x) => (float[n, c, m, p] y, int64[n2, c2, m2, p2] i) {
                p, i = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)
                t = Tanh (p)
                y = InstanceNormalization (t, s, b)
            }""",
            s=models.random(3),
            b=models.random(3),
        )
    )
    sizes = {(2, 32): (0, 15), (9, 7): (4, 3)}
    for size, expected in sizes.items():
        shapes = [value.shape for value in session.run(None, {"x": models.random(1, 3, *size)})]
        assert shapes == [(1, 3, *expected)] * 2


ENDS = {
    "ConvTranspose": "z = ConvTranspose (x, w)",
    "pool": "z, i = MaxPool <kernel_shape = [2, 2]> (x)",
    "PRelu": "z = PRelu (x, s)",
}
"""By name the end of a model with an input x of 8 channels; its passes use sizes that are known."""
END_CONSTANTS = {
    "w": models.random(8, 2, 2, 2),
    "s": np.full((8, 1, 1), 0.2, np.float32),
}


def model_of(name, before="", opset=17):
    """The model with this end, which reads x or what `before` makes of it."""
    end = ENDS[name].replace("(x", "(a") if before else ENDS[name]
    constants = {key: value for key, value in END_CONSTANTS.items() if f", {key})" in end}
    return models.model(
        f"g (float[2, 8, 41, 43] x) => (float[n, m, p, q] z) {{ {before} {end} }}", opset=opset, **constants
    )


@pytest.mark.parametrize("name", ENDS)
def test_a_size_of_minus_one_is_open(name):
    """A size of -1 in the file, as paddle2onnx writes it, is any size, as in onnxruntime."""
    model = model_of(name)
    for axis in (0, 2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = -1
    feed = {"x": models.random(3, 8, 20, 24)}
    assert_equal(InferenceSession(model).run(["z"], feed), plain_session(model).run(["z"], feed), ROUNDING)


@pytest.mark.parametrize("operator", ["AveragePool", "LpPool"])
@pytest.mark.parametrize("window", [2, 3])
def test_sizes_that_onnx_infers_otherwise(window, operator):
    """No pass writes a size that onnx and onnxruntime compute in two ways, as behind a pool with ceil_mode."""
    sizes = f"kernel_shape = [{window}, {window}], strides = [{window}, {window}]"
    model = model_of("PRelu", f"a = {operator} <{sizes}, pads = [1, 1, 1, 1], ceil_mode = 1> (x)", opset=19)
    feed = {"x": models.random(2, 8, 41, 43)}
    assert_equal(InferenceSession(model).run(None, feed), plain_session(model).run(None, feed), ROUNDING)


def test_a_keyword_that_nobody_knows():
    """It has no effect, as in onnxruntime, and a warning names it and the one that may be meant."""
    with pytest.warns(UserWarning, match=r"'exakt'.*exact"):
        InferenceSession(SEGNET, exakt=True)


def test_attributes_that_break_the_contract():
    """A node that unpool refuses is left to onnxruntime, which runs it or has its own words."""
    model = models.model("g (float[1, 1, 5, 4] x) => (float[1, 1, a, b] z) { z = MaxPool <kernel_shape = [2, 2]> (x) }")
    model.graph.node[0].attribute.append(helper.make_attribute("ceil_mode", 5))
    assert_equal(outputs(InferenceSession(model)), outputs(plain_session(model)))


def test_what_the_standard_refuses_runs_unless_the_session_is_exact() -> None:
    """Pads beside VALID, which onnxruntime ignores."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        pool (float[1, 1, 4] x) => (float[1, 1, n] y) {
            y = MaxPool <kernel_shape = [2], pads = [1, 1], auto_pad = "VALID"> (x)
        }""")
    feed = {"x": np.float32([[[1, 3, 4, 2]]])}
    assert unpool.InferenceSession(model).run(None, feed)[0].tolist() == [[[3, 4, 4]]]
    with pytest.raises(unpool.UnpoolError, match="pads and auto_pad exclude each other"):
        unpool.InferenceSession(model, exact=True)
