"""The one place where Zarr arrays are opened: metadata that were checked, and a store that looks at every file.

Codecs and types come from lists: a codec of another name could run code of the file's choice, as `pickle` does, or load
a library because the file names it. bz2 and lzma are not in the lists, because a chunk of them may unpack to any size.

zarr takes a folder, or a part of a file that is cut off, for a missing chunk, and gives the fill value; here both are
errors. A chunk that claims to unpack to more than it holds is refused before it is unpacked.

Source: https://zarr-specs.readthedocs.io, version 2, version 3 core and the codec `sharding_indexed`; RFC 8878
(Zstandard); the headers of Blosc 1, https://github.com/Blosc/c-blosc, and of numcodecs' LZ4.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, StorePath

from unpool.display import format_shape
from unpool.errors import FileError, UnsupportedError
from unpool.images.axes import Array, Shape
from unpool.images.checks import REPLACE, read_errors
from unpool.memory import check_bytes

MAX_METADATA_BYTES = 16 << 20
MAX_AXES = 32
MAX_CODECS = 16
MAX_SHARD_DEPTH = 3
MAX_INNER_CHUNKS = 1 << 22  # chunks of a shard: its index has 16 bytes for each
MAX_FILTER_RATIO = 8  # bytes that a filter may make of one
HEADER_BYTES = 1 << 20  # bytes of headers, digests and the like
ZSTD = b"\x28\xb5\x2f\xfd"
MAX_ZSTD_BLOCK_BYTES = 1 << 17

COMPRESSORS = ("blosc", "gzip", "lz4", "zlib", "zstd")
FILTERS = (
    "adler32", "astype", "bitround", "crc32", "crc32c", "delta", "fixedscaleoffset", "fletcher32", "packbits",
    "quantize", "shuffle",
)  # fmt: skip
CODECS_V2 = frozenset((*COMPRESSORS, *FILTERS))
SHARDING = "sharding_indexed"
CODECS_V3 = frozenset(("blosc", "bytes", "crc32c", "endian", "gzip", "transpose", "zstd", SHARDING)) | {
    f"numcodecs.{name}" for name in CODECS_V2
}
TYPES_V3 = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
     "complex64", "complex128")
)  # fmt: skip
TYPE_V2 = re.compile(r"[<>|]?(b1|[iu][1248]|f[248]|c8|c16)")
TYPE_WORDS = frozenset(("astype", "decode_dtype", "dtype", "encode_dtype"))  # words of a codec that name a type
PLAIN_WORDS_V3 = frozenset(
    ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs",
     "attributes", "dimension_names", "storage_transformers", "consolidated_metadata")
)  # fmt: skip


@dataclass(frozen=True)
class ChunkSpec:
    """Unit of decoding: a chunk, or a chunk in a shard.

    Its elements have `bytes`; the index of its shard has `index` bytes before compression. `codec` is the name of the
    last one without "numcodecs.": the file holds its output. None without compression.
    """

    bytes: int
    codec: str | None
    is_in_shard: bool = False
    index: int = 0


ANY_CHUNK = ChunkSpec(1 << 60, None)


def open_zarr_array(path: Path, level: int = 0, *, is_writable: bool = False) -> Any:
    """The zarr.Array in a folder, or of a level in a folder of levels; a damaged chunk is an error when it is read."""
    with read_errors(str(path), "a Zarr array"):
        folder = path
        document, version = _document(path)
        if version is None:
            folder = path / str(level)
            document, version = _document(folder)
            if version is None:
                raise FileError(f"{folder}: expected an array as a level of the group, got a group. Name the array.")
        elif level:
            raise FileError(f"{path}: expected a group of levels, got a single array. Leave the level out.")
        check = _checked_v3 if version == 3 else _checked_v2
        plain, chunk_spec = check(document, str(folder))
        check_bytes(chunk_spec.bytes, "one chunk", str(folder))
        store = ChunkStore(folder.absolute(), read_only=not is_writable, chunk_spec=chunk_spec)
        return zarr.Array.from_dict(StorePath(store), plain)


class ZarrReader:
    """A Zarr array to read, or a level of the group at `path`; it can be pickled for the workers of a cluster."""

    def __init__(self, path: Path, array: Any) -> None:
        self.path, self._array = path, array
        self.shape: Shape = tuple(array.shape)
        self.dtype, self.ndim = np.dtype(array.dtype), len(self.shape)

    def __getitem__(self, slices: Any) -> Array:
        """A window; a FileError where a chunk is damaged."""
        with read_errors(str(self.path), f"chunks of {format_shape(self.shape)} elements"):
            return np.asarray(self._array[slices])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[...], dtype)


class ChunkStore(LocalStore):
    """The files of one array. A folder, a short file or one that claims too much is an error, not a missing chunk."""

    def __init__(self, root: Path | str, *, read_only: bool = False, chunk_spec: ChunkSpec = ANY_CHUNK) -> None:
        super().__init__(root, read_only=read_only)
        self.chunk_spec = chunk_spec

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of a file, or of a part of it; None where there is no file."""
        place, spec = self.root / key, self.chunk_spec
        if not _is_file(place, byte_range, spec):
            return None
        chunk = await super().get(key, prototype, byte_range)
        is_index = spec.is_in_shard  # a request may be for the index of a shard, or for a shard with it
        if is_index and isinstance(byte_range, RangeByteRequest):
            is_index = byte_range.start == 0 and byte_range.end - spec.index < HEADER_BYTES
        if chunk is not None and not is_index:
            _check_chunk(chunk, spec, place)
        return chunk


def _is_file(place: Path, byte_range: ByteRequest | None, chunk_spec: ChunkSpec) -> bool:
    try:
        status = os.stat(place)
    except FileNotFoundError:
        if os.path.lexists(place):
            raise FileError(f"{place}: the link leads to no file. Copy the array with its files.") from None
        return False
    except OSError as error:
        raise FileError(f"{place}: expected a chunk, got an error: {error.strerror}. {REPLACE}") from error
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{place}: expected a file with a chunk, got a folder or a device. {REPLACE}")
    size, needed = status.st_size, 0
    if isinstance(byte_range, RangeByteRequest):
        needed = byte_range.end if 0 <= byte_range.start <= byte_range.end else size + 1
    elif isinstance(byte_range, SuffixByteRequest):
        needed = byte_range.suffix
    elif isinstance(byte_range, OffsetByteRequest):
        needed = byte_range.offset
    if needed > size:
        raise FileError(f"{place}: a part of the shard ends at byte {needed}, the file has {size}. {REPLACE}")
    limit = 2 * MAX_FILTER_RATIO * chunk_spec.bytes + HEADER_BYTES
    if byte_range is None and not chunk_spec.is_in_shard and size > limit:
        raise FileError(f"{place}: has {size} bytes, for a chunk of {chunk_spec.bytes}. {REPLACE}")
    return True


def _check_chunk(chunk: Buffer, chunk_spec: ChunkSpec, place: Path) -> None:
    """Refuse a chunk that says that it unpacks to far more than its elements take."""
    measure = CLAIMS.get(chunk_spec.codec or "")
    array: Any = chunk.as_numpy_array()
    claimed = measure(memoryview(array).cast("B")) if measure is not None and len(array) else 0
    headers = 64 * HEADER_BYTES if chunk_spec.codec == "zstd" else HEADER_BYTES
    if claimed > MAX_FILTER_RATIO * chunk_spec.bytes + headers:
        raise FileError(f"{place}: claims {claimed} bytes, for a chunk of {chunk_spec.bytes}. {REPLACE}")


def zstd_bytes(data: memoryview) -> int:
    """Bytes that a chunk of Zstandard states it unpacks to, or the most that its blocks can give."""
    at, total = 0, 0
    while bytes(data[at : at + 4]) == ZSTD and at + 5 < len(data):
        descriptor = data[at + 4]
        is_single = descriptor >> 5 & 1
        at += 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
        width = (is_single, 2, 4, 8)[descriptor >> 6]
        if width:
            return total + int.from_bytes(data[at : at + width], "little") + 256 * (width == 2)
        is_last = False
        while not is_last and at + 3 <= len(data):
            header = int.from_bytes(data[at : at + 3], "little")
            is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            total += MAX_ZSTD_BLOCK_BYTES if kind == 2 else size
            at += 3 + (1 if kind == 1 else size)
        at += 4 * (descriptor >> 2 & 1)
    return total


CLAIMS: Mapping[str, Callable[[memoryview], int]] = {
    "blosc": lambda data: int.from_bytes(data[4:8], "little"),
    "lz4": lambda data: int.from_bytes(data[:4], "little"),
    "zstd": zstd_bytes,
}
"""Bytes that a chunk says it unpacks to, by the codecs whose chunks say it."""


def _document(folder: Path) -> tuple[dict[str, Any], int | None]:
    """The metadata of an array and its version; for a group its metadata and None."""
    for name in ("zarr.json", ".zarray", ".zgroup"):
        file = folder / name
        if not file.exists():
            continue
        if not stat.S_ISREG(file.stat().st_mode):
            raise FileError(f"{file}: expected a file of metadata, got a folder or a device. {REPLACE}")
        with file.open("rb") as stream:
            content = stream.read(MAX_METADATA_BYTES + 1)
        if len(content) > MAX_METADATA_BYTES:
            raise FileError(f"{file}: has more than {MAX_METADATA_BYTES >> 20} MiB. Store its attributes elsewhere.")
        document = json.loads(content)
        if not isinstance(document, dict):
            raise FileError(f"{file}: expected a JSON object, got {type(document).__name__}. {REPLACE}")
        is_group = name == ".zgroup" or document.get("node_type") == "group"
        return document, None if is_group else 3 if name == "zarr.json" else 2
    raise FileError(f"{folder}: expected a Zarr array, got no zarr.json or .zarray in it. Name the array's folder.")


def _checked_v2(document: Mapping[str, Any], where: str) -> tuple[dict[str, Any], ChunkSpec]:
    kind = _element_type(document.get("dtype"), TYPE_V2.fullmatch, where)
    shape, chunks = _sizes(document, "shape", where), _sizes(document, "chunks", where, least=1)
    filters, compressor = document.get("filters") or [], document.get("compressor")
    _require(isinstance(filters, list) and len(filters) <= MAX_CODECS, "filters", filters, where)
    _require(len(chunks) == len(shape), "chunks", chunks, where)
    _require(document.get("order", "C") in ("C", "F"), "order", document.get("order"), where)
    separator = document.get("dimension_separator", ".")
    _require(separator in (".", "/"), "dimension_separator", separator, where)
    codecs = [codec for codec in (*filters, compressor) if codec is not None]
    for codec in codecs:
        _require(isinstance(codec, dict) and isinstance(codec.get("id"), str), "codec", codec, where)
        _require_codec(codec["id"], CODECS_V2, codec, where)
    plain = {
        "zarr_format": 2,
        "shape": shape,
        "chunks": chunks,
        "dtype": kind,
        "compressor": compressor,
        "filters": filters or None,
        "fill_value": _fill_value(document.get("fill_value"), where),
        "order": document.get("order", "C"),
        "dimension_separator": separator,
        "attributes": {},
    }
    return plain, ChunkSpec(prod(chunks) * np.dtype(kind).itemsize, codecs[-1]["id"] if codecs else None)


def _checked_v3(document: Mapping[str, Any], where: str) -> tuple[dict[str, Any], ChunkSpec]:
    _require(document.get("zarr_format") == 3, "zarr_format", document.get("zarr_format"), where)
    _require(document.get("node_type") == "array", "node_type", document.get("node_type"), where)
    extensions = [
        word
        for word, value in document.items()
        if word not in PLAIN_WORDS_V3 and not (isinstance(value, dict) and value.get("must_understand") is False)
    ]
    if extensions or document.get("storage_transformers"):
        extension = extensions[0] if extensions else "storage_transformers"
        raise UnsupportedError(f"{where}: has the extension {_text(extension)}, which is not read. Save it without.")
    kind = _element_type(document.get("data_type"), TYPES_V3.__contains__, where)
    shape = _sizes(document, "shape", where)
    grid, encoding = _named(document.get("chunk_grid"), where), _named(document.get("chunk_key_encoding"), where)
    if grid["name"] != "regular":
        raise UnsupportedError(f"{where}: its chunk grid is {_text(grid['name'])}, expected regular. Use equal chunks.")
    chunks = _sizes(grid["configuration"], "chunk_shape", where, least=1)
    _require(len(chunks) == len(shape), "chunk_shape", chunks, where)
    separator = encoding["configuration"].get("separator", "/" if encoding["name"] == "default" else ".")
    _require(encoding["name"] in ("default", "v2") and separator in (".", "/"), "chunk_key_encoding", encoding, where)
    codecs = _codecs(document.get("codecs"), where)
    plain = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": kind,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": encoding["name"], "configuration": {"separator": separator}},
        "fill_value": _fill_value(document.get("fill_value"), where),
        "codecs": codecs,
        "attributes": {},
    }
    return plain, _chunk_spec(codecs, chunks, np.dtype(kind).itemsize, where)


def _element_type(kind: Any, is_number: Callable[[str], object], where: str) -> str:
    if not isinstance(kind, str) or not is_number(kind):
        raise UnsupportedError(f"{where}: elements are of type {_text(kind)}, only numbers are read. Convert them.")
    return kind


def _codecs(codecs: Any, where: str, depth: int = 0) -> list[dict[str, Any]]:
    """The codecs of a chunk, of those in a shard, or of its index; codecs that are not in the list are refused."""
    _require(isinstance(codecs, list) and 0 < len(codecs) <= MAX_CODECS, "codecs", codecs, where)
    named_codecs = [_named(codec, where) for codec in codecs]
    for codec in named_codecs:
        name, words = codec["name"], codec["configuration"]
        _require_codec(name, CODECS_V3, words, where)
        if name == SHARDING:
            _require(depth < MAX_SHARD_DEPTH, "codecs", "shards in shards in shards", where)
            _sizes(words, "chunk_shape", where, least=1)
            for key in ("codecs", "index_codecs"):
                words[key] = _codecs(words.get(key), where, depth + 1)
    return named_codecs


def _chunk_spec(codecs: Sequence[Mapping[str, Any]], chunks: Sequence[int], itemsize: int, where: str) -> ChunkSpec:
    """The unit of decoding; a chunk of the shard where the codec of the file is sharding alone."""
    index, is_in_shard = 0, False
    while [codec["name"] for codec in codecs] == [SHARDING]:
        words = codecs[0]["configuration"]
        inner = words["chunk_shape"]
        pairs = list(zip(chunks, inner, strict=False))
        is_divisor = len(inner) == len(chunks) and all(size % part == 0 for size, part in pairs)
        _require(is_divisor, "chunk_shape of a shard", inner, where)
        count = prod(size // part for size, part in pairs)
        if count > MAX_INNER_CHUNKS:
            limit = f"at most {MAX_INNER_CHUNKS} are read"
            raise UnsupportedError(f"{where}: a shard has {count} chunks, {limit}. Save it in larger chunks.")
        index, is_in_shard = index or 16 * count, True
        codecs, chunks = words["codecs"], inner
    last = codecs[-1]["name"].removeprefix("numcodecs.")
    return ChunkSpec(prod(chunks) * itemsize, last, is_in_shard, index)


def _require_codec(name: str, known: frozenset[str], words: Mapping[str, Any], where: str) -> None:
    """Refuse a codec that is not in the list, and types in its words that are not numbers."""
    if name not in known:
        text = f"{where}: its chunks need the codec {_text(name)}, which is not read."
        raise UnsupportedError(f"{text} Save it with one of {', '.join(COMPRESSORS)}, or without compression.")
    for word in TYPE_WORDS & set(words):
        kind = words[word]
        _require(isinstance(kind, str) and (kind in TYPES_V3 or bool(TYPE_V2.fullmatch(kind))), word, kind, where)


def _named(value: Any, where: str) -> dict[str, Any]:
    """A name with its configuration; a name alone has an empty one."""
    if isinstance(value, str):
        return {"name": value, "configuration": {}}
    _require(isinstance(value, dict) and isinstance(value.get("name"), str), "a name", value, where)
    configuration = value.get("configuration", {})
    _require(isinstance(configuration, dict), "configuration", configuration, where)
    return {"name": value["name"], "configuration": dict(configuration)}


def _sizes(document: Mapping[str, Any], word: str, where: str, least: int = 0) -> list[int]:
    value = document.get(word)
    is_list = isinstance(value, list) and len(value) <= MAX_AXES
    _require(is_list and all(type(size) is int and least <= size for size in value or ()), word, value, where)
    sizes: list[int] = list(value or ())
    _require(prod(size or 1 for size in sizes) < 2**60, word, sizes, where)
    return sizes


def _fill_value(value: Any, where: str) -> Any:
    """A number as JSON has it, or a word for one, such as NaN; a complex one is two of them."""
    parts = value if isinstance(value, list) and len(value) == 2 else [value]
    is_number = all(part is None or isinstance(part, bool | int | float | str) for part in parts)
    _require(is_number, "fill_value", value, where)
    return value


def _require(is_valid: bool, word: str, value: Any, where: str) -> None:
    if not is_valid:
        raise FileError(f"{where}: its metadata have a wrong {word}: {_text(value)}. {REPLACE}")


def _text(value: Any) -> str:
    """A value of a file, short enough for a line."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # deep lists, and ints of thousands of digits
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
