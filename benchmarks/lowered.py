"""How fast a pool and its unpooling are in other runtimes, in each form in which `unpool lower` can write them.

`python -m benchmarks.lowered write FOLDER` writes the models, `time FOLDER` prints the table of docs/lowering.md.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import parser

from unpool.dtypes import AnyArray
from unpool.runtime.lower.lower import lower
from unpool.runtime.lower.targets import OPENVINO
from unpool.runtime.measure.timing import Effort, measure
from unpool.runtime.runtimes import Runtime, runtimes

CASES = {
    "SegNet, first level (1,64,360,480) k2 s2": ("1, 64, 360, 480", "kernel_shape = [2, 2], strides = [2, 2]"),
    "SegNet, last level (1,512,45,60) k2 s2": ("1, 512, 45, 60", "kernel_shape = [2, 2], strides = [2, 2]"),
    "overlapping (1,64,112,112) k3 s2 p1": (
        "1, 64, 112, 112",
        "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]",
    ),
    "volume (1,16,64,64,64) k2 s2": ("1, 16, 64, 64, 64", "kernel_shape = [2, 2, 2], strides = [2, 2, 2]"),
}
FORMS = ("as it is", "scatter", "broadcast", "resize")
EFFORT = Effort(warmup=2, repetitions=15)


def main(verb: str, folder: Path) -> None:
    """Write the models of all forms into a folder, or time those that are there."""
    if verb == "write":
        _write(folder)
    else:
        _report(folder)


def _write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (shape, window) in enumerate(CASES.values()):
        for form, model in _forms(shape, window):
            onnx.save(model, folder / f"{number}-{form}.onnx")


def _report(folder: Path) -> None:
    """Print one row per case and runtime: milliseconds, the median of the runs and the 80th percentile."""
    print(f"| case | runtime | {' | '.join(FORMS)} |")
    print(f"| --- | --- {'| ---: ' * len(FORMS)}|")
    for number, (title, (shape, _)) in enumerate(CASES.items()):
        x = np.random.default_rng(1).standard_normal([int(size) for size in shape.split(",")]).astype(np.float32)
        models = [onnx.load(folder / f"{number}-{form}.onnx") for form in FORMS]
        for runtime in runtimes():
            if not runtime.is_reference:
                times = [_time(runtime, model, x) for model in models]
                print(f"| {title} | {runtime.name} | {' | '.join(times)} |", flush=True)


def _forms(shape: str, window: str) -> Iterator[tuple[str, onnx.ModelProto]]:
    first = _model(shape, window, "i")
    yield "as it is", first
    yield "scatter", lower(_model(shape, window, "j"), "openvino", index_space="output").model
    for form, doubled in (("broadcast", 3), ("resize", 0)):
        yield form, lower(first, replace(OPENVINO, doubled=doubled)).model


def _model(shape: str, window: str, indices: str) -> onnx.ModelProto:
    """A pool and an unpooling; Max hides where the indices `j` come from."""
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        round_trip (float[{shape}] x) => (float[{shape}] z) {{
            y, i = MaxPool <{window}> (x)
            j = Max (i)
            v = Relu (y)
            s = Shape (x)
            z = MaxUnpool <{window}> (v, {indices}, s)
        }}"""
    )


def _time(runtime: Runtime, model: onnx.ModelProto, x: AnyArray) -> str:
    try:
        found = measure(partial(runtime.open(model), {"x": x}), EFFORT)
    except Exception as error:
        sys.stderr.write(f"{runtime.name}: {error}\n")
        return "–"
    return f"{found.median * 1e3:.1f} ({found.p80 * 1e3:.1f})"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
