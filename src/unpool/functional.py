"""The public functions: ONNX attribute names, any CPU array in, the same kind of array out."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from unpool import indices as flat_indices
from unpool.arrays import is_on_gpu, like, like_gpu, to_numpy
from unpool.calls import call, named_arguments, numpy_views, spec_of
from unpool.display import format_shape
from unpool.dtypes import AnyArray
from unpool.errors import ShapeError, UnpoolError
from unpool.execute import own_weights, run
from unpool.geometry import element_count
from unpool.memory import check, memory_errors
from unpool.operators import attributes as read
from unpool.operators.tensors import index_type

__all__ = [
    "FixedConvTranspose",
    "conv_transpose",
    "max_pool",
    "max_unpool",
    "prepare_conv_transpose",
    "raise_pending",
    "run",
    "to_onnx_indices",
    "to_torch_indices",
]


def max_pool(
    x: Any,
    *,
    kernel_shape: Sequence[int] | int,
    strides: Sequence[int] | int | None = None,
    pads: Sequence[int] | int | None = None,
    dilations: Sequence[int] | int | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
    return_indices: bool = False,
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    opset: int | None = None,
    compat: str = "spec",
    threads: int | None = None,
    out: Any = None,
) -> Any:
    """Largest element of every window and, with `return_indices`, its index.

        y[p] = max over taps t of x[p * stride + t * dilation - begin]

    Padding is skipped. NaN is larger than every number. Of equal elements, the first in row-major order wins. A window
    without data gives minus infinity, or the smallest integer, and index -1.

    Args:
        x: (N, C, D1..Dk), or (N, D1..Dk, C) with layout="NHWC"; float16, bfloat16, float32, float64, int8 or uint8.
        kernel_shape: window size per spatial axis, 1 or more, in elements.
        strides: step between windows per spatial axis; 1 by default.
        pads: elements of padding, all begins, then all ends; 0 by default.
        dilations: step between the taps of a window per spatial axis; 1 by default.
        auto_pad: "NOTSET", "SAME_UPPER", "SAME_LOWER" or "VALID"; excludes `pads`.
        ceil_mode: 1 keeps a last window that ends after the padding, if it starts before the padding at the end.
        storage_order: 0 counts indices with the last spatial axis fastest, 1 with the first.
        return_indices: True returns the indices, too.
        layout: "NCHW" or "NHWC".
        activation: "Relu", "LeakyRelu", "Tanh", "Sigmoid", "Clip", "HardSigmoid" or "HardSwish", applied to y.
        activation_params: parameters of the activation.
        opset: use the version that this opset selects; None for the newest, with every type and attribute.
        compat: "spec" follows the standard's text, "ort" ONNX Runtime if the two differ.
        threads: maximum number of threads; None for every core of this process. Results do not depend on it.
        out: array to write y to; with return_indices a pair (y, indices).

    Returns:
        y in the layout and type of x; with return_indices a pair (y, indices). indices are int64, (N, C, d1..dk) in
        either layout, and refer to the whole (N, C, D1..Dk) tensor without padding.

    Raises:
        ShapeError: ranks or sizes do not fit.
        UnsupportedError: the type or attribute belongs to another version.
        UnpoolError: any other wrong argument.

    Source: ONNX MaxPool 1, 8, 10, 11, 12, 22; com.ms.internal.nhwc MaxPool 1, 8, 10, 11, 12.

    >>> import numpy as np
    >>> x = np.float32([[[[1, 5], [2, 4]]]])
    >>> y, indices = max_pool(x, kernel_shape=[2, 2], return_indices=True)
    >>> y.item(), indices.item()
    (5.0, 1)
    """
    values = (
        opset, kernel_shape, pads, strides, auto_pad, storage_order, ceil_mode, dilations, activation, activation_params
    )  # fmt: skip
    try:
        outputs = 2 if return_indices else 1
    except Exception as cause:  # such as an array
        raise UnpoolError(f"MaxPool: return_indices is True or False, got {return_indices!r}. Pass a bool.") from cause
    return call("MaxPool", values, (layout, compat, "auto"), (x,), outputs, threads, out)


def max_unpool(
    x: Any,
    indices: Any,
    output_shape: Any = None,
    *,
    kernel_shape: Sequence[int] | int,
    strides: Sequence[int] | int | None = None,
    pads: Sequence[int] | int | None = None,
    index_space: str = "auto",
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    opset: int | None = None,
    compat: str = "spec",
    threads: int | None = None,
    out: Any = None,
    check: str = "later",
) -> Any:
    """Tensor of zeros with every element of x at its index.

        y.flat[indices[i]] = x[i], size = (d - 1) * stride + kernel - begin - end

    Elements are copied bit for bit. If indices are equal, the last element in row-major order wins. Every index is
    checked before anything is written.

    Args:
        x: (N, C, d1..dk), or (N, d1..dk, C) with layout="NHWC"; float16, bfloat16, float32 or float64.
        indices: int64 (N, C, d1..dk) in either layout; they refer to a whole (N, C, D1..Dk) tensor, row-major.
        output_shape: (N, C, D1..Dk) as a sequence or int64 array; by default inferred from the attributes.
        kernel_shape: window size of the pool per spatial axis, 1 or more, in elements.
        strides: step between windows per spatial axis; 1 by default.
        pads: padding of the pool, all begins, then all ends; 0 by default. It only affects the inferred size.
        index_space: the tensor that indices refer to if output_shape differs from the inferred shape: "output",
            "inferred" (placed at the origin of the output), or "auto": "inferred" only if all indices lie in their
            own windows there, and not all do in the output.
        layout: "NCHW" or "NHWC".
        activation: as for max_pool; applied to the zeros, too.
        activation_params: parameters of the activation.
        opset: use the version that this opset selects; None for the newest, with every type and attribute.
        compat: "spec" follows the standard's text, "ort" ONNX Runtime if the two differ.
        threads: maximum number of threads; None for every core of this process. Results do not depend on it.
        out: array to write to.
        check: on a GPU, "now" waits for the device and raises if an index is out of range. With "later" a later call
            raises, y is NaN until then, and `out` is unchanged. On the CPU every index is checked at once.

    Returns:
        (N, C, D1..Dk) in the layout and type of x.

    Raises:
        IndicesError: an index is outside the tensor that it refers to; the message names it.
        ShapeError: ranks or sizes do not fit.
        UnsupportedError: the type or attribute belongs to another version.
        UnpoolError: any other wrong argument.

    Source: ONNX MaxUnpool 9, 11, 22; com.ms.internal.nhwc MaxUnpool 9, 11.

    >>> import numpy as np
    >>> max_unpool(np.float32([[[7, 9]]]), np.array([[[1, 2]]]), kernel_shape=[2], strides=[2])
    array([[[0., 7., 9., 0.]]], dtype=float32)
    """
    if check not in ("now", "later"):
        raise UnpoolError(f"MaxUnpool: check is 'now' or 'later', got {check!r}. Pass 'now' to check indices at once.")
    values = (opset, kernel_shape, pads, strides, activation, activation_params, output_shape)
    return call("MaxUnpool", values, (layout, compat, index_space), (x, indices), 1, threads, out, check)


def conv_transpose(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    kernel_shape: Sequence[int] | int | None = None,
    strides: Sequence[int] | int | None = None,
    pads: Sequence[int] | int | None = None,
    dilations: Sequence[int] | int | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    output_padding: Sequence[int] | int | None = None,
    output_shape: Sequence[int] | int | None = None,
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    opset: int | None = None,
    compat: str = "spec",
    threads: int | None = None,
    out: Any = None,
) -> Any:
    """Transposed convolution: every element of x times w is added to a window of y.

        y[m, p * stride + t * dilation - begin] += x[c, p] * w[c, m, t], then + b[m]

    Args:
        x: (N, C, d1..dk), or (N, d1..dk, C) with layout="NHWC"; float16, bfloat16, float32 or float64.
        w: (C, M/group, k1..kk) in either layout, type of x.
        b: (M,), type of x; zeros by default.
        kernel_shape: window size per spatial axis; must equal that of w, the default.
        strides: step between windows per spatial axis of y; 1 by default.
        pads: elements cropped from y, all begins, then all ends; 0 by default.
        dilations: step between the taps of a window per spatial axis; 1 by default.
        group: number of independent groups of channels.
        auto_pad: "NOTSET", "SAME_UPPER", "SAME_LOWER" or "VALID"; excludes `pads`.
        output_padding: elements added at the end of every spatial axis, less than the larger of stride and dilation.
        output_shape: spatial sizes of y, from which pads are then computed.
        layout: "NCHW" or "NHWC".
        activation: as for max_pool; applied after the bias.
        activation_params: parameters of the activation.
        opset: use the version that this opset selects; None for the newest, with every type and attribute.
        compat: "spec" follows the standard's text, "ort" ONNX Runtime if the two differ.
        threads: maximum number of threads; None for every core of this process. Results do not depend on it.
        out: array to write to.

    Returns:
        (N, M, D1..Dk) in the layout and type of x. float16 and bfloat16 are summed in float32 and rounded once.

    Raises:
        ShapeError: ranks, channels or sizes do not fit.
        UnsupportedError: the type or attribute belongs to another version.
        UnpoolError: any other wrong argument.

    Source: ONNX ConvTranspose 1, 11, 22; com.ms.internal.nhwc ConvTranspose 1, 11.

    >>> import numpy as np
    >>> conv_transpose(np.float32([[[1, 2, 3]]]), np.float32([[[1, 10, 100]]]), strides=[2])
    array([[[  1.,  10., 102.,  20., 203.,  30., 300.]]], dtype=float32)
    """
    values = (
        opset, kernel_shape, pads, strides, auto_pad, dilations, group, output_padding, output_shape, activation,
        activation_params,
    )  # fmt: skip
    inputs = (x, w) if b is None else (x, w, b)
    return call("ConvTranspose", values, (layout, compat, "auto"), inputs, 1, threads, out)


class FixedConvTranspose:
    """`conv_transpose` with constant weights and attributes: the weights are packed once."""

    def __init__(self, values: tuple[Any, ...], options: tuple[str, str, str], w: Any) -> None:
        self._values, self._options, self._w = values, options, w

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of weights {'x'.join(map(str, self._w.shape))} {self._w.dtype}>"

    def __call__(self, x: Any, b: Any = None, *, threads: int | None = None, out: Any = None) -> Any:
        """As `conv_transpose`."""
        inputs = (x, self._w) if b is None else (x, self._w, b)
        return call("ConvTranspose", self._values, self._options, inputs, 1, threads, out)


def prepare_conv_transpose(
    w: Any,
    *,
    kernel_shape: Sequence[int] | int | None = None,
    strides: Sequence[int] | int | None = None,
    pads: Sequence[int] | int | None = None,
    dilations: Sequence[int] | int | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    output_padding: Sequence[int] | int | None = None,
    output_shape: Sequence[int] | int | None = None,
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    opset: int | None = None,
    compat: str = "spec",
) -> FixedConvTranspose:
    """Transposed convolution with constant weights, which are copied, and packed for the kernels once.

    The arguments are those of `conv_transpose`.

    Returns:
        A function of x, b and, by name, threads and out, all on the device of w. On the CPU, the first call for a shape
        of x packs the weights, which are kept for the last 4 shapes. On a GPU, they are packed here.

    Raises:
        UnpoolError: a wrong argument; errors that depend on x are raised when the function is called.

    >>> import numpy as np
    >>> upsample = prepare_conv_transpose(np.float32([[[1, 10, 100]]]), strides=[2])
    >>> upsample
    <FixedConvTranspose of weights 1x1x3 float32>
    >>> upsample(np.float32([[[1, 2, 3]]]))
    array([[[  1.,  10., 102.,  20., 203.,  30., 300.]]], dtype=float32)
    """
    values = (
        opset, kernel_shape, pads, strides, auto_pad, dilations, group, output_padding, output_shape, activation,
        activation_params,
    )  # fmt: skip
    options = (layout, compat, "auto")
    arguments = named_arguments("ConvTranspose", values, options)
    if is_on_gpu(w):
        from unpool.execute import gpu

        return FixedConvTranspose(values, options, gpu.own_weights(spec_of("ConvTranspose", arguments, (w,)), w))
    label = spec_of("ConvTranspose", arguments, numpy_views((w,))).version.label
    array = to_numpy(w, f"{label}: W")
    check(array.shape, array.dtype, "ConvTranspose")
    with memory_errors("ConvTranspose", array):
        return FixedConvTranspose(values, options, own_weights(array))


def to_onnx_indices(i: Any, spatial_shape: Sequence[int] | int) -> Any:
    """Indices into the whole tensor, from indices into a plane as PyTorch has them.

        whole = per_plane + (n * C + c) * D1 * .. * Dk

    Args:
        i: int64 (N, C, d1..dk).
        spatial_shape: D1..Dk of the planes that the indices refer to, in elements.

    Returns:
        int64 (N, C, d1..dk), the same kind of array as `i`.

    Raises:
        IndicesError: an index is outside its plane.
        UnpoolError: `i` is not int64, or has another rank.

    >>> import numpy as np
    >>> to_onnx_indices(np.array([[[3], [0]]]), [4]).ravel()
    array([3, 4])
    """
    return _convert_indices("to_onnx_indices", flat_indices.to_onnx, i, spatial_shape)


def to_torch_indices(i: Any, spatial_shape: Sequence[int] | int) -> Any:
    """Indices into their own (n, c) plane, from indices into the whole tensor: the inverse of `to_onnx_indices`.

    Arguments and result are those of `to_onnx_indices`.

    Raises:
        IndicesError: an index is in the plane of another (n, c).
        UnpoolError: `i` is not int64, or has another rank.

    >>> import numpy as np
    >>> to_torch_indices(np.array([[[3], [4]]]), [4]).ravel()
    array([3, 0])
    """
    return _convert_indices("to_torch_indices", flat_indices.to_torch, i, spatial_shape)


def _convert_indices(where: str, convert: Callable[..., AnyArray], i: Any, spatial_shape: Any) -> Any:
    if is_on_gpu(i):
        from unpool.execute import gpu
        from unpool.execute.gpu import index_checks

        tensor = gpu.tensor_of(where, "i", i)
        spatial = _check_indices(where, gpu.numpy_dtype(where, "i", tensor.dtype), tuple(tensor.shape), spatial_shape)
        return like_gpu(index_checks.convert_indices(where, tensor, spatial), i)
    array = to_numpy(i, f"{where}: i")
    spatial = _check_indices(where, array.dtype, array.shape, spatial_shape)
    check(array.shape, array.dtype, where)
    with memory_errors(where, array):
        return like(convert(array, spatial), i)


def _check_indices(where: str, dtype: Any, shape: tuple[int, ...], spatial_shape: Any) -> tuple[int, ...]:
    index_type(where, "i", dtype)
    if len(shape) < 3:
        raise ShapeError(f"{where}: i needs rank 3 or more, (N, C, d1..dk), got shape {format_shape(shape)}.")
    spatial = read.sizes(f"{where}: spatial_shape", spatial_shape, len(shape) - 2)
    element_count((*shape[:2], *spatial), where)
    return spatial


def raise_pending() -> None:
    """Wait until a GPU has checked the indices of all calls so far, and raise the first error.

    On a GPU, `max_unpool`, its gradients, `to_onnx_indices` and `to_torch_indices` do not wait for the device. A later
    call of one of them raises the error of an index, or this function. On the CPU, every error is raised at once.

    Raises:
        IndicesError: an earlier call had an index outside its tensor. Call it again for the errors of other calls.

    >>> raise_pending()
    """
    index_checks = sys.modules.get("unpool.execute.gpu.index_checks")
    if index_checks is not None:
        index_checks.raise_pending()
