"""The operators inside onnxruntime: in its own sessions, under the names of the standard.

>>> import onnxruntime
>>> import unpool.onnxruntime
>>> options = onnxruntime.SessionOptions()
>>> unpool.onnxruntime.register(options)  # then onnxruntime.InferenceSession("segnet.onnx", options)
"""

from unpool.onnxruntime.compile import compile
from unpool.onnxruntime.register import get_library_path, register

__all__ = ["compile", "get_library_path", "register"]
