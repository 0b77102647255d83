"""What public functions take for arguments: integers of any library, one for all axes; anything else is an error."""

import contextlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import unpool
from unpool import shape_cache

X = np.random.default_rng(1).standard_normal((1, 2, 6, 6)).astype(np.float32)
W = np.ones((2, 1, 2, 2), np.float32)
Y, PLACES = unpool.max_pool(X, kernel_shape=[2, 2], strides=[2, 2], return_indices=True)


def pool(**given: Any) -> Any:
    return unpool.max_pool(given.pop("x", X), **{"kernel_shape": [2, 2], **given})


def scatter(**given: Any) -> Any:
    inputs = [given.pop("x", Y), given.pop("indices", PLACES), given.pop("output_shape", None)]
    return unpool.max_unpool(*inputs, **{"kernel_shape": [2, 2], "strides": [2, 2], **given})


def grow(**given: Any) -> Any:
    return unpool.conv_transpose(given.pop("x", X), given.pop("w", W), given.pop("b", None), **given)


def prepare(**given: Any) -> Any:
    return unpool.prepare_conv_transpose(given.pop("w", W), **given)(X)


WINDOW = ("kernel_shape", "strides", "pads", "activation", "activation_params", "opset", "compat", "layout")
PADDED = (*WINDOW, "dilations", "auto_pad")
NAMES: dict[Callable[..., Any], tuple[str, ...]] = {
    pool: (*PADDED, "ceil_mode", "storage_order", "return_indices", "threads", "out", "x"),
    scatter: (*WINDOW, "index_space", "output_shape", "threads", "out", "x", "indices"),
    grow: (*PADDED, "group", "output_padding", "output_shape", "threads", "out", "x", "w", "b"),
    prepare: (*PADDED, "group", "output_padding", "output_shape", "w"),
}
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 3, 2**31, 2**70, -(2**70), 10**400, 1.5, float("nan"), float("inf"), 1j, "x",
    "", b"NHWC", (), [], {}, {2},
    [[2, 2], [2, 2]], [2], [2, 2, 2], [0, 0], [-1, -1], [2**31] * 4, [2.0, 2.0], ["2", "2"], [None, 2], [[], 2],
    object(), Ellipsis, int, range(2), range(1, 3), slice(2), Fraction(2), memoryview(b"ab"), bytearray(b"ab"),
    np.int8(2), np.float32(2), np.bool_(True), np.array(2), np.array([2, 2]), np.array([2.5, 2]), np.array([[2, 2]]),
    np.array(["a", "b"]), np.zeros((0, 2)), np.zeros((1, 2, 6, 6), object), np.zeros(4, "M8[s]"), np.float64(2),
    torch.tensor(2), torch.tensor([2, 2]), torch.zeros(1, 2, 6, 6), torch.Size([2, 2]), torch.zeros(2, device="meta"),
    torch.zeros(2, 2).to_sparse(), torch.zeros(1, 2, 3, 3, requires_grad=True), torch.float32,
)  # fmt: skip


@pytest.mark.parametrize("function", NAMES, ids=lambda function: function.__name__)
def test_any_value_is_taken_or_refused_with_an_error_of_ours(function: Callable[..., Any]) -> None:
    """No value of any argument ends in an error of Python, NumPy or torch."""
    for name in NAMES[function]:
        for value in ODD:
            with contextlib.suppress(unpool.UnpoolError):
                function(**{name: value})


@pytest.mark.parametrize(
    ("function", "name"),
    [(function, name) for function in NAMES for name in NAMES[function] if len(name) > 1 and name != "return_indices"],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_an_error_names_its_argument(function: Callable[..., Any], name: str) -> None:
    """Every argument reaches the check of its own name."""
    with pytest.raises(unpool.UnpoolError, match=rf"\b{'I' if name == 'indices' else name}\b"):
        function(**{name: object()})


@pytest.mark.parametrize("renumber", [unpool.to_onnx_indices, unpool.to_torch_indices])
def test_any_shape_and_array_of_indices_is_taken_or_refused(renumber: Callable[..., Any]) -> None:
    """So it is for the functions that renumber indices."""
    for value in ODD:
        for given in ((PLACES, value), (value, [6, 6])):
            with contextlib.suppress(unpool.UnpoolError):
                renumber(*given)


INTEGERS: tuple[Callable[[int], Any], ...] = (np.int64, np.uint8, torch.tensor, np.array)


@pytest.mark.parametrize("kind", [int, *INTEGERS])
def test_one_integer_stands_for_all_axes(kind: Callable[[int], Any]) -> None:
    """Windows, strides, pads and dilations may be one number, of any library that has integers."""
    two, one = kind(2), kind(1)
    assert np.array_equal(
        unpool.max_pool(X, kernel_shape=two, strides=two, pads=one, dilations=one),
        unpool.max_pool(X, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 1]),
    )
    assert np.array_equal(unpool.max_unpool(Y, PLACES, kernel_shape=two, strides=two), scatter())
    given = {"kernel_shape": two, "strides": two, "dilations": two, "output_padding": one}
    listed = {"kernel_shape": [2, 2], "strides": [2, 2], "dilations": [2, 2], "output_padding": [1, 1]}
    assert np.array_equal(grow(**given), grow(**listed))
    assert np.array_equal(prepare(**given), grow(**listed))
    assert np.array_equal(grow(output_shape=kind(8)), grow(output_shape=[8, 8]))
    assert np.array_equal(unpool.to_torch_indices(PLACES, kind(6)), unpool.to_torch_indices(PLACES, [6, 6]))


def test_one_integer_knows_the_layout() -> None:
    """With channels last the spatial axes are as many."""
    last = np.moveaxis(X, 1, -1)
    assert np.array_equal(
        unpool.max_pool(last, kernel_shape=3, layout="NHWC"), np.moveaxis(pool(kernel_shape=3), 1, -1)
    )


@pytest.mark.parametrize(
    "size", [torch.Size, tuple, list, lambda sizes: np.array(sizes), lambda sizes: torch.tensor(sizes)]
)
def test_shapes_of_other_libraries_are_shapes(size: Callable[..., Any]) -> None:
    """torch.Size is taken wherever a list of integers is."""
    assert np.array_equal(
        unpool.max_unpool(Y, PLACES, size(X.shape), kernel_shape=size([2, 2]), strides=size([2, 2])), scatter()
    )
    assert np.array_equal(grow(output_shape=size([9, 9])), grow(output_shape=[9, 9]))
    assert np.array_equal(unpool.to_torch_indices(PLACES, size([6, 6])), unpool.to_torch_indices(PLACES, [6, 6]))


def test_a_shape_of_torch_is_found_again() -> None:
    """The second call with a torch.Size is prepared as one with a tuple is."""
    shape_cache.shortcuts.clear()
    tensors = torch.from_numpy(Y), torch.from_numpy(PLACES)
    for _ in range(2):
        unpool.max_unpool(*tensors, torch.Size(X.shape), kernel_shape=torch.Size([2, 2]), strides=(2, 2))
    unpool.max_unpool(Y, PLACES, X.shape, kernel_shape=(2, 2), strides=(2, 2))
    assert len(shape_cache.shortcuts) == 1


@pytest.mark.parametrize("rank", [3, 33, 64])
def test_any_rank_that_numpy_has(rank: int) -> None:
    """Sixty-two spatial axes are pooled, unpooled and grown as one is, indices in either order and space."""
    ones = [1] * (rank - 3)
    x, two, two_wide = X.reshape(1, 2, *ones, 36), [*ones, 2], {"kernel_shape": [*ones, 2], "strides": [*ones, 2]}
    y, indices = unpool.max_pool(x, **two_wide, return_indices=True, storage_order=1)
    expected = unpool.max_pool(X.reshape(1, 2, 36), kernel_shape=[2], strides=[2], return_indices=True)
    assert y.ravel().tolist() == expected[0].ravel().tolist()
    assert indices.ravel().tolist() == expected[1].ravel().tolist()
    for space in ("output", "inferred"):
        grown = unpool.max_unpool(y, indices, (1, 2, *ones, 40), **two_wide, index_space=space)
        line = unpool.max_unpool(*expected, (1, 2, 40), kernel_shape=[2], strides=[2], index_space=space)
        assert np.array_equal(grown.ravel(), line.ravel())
    grown = unpool.conv_transpose(x, np.ones((2, 1, *two), np.float32), strides=two)
    assert np.array_equal(grown.ravel(), np.repeat(x.sum(axis=1).ravel(), 2))
    last = unpool.max_pool(np.moveaxis(x, 1, -1), **two_wide, layout="NHWC", return_indices=True)
    assert np.array_equal(last[1].ravel(), indices.ravel())
    sizes = (*ones, 36)
    assert np.array_equal(unpool.to_onnx_indices(unpool.to_torch_indices(indices, sizes), sizes), indices)
