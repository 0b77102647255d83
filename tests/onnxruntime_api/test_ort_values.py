"""OrtValue: made, asked and updated, and run through a session without arrays."""

import numpy as np
import onnxruntime
import pytest
from numpy.testing import assert_array_equal
from onnx import TensorProto
from onnxruntime.capi.onnxruntime_pybind11_state import OrtValueVector

TYPES = {
    "bool": "tensor(bool)",
    "int8": "tensor(int8)",
    "uint8": "tensor(uint8)",
    "int16": "tensor(int16)",
    "uint16": "tensor(uint16)",
    "int32": "tensor(int32)",
    "uint32": "tensor(uint32)",
    "int64": "tensor(int64)",
    "uint64": "tensor(uint64)",
    "float16": "tensor(float16)",
    "float32": "tensor(float)",
    "float64": "tensor(double)",
}


@pytest.fixture
def value(ort, net):
    """An OrtValue of the input."""
    return ort.OrtValue.ortvalue_from_numpy(net.x.copy())


def test_a_value_says_what_it_holds(value, net):
    """Shape, type and device are those of the array."""
    assert value.shape() == list(net.x.shape)
    assert (value.data_type(), value.element_type()) == ("tensor(float)", TensorProto.FLOAT)
    assert (value.device_name(), value.has_value()) == ("cpu", True)
    assert (value.is_tensor(), value.is_sparse_tensor(), value.is_tensor_sequence()) == (True, False, False)


@pytest.mark.needs("OrtValue.tensor_size_in_bytes")
def test_a_value_says_its_size(value, net):
    """The size is in bytes."""
    assert value.tensor_size_in_bytes() == net.x.nbytes


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_of_numpy_becomes_a_value(ort, dtype):
    """The value names the type in ONNX's words and gives the array back."""
    x = np.arange(6).reshape(2, 3).astype(dtype)
    value = ort.OrtValue.ortvalue_from_numpy(x)

    assert value.data_type() == TYPES[dtype]
    assert_array_equal(value.numpy(), x, strict=True)


def test_a_value_shares_the_memory_of_its_array(ort, net):
    """On the CPU nothing is copied: the array and the value see each other's changes."""
    x = net.x.copy()
    value = ort.OrtValue.ortvalue_from_numpy(x)
    x[0, 0, 0, 0] = 99

    assert np.shares_memory(value.numpy(), x)
    assert value.numpy()[0, 0, 0, 0] == 99


def test_an_array_in_columns_becomes_a_value(ort):
    """An array in any layout becomes a value in row-major order."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3).T

    assert_array_equal(ort.OrtValue.ortvalue_from_numpy(x).numpy(), x)


def test_a_value_is_made_of_shape_and_type(ort):
    """Without an array there is memory of that shape and type, of NumPy or of ONNX."""
    first = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    second = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], TensorProto.BFLOAT16, "cpu", 0)

    assert (first.shape(), first.data_type()) == ([2, 3], "tensor(float)")
    assert (second.shape(), second.data_type()) == ([2, 3], "tensor(bfloat16)")


def test_an_array_is_read_as_another_type(ort):
    """The bits of an array are those of a type that NumPy lacks."""
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.uint16([16256, 16384]), TensorProto.BFLOAT16)

    assert (value.element_type(), value.shape(), value.is_tensor()) == (TensorProto.BFLOAT16, [2], True)


def test_a_value_is_updated_in_place(value, net):
    """The memory stays where it is and has the new elements."""
    address = value.data_ptr()
    value.update_inplace(net.x * 3)

    assert value.data_ptr() == address
    assert_array_equal(value.numpy(), net.x * 3)


def test_an_update_of_another_size_is_refused(value, net):
    """As many elements as the value has are expected."""
    with pytest.raises(RuntimeError):
        value.update_inplace(net.x[..., :2].copy())


@pytest.mark.needs("OrtValue.__array__")
def test_a_value_is_an_array_for_numpy(value, net):
    """`np.asarray` reads the value without a copy, or as another type."""
    assert np.asarray(value).ctypes.data == value.data_ptr()
    assert_array_equal(np.asarray(value, dtype=np.float64), net.x.astype(np.float64), strict=True)


@pytest.mark.needs("OrtValue.from_dlpack")
def test_values_travel_by_dlpack(ort, value, net):
    """NumPy and OrtValue take a value, and OrtValue takes an array, without a copy."""
    x = net.x.copy()

    assert value.__dlpack_device__() == (1, 0)
    assert ort.OrtValue.from_dlpack(value).data_ptr() == value.data_ptr() == np.from_dlpack(value).ctypes.data
    assert ort.OrtValue.from_dlpack(x).data_ptr() == x.ctypes.data


@pytest.mark.needs("OrtValue.from_dlpack")
@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_booleans_travel_by_dlpack(ort, dtype):
    """Booleans stay booleans, and bytes stay bytes."""
    x = np.array([1, 0, 1]).astype(dtype)
    again = ort.OrtValue.from_dlpack(ort.OrtValue.ortvalue_from_numpy(x))

    assert_array_equal(again.numpy(), x, strict=True)


def test_strings_become_no_value(ort):
    """An array of strings is a RuntimeError."""
    with pytest.raises(RuntimeError, match="string"):
        ort.OrtValue.ortvalue_from_numpy(np.array(["a"]))


def test_a_value_on_a_missing_device_is_refused(ort, net):
    """A device that this build has no provider for is a RuntimeError."""
    with pytest.raises(RuntimeError):
        ort.OrtValue.ortvalue_from_numpy(net.x, "cuda", 0)


@pytest.mark.parametrize("names", [None, [], ["z"]])
def test_values_in_and_values_out(ort, session, value, net, names):
    """`run_with_ort_values` gives OrtValues, for None and an empty list all of them."""
    (made,) = session.run_with_ort_values(names, {"x": value})

    assert isinstance(made, ort.OrtValue)
    assert (made.device_name(), made.data_type(), made.shape()) == ("cpu", "tensor(float)", list(net.z.shape))
    assert_array_equal(made.numpy(), net.z, strict=True)


def test_the_parameters_of_run_with_ort_values_go_by_name(ort, session, value, net):
    """The parameters have onnxruntime's names."""
    (made,) = session.run_with_ort_values(
        output_names=["z"], input_dict_ort_values={"x": value}, run_options=ort.RunOptions()
    )

    assert_array_equal(made.numpy(), net.z)


def test_a_value_is_the_same_after_a_run(session, value, net):
    """A run leaves the fed value alone, and it may be fed again."""
    for _ in range(2):
        session.run_with_ort_values(None, {"x": value})

    assert_array_equal(value.numpy(), net.x, strict=True)


def test_a_run_on_vectors(session, ort, net):
    """`run_with_ortvaluevector` fills a vector of values."""
    feeds, fetches = OrtValueVector(), OrtValueVector()
    x = onnxruntime.OrtValue.ortvalue_from_numpy(net.x)
    feeds.push_back(x._get_c_value())
    device = ort.OrtDevice.make("cpu", 0)._get_c_device()
    session.run_with_ortvaluevector(ort.RunOptions(), ["x"], feeds, ["z"], fetches, [device])

    assert_array_equal(fetches[0].numpy(), net.z, strict=True)


@pytest.mark.needs("InferenceSession.create_ortvalue_from_shape_and_type")
@pytest.mark.parametrize("shape", [[], [2, 3]])
def test_a_session_makes_values(ort, session, shape):
    """A value from the session's allocator has the shape and type asked for."""
    value = session.create_ortvalue_from_shape_and_type(shape, np.float32, "cpu")

    assert isinstance(value, ort.OrtValue)
    assert (value.shape(), value.data_type(), value.device_name()) == (shape, "tensor(float)", "cpu")


@pytest.mark.needs("InferenceSession.create_ortvalue_from_shape_and_type")
def test_a_value_of_a_session_stays_with_it(ort, session, net):
    """A value that one session made is refused by another, however it is fed."""
    other = ort.InferenceSession(net.content)
    value = session.create_ortvalue_from_shape_and_type(net.x.shape, np.float32, "cpu")

    with pytest.raises(ValueError, match="session that created it"):
        other.run(None, {"x": value})
    with pytest.raises(ValueError, match="session that created it"):
        other.run_with_ort_values(None, {"x": value})
    with pytest.raises(ValueError, match="session that created it"):
        other.io_binding().bind_ortvalue_input("x", value)


def test_sparse_tensors_are_values(ort):
    """A sparse tensor is held by an OrtValue and comes out of it."""
    device = ort.OrtDevice.make("cpu", 0)
    values, places = np.float32([1, 2, 3]), np.int64([3, 5, 15])
    sparse = ort.SparseTensor.sparse_coo_from_numpy([9, 9], values, places, device)
    again = ort.OrtValue.ort_value_from_sparse_tensor(sparse).as_sparse_tensor()

    assert (again.format(), again.dense_shape()) == (ort.OrtSparseFormat.ORT_SPARSE_COO, [9, 9])
    assert_array_equal(again.values(), values)
    assert_array_equal(again.as_coo_view().indices(), places)


def test_devices_are_made_by_name(ort):
    """A device of the CPU has number 0."""
    device = ort.OrtDevice.make("cpu", 0)

    assert (device.device_id(), device.device_type()) == (0, 0)


@pytest.mark.needs("OrtMemoryInfo.name")
def test_memory_is_described(ort):
    """An OrtMemoryInfo says what it was made of."""
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)

    assert (info.name, info.device_id) == ("Cpu", 0)
    assert (info.mem_type, info.allocator_type) == (ort.OrtMemType.DEFAULT, ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR)
