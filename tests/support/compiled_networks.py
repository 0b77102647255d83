"""Compiled networks, inputs and outputs, for programs in C.

    python tests/support/compiled_networks.py FOLDER

Each network gets a folder with `model.onnx`, compiled for this processor, `x` and `y`, float32 in row-major order, and
`shape`, that of x.
"""

import sys
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parents[2]))

import unpool.onnxruntime
from tests.onnxruntime.test_compile import MODELS, array, session_of


def main(folder):
    """Write all networks of the tests."""
    for name, (make, shapes) in MODELS.items():
        place, made, shape = folder / name, make(), shapes[0]
        place.mkdir(parents=True, exist_ok=True)
        x = array(*shape)
        onnx.save(unpool.onnxruntime.compile(made, shapes={"x": shape}), place / "model.onnx")
        session_of(made).run(None, {"x": x})[0].tofile(place / "y")
        x.tofile(place / "x")
        (place / "shape").write_text(",".join(map(str, shape)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
