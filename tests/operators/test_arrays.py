"""Arrays of other libraries: in without a copy, out as what came in; what is no array is refused."""

import ml_dtypes
import numpy as np
import pytest
import torch

import unpool
from tests.support.runners import bits

TYPES = {
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.int8: np.dtype(np.int8),
    torch.uint8: np.dtype(np.uint8),
}
FLOATS = [kind for kind in TYPES if kind.is_floating_point]
POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
LINE = {"kernel_shape": [2], "strides": [2]}


class Exported:
    """An array whose library offers nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **kwargs: object) -> object:
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class OnDevice(Exported):
    """Memory that the CPU cannot read."""

    def __init__(self, array: np.ndarray, kind: int) -> None:
        super().__init__(array)
        self.kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)


class Foreign(Exported):
    """An array of a library of its own, whose bfloat16 DLPack does not carry to NumPy; `__array__` does."""

    def __init__(self, array: np.ndarray, library: object) -> None:
        super().__init__(array)
        self.library = library

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.array

    def __array_namespace__(self) -> object:
        return self.library


class Library:
    """Takes what DLPack carries, and arrays of any type."""

    def __init__(self, known: bool) -> None:
        self.known = known

    def from_dlpack(self, y: np.ndarray) -> Foreign:
        y.__dlpack__()
        return Foreign(y, self)

    def asarray(self, y: np.ndarray) -> Foreign:
        if not self.known:
            raise TypeError("no such type")
        return Foreign(y, self)


class Capsule(Exported):
    """bfloat16 as torch exports it, and no other way to read it."""

    def __dlpack__(self, **kwargs: object) -> object:
        return torch.from_numpy(self.array.view(np.int16)).view(torch.bfloat16).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def ramp(kind: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.arange(int(np.prod(shape))).reshape(shape).to(kind)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_torch_pool(kind: torch.dtype) -> None:
    """Tensors give tensors of their type, with the values of the NumPy call; Indices are int64."""
    x = ramp(kind, 1, 2, 5, 5)
    y, indices = unpool.max_pool(x, **POOL, return_indices=True)
    expected, expected_indices = unpool.max_pool(as_numpy(x), **POOL, return_indices=True)
    assert isinstance(y, torch.Tensor)
    assert y.dtype == kind
    assert indices.dtype == torch.int64
    assert bits(as_numpy(y)) == bits(expected)
    assert np.array_equal(indices.numpy(), expected_indices)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_torch_unpool_and_conv_transpose(kind: torch.dtype) -> None:
    """MaxUnpool and ConvTranspose give tensors, and torch's own results once the indices are converted."""
    x = ramp(kind, 1, 2, 4, 4)
    y, indices = unpool.max_pool(x, **POOL, return_indices=True)
    back = unpool.max_unpool(y, indices, **POOL)
    y_torch, i_torch = torch.nn.functional.max_pool2d(x.float(), 2, return_indices=True)
    assert back.dtype == kind
    assert torch.equal(back.float(), torch.nn.functional.max_unpool2d(y_torch, i_torch, 2))
    assert torch.equal(unpool.to_onnx_indices(i_torch, (4, 4)), indices)
    assert torch.equal(unpool.to_torch_indices(indices, (4, 4)), i_torch)
    w = ramp(kind, 2, 3, 2, 2)
    grown = unpool.conv_transpose(y, w, torch.ones(3, dtype=kind), strides=[2, 2])
    expected = torch.nn.functional.conv_transpose2d(y.double(), w.double(), torch.ones(3).double(), 2).to(kind)
    assert grown.dtype == kind
    assert torch.equal(grown, expected)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_gradients_are_not_dropped_silently(kind: torch.dtype) -> None:
    """A tensor of a gradient graph is refused with the way out."""
    x = ramp(kind, 1, 1, 2, 2).requires_grad_()
    w = ramp(kind, 1, 1, 1, 1)
    pattern = r"^(MaxPool|MaxUnpool|ConvTranspose): .*requires_grad.*detach\(\)"
    with pytest.raises(unpool.UnpoolError, match=pattern):
        unpool.max_pool(x, kernel_shape=[1, 1])
    with pytest.raises(unpool.UnpoolError, match=pattern):
        unpool.max_unpool(x, torch.zeros((1, 1, 2, 2), dtype=torch.int64), kernel_shape=[1, 1])
    with pytest.raises(unpool.UnpoolError, match=pattern):
        unpool.conv_transpose(w, w.clone().requires_grad_())


def test_torch_strides() -> None:
    """channels_last and transposed tensors are read through their strides."""
    x = torch.rand((2, 3, 5, 7), generator=torch.Generator().manual_seed(1))
    last = x.to(memory_format=torch.channels_last)
    expected = unpool.max_pool(x, **POOL)
    assert torch.equal(unpool.max_pool(last, **POOL), expected)
    assert torch.equal(unpool.max_pool(x.transpose(2, 3), **POOL).transpose(2, 3), expected)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_memory_is_shared(kind: torch.dtype) -> None:
    """`out` is written in the tensor's own memory, and a result shares memory with nothing it came from."""
    x = ramp(kind, 1, 1, 4)
    out = torch.zeros((1, 1, 3), dtype=kind)
    assert unpool.max_pool(x, kernel_shape=[2], out=out) is out
    assert out.tolist() == [[[1, 2, 3]]]
    y = unpool.max_pool(x, kernel_shape=[1])
    y += 1
    assert x.tolist() == [[[0, 1, 2, 3]]]


def test_arrays_come_in_without_a_copy() -> None:
    """NumPy, torch and DLPack inputs are viewed where they lie."""
    from unpool.arrays import to_numpy

    array = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    for foreign in (array, torch.from_numpy(array), Exported(array)):
        view = to_numpy(foreign, "X")
        assert np.shares_memory(view, array)
    tensor = torch.zeros((1, 1, 3), dtype=torch.bfloat16)
    view = to_numpy(tensor, "X")
    assert view.dtype == ml_dtypes.bfloat16
    assert view.ctypes.data == tensor.data_ptr()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_tensors_of_types_that_numpy_lacks_are_viewed(name: str) -> None:
    """A tensor of torch's small floats is ml_dtypes' array of the same name in the same memory, and back."""
    from unpool.arrays import like, to_numpy

    tensor = torch.tensor([-1.5, 0.25, 3.0]).to(getattr(torch, name))
    array = to_numpy(tensor, "X")
    assert array.dtype == np.dtype(getattr(ml_dtypes, name))
    assert array.astype(np.float32).tolist() == tensor.float().tolist()
    back = like(array, tensor)
    assert back.dtype == tensor.dtype
    assert back.data_ptr() == array.ctypes.data == tensor.data_ptr()


def test_dlpack_only() -> None:
    """An object with nothing but __dlpack__ is read; the result, which it cannot hold, is a NumPy array."""
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    y, indices = unpool.max_pool(Exported(x), kernel_shape=[2], strides=[2], return_indices=True)
    assert isinstance(y, np.ndarray)
    assert y.tolist() == [[[1, 3, 5, 7]]]
    back = unpool.max_unpool(Exported(y), Exported(indices), kernel_shape=[2], strides=[2])
    assert np.array_equal(back, np.where(x % 2 == 1, x, 0))
    assert np.array_equal(unpool.conv_transpose(Exported(x), Exported(np.ones((1, 1, 1), np.float32))), x)


def test_bfloat16_of_other_libraries() -> None:
    """A library that takes bfloat16 gets its own arrays back, one that does not gets NumPy's."""
    x = np.arange(8).astype(ml_dtypes.bfloat16).reshape(1, 1, 8)
    y, indices = unpool.max_pool(Foreign(x, Library(known=True)), **LINE, return_indices=True)
    assert isinstance(y, Foreign)
    assert isinstance(indices, Foreign)
    assert y.array.tolist() == [[[1, 3, 5, 7]]]
    y = unpool.max_pool(Foreign(x, Library(known=False)), **LINE)
    assert isinstance(y, np.ndarray)
    assert y.tolist() == [[[1, 3, 5, 7]]]


def test_bfloat16_that_numpy_cannot_read_is_refused() -> None:
    """It is said before anything is computed."""
    x = Capsule(np.zeros((1, 1, 8), ml_dtypes.bfloat16))
    with pytest.raises(unpool.UnpoolError, match=r"^MaxPool: X: NumPy cannot view this array: "):
        unpool.max_pool(x, **LINE)


@pytest.mark.parametrize("kind", [ValueError, OSError, RuntimeError, KeyError])
def test_a_producer_that_fails_is_refused(kind: type[Exception]) -> None:
    """Whatever an array's own methods raise, the caller gets an error of ours with its cause."""

    class Broken(Exported):
        def __dlpack_device__(self) -> tuple[int, int]:
            raise kind("broken")

    with pytest.raises(unpool.UnpoolError, match=r"^MaxPool: X: NumPy cannot view this array: .*broken") as caught:
        unpool.max_pool(Broken(np.zeros((1, 1, 8))), **LINE)
    assert isinstance(caught.value.__cause__, kind)


def test_kinds_may_be_mixed() -> None:
    """The result is of the kind of X, whatever the other inputs are."""
    y = np.float32([[[5, 7]]])
    indices = torch.tensor([[[1, 2]]])
    from_numpy = unpool.max_unpool(y, indices, kernel_shape=[2], strides=[2])
    assert isinstance(from_numpy, np.ndarray)
    from_torch = unpool.max_unpool(torch.from_numpy(y), indices.numpy(), np.array([1, 1, 4]), kernel_shape=[2])
    assert isinstance(from_torch, torch.Tensor)
    assert from_torch.tolist() == from_numpy.tolist() == [[[0, 5, 7, 0]]]
    grown = unpool.conv_transpose(torch.from_numpy(y), np.ones((1, 1, 1), np.float32), torch.ones(1))
    assert grown.tolist() == [[[6, 8]]]


@pytest.mark.parametrize("wrong", [[[[1.0, 2.0]]], (1.0,), 3.0, "x", {"x": 1}, None])
def test_what_is_no_array_is_refused(wrong: object) -> None:
    """Lists, numbers, strings and None are not converted by guess."""
    x = np.ones((1, 1, 2), np.float32)
    with pytest.raises(unpool.UnpoolError, match=r"^MaxPool: .*(expected|required|inputs).*, got "):
        unpool.max_pool(wrong, kernel_shape=[1])
    with pytest.raises(unpool.UnpoolError, match=r"^MaxUnpool: .*(expected|required|inputs).*, got "):
        unpool.max_unpool(x, wrong, kernel_shape=[1])
    with pytest.raises(unpool.UnpoolError, match=r"^ConvTranspose: .*(expected|required|inputs).*, got "):
        unpool.conv_transpose(x, wrong)


def test_lists_are_told_what_to_do() -> None:
    """The message says which call makes an array."""
    with pytest.raises(unpool.UnpoolError, match=r"^MaxPool: X: expected .*, got list\. Use np\.asarray"):
        unpool.max_pool([[[1.0, 2.0]]], kernel_shape=[1])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (10, "X: expected memory on the CPU, got .*10"),
        pytest.param(2, "torch cannot view X", id="cuda"),
    ],
)
def test_other_devices_are_refused(kind: int, says: str) -> None:
    """Memory that neither the CPU nor an NVIDIA GPU that is there can read is named, not read."""
    with pytest.raises(unpool.UnpoolError, match=rf"^MaxPool: {says}"):
        unpool.max_pool(OnDevice(np.ones((1, 1, 2), np.float32), kind), kernel_shape=[1])


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.int32, torch.complex64], ids=str)
def test_other_element_types_of_torch_are_refused(kind: torch.dtype) -> None:
    """With the same message as NumPy's types, whether NumPy has the type or not."""
    name = str(kind).removeprefix("torch.")
    with pytest.raises(unpool.UnpoolError, match=rf"^MaxPool: X.*expect.*float32.*got {name}"):
        unpool.max_pool(torch.zeros((1, 1, 2)).to(kind), kernel_shape=[1])


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.bool_, np.complex64, np.uint16, object, "U1", np.longdouble])
def test_other_element_types_are_refused(kind: type) -> None:
    """The message names the types of the operator and the one that came."""
    x = np.ones((1, 1, 2)).astype(kind)
    with pytest.raises(unpool.UnpoolError, match=r"^MaxPool: X.*expect.*float32.*got "):
        unpool.max_pool(x, kernel_shape=[1])
