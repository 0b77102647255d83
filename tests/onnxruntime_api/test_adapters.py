"""LoRA adapters: their parameters take the place of inputs, whatever partitions the model runs in."""

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from tests.support import models

X = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
EYE, ONES = np.eye(4, dtype=np.float32), np.ones((1, 1, 2, 2), np.float32)

NETS = {
    "partitions around a pool": """g (float[1, 1, 4, 4] x, float[4, 4] w) => (float[1, 1, 4, 4] z) {
        r = Relu (x)
        p, i = MaxPool <kernel_shape = [1, 1]> (r)
        u = MaxUnpool <kernel_shape = [1, 1]> (p, i)
        z = MatMul (u, w)
    }""",
    "a weight of unpool": """g (float[1, 1, 4, 4] x, float[1, 1, 2, 2] k, float[4, 4] w) => (float[1, 1, 8, 8] z) {
        a = MatMul (x, w)
        z = ConvTranspose <strides = [2, 2]> (a, k)
    }""",
    "unpool alone": """g (float[1, 1, 4, 4] x, float[1, 1, 2, 2] k) => (float[1, 1, 8, 8] z) {
        z = ConvTranspose <strides = [2, 2]> (x, k)
    }""",
    "onnxruntime alone": "g (float[1, 1, 4, 4] x, float[4, 4] w) => (float[1, 1, 4, 4] z) { z = MatMul (x, w) }",
}


VALUES = {"k": ONES, "w": EYE}
"""What the last inputs are if nothing is fed."""


def content_of(name):
    """The bytes of a model whose last inputs have values of their own: the identity, and a window of ones."""
    ends = NETS[name].partition("=>")[0]
    return models.model(NETS[name], **{key: x for key, x in VALUES.items() if f"] {key}" in ends}).SerializeToString()


@pytest.fixture(params=NETS)
def session(ort, request):
    """A session of each model."""
    return ort.InferenceSession(content_of(request.param))


@pytest.fixture
def name(session):
    """The input that an adapter takes the place of."""
    return session.get_overridable_initializers()[0].name


@pytest.fixture
def adapted(ort, tmp_path):
    """RunOptions with an active adapter that has these parameters."""
    kept = []

    def adapted(**parameters):
        written, path = onnxruntime.AdapterFormat(), str(tmp_path / "a.onnx_adapter")
        written.set_adapter_version(1)
        written.set_model_version(1)
        written.set_parameters(
            {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in parameters.items()}
        )
        written.export_adapter(path)
        kept.append(ort.LoraAdapter())
        kept[-1].Load(path)
        options = ort.RunOptions()
        options.add_active_adapter(kept[-1])
        return options

    return adapted


@pytest.mark.parametrize("fed", [{}, {"x": 3 * X}, "itself"])
def test_parameters_take_the_place_of_inputs(session, name, adapted, fed):
    """Each parameter counts once, beside what is fed and in place of it; the next run is without."""
    value = 2 * VALUES[name]
    feed = {"x": X} | ({name: 5 * value} if fed == "itself" else fed)
    plain = session.run(None, {"x": feed["x"]})[0]
    assert np.array_equal(session.run(None, feed, adapted(**{name: value}))[0], 2 * plain)
    assert np.array_equal(session.run(None, {"x": feed["x"]})[0], plain)


def test_bound_runs_have_no_adapters(session, name, adapted):
    """Adapters are applied in `run` alone."""
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z")
    session.run_with_iobinding(binding, adapted(**{name: 2 * VALUES[name]}))
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], session.run(None, {"x": X})[0])


@pytest.mark.parametrize("parameters", [{"q": EYE}, {"w": np.eye(4)}, {"w": np.eye(5, dtype=np.float32)}, {"r": X}])
def test_parameters_that_do_not_fit_are_refused(ort, adapted, parameters):
    """A name that is no input, of a value in between too, and another type or shape are invalid arguments."""
    session = ort.InferenceSession(content_of("partitions around a pool"))
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": X}, adapted(**parameters))


def test_a_run_with_adapters_is_stopped(session, name, adapted):
    """`terminate` ends it as any other."""
    options = adapted(**{name: VALUES[name]})
    options.terminate = True
    with pytest.raises(Fail, match="terminate"):
        session.run(None, {"x": X}, options)
