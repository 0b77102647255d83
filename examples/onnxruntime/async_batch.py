"""Run many images at a time with `run_async`; the answers come on other threads."""

import importlib
import os
import threading

import numpy as np
from onnx import numpy_helper, parser

ort = importlib.import_module(os.environ.get("RUNTIME", "onnxruntime"))

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    enlarge (float[1, 1, 4, 4] image) => (float[1, 1, 8, 8] large) {
        large = ConvTranspose <strides = [2, 2]> (image, weights)
    }"""


class Batch:
    """Collects the answers of a batch, which come in any order."""

    def __init__(self, size):
        self.answers = [None] * size
        self.done = threading.Semaphore(0)

    def collect(self, results, number, error):
        """Keep one answer; `run_async` calls it."""
        self.answers[number] = error or results[0]
        self.done.release()


def main():
    made = parser.parse_model(MODEL)
    made.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1, 2, 2), np.float32), "weights"))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    images = [np.full((1, 1, 4, 4), number, np.float32) for number in range(6)]
    images.append(np.zeros((4, 4), np.float32))
    batch = Batch(len(images))
    for number, image in enumerate(images):
        session.run_async(["large"], {"image": image}, batch.collect, number)
    for _ in images:
        batch.done.acquire()
    for number, answer in enumerate(batch.answers):
        print(f"image {number}: {'refused' if isinstance(answer, str) else int(answer.sum())}")


if __name__ == "__main__":
    main()
