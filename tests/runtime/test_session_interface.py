"""The session in place of onnxruntime's: every method is its own, whole models go to onnxruntime, and bound memory."""

import copy
import inspect
import pickle
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.testing import assert_array_equal

import unpool
from tests.onnxruntime_api.nets import grows, plain, pools
from tests.support import models
from unpool.lazy_names import ONNXRUNTIME_NAMES, UNPOOL_NAMES
from unpool.runtime import onnx_backend
from unpool.runtime.backends.ort_values import from_ort_value
from unpool.runtime.graph import peek
from unpool.runtime.session.passthrough import OrtModel

NAMES = [name for name in dir(onnxruntime.InferenceSession) if not name.startswith("_")]


def test_nothing_is_inherited():
    """Each public method of onnxruntime's session is defined by ours: the base was never set up."""
    ours, theirs = (
        {name: inspect.getattr_static(module.InferenceSession, name) for name in NAMES}
        for module in (unpool, onnxruntime)
    )

    assert [name for name in NAMES if ours[name] is theirs[name]] == []


def test_libraries_see_a_session_of_onnxruntime():
    """`isinstance` holds for models of either kind."""
    for net in (pools(), plain()):
        assert isinstance(unpool.InferenceSession(net.content), onnxruntime.InferenceSession)


@pytest.mark.parametrize("net", [pools, plain])
def test_private_attributes_are_those_of_onnxruntime(net):
    """Libraries read attributes in place of the methods: all are there, and those of one method have what it gives."""
    theirs = onnxruntime.InferenceSession(net().content, providers=["CPUExecutionProvider"])
    ours = unpool.InferenceSession(net().content, providers=["CPUExecutionProvider"])

    assert vars(theirs).keys() <= vars(ours).keys()
    assert [type(vars(ours)[name]) for name in ("_inputs_meta", "_provider_options", "_model_path")] == [
        type(vars(theirs)[name]) for name in ("_inputs_meta", "_provider_options", "_model_path")
    ]
    assert (ours._providers, ours._provider_options) == (ours.get_providers(), ours.get_provider_options())
    assert ours._sess_options is ours.get_session_options()
    assert [one.name for one in ours._inputs_meta] == [one.name for one in theirs._inputs_meta]
    assert ours._model_meta.graph_name == theirs._model_meta.graph_name
    assert ours._sess_options_initial is theirs._sess_options_initial is None


def test_private_attributes_follow_the_providers():
    """They are those of the model as it was loaded last, in a copy and after a journey too."""
    session = unpool.InferenceSession(pools().content)
    session.set_providers([("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})])

    for one in (session, copy.copy(session), pickle.loads(pickle.dumps(session))):
        assert one._provider_options == one.get_provider_options() != {}
        assert one._provider_options["CPUExecutionProvider"] == {"arena_extend_strategy": "kSameAsRequested"}


class Derived(unpool.InferenceSession):
    """As libraries derive from onnxruntime's."""


DOUBLE = "g (double[1, 1, 2, 2] x) => (double[1, 1, 2, 2] y) <double[1, 1, 1, 1] w = {2.0}> { y = Conv (x, w) }"
MISSING = {"providers": ["TensorrtExecutionProvider"]}
WARNED = {
    "a session": lambda: unpool.InferenceSession(pools().content, **MISSING),
    "a derived class": lambda: Derived(pools().content, **MISSING),
    "other providers": lambda: unpool.InferenceSession(pools().content).set_providers(**MISSING),
    "a plan": lambda: unpool.plan(pools().content, **MISSING),
    "a provider twice": lambda: unpool.InferenceSession(pools().content, providers=["CPUExecutionProvider"] * 2),
    "a refused node": lambda: unpool.InferenceSession(models.model(DOUBLE)),
    "a backend": lambda: onnx_backend.prepare(models.model(DOUBLE)),
}


@pytest.mark.parametrize("name", WARNED)
def test_warnings_point_to_the_line_of_the_caller(name):
    """However many calls of ours are between: a script's author sees which line is meant."""
    call = WARNED[name]
    with pytest.warns(UserWarning, match="provider|onnxruntime refuses") as caught:
        call()

    assert [(one.filename, one.lineno) for one in caught] == [(__file__, call.__code__.co_firstlineno)]


def test_handed_on_names_are_those_of_onnxruntime():
    """A handed-on name is there if the installed onnxruntime has it."""
    assert all(hasattr(unpool, name) == hasattr(onnxruntime, name) for name in ONNXRUNTIME_NAMES)
    assert all(hasattr(unpool, name) for name in UNPOOL_NAMES)


BODY = """g (bool k, float[1, 1, 4] x) => (float[1, 1, n] z) {
    z = If (k) <then_branch = a () => (float[1, 1, m] p) { p = MaxPool <kernel_shape = [2]> (x) },
        else_branch = b () => (float[1, 1, m] q) { q = Identity (x) }>
}"""


CALL = "g (float[2] x) => (float[2] z) { z = local.Twice (x) }"
TWICE = '<domain: "local", opset_import: ["" : 17]> Twice (a) => (b) { b = Add (a, a) }'


def test_only_models_without_our_operators_are_whole():
    """Operators count wherever they are, in a body too; a weight that spells one does not. Functions are inlined."""
    spelt = models.model("g (float[2] x) => (float[2] z) { z = Mul (x, w) }", w=np.float32([1, 2]))
    spelt.graph.initializer[0].raw_data = b"MaxPool!"
    found = {
        name: isinstance(unpool.InferenceSession(content)._model, OrtModel)
        for name, content in (
            ("plain", plain().content),
            ("spelt", spelt.SerializeToString()),
            ("pools", pools().content),
            ("body", models.model(BODY).SerializeToString()),
            ("functions", models.model(CALL, imports=', "local" : 1', functions=TWICE).SerializeToString()),
            ("old", models.model("g (float[2] x) => (float[2] z) { z = Neg (x) }", opset=6).SerializeToString()),
        )
    }

    assert found == {"plain": True, "spelt": True, "pools": False, "body": False, "functions": False, "old": False}


@pytest.mark.parametrize("content", [b"\x0b", b"\x3a\x7f", b"\x3a", b"\xff" * 12])
def test_what_is_no_model_is_not_skimmed(content):
    """A field of an unknown kind, or one that ends behind the bytes, is no model."""
    with pytest.raises(ValueError, match="protobuf"):
        peek.mentioned_ops(content + b"MaxPool", [b"MaxPool"])


def test_whole_models_take_what_other_models_take():
    """Arrays of other libraries come in, those in foreign byte order are refused, and the message is ours."""
    session = unpool.InferenceSession(plain().content)
    x = plain().x

    assert_array_equal(session.run(None, {"x": torch.from_numpy(x.copy())})[0], plain().z)
    with pytest.raises(unpool.UnpoolError, match="foreign byte order"):
        session.run(None, {"x": x.astype(">f4")})
    with pytest.raises(unpool.ShapeError, match="x has shape 1x1x4x3, expected 1x1x4x4"):
        session.run(None, {"x": x[..., :3].copy()})
    assert [one.runner for one in session.plan] == ["onnxruntime", "onnxruntime"]


@pytest.mark.parametrize("net", [pools, grows])
def test_the_step_that_makes_an_output_writes_it(net, monkeypatch):
    """Bound memory is not written by a copy at the end."""
    session, z = unpool.InferenceSession(net().content), np.empty_like(net().z)
    monkeypatch.setattr("unpool.runtime.session.executor._write", None)
    binding = session.io_binding()
    binding.bind_cpu_input("x", net().x)
    binding.bind_output("z", "cpu", 0, np.float32, z.shape, z.ctypes.data)
    session.run_with_iobinding(binding)

    assert_array_equal(z, net().z)


def test_an_output_may_be_bound_to_the_memory_of_an_input():
    """It is written when nobody reads there any more."""
    graph = """g (float[1, 1, 4] x) => (float[1, 1, 4] y, float[1, 1, 4] z) {
        y = MaxPool <kernel_shape = [3], pads = [1, 1]> (x)
        z = Add (x, y)
    }"""
    session = unpool.InferenceSession(models.model(graph), exact=True)
    x = np.float32([[[1, 5, 2, 3]]])
    expected = session.run(None, {"x": x})
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("z")
    session.run_with_iobinding(binding)

    assert_array_equal(binding.copy_outputs_to_cpu()[1], expected[1])
    assert_array_equal(x, expected[0])


def test_values_of_a_vector_are_written():
    """`run_with_ortvaluevector` writes to values that are there."""
    vector = onnxruntime.capi.onnxruntime_pybind11_state.OrtValueVector
    z = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(pools().z))
    x = onnxruntime.OrtValue.ortvalue_from_numpy(pools().x)
    feeds, fetches = vector(), vector()
    feeds.push_back(x._get_c_value())
    fetches.push_back(z._get_c_value())
    unpool.InferenceSession(pools().content).run_with_ortvaluevector(None, ["x"], feeds, ["z"], fetches, [])

    assert_array_equal(z.numpy(), pools().z)


def test_an_ort_value_is_read_without_a_copy():
    """Its array is the same memory, and holds the value."""
    x = np.arange(300, dtype=np.float32)
    array = from_ort_value(onnxruntime.OrtValue.ortvalue_from_numpy(x))

    assert np.shares_memory(array, x)
    address, x = x.ctypes.data, None
    held = [np.full(1200, 7, np.uint8) for _ in range(50)]
    assert (array.ctypes.data, array.tolist()) == (address, list(range(300)))
    assert held


@pytest.mark.parametrize("net", [pools, plain])
def test_a_session_is_pickled(net, tmp_path):
    """By path or bytes, with options and what a script keeps on it."""
    path = tmp_path / "m.onnx"
    path.write_bytes(net().content)
    options = onnxruntime.SessionOptions()
    options.logid = "mine"
    for source in (path, net().content):
        session = unpool.InferenceSession(source, options)
        session.labels = ["cat"]
        again = pickle.loads(pickle.dumps(session))
        assert (again.labels, again.get_session_options().logid) == (["cat"], "mine")
        assert_array_equal(again.run(None, net().feed)[0], net().z)


@pytest.mark.parametrize("net", [pools, plain])
def test_a_session_prints_as_its_model(net, tmp_path):
    """The repr names the file, the inputs, the outputs and the providers, and no address."""
    path = tmp_path / "net.onnx"
    path.write_bytes(net().content)
    session = unpool.InferenceSession(path)
    (value,) = session.get_inputs()
    assert repr(session).startswith(f"<InferenceSession 'net.onnx': {value.name} {value.type} ")
    assert repr(session).endswith(f"; {', '.join(session.get_providers())}>")
    assert " at 0x" not in repr(session)


def test_what_no_words_say_is_not_pickled():
    """Options with an initializer are refused, for another process would compute something else."""
    factor = onnxruntime.OrtValue.ortvalue_from_numpy(np.float32([6]))
    options = onnxruntime.SessionOptions()
    options.add_initializer("w", factor)

    with pytest.raises(TypeError, match="initializers"):
        pickle.dumps(unpool.InferenceSession(plain().content, options))


def test_a_session_stays_as_it_was_when_providers_are_refused():
    """`set_providers` with a name that nobody knows leaves the session alone."""
    session = unpool.InferenceSession(pools().content)
    with pytest.warns(UserWarning, match="Magic"), pytest.raises(unpool.UnpoolError, match="Magic"):
        session.set_providers(["MagicExecutionProvider"])

    assert_array_equal(session.run(None, pools().feed)[0], pools().z)


@pytest.mark.parametrize("net", [pools, plain])
def test_names_of_onnxruntime_may_be_replaced_by_ours(net, monkeypatch):
    """With every name of ours in onnxruntime, sessions load, bind and list providers as before."""
    made = net()
    for name in UNPOOL_NAMES:
        monkeypatch.setattr(onnxruntime, name, getattr(unpool, name))
    session = onnxruntime.InferenceSession(made.content, providers=onnxruntime.get_available_providers())
    binding = onnxruntime.IOBinding(session)
    binding.bind_cpu_input("x", made.feed["x"])
    binding.bind_output(session.get_outputs()[0].name)
    session.run_with_iobinding(binding)

    assert isinstance(session, unpool.InferenceSession)
    assert_array_equal(binding.copy_outputs_to_cpu()[0], session.run(None, made.feed)[0])


@pytest.mark.sample(3)
@pytest.mark.parametrize("first", ["", "import onnxruntime", "unpool.InferenceSession"])
def test_the_module_may_be_replaced_by_unpool(first):
    """`sys.modules["onnxruntime"] = unpool` keeps the engine under it, whatever was imported before."""
    code = f"""if True:
        import sys, unpool
        {first}
        sys.modules["onnxruntime"] = unpool
        import onnxruntime
        content = bytes.fromhex("{pools().content.hex()}")
        session = onnxruntime.InferenceSession(content, onnxruntime.SessionOptions())
        print(onnxruntime is unpool, session.get_providers(), onnxruntime.capi.__name__, unpool.__version__)
        print(unpool.runtime.requirements.onnxruntime.__version__)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split("\n")[:2] == [
        f"True ['UnpoolExecutionProvider', 'CPUExecutionProvider'] onnxruntime.capi {unpool.__version__}",
        onnxruntime.__version__,
    ]
