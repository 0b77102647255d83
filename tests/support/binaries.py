"""Libraries as files of ELF, PE and Mach-O: their processor, the names that they export, and what they load."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

HEADERS = {
    ".so": (b"\x7fELF", {"x86_64": 62, "aarch64": 183}),
    ".dll": (b"MZ", {"AMD64": 0x8664}),
    ".dylib": (b"\xcf\xfa\xed\xfe", {"x86_64": 0x0100_0007, "arm64": 0x0100_000C}),
}
"""How files of ELF, PE and Mach-O begin, and the numbers that these formats give to processors."""


def machine_of(content: bytes, suffix: str) -> int:
    if suffix == ".so":
        return int.from_bytes(content[18:20], "little")
    if suffix == ".dylib":
        return int.from_bytes(content[4:8], "little")
    start = int.from_bytes(content[0x3C:0x40], "little")
    return int.from_bytes(content[start + 4 : start + 6], "little")


PRIVATE_EXTERNAL = 0x10  # the bit of a symbol of Mach-O that no other library sees


def symbols_of_mach_o(content: bytes) -> Iterator[tuple[bytes, int]]:
    """The symbols of a file, with their kinds, as loader.h and nlist.h of macOS have them."""
    offset = 32
    for _ in range(int.from_bytes(content[16:20], "little")):
        command, size = struct.unpack_from("<2I", content, offset)
        if command == 2:  # LC_SYMTAB
            table, count, names, _ = struct.unpack_from("<4I", content, offset + 8)
            for number in range(count):
                name, kind = struct.unpack_from("<IB", content, table + 16 * number)
                yield content[names + name : content.index(b"\0", names + name)], kind
        offset += size


def exports(path: Path) -> set[str]:
    return exports_of(path.name, path.read_bytes())


def exports_of(name: str, content: bytes) -> set[str]:
    if name.endswith(".so"):
        return {symbol.decode() for symbol, section in symbols_of_elf(content) if section}
    if name.endswith(".dll"):
        return set(exports_of_pe(content))
    defined, external = 0xE, 1  # N_TYPE, N_EXT
    return {
        symbol.decode().removeprefix("_")
        for symbol, kind in symbols_of_mach_o(content)
        if kind & external and kind & defined and not kind & PRIVATE_EXTERNAL
    }


def sections_of_elf(content: bytes) -> list[tuple[int, ...]]:
    """The section headers of a file of 64 bits, as elf.h has them."""
    (start,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<2H", content, 0x3A)
    return [struct.unpack_from("<2I4Q2I2Q", content, start + size * number) for number in range(count)]


def symbols_of_elf(content: bytes) -> Iterator[tuple[bytes, int]]:
    """The dynamic symbols with the numbers of their sections, 0 for those that other libraries have to define."""
    sections = sections_of_elf(content)
    for _, kind, _, _, start, size, link, _, _, _ in sections:
        if kind == 11:  # SHT_DYNSYM
            for place in range(start + 24, start + size, 24):
                name, _, _, section = struct.unpack_from("<I2BH", content, place)
                yield text_at(content, sections[link][4] + name), section


def needs_of_elf(content: bytes) -> set[str]:
    sections = sections_of_elf(content)
    return {
        text_at(content, sections[link][4] + value).decode()
        for _, kind, _, _, start, size, link, _, _, _ in sections
        if kind == 6  # SHT_DYNAMIC
        for tag, value in struct.iter_unpack("<2Q", content[start : start + size])
        if tag == 1  # DT_NEEDED
    }


def glibc_versions(content: bytes) -> set[tuple[int, ...]]:
    """The releases of glibc that symbols of a library are of."""
    return {tuple(map(int, found.split(b"."))) for found in re.findall(rb"\0GLIBC_([0-9.]+)(?=\0)", content)}


def exports_of_pe(content: bytes) -> Iterator[str]:
    (header,) = struct.unpack_from("<I", content, 0x3C)
    (count,) = struct.unpack_from("<H", content, header + 6)
    (optional,) = struct.unpack_from("<H", content, header + 20)
    sections = [struct.unpack_from("<8x4I", content, header + 24 + optional + 40 * number) for number in range(count)]

    def place(address: int) -> int:
        return next(
            address - start + file for size, start, _, file in sections if start <= address < start + max(size, 1)
        )

    (table,) = struct.unpack_from("<I", content, header + 24 + 112)
    names, names_table = struct.unpack_from("<I4xI", content, place(table) + 24)
    for address in struct.unpack_from(f"<{names}I", content, place(names_table)):
        yield text_at(content, place(address)).decode()


def text_at(content: bytes, start: int) -> bytes:
    return content[start : content.index(b"\0", start)]
