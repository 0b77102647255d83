"""Classify images one after the other; one has a size that the model does not take."""

import importlib
import os

import numpy as np
from onnx import numpy_helper, parser

ort = importlib.import_module(os.environ.get("RUNTIME", "onnxruntime"))
InvalidArgument = ort.capi.onnxruntime_pybind11_state.InvalidArgument

LABELS = ["dark", "bright"]


def model():
    """The mean of the maxima of an image decides between two classes."""
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        classifier (float[1, 1, 8, 8] image) => (float[1, 2] scores) {
            peaks = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (image)
            mean = GlobalAveragePool (peaks)
            flat = Flatten (mean)
            sums = Gemm (flat, weights, bias)
            scores = Softmax (sums)
        }""")
    made.graph.initializer.append(numpy_helper.from_array(np.float32([[-1, 1]]), "weights"))
    made.graph.initializer.append(numpy_helper.from_array(np.float32([0.5, -0.5]), "bias"))
    return made.SerializeToString()


def main():
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model(), options, providers=["CPUExecutionProvider"])
    name, shape = session.get_inputs()[0].name, session.get_inputs()[0].shape
    random = np.random.default_rng(0)
    images = {f"image {at}": random.uniform(0, at / 3, shape).astype(np.float32) for at in range(4)}
    images["image 4"] = np.ones((1, 1, 6, 6), np.float32)
    for title, image in images.items():
        try:
            (scores,) = session.run(None, {name: image})
        except InvalidArgument:
            print(f"{title}: wrong size")
            continue
        print(f"{title}: {LABELS[int(scores.argmax())]}")


if __name__ == "__main__":
    main()
