"""Run batches of any size through a model with a free axis, then give the axis a size."""

import importlib
import os

import numpy as np
from onnx import numpy_helper, parser

ort = importlib.import_module(os.environ.get("RUNTIME", "onnxruntime"))

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    autoencoder (float[batch, 1, 4, 4] x) => (float[batch, 1, 4, 4] z) {
        small, indices = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        coded = Mul (small, factor)
        unpooled = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (coded, indices)
        z = ConvTranspose <pads = [1, 1, 1, 1]> (unpooled, weights)
    }"""


def model():
    """A pool, a factor, and the way back."""
    made = parser.parse_model(MODEL)
    weights = np.zeros((1, 1, 3, 3), np.float32)
    weights[0, 0, 1, 1] = 1
    made.graph.initializer.append(numpy_helper.from_array(np.float32([2]), "factor"))
    made.graph.initializer.append(numpy_helper.from_array(weights, "weights"))
    return made.SerializeToString()


def main():
    content = model()
    session = ort.InferenceSession(content, providers=ort.get_available_providers())
    print("free:", session.get_inputs()[0].shape)
    for size in (1, 3, 0, 2):
        batch = np.ones((size, 1, 4, 4), np.float32) * np.arange(1, size + 1).reshape(-1, 1, 1, 1)
        (made,) = session.run(["z"], {"x": batch.astype(np.float32)})
        print(f"{size} images: {made.sum(axis=(1, 2, 3)).astype(int).tolist()}")
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    fixed = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    value = ort.OrtValue.ortvalue_from_numpy(np.ones((2, 1, 4, 4), np.float32))
    (made,) = fixed.run_with_ort_values(None, {"x": value})
    print("given:", fixed.get_inputs()[0].shape, made.shape(), int(made.numpy().sum()))


if __name__ == "__main__":
    main()
