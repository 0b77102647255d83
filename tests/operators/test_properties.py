"""What holds for all inputs: unpooling undoes pooling, deconvolution is convolution's adjoint, memory order is free."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unpool
from tests.support import strategies
from tests.support.runners import bits

CONV = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}
bounded = settings(deadline=None, max_examples=60, derandomize=True)


@bounded
@given(strategies.pools())
def test_unpooling_keeps_the_maxima_in_place(pool: strategies.Pool) -> None:
    """Every cell of unpool(pool(x)) is zero or x's own, and pooling it again gives the same y."""
    y, indices = unpool.max_pool(pool.x, **pool.window, return_indices=True)
    back = unpool.max_unpool(y, indices, np.array(pool.x.shape), **pool.window, index_space="output")
    assert back.dtype == pool.x.dtype
    assert np.all((back == 0) | (back == pool.x))
    assert np.array_equal(unpool.max_pool(back, **pool.window), y)
    assert np.count_nonzero(back) == np.unique(indices).size


@bounded
@given(strategies.pools())
def test_indices_point_at_the_maxima(pool: strategies.Pool) -> None:
    """x.flat[Indices] is Y, and asking for Indices does not change Y."""
    y, indices = unpool.max_pool(pool.x, **pool.window, return_indices=True)
    assert np.array_equal(pool.x.reshape(-1)[indices], y)
    assert bits(unpool.max_pool(pool.x, **pool.window)) == bits(y)


@bounded
@given(strategies.deconvolutions())
def test_is_the_adjoint_of_convolution(case: strategies.Deconvolution) -> None:
    """<conv(x), y> = <x, conv_transpose(y)> in float64, convolution being torch's."""
    rank = case.w.ndim - 2
    shrunk = CONV[rank](
        torch.from_numpy(case.large),
        torch.from_numpy(case.w),
        stride=case.strides,
        padding=case.pads[:rank],
        dilation=case.dilations,
        groups=case.group,
    ).numpy()
    grown = unpool.conv_transpose(
        case.small,
        case.w,
        strides=case.strides,
        pads=case.pads,
        dilations=case.dilations,
        output_padding=case.output_padding,
        group=case.group,
        opset=1,
    )
    assert grown.shape == case.large.shape
    left, right = np.vdot(shrunk, case.small), np.vdot(case.large, grown)
    scale = np.abs(case.large).sum() * np.abs(case.small).max() * np.abs(case.w).max()
    assert abs(left - right) <= 1e-12 * scale


@bounded
@given(strategies.pools(), st.sampled_from(strategies.ORDERS), st.sampled_from(("NCHW", "NHWC")))
def test_pool_reads_any_memory_order(pool: strategies.Pool, order: str, layout: str) -> None:
    """Strides, alignment and writability of x change neither the result nor x."""
    plain = np.ascontiguousarray(np.moveaxis(pool.x, 1, -1)) if layout == "NHWC" else pool.x
    x = strategies.in_memory(plain, order)
    expected = unpool.max_pool(plain, **pool.window, layout=layout, return_indices=True)
    got = unpool.max_pool(x, **pool.window, layout=layout, return_indices=True)
    assert [bits(y) for y in got] == [bits(y) for y in expected]
    assert bits(x) == bits(plain)


@bounded
@given(strategies.pools(), st.sampled_from(strategies.ORDERS), st.sampled_from(strategies.ORDERS))
def test_unpool_reads_any_memory_order(pool: strategies.Pool, order: str, index_order: str) -> None:
    """Strides of X and I change neither the result nor X and I."""
    y, indices = unpool.max_pool(pool.x, **pool.window, return_indices=True)
    shape = np.array(pool.x.shape)
    x, i = strategies.in_memory(y, order), strategies.in_memory(indices, index_order)
    got = unpool.max_unpool(x, i, shape, **pool.window)
    assert bits(got) == bits(unpool.max_unpool(y, indices, shape, **pool.window))
    assert bits(x) == bits(y)
    assert bits(i) == bits(indices)


@bounded
@given(strategies.deconvolutions(), st.sampled_from(strategies.ORDERS), st.sampled_from(strategies.ORDERS))
def test_conv_transpose_reads_any_memory_order(case: strategies.Deconvolution, order: str, w_order: str) -> None:
    """Strides of X and W change neither the result nor X and W; what cannot be written may go another way."""
    window = {"strides": case.strides, "dilations": case.dilations, "group": case.group}
    x, w, plain = strategies.in_memory(case.small, order), strategies.in_memory(case.w, w_order), case.w.copy()
    plain.flags.writeable = w.flags.writeable
    got = unpool.conv_transpose(x, w, **window)
    assert bits(got) == bits(unpool.conv_transpose(case.small, plain, **window))
    assert bits(x) == bits(case.small)
    assert bits(w) == bits(case.w)


def test_broadcast_arrays_are_inputs() -> None:
    """A zero stride is a stride like any other."""
    x = np.broadcast_to(np.float32([[1], [2], [3]]), (2, 3, 3, 4))
    plain = np.ascontiguousarray(x)
    w = np.broadcast_to(np.float32(2), (3, 1, 2, 2))
    assert bits(unpool.max_pool(x, kernel_shape=[2, 2])) == bits(unpool.max_pool(plain, kernel_shape=[2, 2]))
    assert bits(unpool.conv_transpose(x, w)) == bits(unpool.conv_transpose(plain, np.ascontiguousarray(w)))
    i = np.broadcast_to(np.int64(1), (2, 3, 3, 4))
    got = unpool.max_unpool(x, i, kernel_shape=[2, 2])
    assert bits(got) == bits(unpool.max_unpool(plain, np.ascontiguousarray(i), kernel_shape=[2, 2]))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_foreign_byte_order_is_refused(kind: type) -> None:
    """A byte-swapped array is named as such, not misread."""
    foreign = np.ones((1, 1, 3), kind)
    foreign = foreign.astype(foreign.dtype.newbyteorder())
    native = np.ones((1, 1, 3), kind)
    i = np.zeros((1, 1, 3), np.int64)
    with pytest.raises(unpool.UnpoolError, match=r"^MaxPool: X.*byte order"):
        unpool.max_pool(foreign, kernel_shape=[2])
    with pytest.raises(unpool.UnpoolError, match=r"^MaxUnpool: X.*byte order"):
        unpool.max_unpool(foreign, i, kernel_shape=[2])
    with pytest.raises(unpool.UnpoolError, match=r"^MaxUnpool: I expects int64"):
        unpool.max_unpool(native, i.astype(i.dtype.newbyteorder()), kernel_shape=[2])
    with pytest.raises(unpool.UnpoolError, match=r"^ConvTranspose: W: expected native byte order"):
        unpool.conv_transpose(native, foreign)
    with pytest.raises(unpool.UnpoolError, match=r"^ConvTranspose: B: expected native byte order"):
        unpool.conv_transpose(native, native, foreign[0, 0, :1])


X = np.arange(60, dtype=np.float32).reshape(1, 3, 4, 5)
INDICES = np.arange(60, dtype=np.int64).reshape(1, 3, 4, 5)
W = np.ones((3, 2, 2, 2), np.float32)


def pool_into(out: np.ndarray | None) -> np.ndarray:
    return unpool.max_pool(X, kernel_shape=[2, 2], out=out)


def unpool_into(out: np.ndarray | None) -> np.ndarray:
    return unpool.max_unpool(X, INDICES, kernel_shape=[1, 1], out=out)


def grow_into(out: np.ndarray | None) -> np.ndarray:
    return unpool.conv_transpose(X, W, out=out)


INTO = [pool_into, unpool_into, grow_into]


@pytest.mark.parametrize("order", ["fortran", "reversed", "sliced", "permuted", "offset"])
@pytest.mark.parametrize("into", INTO)
def test_out_of_any_memory_order(into, order: str) -> None:
    """`out` is filled and returned, whatever its strides; what lies between its elements is left alone."""
    expected = into(None)
    out = strategies.in_memory(np.full(expected.shape, 99, np.float32), order)
    before = None if out.base is None else out.base.size
    assert into(out) is out
    assert bits(out) == bits(expected)
    if order == "sliced":
        assert before == out.base.size
        assert np.count_nonzero(out.base) == np.count_nonzero(expected)


@pytest.mark.parametrize("into", INTO)
def test_unfit_out_is_refused(into) -> None:
    """Another shape, another type, or no permission to write: refused, and nothing written."""
    expected = into(None)
    wrong = [
        np.full((*expected.shape[:-1], expected.shape[-1] + 1), 7, np.float32),
        np.full(expected.shape, 7, np.float64),
        strategies.in_memory(np.full(expected.shape, 7, np.float32), "read-only"),
    ]
    for out in wrong:
        with pytest.raises(unpool.UnpoolError, match=r"^(MaxPool|MaxUnpool|ConvTranspose): out for \w+ needs .*, got "):
            into(out)
        assert np.all(out == 7)


def test_out_that_overlaps_an_input_is_refused() -> None:
    """Writing over an input while reading it would depend on the order of the work."""
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 12)
    before = x.copy()
    i = np.arange(12, dtype=np.int64).reshape(1, 1, 12)
    w = np.ones((1, 1, 1), np.float32)
    with pytest.raises(unpool.UnpoolError, match="memory"):
        unpool.max_pool(x, kernel_shape=[1], out=x)
    with pytest.raises(unpool.UnpoolError, match="memory"):
        unpool.max_unpool(x, i, kernel_shape=[1], out=x[..., ::-1])
    with pytest.raises(unpool.UnpoolError, match="memory"):
        unpool.conv_transpose(x[..., :6], w, out=x[..., 3:9])
    assert np.array_equal(x, before)


def test_outputs_may_not_overlap_each_other() -> None:
    """Y and Indices need memory of their own."""
    shared = np.zeros(16, np.int64)
    y = shared.view(np.float64)[:3].reshape(1, 1, 3)
    with pytest.raises(unpool.UnpoolError, match="memory"):
        unpool.max_pool(np.ones((1, 1, 3)), kernel_shape=[1], return_indices=True, out=(y, shared[:3].reshape(1, 1, 3)))


def test_out_beside_an_input_in_one_buffer() -> None:
    """Disjoint elements of one buffer do not overlap, even if they interleave."""
    buffer = np.zeros((1, 1, 12), np.float32)
    x, out = buffer[..., ::2], buffer[..., 1::2]
    x[...] = range(6)
    unpool.max_pool(x, kernel_shape=[1], out=out)
    assert np.array_equal(out, x)


def test_pair_of_outs() -> None:
    """With indices, `out` is a pair, each filled in its own memory order."""
    y, indices = unpool.max_pool(X, kernel_shape=[2, 2], return_indices=True)
    out = (np.asfortranarray(np.zeros_like(y)), strategies.in_memory(np.zeros_like(indices), "sliced"))
    got = unpool.max_pool(X, kernel_shape=[2, 2], return_indices=True, out=out)
    assert got[0] is out[0]
    assert got[1] is out[1]
    assert [bits(array) for array in out] == [bits(y), bits(indices)]
    with pytest.raises(unpool.UnpoolError, match=r"^MaxPool: out is a pair"):
        unpool.max_pool(X, kernel_shape=[2, 2], return_indices=True, out=out[0])
