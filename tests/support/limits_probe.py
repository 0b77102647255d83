"""Calls of hostile sizes, and others, under a limit on addresses, in a process of its own; says what each gave.

    python limits_probe.py hostile      what no machine can do, with 700 MiB
    python limits_probe.py ordinary     what any machine can do, with less and less

Lines are: name, error or shapes, MiB by which the peak of resident memory grew.
"""

import resource
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import unpool
import unpool.memory

FAR = 2**31 - 1


def flat(*shape: int, kind: type = np.float32) -> np.ndarray:
    """An array of any size that takes no memory."""
    return np.broadcast_to(np.zeros((), kind), shape)


X = np.ones((1, 1, 8, 8), np.float32)
LAST = np.ones((1, 8, 8, 1), np.float32)
POINT = np.ones((1, 1, 1, 1), np.float32)
W = np.ones((1, 1, 2, 2), np.float32)
PLACES = np.zeros((1, 1, 8, 8), np.int64)
LINE = np.ones((1, 1, 1 << 18), np.float32)


def pool(x: Any = X, **given: Any) -> Any:
    return unpool.max_pool(x, **{"kernel_shape": [2, 2], "return_indices": True, **given})


def scatter(x: Any = X, indices: Any = PLACES, shape: Any = None, **given: Any) -> Any:
    return unpool.max_unpool(x, indices, shape, **{"kernel_shape": [2, 2], **given})


def grow(x: Any = X, w: Any = W, **given: Any) -> Any:
    return unpool.conv_transpose(x, w, **given)


NAN = np.full((1, 512, 512, 3), np.nan, np.float32)
FAR_LAST = {"kernel_shape": [FAR, FAR], "auto_pad": "SAME_UPPER", "layout": "NHWC"}
HALF_MILLION = {"kernel_shape": 511, "auto_pad": "SAME_UPPER"}

HOSTILE: dict[str, Callable[[], Any]] = {
    "pool kernel": lambda: pool(kernel_shape=[2, 2**26 - 1], auto_pad="SAME_UPPER"),
    "pool kernel both": lambda: pool(kernel_shape=[FAR, FAR], auto_pad="SAME_LOWER"),
    "pool kernel dilated": lambda: pool(kernel_shape=FAR, dilations=FAR, auto_pad="SAME_UPPER"),
    "pool kernel last": lambda: pool(LAST, **FAR_LAST),
    "pool kernel empty": lambda: pool(X[..., :0], kernel_shape=[FAR, 2], pads=[FAR, 3] * 2),
    "pool two far windows": lambda: pool(kernel_shape=[2**30, 1], strides=[2**30, 1], pads=[2**30 - 4, 0] * 2),
    "pool two far dilated": lambda: pool(
        kernel_shape=[2**25, 1], strides=[2**30, 1], dilations=[32, 1], pads=[2**30, 0] * 2
    ),
    "pool pads": lambda: pool(pads=[0, 0, FAR, 0]),
    "pool pads both": lambda: pool(pads=FAR),
    "pool pads strides": lambda: pool(pads=FAR, strides=2**24),
    "pool pads no outputs": lambda: pool(X[:0], pads=FAR),
    "pool no channels": lambda: pool(LAST[..., :0], pads=FAR, layout="NHWC"),
    "pool windows share a line": lambda: pool(LINE, kernel_shape=100_001, auto_pad="SAME_UPPER"),
    "pool windows share a plane": lambda: pool(NAN, **HALF_MILLION, layout="NHWC"),
    "pool windows share NaN": lambda: pool(NAN[:1, None, :, :, 0].copy(), **HALF_MILLION),
    "pool strides": lambda: pool(strides=FAR, pads=FAR),
    "pool ceil": lambda: pool(strides=FAR, pads=FAR, ceil_mode=1),
    "pool giant": lambda: pool(flat(1, 1, 2**31, 2), kernel_shape=1, strides=2**30),
    "pool giant rows": lambda: pool(flat(1, 1, 2**40, 1), kernel_shape=1, strides=2**30),
    "pool giant batch": lambda: pool(flat(2**40, 1, 1, 1), kernel_shape=1),
    "pool overflow": lambda: pool(flat(2**30, 2**30, 1, 1), kernel_shape=1, pads=FAR),
    "pool indices": lambda: pool(flat(1, 1, 2**13, 2**14), kernel_shape=1),
    "pool float64": lambda: pool(X.astype(np.float64), kernel_shape=[FAR, 3], auto_pad="SAME_UPPER", storage_order=1),
    "unpool rows": lambda: scatter(POINT, PLACES[..., :1, :1], [1, 1, 30_000_000_000, 2]),
    "unpool no columns": lambda: scatter(POINT, PLACES[..., :1, :1], [1, 1, 2**34, 0]),
    "unpool empty": lambda: scatter(X[:0], PLACES[:0], [0, 1, 2**34, 16], strides=2),
    "unpool empty overflow": lambda: scatter(X[:0], PLACES[:0], [0, 1, 2**34, 2**34]),
    "unpool strides": lambda: scatter(strides=[FAR, 2]),
    "unpool strides both": lambda: scatter(strides=FAR),
    "unpool strides shape": lambda: scatter(shape=[1, 1, 8, 8], strides=FAR, kernel_shape=FAR),
    "unpool pads": lambda: scatter(shape=[1, 1, 9, 9], pads=FAR, strides=FAR),
    "unpool inferred": lambda: scatter(shape=[1, 1, 2**14, 2**15], index_space="inferred"),
    "unpool giant": lambda: scatter(flat(1, 1, 2**30, 2), flat(1, 1, 2**30, 2, kind=np.int64), strides=2),
    "unpool giant shape": lambda: scatter(
        flat(1, 1, 2**40, 1), flat(1, 1, 2**40, 1, kind=np.int64), [1, 1, 9, 9], strides=FAR
    ),
    "conv strides": lambda: grow(strides=[FAR, 2]),
    "conv strides both": lambda: grow(strides=FAR),
    "conv strides shape": lambda: grow(strides=FAR, output_shape=[9, 9]),
    "conv dilations": lambda: grow(dilations=FAR),
    "conv dilations shape": lambda: grow(dilations=FAR, output_shape=[9, 9]),
    "conv dilations pads": lambda: grow(dilations=2**20, pads=2**19),
    "conv shape": lambda: grow(output_shape=[FAR, 2]),
    "conv shape both": lambda: grow(output_shape=[2**62, 2**62]),
    "conv shape empty": lambda: grow(X[:0], output_shape=[2**34, 2**34]),
    "conv shape small empty": lambda: grow(X[:0], output_shape=[2**34, 2]),
    "conv output_padding": lambda: grow(strides=FAR, output_padding=FAR - 1),
    "conv points": lambda: grow(flat(4096, 2, 1, 1), flat(2, 1, 512, 512), output_shape=1),
    "conv giant": lambda: grow(flat(1, 1, 2**40, 1), W, output_shape=[9, 9], strides=FAR),
    "conv giant weights": lambda: grow(POINT, flat(1, 2**40, 1, 1)),
    "conv giant bias": lambda: unpool.conv_transpose(POINT, flat(1, 2**33, 1, 1), flat(2**33), output_shape=[0, 1]),
    "conv groups": lambda: grow(flat(1, 1 << 16, 1, 1), flat(1 << 16, 1, 1, 1), group=1 << 16),
    "conv wide type": lambda: grow(X.astype(np.float16), W.astype(np.float16), output_shape=2**15),
    "prepare giant": lambda: unpool.prepare_conv_transpose(flat(1, 2**33, 1, 1)),
    "indices shape": lambda: unpool.to_onnx_indices(PLACES, 2**40),
    "indices giant": lambda: unpool.to_torch_indices(flat(1, 1, 2**32, kind=np.int64), 2**32),
}

MAP = np.random.default_rng(0).standard_normal((2, 8, 256, 256)).astype(np.float32)
MAP_LAST = np.ascontiguousarray(np.moveaxis(MAP, 1, -1))
Y, PLACES_OF_Y = unpool.max_pool(MAP, kernel_shape=2, strides=2, return_indices=True)
EIGHT = np.random.default_rng(1).standard_normal((8, 8, 2, 2)).astype(np.float32)
HALF, EIGHT_HALF, INFINITE = MAP.astype(np.float16), EIGHT.astype(np.float16), np.full_like(EIGHT, np.inf)

ORDINARY: dict[str, Callable[[], Any]] = {
    "pool": lambda: pool(MAP, strides=2),
    "pool overlapping": lambda: pool(MAP, kernel_shape=3),
    "pool wide": lambda: pool(MAP, kernel_shape=15, pads=7, dilations=2),
    "pool channels last": lambda: pool(MAP_LAST, layout="NHWC", storage_order=1),
    "pool turned": lambda: pool(MAP.swapaxes(2, 3), activation="Tanh"),
    "pool shared": lambda: pool(MAP[:1, :1], kernel_shape=201, pads=100),
    "unpool": lambda: scatter(Y, PLACES_OF_Y, strides=2),
    "unpool elsewhere": lambda: scatter(Y, PLACES_OF_Y, [2, 8, 260, 260], strides=2, index_space="inferred"),
    "conv phases": lambda: grow(MAP, EIGHT, strides=2, activation="Sigmoid"),
    "conv half": lambda: grow(HALF, EIGHT_HALF, strides=2),
    "conv channels last": lambda: grow(MAP_LAST, EIGHT, strides=2, layout="NHWC"),
    "conv depthwise": lambda: grow(MAP, EIGHT[:, :1], group=8),
    "conv infinite": lambda: grow(MAP[:1, :, :64, :64], INFINITE, strides=2),
    "indices": lambda: unpool.to_onnx_indices(unpool.to_torch_indices(PLACES_OF_Y, 256), 256),
}


def outcome(call: Callable[[], Any], mebibytes: int) -> str:
    """The shapes of what a call gives, and a sum of it, or the name of its error, which is ours."""
    limit(mebibytes)
    try:
        made = call()
    except unpool.UnpoolError as error:
        return type(error).__name__
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    arrays = made if isinstance(made, tuple) else (made,)
    return "+".join(f"{'x'.join(map(str, each.shape))}:{zlib.crc32(each.tobytes())}" for each in arrays)


def peak() -> int:
    """MiB of resident memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def limit(mebibytes: int) -> None:
    """Allow so much beside what is in use."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (mebibytes << 20), resource.RLIM_INFINITY))


def probe(calls: dict[str, Callable[[], Any]], mebibytes: int) -> None:
    for name, call in calls.items():
        before = peak()
        said = outcome(call, mebibytes)
        sys.stdout.write(f"{name}\t{said}\t{peak() - before}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "hostile":
        for small in (pool, scatter, grow):
            small()
        probe(HOSTILE, 700)
    else:
        unpool.memory.set_pool_limit(0)
        for room in (4096, 64, 40, 24, 16, 12, 9, 6, 4, 3, 2, 1, 0):
            probe(ORDINARY, room)
