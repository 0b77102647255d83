"""Skims the bytes of a model for the names of operators, without parsing it; weights are stepped over, not read.

A message of protobuf is a row of fields, each with a number and a length: what is not of interest is skipped whole.
"""

import mmap
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import onnx

Content: TypeAlias = bytes | mmap.mmap

_GRAPH, _OPSETS, _FUNCTIONS = 7, 8, 25  # fields of ModelProto
_NODES = 1  # field of GraphProto
_LENGTHS = {1: 8, 5: 4}  # bytes of a field by its kind; kind 0 is a number of several bytes, kind 2 has its length


def mentions(content: Content, names: Sequence[bytes]) -> bool:
    """Whether a node of the model, or one in a body of it, mentions one of the names, as an operator or otherwise.

    Raises:
        ValueError: these bytes are no model.

    >>> from onnx import parser
    >>> model = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float x) => (float y) { y = Abs (x) }')
    >>> mentions(model.SerializeToString(), [b"MaxPool"]), mentions(model.SerializeToString(), [b"Abs"])
    (False, True)
    """
    return any(content[begin:end].find(name) >= 0 for begin, end in _places(content) for name in names)


def has_functions(content: Content) -> bool:
    """Whether the model defines functions of its own; they may call each other, so that a few bytes become many nodes.

    Raises:
        ValueError: these bytes are no model.
    """
    return any(number == _FUNCTIONS for number, _, _ in _fields(content, 0, len(content)))


def opset(content: Content) -> int:
    """The version of ONNX's operators that the model imports; 0 if it imports none.

    Raises:
        ValueError: these bytes are no model.
    """
    for number, begin, end in _fields(content, 0, len(content)):
        if number == _OPSETS:
            found = onnx.OperatorSetIdProto.FromString(content[begin:end])
            if found.domain in ("", "ai.onnx"):
                return int(found.version)
    return 0


def _places(content: Content) -> Iterator[tuple[int, int]]:
    """Begin and end of every node."""
    for number, begin, end in _fields(content, 0, len(content)):
        if number == _GRAPH:
            yield from ((first, last) for inner, first, last in _fields(content, begin, end) if inner == _NODES)


def _fields(content: Content, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of every field of a message."""
    while begin < end:
        key, begin = _number(content, begin, end)
        kind = key & 7
        if kind == 2:
            length, begin = _number(content, begin, end)
            stop = begin + length
        elif kind == 0:
            stop = _number(content, begin, end)[1]
        elif kind in _LENGTHS:
            stop = begin + _LENGTHS[kind]
        else:
            raise ValueError(f"expected a field of protobuf, got one of kind {kind}")
        if stop > end:
            raise ValueError(f"expected a field of protobuf, got one that ends at byte {stop} of {end}")
        yield key >> 3, begin, stop
        begin = stop


def _number(content: Content, begin: int, end: int) -> tuple[int, int]:
    """A number of seven bits per byte, and where it ends."""
    found, shift = 0, 0
    while begin < end and shift < 70:
        byte = content[begin]
        begin += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, begin
        shift += 7
    raise ValueError("expected a number of protobuf, of at most 10 bytes, got no end of one")
