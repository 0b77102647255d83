"""Time from the start of a process to its first result: with shipped kernels, with compiled ones, and by onnxruntime.

Every run is a process of its own, which prints the seconds of its first call, after its imports; its parent measures
the whole process. Kernels are compiled into an empty cache, or loaded from it. The engines take turns.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import unpool
from benchmarks import network
from benchmarks.shapes import STEADY

ENGINES = {
    "shipped": {"UNPOOL_KERNELS": "shipped"},
    "compiled": {"UNPOOL_KERNELS": "compiled"},
    "from the cache": {"UNPOOL_KERNELS": "compiled"},
    "onnxruntime": {},
}
"""The environment of each engine."""

CALL = """
import sys, time
{imports}
start = time.perf_counter()
{call}
print(time.perf_counter() - start)
"""

SESSION = """
session = {package}.InferenceSession("{name}.onnx")
session.run(None, dict(np.load("{name}.npz")))
"""

OPERATORS = {
    "MaxPool": 'unpool.max_pool(**np.load("MaxPool.npz"), kernel_shape=[3, 3], strides=[2, 2], return_indices=True)',
    "MaxUnpool": 'unpool.max_unpool(**np.load("MaxUnpool.npz"), kernel_shape=[2, 2], strides=[2, 2])',
    "ConvTranspose": 'unpool.conv_transpose(**np.load("ConvTranspose.npz"), strides=[2, 2])',
}
"""Calls of unpool, whose inputs are in a file; onnxruntime runs a model of the same node."""

COMMAND = """
from PIL import Image
session = onnxruntime.InferenceSession("demo.onnx")
photograph = np.asarray(Image.open("coins.png"))[None, None].astype(np.float32)
(logits,) = session.run(None, {"image": photograph})
Image.fromarray(logits[0].argmax(axis=0).astype(np.uint8)).save("mask.png")
"""


def startup(runs: int) -> Iterator[str]:
    """Lines of a table: medians of the whole process, and of its first call."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        yield from ("| first result | " + " | ".join(ENGINES) + " |", "|---|" + "--:|" * len(ENGINES))
        for name, code in codes().items():
            times: dict[str, list[tuple[float, float]]] = {engine: [] for engine in ENGINES}
            for run in range(runs):
                cache = Path(folder, "cache", f"{name} {run}")
                for engine, environment in ENGINES.items():
                    command = code(engine)
                    known = os.environ | environment | {"NUMBA_CACHE_DIR": str(cache)}
                    times[engine].append(timed(command, Path(folder), known))
            yield f"| {name} | " + " | ".join(cell(times[engine]) for engine in ENGINES) + " |"


def cell(times: Sequence[tuple[float, float]]) -> str:
    """The median of whole processes, and that of first calls."""
    whole, first = (statistics.median(each) for each in zip(*times, strict=True))
    return f"{whole:.2f} ({first:.3f})"


def timed(command: Sequence[str], folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of a process, and those it prints, or again the first where it prints none."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    try:
        return seconds, float(done.stdout)
    except ValueError:
        return seconds, seconds


def codes() -> dict[str, Callable[[str], list[str]]]:
    """By name, the command that an engine runs."""

    def of_call(package: str, call: str) -> list[str]:
        return [sys.executable, "-c", CALL.format(imports=f"import numpy as np, {package}", call=call)]

    def operator(name: str) -> Callable[[str], list[str]]:
        def command(engine: str) -> list[str]:
            if engine == "onnxruntime":
                return of_call("onnxruntime", SESSION.format(package="onnxruntime", name=name))
            return of_call("unpool", OPERATORS[name])

        return command

    def session(name: str) -> Callable[[str], list[str]]:
        def command(engine: str) -> list[str]:
            package = "onnxruntime" if engine == "onnxruntime" else "unpool"
            return of_call(package, SESSION.format(package=package, name=name))

        return command

    def run_demo(engine: str) -> list[str]:
        if engine == "onnxruntime":
            return of_call("onnxruntime", COMMAND)
        return [sys.executable, "-m", "unpool", "run", "demo.onnx", "-i", "coins.png", "-o", "mask.png", "--argmax"]

    found = {name: operator(name) for name in OPERATORS}
    found |= {"unpool run, the demo": run_demo}
    return found | {f"session of {name}": session(name) for name in ("demo", "DCGAN", "SegNet")}


def prepare(folder: Path) -> None:
    """Write the models and their inputs."""
    from PIL import Image
    from skimage.data import coins

    rng = np.random.default_rng(1)
    x, indices = rng.standard_normal((1, 16, 72, 72), np.float32), np.arange(0, 16 * 72 * 72, 4).reshape(1, 16, 36, 36)
    small, w = x[:, :, ::2, ::2].copy(), rng.standard_normal((16, 32, 4, 4), np.float32)
    write_node(folder, "MaxPool", {"x": x}, 2, kernel_shape=[3, 3], strides=[2, 2])
    write_node(folder, "MaxUnpool", {"x": small, "indices": indices}, 1, kernel_shape=[2, 2], strides=[2, 2])
    write_node(folder, "ConvTranspose", {"x": x, "w": w}, 1, strides=[2, 2])
    Image.fromarray(coins()).save(folder / "coins.png")
    demo = Path(unpool.__file__).parent / "data" / "coins.onnx"
    (folder / "demo.onnx").write_bytes(demo.read_bytes())
    np.savez(folder / "demo.npz", image=coins()[None, None].astype(np.float32))
    for name in ("DCGAN", "SegNet"):
        case = next(case for case in STEADY if case.name.startswith(name))
        feeds = network.arrays(case, rng)
        onnx.save(network.model(case, feeds), folder / f"{name}.onnx")
        np.savez(folder / f"{name}.npz", **feeds)


def write_node(folder: Path, operator: str, feeds: dict[str, np.ndarray], outputs: int, **attributes: object) -> None:
    """Write a model of one node, and its inputs."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [("y", TensorProto.FLOAT), ("indices", TensorProto.INT64)][:outputs]
    names = [name for name, _ in results]
    node = helper.make_node(operator, list(feeds), names, **attributes)
    values = [helper.make_tensor_value_info(name, kind, None) for name, kind in results]
    graph = helper.make_graph([node], operator, inputs, values)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
        folder / f"{operator}.onnx",
    )
    np.savez(folder / f"{operator}.npz", **feeds)
