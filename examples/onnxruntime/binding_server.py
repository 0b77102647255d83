"""Answer requests with IOBinding: input and output lie in memory that stays where it is."""

import importlib
import os

import numpy as np
from onnx import parser

ort = importlib.import_module(os.environ.get("RUNTIME", "onnxruntime"))

SHAPE = (1, 1, 4, 4)
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    peaks (float[1, 1, 4, 4] image) => (float[1, 1, 4, 4] peaks) {
        positive = Relu (image)
        small, indices = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (positive)
        peaks = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (small, indices)
    }"""


class Server:
    """Keeps only the peaks of images."""

    def __init__(self):
        self._session = ort.InferenceSession(
            parser.parse_model(MODEL).SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self._input = ort.OrtValue.ortvalue_from_shape_and_type(SHAPE, np.float32, "cpu", 0)
        self._output = np.empty(SHAPE, np.float32)
        self._binding = self._session.io_binding()
        self._binding.bind_ortvalue_input("image", self._input)
        self._binding.bind_output("peaks", "cpu", 0, np.float32, SHAPE, self._output.ctypes.data)

    def answer(self, request):
        """The peaks of one image, in memory that the next answer overwrites."""
        self._input.update_inplace(request)
        self._binding.synchronize_inputs()
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()
        return self._output


def main():
    server = Server()
    first = np.arange(16, dtype=np.float32).reshape(SHAPE)
    for request in (first, -first, first[..., ::-1].copy()):
        print(server.answer(request).astype(int).flatten().tolist())


if __name__ == "__main__":
    main()
