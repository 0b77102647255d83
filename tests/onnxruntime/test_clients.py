"""Programs and libraries that patch, subclass, unwrap or feed a session: each in the way that it does it."""

import gc
import weakref

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime import quantization

from tests.support import models
from tests.support.library_sessions import plain_session
from unpool.onnxruntime import InferenceSession

NETWORK = models.model(
    f"""g (float[n, 3, 8, 8] x) => (float[n, 4, 8, 8] z) {{
        c = Conv <pads = [1, 1, 1, 1]> (x, v)
        r = Relu (c)
        y, i = MaxPool <{models.POOL}> (r)
        u = MaxUnpool <{models.POOL}> (y, i)
        t = ConvTranspose <pads = [1, 1, 1, 1]> (u, w)
        z = Relu (t)
    }}""",
    v=models.random(4, 3, 3, 3),
    w=models.random(4, 4, 3, 3),
)
X = models.random(2, 3, 8, 8)
(EXPECTED,) = plain_session(NETWORK).run(None, {"x": X})


@pytest.fixture
def path(tmp_path):
    """The network in a file."""
    onnx.save(NETWORK, tmp_path / "model.onnx")
    return str(tmp_path / "model.onnx")


def assert_close(got):
    """The result is onnxruntime's but for rounding."""
    np.testing.assert_allclose(got, EXPECTED, rtol=0, atol=1e-5 * np.abs(EXPECTED).max())


@pytest.fixture
def patched(monkeypatch):
    """The module onnxruntime with the session of unpool in the place of its own."""
    monkeypatch.setattr(onnxruntime, "InferenceSession", InferenceSession)
    return onnxruntime


def test_a_script_that_patches_the_module(patched, path):
    """Sessions made by the patched name are unpool's, several of them, and unpool's own work inside still runs."""
    first, second = (patched.InferenceSession(path, providers=["CPUExecutionProvider"]) for _ in range(2))
    assert isinstance(first, InferenceSession)
    assert_close(first.run(None, {"x": X})[0])
    assert_close(second.run(["z"], {"x": X})[0])


def test_calibration_of_a_quantizer(patched, path, tmp_path):
    """quantize_static runs the model, with added outputs, on calibration data by the patched name."""
    feeds = iter([{"x": X}, {"x": 2 * X}])

    class Reader(quantization.CalibrationDataReader):
        def get_next(self):
            return next(feeds, None)

    output = tmp_path / "quantized.onnx"
    quantization.quantize_static(path, str(output), Reader(), op_types_to_quantize=["Conv"])
    z = InferenceSession(str(output)).run(None, {"x": X})[0]
    assert np.abs(z - EXPECTED).max() < 0.2 * np.abs(EXPECTED).max()


def test_a_wrapper_that_takes_what_is_inside(path):
    """`_sess` is onnxruntime's own object, which wrappers call directly, and `_model_path` the path of the caller."""
    session = InferenceSession(path)
    assert type(session._sess).__module__.startswith("onnxruntime.capi")
    assert_close(session._sess.run(["z"], {"x": X}, None)[0])
    assert session._model_path == path


def test_a_binding_that_keeps_values(path):
    """OrtValues of one run are the inputs of the next, without NumPy in between."""
    session = InferenceSession(path)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(X))
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    assert value.is_tensor()
    assert_close(value.numpy())


def test_a_subclass_with_arguments_of_its_own(path):
    """A subclass calls the constructor with some arguments, adds attributes, and overrides run."""

    class Timed(InferenceSession):
        def __init__(self, path, label, **words):
            super().__init__(path, **words)
            self.label, self.count = label, 0

        def run(self, *arguments):
            self.count += 1
            return super().run(*arguments)

    session = Timed(path, "mine", exact=True)
    assert_close(session.run(None, {"x": X})[0])
    assert (session.label, session.count) == ("mine", 1)
    session.set_providers(["CPUExecutionProvider"])
    assert_close(session.run(None, {"x": X})[0])


def test_a_tool_that_reads_the_optimized_model(path, tmp_path):
    """A file that a session writes has names of the standard only, and runs in onnxruntime alone."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    InferenceSession(path, options)
    assert "unpool" not in {node.domain for node in onnx.load(tmp_path / "optimized.onnx").graph.node}
    assert_close(onnxruntime.InferenceSession(tmp_path / "optimized.onnx").run(None, {"x": X})[0])


def test_options_with_a_library_of_the_caller(path):
    """Options that are registered already keep what they have, and serve another session, too."""
    import unpool.onnxruntime

    options = onnxruntime.SessionOptions()
    unpool.onnxruntime.register(options)
    for class_ in (InferenceSession, onnxruntime.InferenceSession, InferenceSession):
        assert_close(class_(path, options).run(None, {"x": X})[0])


def test_a_session_that_goes(path):
    """Nothing keeps a session that its program has dropped."""
    session = InferenceSession(path)
    session.run(None, {"x": X})
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
