"""protobuf's wire format: a message is a row of fields, each with its number, its length, and its content."""


def as_field(number: int, content: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    return field_head(number, len(content)) + content


def field_head(number: int, length: int) -> bytes:
    """The bytes in front of a field's content: its number, and the length in seven bits per byte."""
    return bytes([number << 3 | 2]) + _as_number(length)


def _as_number(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
