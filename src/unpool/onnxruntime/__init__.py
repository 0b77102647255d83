"""The operators inside onnxruntime: in its own sessions, under the names of the standard.

>>> import onnxruntime
>>> import unpool.onnxruntime
>>> options = onnxruntime.SessionOptions()
>>> unpool.onnxruntime.register(options)  # then onnxruntime.InferenceSession("segnet.onnx", options)
"""

from unpool.onnxruntime.register import get_library_path, register

__all__ = ["get_library_path", "register"]
