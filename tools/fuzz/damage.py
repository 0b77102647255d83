"""What happens to files: weights beside them, fields with other values, and other bytes.

Bytes are changed, cut out, doubled or cut off; and the length before a message inside is wrong, or written otherwise.
"""

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS = (0, 1, -1, 2, 99, 2**31 - 1, -(2**31))
WIDE = (*NUMBERS, 2**31, 2**62, 2**63 - 1, -(2**63))
WORDS = ("", "x", "a/../../b", "\u0000", "\u00e9" * 300, "ai.onnx", "unpool.made.0.0", "v0_1a")

NUMBERS_IN_WORDS = ("0", "4", "-1", "7", "4096", "99999999999999999999", "1e3", "")
BESIDE = "weights"
"""The name of the file beside a model that has its weights."""


def fields(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Every field that is set in a message, at any depth."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for one in value if hasattr(value, "add") else [value]:
                yield from fields(one)


def other(draw: st.DrawFn, field: FieldDescriptor) -> Any:
    """Another value for a field that holds no message."""
    if field.type == field.TYPE_STRING:
        return draw(st.sampled_from(WORDS))
    if field.type == field.TYPE_BYTES:
        return draw(st.binary(max_size=9))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return draw(st.sampled_from([0.0, -1.0, float("nan"), float("inf"), 1e30]))
    if field.type == field.TYPE_ENUM:
        return draw(st.sampled_from(sorted(one.number for one in field.enum_type.values)))
    if field.type == field.TYPE_UINT64:
        return draw(st.sampled_from([0, 1, 2**64 - 1]))
    return draw(st.sampled_from(WIDE if field.type == field.TYPE_INT64 else NUMBERS))


def hurt(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    """Change one field: away, doubled, or with another value."""
    found = list(fields(model))
    message, field = found[draw(st.integers(0, len(found) - 1))]
    value = getattr(message, field.name)
    is_list = hasattr(value, "extend")
    kind = draw(st.integers(0, 3))
    if kind == 0 or (field.type == field.TYPE_MESSAGE and not is_list):
        message.ClearField(field.name)
    elif is_list and kind == 1:
        del value[draw(st.integers(0, len(value) - 1))]
    elif is_list and field.type == field.TYPE_MESSAGE:
        copy = type(value[0])()
        copy.CopyFrom(value[draw(st.integers(0, len(value) - 1))])
        value.append(copy)
    elif is_list:
        value[draw(st.integers(0, len(value) - 1))] = other(draw, field)
    else:
        setattr(message, field.name, other(draw, field))


@st.composite
def files(draw: st.DrawFn, models: st.SearchStrategy[onnx.ModelProto]) -> bytes:
    """The bytes of a model: as it is, with changed fields, or with changed bytes."""
    model = draw(models)
    if draw(st.integers(0, 3)) == 0:
        move_out(draw, model)
    kind = draw(st.integers(0, 11))
    for _ in range(draw(st.integers(1, 3)) if kind in (7, 8) else 0):
        hurt(draw, model)
    content = bytearray(model.SerializeToString())
    for _ in range(draw(st.integers(1, 4)) if kind == 9 else 0):
        scratch(draw, content)
    if kind > 9:
        relabel(draw, model, content)
    return bytes(content)


def move_out(draw: st.DrawFn, model: onnx.ModelProto) -> None:
    """Name a place in the file of weights for the data of float tensors; seldom one that is not there."""
    for tensor in [one for one in messages(model) if isinstance(one, onnx.TensorProto)]:
        if tensor.data_type != onnx.TensorProto.FLOAT or not tensor.raw_data:
            continue
        places = {"location": BESIDE, "offset": "4096", "length": str(len(tensor.raw_data))}
        if draw(st.integers(0, 7)) == 0:
            places.pop(draw(st.sampled_from(sorted(places))))
        elif draw(st.integers(0, 7)) == 0:
            key = draw(st.sampled_from(sorted(places)))
            places[key] = draw(st.sampled_from((*WORDS, f"./{BESIDE}", ".") if key == "location" else NUMBERS_IN_WORDS))
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in places.items():
            tensor.external_data.add(key=key, value=value)


def messages(message: Message) -> Iterator[Message]:
    """Every message in a message, at any depth."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in value if hasattr(value, "add") else [value]:
                yield one
                yield from messages(one)


def relabel(draw: st.DrawFn, model: onnx.ModelProto, content: bytearray) -> None:
    """Change the key or the length before a message inside; a length may stay right, and be written in more bytes."""
    parts = [part for part in (one.SerializeToString() for one in messages(model)) if part]
    part = draw(st.sampled_from(parts))
    right = varint(len(part))
    place = content.find(right + part)
    if place < 1:
        return
    if draw(st.integers(0, 3)) == 0:
        content[place - 1] = draw(st.integers(0, 255))
        return
    longer = bytes([*right[:-1], right[-1] | 128, 128, 0])
    others = [varint(number) for number in (0, len(part) - 1, len(part) + 1, 2**31 - 1, 2**31, 2**63, 2**64 - 1)]
    content[place : place + len(right)] = draw(st.sampled_from([longer, longer, *others, b"", b"\xff" * 11]))


def varint(number: int) -> bytes:
    """A number as protobuf writes it: seven bits in each byte, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def scratch(draw: st.DrawFn, content: bytearray) -> None:
    """Change a few bytes."""
    if not content:
        return
    place, length = draw(st.integers(0, len(content) - 1)), draw(st.integers(1, 8))
    match draw(st.integers(0, 4)):
        case 0:
            content[place] ^= 1 << draw(st.integers(0, 7))
        case 1:
            del content[place : place + length]
        case 2:
            content[place:place] = content[place : place + length]
        case 3:
            del content[place:]
        case _:
            content[place : place + length] = draw(st.binary(min_size=1, max_size=8))
