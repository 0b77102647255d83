"""Damages plans, and reads them in a program with AddressSanitizer: `python -m tools.campaigns.plans`.

Needs gcc or clang. Prints how many of COUNT damaged plans were refused, and how many were run, with kernels that touch
no memory; an error of memory ends it.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from unpool import execute
from unpool.execute.plans import Kind, Operand
from unpool.onnxruntime import plans
from unpool.operators import resolve

SOURCE = Path(__file__).with_suffix(".c")
COUNT = 20_000


def calls() -> list[tuple[Any, list[Any], int]]:
    """Specs, inputs and numbers of outputs: every kind of plan."""

    def spec(operator: str, domain: str = "", **attributes: Any) -> Any:
        return resolve.spec(operator, attributes, opset=22, domain=domain)

    x, pair = np.zeros((1, 2, 12, 12), np.float32), [2, 2]
    indices = np.zeros((1, 2, 6, 6), np.int64)
    deep, own = np.zeros((1, 64, 12, 12), np.float32), execute.own_weights
    weights = np.random.default_rng(0).standard_normal((64, 64, 4, 4)).astype(np.float32)
    last = {"domain": "com.ms.internal.nhwc", "activation": "Tanh"}
    half = weights[:2, :3, :2, :2].astype(np.float16)
    return [
        (spec("MaxPool", kernel_shape=pair, strides=pair), [x], 1),
        (spec("MaxPool", kernel_shape=pair, strides=pair, storage_order=1, **last), [np.moveaxis(x, 1, -1)], 2),
        (spec("MaxPool", kernel_shape=pair, strides=pair), [x[:0]], 2),
        (spec("MaxUnpool", kernel_shape=pair, strides=pair, **last), [np.zeros((1, 6, 6, 2), x.dtype), indices], 1),
        (spec("MaxUnpool", kernel_shape=pair, strides=pair), [x[:0, :, :6, :6], indices[:0]], 1),
        (spec("MaxPool", kernel_shape=[7, 7], dilations=pair), [np.zeros((1, 2, 40, 40), np.float32)], 2),
        (spec("MaxUnpool", kernel_shape=pair, strides=pair), [x[..., :6, :6], indices], 1),
        (spec("MaxUnpool", kernel_shape=pair, strides=pair), [x[..., :6, :6], indices, np.array((1, 2, 14, 14))], 1),
        (spec("ConvTranspose", strides=pair, pads=[1] * 4), [deep, own(weights)], 1),
        (spec("ConvTranspose", strides=pair), [x, own(weights[:2, :3, :2, :2])], 1),
        (spec("ConvTranspose", strides=pair, pads=[1] * 4), [deep, weights], 1),
        (spec("ConvTranspose", strides=pair, pads=[1] * 4), [deep[..., :1, :1], weights], 1),
        (spec("ConvTranspose", **last), [np.zeros((1, 6, 6, 2), np.float16), half, half[0, :, 0, 0]], 1),
    ]


def write_plans(path: Path) -> int:
    """Write the plans to a file; their number."""
    with open(path, "wb") as file:
        for spec, inputs, outputs in calls():
            blob = encoded(spec, inputs, outputs)
            file.write(np.int64(len(blob)).tobytes() + blob)
    return len(calls())


def encoded(spec: Any, inputs: list[Any], outputs: int) -> bytes:
    """The plan of a call, as bytes."""
    prepared = execute.prepare(spec, inputs, outputs)
    kind = Kind
    operands = [Operand(kind.INPUT, number, x.shape, x.dtype) for number, x in enumerate(inputs)]
    if hasattr(inputs[-1], "packings"):
        operands[1] = Operand(kind.CONSTANT, 1, inputs[1].shape, inputs[1].dtype, inputs[1])
    results = tuple(Operand(kind.OUTPUT, n, each.shape, each.dtype) for n, each in enumerate(prepared.outputs))
    steps = prepared.steps(operands, results)
    assert steps is not None
    return plans.encode(plans.NodePlan(spec.version.label, len(inputs), results, steps), [1, 2, 3]).blob


def compile_reader(compiler: list[str], path: Path) -> None:
    """Compile the program that damages plans and reads them."""
    subprocess.run([*compiler, "-std=c11", "-g", "-O1", "-o", str(path), str(SOURCE)], check=True)


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns.plans", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="damaged plans; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        sys.exit("the campaign needs gcc or clang, for AddressSanitizer")
    with tempfile.TemporaryDirectory() as folder:
        program, feed = Path(folder, "reader"), Path(folder, "plans")
        compile_reader([compiler, "-fsanitize=address,undefined", "-fno-sanitize-recover"], program)
        write_plans(feed)
        environment = {"ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=256"}
        command = [str(program), str(feed), str(options.count), str(options.seed)]
        sys.exit(subprocess.run(command, env=environment).returncode)


if __name__ == "__main__":
    main()
