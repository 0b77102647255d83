"""Reads a model without its large weights from its bytes, and tells what kind of file another file is.

A protobuf message is a row of fields, each with a number and a length; weights are skipped whole.
"""

import os
import string
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, TypeAlias

import onnx
from google.protobuf.message import DecodeError

from unpool.graph.weights import can_stay_in_file
from unpool.graph.wire import as_field


class FileContent:
    """The bytes of a file, read where they are asked for; a ValueError where the file has become shorter.

    It is not mapped: a page beyond the end of a file that another process has shortened ends this process.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size
        self._begin, self._block = 0, b""  # the latest bytes that were read

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        begin, end, _ = part.indices(self._size)
        first = begin - self._begin
        if first < 0 or end - self._begin > len(self._block):
            length = max(end - begin, 0)
            self._file.seek(begin)
            self._begin, first = begin, 0
            self._block = self._file.read(min(max(length, BLOCK), self._size - begin))
            if len(self._block) < length:
                raise ValueError("the file became shorter while it was read")
            if length > BLOCK:  # which the caller keeps
                block, self._block = self._block, b""
                return block
        return self._block[first : first + end - begin]


Content: TypeAlias = bytes | FileContent

BLOCK = 2**16  # bytes of a file that are read at once
WINDOW = 2**12  # bytes in which fields are looked for at once
LONGEST_NUMBER = 10  # bytes
_GRAPH, _INITIALIZERS, _RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto and TensorProto
_DESCRIPTION = {"dims", "data_type", "name", "doc_string"}  # fields of a TensorProto without its data
LARGE_DATA = 2**16  # bytes of a tensor that `without_weights` leaves out
_LENGTHS = {1: 8, 5: 4}  # bytes of a field by its kind; kind 0 is a number of several bytes, kind 2 has its length


def without_weights(content: Content, location: str, entry: tuple[str, str]) -> onnx.ModelProto:
    """The model, whose large initializers have their place in these bytes as external data, in a file `location`.

    These tensors have one entry more, a key and its value. A tensor whose bytes are not those of its shape keeps them,
    for others to refuse. Raises a ValueError for bytes that are no model, or one of several graphs.
    """
    graphs = [row for number, *row in _fields(content, 0, len(content)) if number == _GRAPH]
    if len(graphs) != 1:
        raise ValueError(f"expected a model of one graph, got {len(graphs)}")
    start, copied, end = graphs[0]
    pieces = []
    for number, row, begin, stop in _fields(content, copied, end):
        if number == _INITIALIZERS and stop - begin >= LARGE_DATA:
            tensor = _without_data(content, begin, stop, location, entry)
            if tensor is not None:
                pieces += [content[copied:row], as_field(_INITIALIZERS, tensor.SerializeToString())]
                copied = stop
    pieces.append(content[copied:end])
    parts = content[:start], as_field(_GRAPH, b"".join(pieces)), content[end:]
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(b"".join(parts))
    except DecodeError as error:
        raise ValueError("expected a model of protobuf, got something else") from error
    return model


def _without_data(
    content: Content, begin: int, end: int, location: str, entry: tuple[str, str]
) -> onnx.TensorProto | None:
    """The tensor with the place of its data; None if its elements are not stored there as they are."""
    found = [row for number, *row in _fields(content, begin, end) if number == _RAW_DATA]
    if len(found) != 1:
        return None
    start, first, last = found[0]
    length = last - first
    if (end - begin) - length > LARGE_DATA:
        return None
    try:
        tensor: onnx.TensorProto = onnx.TensorProto.FromString(content[begin:start] + content[last:end])
    except DecodeError as error:
        raise ValueError("expected a tensor of protobuf, got something else") from error
    if {field.name for field, _ in tensor.ListFields()} - _DESCRIPTION or not can_stay_in_file(tensor, length):
        return None
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for name, value in (("location", location), ("offset", str(first)), ("length", str(length)), entry):
        tensor.external_data.add(key=name, value=value)
    return tensor


def _fields(content: Content, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields in a part of the content: number, start of the key, and start and end of the value."""
    window, at = b"", begin  # the bytes of the content from there on
    while begin < end:
        place = begin - at
        if place + 2 * LONGEST_NUMBER > len(window) and at + len(window) < end:
            window, at, place = content[begin : min(begin + WINDOW, end)], begin, 0
        key, place = _number(window, place)
        kind = key & 7
        if kind == 2:
            length, place = _number(window, place)
            first = at + place
            stop = first + length
        elif kind == 0:
            first, stop = at + place, at + _number(window, place)[1]
        elif kind in _LENGTHS:
            first = at + place
            stop = first + _LENGTHS[kind]
        else:
            raise ValueError(f"expected a field of protobuf, got one of kind {kind}")
        if stop > end:
            raise ValueError(f"expected a field of protobuf, got one that ends at byte {stop} of {end}")
        yield key >> 3, begin, first, stop
        begin = stop


def _number(content: bytes, begin: int) -> tuple[int, int]:
    """A number of seven bits per byte, and where it ends."""
    if begin < len(content) and content[begin] < 128:  # nearly all numbers, and this is the inner loop
        return content[begin], begin + 1
    number = 0
    for shift, place in enumerate(range(begin, min(len(content), begin + LONGEST_NUMBER))):
        byte = content[place]
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number, place + 1
    raise ValueError(f"expected a number of protobuf, of at most {LONGEST_NUMBER} bytes, got no end of one")


BEGINNINGS = (
    (0, b"version https://git-lfs", "a pointer of Git LFS, not the file that it stands for", "Run: git lfs pull"),
    (0, b"<!doctype html", "a web page", "Download the file itself, not the page that shows it"),
    (0, b"<html", "a web page", "Download the file itself, not the page that shows it"),
    (0, b"<?xml", "XML, as OpenVINO writes its models", "Take the ONNX file that it was made from"),
    (0, b"pk\x03\x04", "a zip archive, as torch.save writes", "Export the module with unpool export, or unpack it"),
    (0, b"\x1f\x8b", "a gzip archive", "Unpack it"),
    (0, b"\x80\x02", "a pickle, as torch.save wrote", "Export the module with unpool export"),
    (0, b"\x89hdf\r\n", "HDF5, as Keras writes its models", "Convert it to ONNX"),
    (0, b"\x89png", "a PNG image", "Name the ONNX file"),
    (0, b"\xff\xd8\xff", "a JPEG image", "Name the ONNX file"),
    (0, b"\x93numpy", "an array of NumPy", "Name the ONNX file"),
    (4, b"tfl3", "a TensorFlow Lite model", "Take the ONNX file that it was made from"),
    (4, b"ortm", "a model in the format of onnxruntime (.ort)", "Take the ONNX file that it was made from"),
)
"""Offset and bytes, in lower case, that identify a kind of file; the kind; and the advice."""

LOOKED_AT, QUOTED = 64, 30  # bytes at the beginning that are searched, and characters of them that a message quotes
_TEXT = frozenset(string.printable.encode())


class FileKind(NamedTuple):
    """Kind of a file that is not a model, and what to do with it."""

    kind: str
    advice: str


def detect_file_kind(content: bytes) -> FileKind | None:
    """Kind of bytes that are not a model; None if it is unknown."""
    head = content[:LOOKED_AT].lstrip().lower()
    for at, beginning, kind, advice in BEGINNINGS:
        if head[at:].startswith(beginning):
            return FileKind(kind, advice)
    if _TEXT.issuperset(content[:LOOKED_AT]):
        begin = " ".join(content[:LOOKED_AT].decode().split())[:QUOTED]
        return FileKind(f"text that begins with {begin!r}", "Name a binary ONNX file")
    return None
