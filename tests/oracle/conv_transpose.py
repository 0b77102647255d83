"""ConvTranspose, section 4 of the contract."""

from collections.abc import Sequence

import numpy as np

from tests.oracle.activation import activate, check_activation
from tests.oracle.rows import Refused, check_row, from_channels_first, to_channels_first
from tests.oracle.window import Grown, check_auto_pad, grown_axis, numbers


def wanted_sizes(output_shape: Sequence[int] | None, rank: int, head: tuple[int, int]) -> list[int | None]:
    """Spatial sizes out of the output_shape attribute, which may repeat (N, M) (4.10)."""
    if output_shape is None:
        return [None] * rank
    given = [int(size) for size in output_shape]
    if len(given) == rank + 2 and tuple(given[:2]) == head:
        given = given[2:]
    if len(given) != rank or min(given) < 0:
        raise Refused(f"output_shape {output_shape}")
    return list(given)


def output_paddings(
    given: Sequence[int] | None, strides: list[int], dilations: list[int], version: int, compat: str
) -> list[int]:
    """Values of output_padding and their bounds (4.11)."""
    more = numbers("output_padding", given, len(strides), 0, 0)
    for value, stride, dilation in zip(more, strides, dilations, strict=True):
        if (version >= 11 and value > 0 and value >= max(stride, dilation)) or (
            compat == "ort" and value > 0 and value >= stride
        ):
            raise Refused(f"output_padding {value} for stride {stride}, dilation {dilation}")
    return more


def check_operands(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, group: int, kernel_shape: Sequence[int] | None
) -> int:
    """Shapes of X, W and B against each other (4.12 to 4.16); returns M."""
    if w.ndim != x.ndim or group < 1 or x.shape[1] % group or w.shape[0] != x.shape[1]:
        raise Refused(f"x {x.shape}, w {w.shape}, group {group}")
    if min(w.shape[2:]) < 1:
        raise Refused(f"kernel {w.shape[2:]}")
    if kernel_shape is not None and tuple(kernel_shape) != w.shape[2:]:
        raise Refused(f"kernel_shape {kernel_shape} for w {w.shape}")
    maps = w.shape[1] * group
    if b is not None and b.shape != (maps,):
        raise Refused(f"bias {b.shape} for {maps} output channels")
    return maps


def full_scatter(x: np.ndarray, w: np.ndarray, axes: Sequence[Grown], group: int) -> np.ndarray:
    """F[i * stride + j * dilation] += sum of x[i] * w[j], in float64, uncropped."""
    maps = w.shape[1]
    full = np.zeros((x.shape[0], maps * group, *(axis.full for axis in axes)))
    x, w = x.astype(np.float64), w.astype(np.float64)
    per_group = x.shape[1] // group
    for n, c, *small in np.ndindex(*x.shape):
        first = c // per_group * maps
        for tap in np.ndindex(*w.shape[2:]):
            at = [i * a.stride + j * a.dilation for i, j, a in zip(small, tap, axes, strict=True)]
            full[n, first : first + maps, *at] += x[n, c, *small] * w[c, :, *tap]
    return full


def cropped(full: np.ndarray, axes: Sequence[Grown]) -> np.ndarray:
    """y[t] = F[t + begin], zero where that lies outside F."""
    y = np.zeros((*full.shape[:2], *(axis.size for axis in axes)))
    for place in np.ndindex(*y.shape[2:]):
        at = [t + axis.begin for t, axis in zip(place, axes, strict=True)]
        if all(position < axis.full for position, axis in zip(at, axes, strict=True)):
            y[:, :, *place] = full[:, :, *at]
    return y


def conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    version: int | None = None,
    compat: str = "spec",
) -> np.ndarray:
    """Y = cropped full scatter + bias, summed in float64; narrower types round through float32 (8.1).

    W stays (C, M / group, k1..kn) in both layouts (6.3).
    """
    later = {"activation": activation, "activation_params": activation_params}
    check_row("ConvTranspose", version, layout, (x, w) if b is None else (x, w, b), later)
    params = check_activation(activation, activation_params, x.dtype)
    first = to_channels_first(x, layout)
    maps, rank, row = check_operands(first, w, b, group, kernel_shape), first.ndim - 2, version or 22
    mode = check_auto_pad(auto_pad, pads, pads_may_stay=False)
    step = numbers("strides", strides, rank, 1, 1)
    spread = numbers("dilations", dilations, rank, 1, 1)
    edge = numbers("pads", pads, 2 * rank, 0, 0)
    more = output_paddings(output_padding, step, spread, row, compat)
    wanted = wanted_sizes(output_shape, rank, (x.shape[0], maps))
    axes = [
        grown_axis(*sizes, (edge[i], edge[i + rank]), mode, wanted[i], row, compat)
        for i, sizes in enumerate(zip(first.shape[2:], w.shape[2:], step, spread, more, strict=True))
    ]
    with np.errstate(all="ignore"):
        y = cropped(full_scatter(first, w, axes, group), axes)
        if b is not None:
            y = y + b.astype(np.float64).reshape(1, maps, *[1] * rank)
        y = y if x.dtype == np.float64 else y.astype(np.float32)
    return from_channels_first(activate(y, activation, params, x.dtype), layout)
