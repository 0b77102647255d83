"""What happens to files: fields with other values, and bytes that are changed, cut out, doubled or cut off."""

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS = (0, 1, -1, 2, 99, 2**31 - 1, -(2**31))
WIDE = (*NUMBERS, 2**31, 2**62, 2**63 - 1, -(2**63))
WORDS = ("", "x", "a/../../b", "\u0000", "\u00e9" * 300, "ai.onnx", "unpool.made.0.0", "v0_1a")


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
    kind = draw(st.integers(0, 9))
    for _ in range(draw(st.integers(1, 3)) if kind in (7, 8) else 0):
        hurt(draw, model)
    content = bytearray(model.SerializeToString())
    for _ in range(draw(st.integers(1, 4)) if kind == 9 else 0):
        scratch(draw, content)
    return bytes(content)


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
