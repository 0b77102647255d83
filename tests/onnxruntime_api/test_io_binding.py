"""IOBinding: inputs and outputs are bound to memory once, and runs read and write there."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import TensorProto

from tests.support import models

PAIRS = [("float", np.float32), ("double", np.float64), ("float16", np.float16), ("bool", np.bool_)] + [
    (np.dtype(kind).name, kind)
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
]


@pytest.fixture
def binding(session):
    """A binding of `session` with nothing bound."""
    return session.io_binding()


def identity(ort, word):
    """A session that gives (N, 2) elements of a type as they are."""
    graph = f"g ({word}[N, 2] x) => ({word}[N, 2] z) {{ z = Identity (x) }}"
    return ort.InferenceSession(models.model(graph).SerializeToString())


def test_io_binding_gives_an_io_binding(ort, session, binding):
    """The method gives what the class `IOBinding` makes of a session."""
    assert isinstance(binding, ort.IOBinding)
    assert isinstance(ort.IOBinding(session), ort.IOBinding)


def test_an_array_in_and_an_array_out(session, binding, net):
    """An array is bound, the output left to the run; the result is copied to an array."""
    binding.bind_cpu_input("x", net.x)
    binding.bind_output("z")
    binding.synchronize_inputs()
    assert session.run_with_iobinding(binding) is None
    binding.synchronize_outputs()

    (z,) = binding.copy_outputs_to_cpu()
    assert_array_equal(z, net.z, strict=True)


def test_run_options_go_with_a_binding(ort, session, binding, net):
    """Options of a run are taken, by place and by name."""
    binding.bind_cpu_input("x", net.x)
    binding.bind_output("z")
    session.run_with_iobinding(binding, ort.RunOptions())
    session.run_with_iobinding(iobinding=binding, run_options=ort.RunOptions())

    assert_array_equal(binding.copy_outputs_to_cpu()[0], net.z)


def test_outputs_are_ort_values(ort, session, binding, net):
    """`get_outputs` gives OrtValues, as often as it is asked."""
    binding.bind_cpu_input("x", net.x)
    binding.bind_output("z")
    session.run_with_iobinding(binding)

    for _ in range(2):
        (value,) = binding.get_outputs()
        assert isinstance(value, ort.OrtValue)
        assert (value.device_name(), value.shape(), value.data_type()) == ("cpu", list(net.z.shape), "tensor(float)")
        assert_array_equal(value.numpy(), net.z, strict=True)


def test_outputs_as_a_vector(session, binding, net):
    """`get_outputs_as_ortvaluevector` gives as many values as are bound."""
    binding.bind_cpu_input("x", net.x)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    vector = binding.get_outputs_as_ortvaluevector()

    assert len(vector) == 1
    assert_array_equal(vector[0].numpy(), net.z, strict=True)


def test_results_go_to_memory_of_the_caller(session, binding, net):
    """An output bound to the address of an array is written there, and is not copied."""
    z = np.full_like(net.z, -1)
    binding.bind_cpu_input("x", net.x)
    binding.bind_output("z", "cpu", 0, np.float32, z.shape, z.ctypes.data)
    session.run_with_iobinding(binding)

    assert_array_equal(z, net.z)
    assert binding.get_outputs()[0].data_ptr() == z.ctypes.data


def test_the_parameters_of_bind_output_go_by_name(session, binding, net):
    """The parameters of `bind_output` have onnxruntime's names."""
    z = np.full_like(net.z, -1)
    binding.bind_cpu_input("x", net.x)
    binding.bind_output(
        name="z", device_type="cpu", device_id=0, element_type=np.float32, shape=z.shape, buffer_ptr=z.ctypes.data
    )
    session.run_with_iobinding(binding)

    assert_array_equal(z, net.z)


@pytest.mark.parametrize("element", [np.float32, TensorProto.FLOAT], ids=["numpy", "onnx"])
def test_an_input_is_bound_by_its_address(session, binding, net, element):
    """An address with a shape and a type, of NumPy or of ONNX, is an input."""
    x = net.x.copy()
    binding.bind_input(
        name="x", device_type="cpu", device_id=0, element_type=element, shape=x.shape, buffer_ptr=x.ctypes.data
    )
    binding.bind_output("z")
    session.run_with_iobinding(binding)

    assert_array_equal(binding.copy_outputs_to_cpu()[0], net.z)


def test_bound_memory_is_read_anew_by_every_run(session, binding, net):
    """What the caller writes into a bound array is what the next run sees."""
    x = net.x.copy()
    binding.bind_cpu_input("x", x)
    binding.bind_output("z")
    for factor in (1, 2, 3):
        x[:] = net.x * factor
        session.run_with_iobinding(binding)
        assert_array_equal(binding.copy_outputs_to_cpu()[0], net.z * factor)


def test_ort_values_are_bound(ort, session, binding, net):
    """Both ends are OrtValues; the output's own memory has the result."""
    z = ort.OrtValue.ortvalue_from_shape_and_type(net.z.shape, np.float32)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(net.x))
    binding.bind_ortvalue_output("z", z)
    session.run_with_iobinding(binding)

    assert_array_equal(z.numpy(), net.z)
    assert binding.get_outputs()[0].data_ptr() == z.data_ptr()


def test_another_value_is_bound_to_the_same_name(ort, session, binding, net):
    """The last value bound to a name counts, and the bound output is written again."""
    z = ort.OrtValue.ortvalue_from_shape_and_type(net.z.shape, np.float32)
    binding.bind_ortvalue_output("z", z)
    for factor in (1, 2):
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(net.x * factor))
        session.run_with_iobinding(binding)
        assert_array_equal(z.numpy(), net.z * factor)


def test_a_bound_ort_value_is_updated_in_place(ort, session, binding, net):
    """`update_inplace` of a bound value is what the next run sees."""
    x = ort.OrtValue.ortvalue_from_numpy(net.x.copy())
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    x.update_inplace(net.x * 2)
    session.run_with_iobinding(binding)

    assert_array_equal(binding.copy_outputs_to_cpu()[0], net.z * 2)


def test_the_output_of_one_session_is_the_input_of_the_next(ort, session, binding, net):
    """A value that one session wrote is bound to another without a copy."""
    middle = ort.OrtValue.ortvalue_from_shape_and_type(net.z.shape, np.float32)
    binding.bind_cpu_input("x", net.x)
    binding.bind_ortvalue_output("z", middle)
    shape = ", ".join(map(str, net.z.shape))
    graph = f"g (float[{shape}] x) => (float[{shape}] z) {{ z = Neg (x) }}"
    second = ort.InferenceSession(models.model(graph).SerializeToString())
    next_binding = second.io_binding()
    next_binding.bind_ortvalue_input("x", middle)
    next_binding.bind_output("z")
    session.run_with_iobinding(binding)
    second.run_with_iobinding(next_binding)

    assert_array_equal(next_binding.copy_outputs_to_cpu()[0], -net.z)


def test_an_output_of_a_free_size_is_bound_anew(ort, free_net):
    """Where sizes change, binding the output again lets it have the new size."""
    session = ort.InferenceSession(free_net.content)
    binding = session.io_binding()
    for count in (1, 3, 2):
        binding.bind_cpu_input("x", free_net.x[:count].copy())
        binding.bind_output("z")
        session.run_with_iobinding(binding)
        assert_array_equal(binding.copy_outputs_to_cpu()[0], free_net.z[:count], strict=True)


@pytest.mark.parametrize(("word", "kind"), PAIRS, ids=[word for word, _ in PAIRS])
def test_every_type_of_numpy_is_bound(ort, word, kind):
    """Arrays of each type pass through a binding by address with their bits."""
    session = identity(ort, word)
    x = np.arange(8).reshape(4, 2).astype(kind)
    z = np.empty_like(x)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, kind, x.shape, x.ctypes.data)
    binding.bind_output("z", "cpu", 0, kind, z.shape, z.ctypes.data)
    session.run_with_iobinding(binding)

    assert_array_equal(z, x)


@pytest.mark.parametrize("word", ["bfloat16", "float8e4m3fn", "float8e5m2"])
def test_types_that_numpy_lacks_are_bound(ort, word):
    """ONNX's numbers of types bind elements that NumPy has no type for."""
    element = getattr(TensorProto, word.upper())
    kind = np.uint16 if word == "bfloat16" else np.uint8
    graph = f"g ({word}[4] x) => ({word}[4] z) {{ z = Identity (x) }}"
    session = ort.InferenceSession(models.model(graph, opset=19, ir=9).SerializeToString())
    x, z = np.arange(40, 44).astype(kind), np.zeros(4, kind)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, element, [4], x.ctypes.data)
    binding.bind_output("z", "cpu", 0, element, [4], z.ctypes.data)
    session.run_with_iobinding(binding)

    assert_array_equal(z, x)


def test_an_array_in_any_layout_is_bound(session, binding, net):
    """An array in column order means what it shows."""
    binding.bind_cpu_input("x", np.asfortranarray(net.x))
    binding.bind_output("z")
    session.run_with_iobinding(binding)

    assert_array_equal(binding.copy_outputs_to_cpu()[0], net.z)


@pytest.mark.parametrize("name", ["bind_cpu_input", "bind_ortvalue_input"])
def test_an_unknown_input_is_refused_when_it_is_bound(ort, binding, net, name):
    """A name that is no input is a RuntimeError that says it."""
    value = net.x if name == "bind_cpu_input" else ort.OrtValue.ortvalue_from_numpy(net.x)

    with pytest.raises(RuntimeError, match="nowhere"):
        getattr(binding, name)("nowhere", value)


def test_an_unknown_output_is_refused(session, binding, net):
    """A name that is no output is a RuntimeError that says it, at the latest when the binding runs."""
    binding.bind_cpu_input("x", net.x)

    with pytest.raises(RuntimeError, match="nowhere"):
        bind_and_run(session, binding, "nowhere")


def bind_and_run(session, binding, output):
    """Bind an output and run."""
    binding.bind_output(output)
    session.run_with_iobinding(binding)


@pytest.mark.parametrize("wrong", ["type", "size", "rank"])
def test_a_wrong_input_is_refused(session, binding, net, wrong):
    """Another type, size or rank is a RuntimeError, at the latest when the binding runs."""
    x = {"type": net.x.astype(np.float64), "size": net.x[..., :3].copy(), "rank": net.x[0]}[wrong]

    with pytest.raises(RuntimeError):
        bind_all_and_run(session, binding, x)


def bind_all_and_run(session, binding, x):
    """Bind an array and an output, and run."""
    binding.bind_cpu_input("x", x)
    bind_and_run(session, binding, "z")


@pytest.mark.parametrize("wrong", ["type", "size"])
def test_an_output_that_does_not_fit_is_refused(ort, session, binding, net, wrong):
    """Memory of another type or size is a RuntimeError, and is not written to."""
    shape = net.z.shape if wrong == "type" else (1, 1, 2, 2)
    kind = np.float64 if wrong == "type" else np.float32
    z = ort.OrtValue.ortvalue_from_numpy(np.full(shape, -1, kind))
    binding.bind_cpu_input("x", net.x)
    binding.bind_ortvalue_output("z", z)

    with pytest.raises(RuntimeError):
        session.run_with_iobinding(binding)
    assert (z.numpy() == -1).all()


def test_memory_without_its_type_is_refused(binding):
    """An address alone is a ValueError that says what else is needed."""
    with pytest.raises(ValueError, match=r"element_type.*shape"):
        binding.bind_output("z", buffer_ptr=64)


def test_an_unknown_device_is_refused(binding):
    """A device that nobody knows is named."""
    with pytest.raises(Exception, match="abacus"):
        binding.bind_output("z", "abacus")


def test_a_device_without_a_provider_is_refused(binding, net):
    """Memory of a device that this build has no provider for is a RuntimeError."""
    with pytest.raises(RuntimeError):
        binding.bind_input("x", "cuda", 0, np.float32, net.x.shape, net.x.ctypes.data)


def test_an_unbound_input_is_missed(session, binding):
    """A run without its input is a RuntimeError."""
    binding.bind_output("z")

    with pytest.raises(RuntimeError):
        session.run_with_iobinding(binding)


def test_an_unbound_output_is_missed(session, binding, net):
    """A run without any output is a RuntimeError that says so."""
    binding.bind_cpu_input("x", net.x)

    with pytest.raises(RuntimeError, match="output"):
        session.run_with_iobinding(binding)


@pytest.mark.parametrize("method", ["clear_binding_inputs", "clear_binding_outputs"])
def test_bindings_may_be_cleared(session, binding, net, method):
    """What is cleared is no longer bound, and may be bound again."""
    binding.bind_cpu_input("x", net.x)
    binding.bind_output("z")
    getattr(binding, method)()
    with pytest.raises(RuntimeError):
        session.run_with_iobinding(binding)
    bind_all_and_run(session, binding, net.x)

    assert_array_equal(binding.copy_outputs_to_cpu()[0], net.z)


def test_nothing_bound_gives_no_outputs(binding):
    """Without bound outputs the lists are empty."""
    assert (list(binding.get_outputs()), list(binding.copy_outputs_to_cpu())) == ([], [])


@pytest.mark.needs("InferenceSession.create_ortvalue_from_shape_and_type")
def test_a_binding_belongs_to_its_session(ort, net, session):
    """A binding of another session is a ValueError."""
    with pytest.raises(ValueError, match="session"):
        session.run_with_iobinding(ort.InferenceSession(net.content).io_binding())


def test_a_session_has_several_bindings(session, net):
    """Two bindings of a session keep their inputs and outputs apart."""
    first, second = session.io_binding(), session.io_binding()
    for factor, binding in enumerate((first, second), 1):
        binding.bind_cpu_input("x", net.x * factor)
        binding.bind_output("z")
    for binding in (second, first):
        session.run_with_iobinding(binding)

    assert_array_equal(first.copy_outputs_to_cpu()[0], net.z)
    assert_array_equal(second.copy_outputs_to_cpu()[0], net.z * 2)


def test_a_bound_run_that_is_told_to_stop_fails(ort, session, binding, net):
    """A run with `terminate` set is a RuntimeError that says so."""
    binding.bind_cpu_input("x", net.x)
    binding.bind_output("z")
    options = ort.RunOptions()
    options.terminate = True

    with pytest.raises(RuntimeError, match="terminate"):
        session.run_with_iobinding(binding, options)


def test_a_binding_keeps_its_array(session, binding, net):
    """The caller may let go of a bound array before the run."""
    binding.bind_cpu_input("x", net.x * 2)
    held = [np.full(net.x.nbytes, 7, np.uint8) for _ in range(50)]
    binding.bind_output("z")
    session.run_with_iobinding(binding)

    assert_array_equal(binding.copy_outputs_to_cpu()[0], net.z * 2)
    assert held


def test_only_some_outputs_are_bound(ort):
    """A run makes the bound outputs, in the order in which they were bound."""
    graph = "g (float[2] x) => (float[2] a, float[2] b, float[2] c) { a = Neg (x) b = Abs (x) c = Add (x, x) }"
    session = ort.InferenceSession(models.model(graph).SerializeToString())
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.float32([1, -2]))
    binding.bind_output("c")
    binding.bind_output("a")
    session.run_with_iobinding(binding)

    assert [one.tolist() for one in binding.copy_outputs_to_cpu()] == [[2, -4], [-1, 2]]
