"""The metadata of Zarr arrays of versions 2 and 3, checked before zarr and its codecs see them.

Codecs and types come from lists: a codec of another name could run code of the file's choice, as `pickle` does, or load
a library because the file names it. bz2 and lzma are not in the lists, because a chunk of them may unpack to any size.

Source: https://zarr-specs.readthedocs.io, version 2, version 3 core and the codec `sharding_indexed`.
"""

import json
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import FileError, UnsupportedError
from unpool.images.checks import read_errors
from unpool.memory import check_bytes

LARGEST_METADATA = 16 << 20
"""Bytes of a file of metadata, at most."""

MOST_AXES = 32
MOST_CODECS = 16
MOST_SHARDS_INSIDE = 3
"""Shards in shards, at most."""
MOST_INNER_CHUNKS = 1 << 22
"""Chunks of a shard, at most: its index has 16 bytes for each."""

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
TYPE_WORDS = frozenset(("astype", "decode_dtype", "dtype", "encode_dtype"))
"""Words of a codec that name a type."""

PLAIN_WORDS_V3 = frozenset(
    ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs",
     "attributes", "dimension_names", "storage_transformers", "consolidated_metadata")
)  # fmt: skip


@dataclass(frozen=True)
class ChunkSpec:
    """Unit of decoding: a chunk, or a chunk in a shard.

    Attributes:
        bytes: of its elements.
        codec: that the bytes in the file are of, without "numcodecs."; None where they are of none.
        is_in_shard: whether it is a part of a file.
        index: bytes of the index of the shard, before its codecs.
    """

    bytes: int
    codec: str | None
    is_in_shard: bool = False
    index: int = 0


@dataclass(frozen=True)
class ZarrMetadata:
    """An array in a folder.

    Attributes:
        folder: that holds the array.
        document: its metadata as zarr takes them; what is not needed to read elements is left out.
        chunk_spec: what is decoded at once.
    """

    folder: Path
    document: Mapping[str, Any]
    chunk_spec: ChunkSpec


def read_metadata(path: Path, level: int = 0) -> ZarrMetadata:
    """The metadata of an array, or of the array in a group that a level names.

    Args:
        path: the folder of an array or a group.
        level: name of the array in a group; an array alone has level 0 only.

    Raises:
        FileError: there is no such array, or its metadata are not what the standard says.
        UnsupportedError: a codec, a type or an extension that is not read.
        ShapeError: a chunk is larger than the memory of this process.
    """
    with read_errors(str(path), "a Zarr array"):
        document, version = _document(path)
        if version is None:
            folder = path / str(level)
            document, version = _document(folder)
            if version is None:
                raise FileError(
                    f"{folder}: expected a Zarr array as a level of the group, got a group. Name the array."
                )
        elif level:
            raise FileError(f"{path}: expected a group of levels, got a single array. Leave the level out.")
        else:
            folder = path
        check = _checked_v3 if version == 3 else _checked_v2
        plain, chunk_spec = check(document, str(folder))
        check_bytes(chunk_spec.bytes, "one chunk", str(folder))
        return ZarrMetadata(folder, plain, chunk_spec)


def _document(folder: Path) -> tuple[dict[str, Any], int | None]:
    """The metadata of an array and its version, or those of a group and None."""
    for name in ("zarr.json", ".zarray", ".zgroup"):
        file = folder / name
        if not file.exists():
            continue
        document = _read_json(file)
        is_group = name == ".zgroup" or document.get("node_type") == "group"
        return document, None if is_group else 3 if name == "zarr.json" else 2
    raise FileError(
        f"{folder}: expected a Zarr array, got a place without zarr.json or .zarray. Name the array's folder."
    )


def _read_json(file: Path) -> dict[str, Any]:
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{file}: expected a file of metadata, got a folder or a device. Save the array again.")
    with file.open("rb") as stream:
        content = stream.read(LARGEST_METADATA + 1)
    if len(content) > LARGEST_METADATA:
        raise FileError(
            f"{file}: has more than {LARGEST_METADATA >> 20} MiB, too much for metadata. Save the array again."
        )
    document = json.loads(content)
    if not isinstance(document, dict):
        raise FileError(f"{file}: expected a JSON object, got {type(document).__name__}. Save the array again.")
    return document


def _checked_v2(document: Mapping[str, Any], where: str) -> tuple[dict[str, Any], ChunkSpec]:
    kind = document.get("dtype")
    if not isinstance(kind, str) or not TYPE_V2.fullmatch(kind):
        raise UnsupportedError(
            f"{where}: elements are of type {_text(kind)}, only numbers are read. Convert the array."
        )
    shape, chunks = _sizes(document, "shape", where), _sizes(document, "chunks", where, least=1)
    filters, compressor = document.get("filters") or [], document.get("compressor")
    _require(isinstance(filters, list) and len(filters) <= MOST_CODECS, "filters", filters, where)
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
    extensions = [word for word in document if word not in PLAIN_WORDS_V3 and not _may_be_ignored(document[word])]
    if extensions or document.get("storage_transformers"):
        found = extensions[0] if extensions else "storage_transformers"
        raise UnsupportedError(
            f"{where}: has the extension {_text(found)}, which is not read. Save the array without it."
        )
    kind = document.get("data_type")
    if not isinstance(kind, str) or kind not in TYPES_V3:
        raise UnsupportedError(
            f"{where}: elements are of type {_text(kind)}, only numbers are read. Convert the array."
        )
    shape = _sizes(document, "shape", where)
    grid, encoding = _named(document.get("chunk_grid"), where), _named(document.get("chunk_key_encoding"), where)
    if grid["name"] != "regular":
        raise UnsupportedError(f"{where}: its chunk grid is {_text(grid['name'])}, expected regular. Save it again.")
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


def _codecs(codecs: Any, where: str, depth: int = 0) -> list[dict[str, Any]]:
    """The codecs of a chunk, of those in a shard, or of its index, once all of them are known to be in the list."""
    _require(isinstance(codecs, list) and 0 < len(codecs) <= MOST_CODECS, "codecs", codecs, where)
    found = [_named(codec, where) for codec in codecs]
    for codec in found:
        name, words = codec["name"], codec["configuration"]
        _require_codec(name, CODECS_V3, words, where)
        if name == SHARDING:
            _require(depth < MOST_SHARDS_INSIDE, "codecs", "shards in shards in shards", where)
            _sizes(words, "chunk_shape", where, least=1)
            for key in ("codecs", "index_codecs"):
                words[key] = _codecs(words.get(key), where, depth + 1)
    return found


def _chunk_spec(codecs: Sequence[Mapping[str, Any]], chunks: Sequence[int], itemsize: int, where: str) -> ChunkSpec:
    """The unit of decoding; a chunk of the shard where the codec of the file is sharding alone."""
    index, is_in_shard = 0, False
    while [codec["name"] for codec in codecs] == [SHARDING]:
        words = codecs[0]["configuration"]
        inner = words["chunk_shape"]
        is_divisor = len(inner) == len(chunks) and all(
            size % part == 0 for size, part in zip(chunks, inner, strict=True)
        )
        _require(is_divisor, "chunk_shape of a shard", inner, where)
        count = prod(size // part for size, part in zip(chunks, inner, strict=True))
        if count > MOST_INNER_CHUNKS:
            raise UnsupportedError(
                f"{where}: a shard has {count} chunks, at most {MOST_INNER_CHUNKS} are read. Save it in larger chunks."
            )
        index, is_in_shard = index or 16 * count, True
        codecs, chunks = words["codecs"], inner
    last = codecs[-1]["name"].removeprefix("numcodecs.")
    return ChunkSpec(prod(chunks) * itemsize, last, is_in_shard, index)


def _require_codec(name: str, known: frozenset[str], words: Mapping[str, Any], where: str) -> None:
    """Refuse a codec that is not in the list, and types in its words that are not numbers."""
    if name not in known:
        raise UnsupportedError(
            f"{where}: its chunks need the codec {_text(name)}, which is not read. "
            f"Save it with one of {', '.join(COMPRESSORS)}, or without compression."
        )
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
    found = document.get(word)
    is_list = isinstance(found, list) and len(found) <= MOST_AXES
    _require(is_list and all(type(size) is int and least <= size for size in found or ()), word, found, where)
    sizes: list[int] = list(found or ())
    _require(prod(size or 1 for size in sizes) < 2**60, word, sizes, where)
    return sizes


def _fill_value(value: Any, where: str) -> Any:
    """A number as JSON has it, or a word for one, such as NaN; a complex one is two of them."""
    parts = value if isinstance(value, list) and len(value) == 2 else [value]
    _require(
        all(part is None or isinstance(part, bool | int | float | str) for part in parts), "fill_value", value, where
    )
    return value


def _may_be_ignored(value: Any) -> bool:
    return isinstance(value, dict) and value.get("must_understand") is False


def _require(is_right: bool, word: str, found: Any, where: str) -> None:
    if not is_right:
        raise FileError(f"{where}: its metadata have a wrong {word}: {_text(found)}. Save the array again.")


def _text(value: Any) -> str:
    """A value of a file, short enough for a line."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # deep lists, and ints of thousands of digits
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
