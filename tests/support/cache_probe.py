"""Calls every compiled kernel once and prints, as JSON, what Numba compiled and what it found in its cache."""

import ast
import gc
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from numba.core.dispatcher import Dispatcher

import unpool
from unpool.execute.snake import write_narrow
from unpool.geometry import Axis, Window
from unpool.kernels import cpu
from unpool.kernels.cpu import conv_transpose
from unpool.kernels.cpu.conv_transpose import dispatch, named, phases_pack
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, Storage
from unpool.kernels.cpu.machine.jit import Kernel
from unpool.kernels.cpu.max_pool import doubling
from unpool.kernels.cpu.max_unpool import per_plane
from unpool.kernels.cpu.normalization import normalize as normalize_channels
from unpool.warmup import steps

FOLDER = Path(cpu.__path__[0])

RARE = ("conv_transpose.amx.", "planner.")
"""Modules with kernels of processors that few machines have, and functions that plan calls without Python."""


def chosen(name: str) -> Any:
    return patch.object(conv_transpose, "algorithms", lambda _: (named(name),))


def pool() -> None:
    """Max pooling by tiles, directly, axis by axis, with rolling rows and by doubling, and an activation after it."""
    x = np.arange(2 * 40 * 70, dtype=np.float32).reshape(1, 2, 40, 70)
    y = unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2])
    assert np.array_equal(y, x[:, :, 1::2, 1::2])
    y = unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1])
    assert np.array_equal(y[:, :, :-1, :-1], x[:, :, ::2, ::2])
    y, _ = unpool.max_pool(x, kernel_shape=[13, 13], return_indices=True)
    assert np.array_equal(y, x[:, :, 12:, 12:])
    y, _ = unpool.max_pool(np.ones((1, 16, 72, 72), np.float32), kernel_shape=[3, 3], return_indices=True)
    assert y.sum() == 16 * 70 * 70
    options = {"kernel_shape": [1, 2], "layout": "NHWC", "activation": "Relu"}
    with patch.object(doubling, "DOUBLING_POOL", doubling.DOUBLING_POOL._replace(visits=0)):
        y, _ = unpool.max_pool(-np.ones((1, 3, 4, 3), np.float32), return_indices=True, storage_order=1, **options)
    assert not y.any()


def unpool_again() -> None:
    x, indices = np.ones((1, 2, 3, 3), np.float32), np.arange(18).reshape(1, 2, 3, 3) * 4
    for layout in ("NCHW", "NHWC"):
        given = x if layout == "NCHW" else np.ones((1, 3, 3, 2), np.float32)
        y = unpool.max_unpool(given, indices, kernel_shape=[2, 2], strides=[2, 2], layout=layout)
        assert y.sum() == 18
    unpool.max_unpool(x, indices, np.array([1, 2, 7, 7]), kernel_shape=[2, 2], strides=[2, 2])


def deconvolve() -> None:
    """Transposed convolution by phases, by Winograd's tiles, directly, by rows and of points."""
    x, w = np.ones((1, 32, 16, 16), np.float32), np.ones((32, 32, 4, 4), np.float32)
    with chosen("phases"), patch.object(phases_pack, "PACKING", phases_pack.PACKING._replace(weights=0)):
        y = unpool.conv_transpose(x, w, strides=[2, 2], pads=[1, 1, 1, 1])
    assert y[0, 0, 15, 15] == 128
    with chosen("winograd"):
        y = unpool.conv_transpose(x[:, :, 1:].copy(), w, strides=[2, 2], pads=[1, 1, 1, 1])
    assert y[0, 0, 15, 15] == 128
    y = unpool.conv_transpose(x.reshape(1, 16, 16, 32), w, strides=[2, 2], pads=[1, 1, 1, 1], layout="NHWC")
    assert y[0, 15, 15, 0] == 128
    y = unpool.conv_transpose(x[:, :2], w[:2, :1], strides=[2, 2], group=2)
    assert y[0, 0, 15, 15] == 4
    y = unpool.conv_transpose(x[:, :, :1, :2].reshape(2, 32, 1, 1), w)
    assert y[1, 31, 3, 3] == 32
    axis = Axis(6, 3, Window(2, 2))
    work = ConvTransposeProblem((axis, axis), 1, 1, 1, 1, np.dtype(np.float32), Storage(is_plain=True), is_cached=False)
    y = np.empty((1, 1, 6, 6), np.float32)
    ones = np.ones((1, 1, 3, 3), np.float32)
    dispatch.make_run(named("rows"), work, work.dtype)(ones, ones[:, :, :2, :2].copy(), ones[0, 0, 0, :1], y, 1)
    assert np.all(y == 2)
    y = unpool.conv_transpose(x[:, :, :1, :1].copy(), w)
    assert np.all(y == 32)
    y = unpool.conv_transpose(x[:, :, :1, :1].copy(), w, pads=[1, 1, 1, 1])
    assert np.all(y == 32)
    y = unpool.conv_transpose(x.reshape(1, 16, 16, 32), w[:, :1], strides=[2, 2], pads=[1, 1, 1, 1], layout="NHWC")
    assert y[0, 15, 15, 0] == 128
    x[0, 3, 2, 1] = np.inf  # a tile of the call by Winograd's that phases compute again
    y = unpool.conv_transpose(x[:, :, 1:].copy(), w, strides=[2, 2], pads=[1, 1, 1, 1])
    assert np.isinf(y).sum() == 32 * 16
    y = unpool.conv_transpose(x[:, :, :1, :1].copy(), w[:, :1])
    assert np.all(y == 32)


def backward() -> None:
    """What indices inside their planes spread and collect."""
    grad, indices = np.ones((2, 3, 1), np.float32), np.array([0, 1, 5, 2, 2, -1]).reshape(2, 3, 1)
    y = np.empty((2, 6, 1), np.float32)
    assert per_plane.spread(len(y), 1, y.size, True)(grad, indices, y, 1) == -1
    assert y.ravel().tolist() == [1, 1, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0]
    collected = np.empty_like(grad)
    assert per_plane.collect(len(y), 1, y.size)(y, indices, collected, 1) == -1
    assert collected.ravel().tolist() == [1, 1, 1, 2, 2, 0]


def normalize() -> None:
    ones = np.ones(3, np.float32)
    x = np.arange(24, dtype=np.float32).reshape(1, 3, 8)
    y = np.empty_like(x)
    normalize_channels(x, y, ones, 0 * ones, 1e-9, threads=1)
    assert np.allclose(y.mean(2), 0, atol=1e-6)


def snake() -> None:
    ones = np.ones(3, np.float32)
    x = np.arange(24, dtype=np.float32).reshape(1, 3, 8)
    y = np.empty_like(x)
    write_narrow([x], np.stack([0 * ones, ones]), [y], 1)
    assert np.array_equal(x, y)


def hand_over() -> None:
    x = np.ones((1, 64, 64, 64), np.float32)
    assert np.all(unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], threads=2) == 1)


def listed() -> None:
    """All that `unpool warmup` compiles."""
    for _, call in steps():
        call()


WORK = {each.__name__: each for each in (pool, unpool_again, deconvolve, backward, normalize, snake, hand_over, listed)}


def written() -> set[str]:
    found = set()
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(is_compiler(each) for each in node.decorator_list):
                module = ".".join(path.relative_to(FOLDER).with_suffix("").parts).removesuffix(".__init__")
                found.add(f"{module}.{node.name}")
    return found


def is_compiler(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id in ("njit", "jit")


def full_name(dispatcher: Any) -> str:
    return f"{dispatcher.py_func.__module__.removeprefix(cpu.__name__ + '.')}.{dispatcher.py_func.__name__}"


def dispatchers() -> Iterator[tuple[str, Any]]:
    for each in gc.get_objects():
        if issubclass(type(each), Dispatcher) and each.py_func.__module__.startswith(cpu.__name__ + "."):
            yield full_name(each), each


def mentions(function: FunctionType) -> list[Any]:
    """Objects that a function names, as globals, attributes of modules or variables around it; kernels as Numba's."""
    names = function.__code__.co_names
    objects = [function.__globals__.get(name) for name in names]
    modules = [each for each in objects if isinstance(each, ModuleType) and each.__name__.startswith(cpu.__name__)]
    objects += [getattr(each, name, None) for each in modules for name in names]
    objects += [cell.cell_contents for cell in function.__closure__ or ()]
    return [each.dispatcher if isinstance(each, Kernel) else each for each in objects]


def calls(function: FunctionType) -> set[str]:
    """The compiled functions that become part of this one."""
    return {full_name(each) for each in mentions(function) if isinstance(each, Dispatcher)}


def borrows(function: FunctionType) -> bool:
    """Whether a compiled function calls functions of another file of the folder, by whatever name."""
    helpers = [getattr(each, "py_func", each) for each in mentions(function) if not isinstance(each, ModuleType)]
    homes = {getattr(each, "__module__", None) or "" for each in helpers}
    return any(home.startswith(cpu.__name__ + ".") and home != function.__module__ for home in homes)


def report() -> dict[str, Any]:
    known = [(name, each) for name, each in dispatchers() if not name.startswith(RARE)]
    return {
        "package": str(Path(unpool.__file__).parent),
        "written": sorted(name for name in written() if not name.startswith(RARE)),
        "compiled": sorted({name for name, each in known if each.stats.cache_misses}),
        "found": sorted({name for name, each in known if each.stats.cache_hits}),
        "inner": sorted(set().union(*(calls(each.py_func) for _, each in known))),
        "borrowing": sorted({name for name, each in known if borrows(each.py_func)}),
        "heavy": sorted({"numba.np.linalg", "scipy.linalg"} & set(sys.modules)),
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    for name in sys.argv[1:] or WORK:
        WORK[name]()
    print(json.dumps(report()))  # noqa: T201
