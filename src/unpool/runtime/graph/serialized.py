"""Turns a model into bytes, if it fits into one protobuf message."""

import onnx
from google.protobuf.message import EncodeError

from unpool.errors import UnsupportedError

LARGEST_MESSAGE = 2**31 - 1
"""Bytes, the limit of protobuf."""


def serialize(model: onnx.ModelProto, where: str) -> bytes:
    """The bytes of a model, which errors call `where`.

    Raises:
        UnsupportedError: it does not fit into one protobuf message.
    """
    content = content_of(model)
    if content is None:
        raise UnsupportedError(
            f"{where}: expected at most 2 GiB, the limit of an ONNX file, got more, weights included. Save it with "
            "its weights in a file beside it (onnx.save, save_as_external_data=True), and pass its path."
        )
    return content


def content_of(model: onnx.ModelProto) -> bytes | None:
    """The bytes of a model; None where it does not fit into one protobuf message."""
    try:
        content = bytes(model.SerializeToString())
    except EncodeError:
        return None
    return content if len(content) <= LARGEST_MESSAGE else None


def is_too_large(one: onnx.ModelProto | onnx.TensorProto) -> bool:
    """Whether a model or a tensor does not fit into one protobuf message."""
    try:
        return bool(one.ByteSize() > LARGEST_MESSAGE)
    except EncodeError:  # how protobuf says that it cannot count so far
        return True
