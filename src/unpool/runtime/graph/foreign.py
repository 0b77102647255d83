"""What bytes are that are no ONNX model, by how they begin: files that people take for one."""

import string
from typing import NamedTuple

BEGINNINGS = (
    (0, b"version https://git-lfs", "a pointer of Git LFS, not the file that it stands for", "Run: git lfs pull"),
    (0, b"<!doctype html", "a web page", "Download the file itself, not the page that shows it"),
    (0, b"<html", "a web page", "Download the file itself, not the page that shows it"),
    (0, b"<?xml", "XML, as OpenVINO writes its models", "Take the ONNX file that it was made from"),
    (0, b"pk\x03\x04", "a zip archive, as torch.save writes", "Export the module with unpool export, or unpack it"),
    (0, b"\x1f\x8b", "a gzip archive", "Unpack it"),
    (0, b"\x80\x02", "a pickle, as torch.save wrote", "Export the module with unpool export"),
    (0, b"\x89hdf\r\n", "HDF5, as Keras writes its models", "Convert it to ONNX"),
    (4, b"tfl3", "a TensorFlow Lite model", "Take the ONNX file that it was made from"),
    (4, b"ortm", "a model in the format of onnxruntime (.ort)", "Take the ONNX file that it was made from"),
)
"""Where the bytes are that tell it, in small letters; what it is; and what to do."""

LOOKED_AT = 64
QUOTED = 30
_TEXT = frozenset(string.printable.encode())


class Foreign(NamedTuple):
    """What was found instead of a model, and what to do."""

    kind: str
    advice: str


def recognised(content: bytes) -> Foreign | None:
    """What these bytes are, None if nobody knows; asked of bytes that are no model.

    >>> recognised(b"<!DOCTYPE html><html>")
    Foreign(kind='a web page', advice='Download the file itself, not the page that shows it')
    >>> recognised(b"[1, 2, 3]").kind
    "text that begins with '[1, 2, 3]'"
    """
    head = content[:LOOKED_AT].lstrip().lower()
    for at, beginning, kind, advice in BEGINNINGS:
        if head[at:].startswith(beginning):
            return Foreign(kind, advice)
    if _TEXT.issuperset(content[:LOOKED_AT]):
        begin = " ".join(content[:LOOKED_AT].decode().split())[:QUOTED]
        return Foreign(f"text that begins with {begin!r}", "Name a binary ONNX file")
    return None
