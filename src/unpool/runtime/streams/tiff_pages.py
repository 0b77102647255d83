"""The chain of pages of a TIFF file, checked before anybody follows it."""

import struct
from typing import Any

from unpool.errors import FileError


def check_pages(file: Any, stream: Any, size: int, where: str) -> None:
    """Refuse pages that form a circle, which tifffile would follow for ever, or that lie over each other.

    Args:
        file: of tifffile, which knows how long an offset and an entry are.
        stream: the file.
        size: bytes of it.
        where: what an error message begins with.

    Raises:
        FileError: the chain of pages has no end, or its entries are more than the file can hold.
    """
    words, offset, seen, entries = file.tiff, file.pages.first.offset, set(), 0
    while 0 < offset < size:
        if offset in seen or entries * words.tagsize > size:
            raise FileError(f"{where}: expected pages one behind the other, got a circle or an overlap. Save it again.")
        seen.add(offset)
        stream.seek(offset)
        found = stream.read(words.tagnosize)
        count = struct.unpack(words.tagnoformat, found)[0] if len(found) == words.tagnosize else 0
        stream.seek(offset + words.tagnosize + count * words.tagsize)
        following = stream.read(words.offsetsize)
        offset = struct.unpack(words.offsetformat, following)[0] if len(following) == words.offsetsize else 0
        entries += 1 + count
