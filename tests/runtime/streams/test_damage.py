"""Damaged and hostile files through the readers: a result or one error of ours, and no code that a file names."""

import io
import json
import os
import re
import struct
import tomllib
from pathlib import Path

import nibabel
import numcodecs
import numpy as np
import pytest
import zarr
from numcodecs.abc import Codec

from tools.campaigns.readers import originals, try_case
from unpool import images
from unpool.cli.cluster import open_array
from unpool.errors import FileError, ShapeError, UnpoolError, UnsupportedError
from unpool.images.checks import read_errors
from unpool.images.npy import read_npy
from unpool.images.sink import OutputSpec
from unpool.images.zarr import open_zarr_sink
from unpool.images.zarr_store import CODECS_V2, CODECS_V3, zstd_bytes

pytestmark = pytest.mark.slow

PIXELS = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
ALL = (slice(None),) * 4
V2 = {"zarr_format": 2, "shape": [1, 1, 8, 8], "chunks": [1, 1, 8, 8], "dtype": "<f4", "compressor": None,
      "filters": None, "fill_value": 0, "order": "C"}  # fmt: skip
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
V3 = {"zarr_format": 3, "node_type": "array", "shape": [1, 1, 8, 8], "data_type": "float32", "fill_value": 0,
      "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1, 8, 8]}},
      "chunk_key_encoding": {"name": "default"}, "codecs": [BYTES]}  # fmt: skip


class Trap(Codec):
    """A codec that somebody has installed, and that notes when it is called."""

    codec_id = "trap"
    calls: list[bytes] = []  # noqa: RUF012

    def encode(self, buf):
        return bytes(buf)

    def decode(self, buf, out=None):
        self.calls.append(bytes(buf))
        return PIXELS.tobytes()


def save(folder, document, chunk=None):
    """A Zarr array of a document and one chunk."""
    place = folder / "a.zarr"
    is_v2 = document.get("zarr_format") == 2
    file = place / ("0.0.0.0" if is_v2 else "c/0/0/0/0")
    file.parent.mkdir(parents=True)
    (place / (".zarray" if is_v2 else "zarr.json")).write_text(json.dumps(document))
    file.write_bytes(PIXELS.tobytes() if chunk is None else chunk)
    return place


def sharded(inner=(BYTES,), index=(BYTES,)):
    words = {"chunk_shape": [1, 1, 4, 8], "codecs": list(inner), "index_codecs": list(index)}
    return V3 | {"codecs": [{"name": "sharding_indexed", "configuration": words}]}


@pytest.mark.parametrize("as_filter", [False, True])
def test_an_installed_codec_that_is_not_in_the_list_is_not_called(as_filter, tmp_path, monkeypatch):
    """A codec of any package is refused by its name, before it sees a byte: by windows, on a cluster and on resume."""
    monkeypatch.setitem(numcodecs.registry.codec_registry, "trap", Trap)
    monkeypatch.setattr(Trap, "calls", [])
    path = save(tmp_path, V2 | ({"filters": [{"id": "trap"}]} if as_filter else {"compressor": {"id": "trap"}}))
    for read in (lambda: images.open(path)[ALL], lambda: open_array(path)[ALL]):
        with pytest.raises(UnsupportedError, match=r"its chunks need the codec 'trap', which is not read\. Save it"):
            read()
    with pytest.raises(FileError, match="over"):
        open_zarr_sink(path, OutputSpec(PIXELS.shape, PIXELS.dtype, 1, PIXELS.shape)).read(ALL)
    assert Trap.calls == []


HOSTILE = {
    "pickle": V2 | {"compressor": {"id": "pickle"}},
    "objects": V2 | {"dtype": "|O", "filters": [{"id": "pickle"}]},
    "strings": V2 | {"dtype": "<U4"},
    "structure": V2 | {"dtype": [["a", "<f4"]]},
    "view as objects": V2 | {"filters": [{"id": "astype", "encode_dtype": "|O", "decode_dtype": "<f4"}]},
    "codec": V3 | {"codecs": [BYTES, {"name": "numcodecs.pickle"}]},
    "codec by its name": V3 | {"codecs": [BYTES, "pickle"]},
    "inner codec": sharded(inner=(BYTES, {"name": "numcodecs.pickle"})),
    "index codec": sharded(index=(BYTES, {"name": "numcodecs.pickle"})),
    "shard in a shard": sharded(inner=sharded(inner=(BYTES, {"name": "numcodecs.pickle"}))["codecs"]),
    "type": V3 | {"data_type": "string"},
    "extension": V3 | {"view": {"must_understand": True}},
    "transformer": V3 | {"storage_transformers": [{"name": "remap"}]},
    "no codecs": V3 | {"codecs": []},
    "many codecs": V3 | {"codecs": [BYTES] * 99},
    "negative size": V3 | {"shape": [1, 1, -8, 8]},
    "true size": V2 | {"shape": [True, True, 8, 8]},
    "huge size": V2 | {"shape": [2**62, 2**62, 2**62, 2**62]},
    "huge chunk": V2 | {"chunks": [1, 1, 2**28, 2**28]},
    "chunk of another rank": V3 | {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 8]}}},
    "shard of many": sharded() | {"shape": [1, 1, 2**20, 2**20], "chunk_grid": {"name": "regular", "configuration": {
        "chunk_shape": [1, 1, 2**20, 2**20]}}},
    "grid": V3 | {"chunk_grid": {"name": "rectilinear", "configuration": {}}},
    "key": V3 | {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "/../"}}},
    "fill value": V3 | {"fill_value": {"a": 1}},
    "group": {"zarr_format": 3, "node_type": "group"},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_metadata_are_refused_before_zarr_sees_them(name, tmp_path, monkeypatch):
    """Codecs, types and sizes are checked by us: zarr is not asked to open such an array, nor for a chunk."""
    asked = []
    for owner, name_of_method in ((zarr.Array, "from_dict"), (zarr, "open"), (zarr, "open_array")):
        monkeypatch.setattr(owner, name_of_method, lambda *_, **__: asked.append("zarr"))
    with pytest.raises(UnpoolError, match=r"a\.zarr"):
        images.open(save(tmp_path, HOSTILE[name]))
    assert asked == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b" " * (1 << 24) + b"{}", "16 MiB"), (b"[" * 10**5, "could not read it"), (b"\xff", "could not read it"),
        (b"[]", "expected a JSON object"),
    ],
    ids=["long", "deep", "letters", "list"],
)  # fmt: skip
def test_a_file_of_metadata_has_a_limit(content, says, tmp_path):
    """A file of metadata that is too long, too deep or no JSON object is one error."""
    path = save(tmp_path, V3)
    (path / "zarr.json").write_bytes(content)
    with pytest.raises(FileError, match=says):
        images.open(path)


def stored(folder, name, damage):
    """One of the campaign's Zarr arrays whose first chunk is damaged."""
    tree = originals()[f"{name}.zarr"]
    chunk = min(place for place in tree if place[0] in "c0")
    for place, content in tree.items():
        file = folder / f"{name}.zarr" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    damage(folder / f"{name}.zarr" / chunk)
    return folder / f"{name}.zarr"


def cut(file):
    file.write_bytes(file.read_bytes()[:-9])


def put_folder(file):
    file.unlink()
    file.mkdir()


def put_pipe(file):
    file.unlink()
    os.mkfifo(file)


def put_link(file):
    file.unlink()
    file.symlink_to("nowhere")


@pytest.mark.parametrize(
    "name", ["zstd", "plain", "gzip", "blosc", "crc", "shards", "old-zstd", "old-plain", "old-lz4"]
)
@pytest.mark.parametrize("damage", [cut, put_folder, put_pipe, put_link])
def test_a_damaged_chunk_is_one_error(name, damage, tmp_path):
    """A chunk that is cut off, or no file, is an error that names the array, by windows and on a cluster."""
    path = stored(tmp_path, name, damage)
    for read in (lambda: images.open(path)[ALL], lambda: open_array(path)[ALL]):
        with pytest.raises(FileError, match=rf"{name}\.zarr"):
            read()


def test_a_missing_chunk_is_the_fill_value(tmp_path):
    """A chunk without a file is the fill value, as Zarr means it; the others are as they were saved."""
    found = images.open(stored(tmp_path, "zstd", Path.unlink))[ALL]
    assert not found[0, 0, :10, :12].any()
    assert found[0, 0, 10:].any()


CLAIMS = {
    "zstd": ({"id": "zstd"}, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**40) + b"\x01\x00\x00"),
    "zstd of unknown size": ({"id": "zstd"}, b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\x00\x10a" * 999),
    "blosc": ({"id": "blosc"}, struct.pack("<4BIII", 2, 1, 1, 4, 2**31 - 16, 2**18, 20)),
    "lz4": ({"id": "lz4"}, struct.pack("<I", 2**31 - 1)),
    "long": (None, bytes(1 << 21)),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_chunk_that_claims_too_much_is_refused(name, tmp_path):
    """What a chunk says it unpacks to is compared with its elements before memory is taken."""
    compressor, chunk = CLAIMS[name]
    path = save(tmp_path, V2 | {"compressor": compressor}, chunk)
    with pytest.raises(FileError, match=r"0\.0\.0\.0: (claims|has) \d+ bytes, for a chunk of 256"):
        images.open(path)[ALL]


@pytest.mark.parametrize("size", [1, 300, 70_000, 200_000])
def test_claims_are_those_of_the_library(size):
    """The size that a frame of Zstandard states is read as the library writes it."""
    frame = numcodecs.Zstd().encode(bytes(size))
    assert zstd_bytes(memoryview(bytes(frame))) == size


def npy(shape):
    header = shape if shape[0] in "([" and not shape.endswith(")") else (
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    )  # fmt: skip
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(1024)


@pytest.mark.parametrize(
    "shape",
    [
        "(1, 1, 2**70)", f"(1, 1, {2**70})", f"(1, 1, 0, {2**80})", f"(1, 1, 0, {2**62})", f"{(10**5,) * 4}",
        "(True, True, 16, 16)", "(1, 1, -1, 16)", "(1, 1, 16.0, 16)", f"({'1,' * 70})", "(" * 9000, "[" * 9000,
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_hostile_npy_headers_are_one_error(shape, tmp_path):
    """A header with any shape or any depth is a FileError, by windows, on a cluster and as a whole."""
    path = tmp_path / "a.npy"
    path.write_bytes(npy(shape))
    content = path.read_bytes()
    for read in (images.open, open_array, lambda path: read_npy(io.BytesIO(content), len(content), str(path))):
        with pytest.raises(FileError, match=r"a\.npy: "):
            read(path)


def test_objects_and_other_versions_are_unsupported(tmp_path):
    """A .npy file of Python objects, or of a version of the format that is not known, is not read in windows either."""
    np.save(tmp_path / "a.npy", np.array([None]), allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(npy("(1, 1, 16, 16)").replace(b"\x01\x00", b"\x09\x09", 1))
    for name, says in (("a.npy", "Python objects"), ("b.npy", r"version \(9, 9\)")):
        with pytest.raises(UnsupportedError, match=says):
            images.open(tmp_path / name)


def test_a_short_volume_is_refused_when_it_is_opened(tmp_path):
    """A .nii file that is shorter than its header says is an error before a window is read."""
    nibabel.save(nibabel.Nifti1Image(np.zeros((6, 7, 8), np.int16), np.eye(4)), tmp_path / "a.nii")
    content = (tmp_path / "a.nii").read_bytes()
    (tmp_path / "a.nii").write_bytes(content[:-1])
    with pytest.raises(FileError, match=rf"claims {len(content)} bytes, the file has {len(content) - 1}"):
        images.open(tmp_path / "a.nii", rank=5)


def test_errors_of_other_libraries_keep_their_cause():
    """The boundary names the file, gives one line, and chains what the library raised; our own errors pass."""
    text = r"^x\.tif: expected a TIFF image, could not read it \(two lines\)\. It may be damaged: copy it again, or"
    with pytest.raises(FileError, match=text) as caught, read_errors("x.tif", "a TIFF image"):
        raise RuntimeError("two\nlines.")
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(ShapeError, match="memory ran out"), read_errors("x.tif", "a TIFF image"):
        raise MemoryError
    with pytest.raises(UnsupportedError, match="ours"), read_errors("x.tif", "a TIFF image"):
        raise UnsupportedError("ours")


def test_a_short_campaign(tmp_path):
    """Damaged files of every format give a result or an error of ours, in every way in which they are read."""
    cases = [try_case(tmp_path / "case", 7, number) for number in range(60)]
    outcomes = {outcome for _, ways in cases for outcome in ways.values()}
    assert outcomes == {"result", "refused"}


def test_a_cluster_reads_a_level_of_a_group(tmp_path):
    """Groups of levels are read alike by windows and on a cluster; a level that is not there is an error of both."""
    levels = zarr.create_group(str(tmp_path / "a.zarr"), zarr_format=2)
    for level in (0, 1):
        levels.create_array(str(level), shape=PIXELS.shape, dtype="f4")[...] = PIXELS + level
    np.testing.assert_array_equal(
        open_array(tmp_path / "a.zarr", 1)[ALL], images.open(tmp_path / "a.zarr", level=1)[ALL]
    )
    np.testing.assert_array_equal(np.asarray(open_array(tmp_path / "a.zarr")), PIXELS)
    for read in (open_array, lambda path, level: images.open(path, level=level)):
        with pytest.raises(FileError, match=r"a\.zarr/7: expected a Zarr array"):
            read(tmp_path / "a.zarr", 7)


def test_the_page_names_every_codec():
    """docs/tiling.md lists the codecs that are read."""
    page = (Path(__file__).parents[3] / "docs" / "tiling.md").read_text().partition("### Codecs of Zarr")[2]
    words = set(re.findall(r"\w+", page.partition("\nEvery other codec")[0]))
    assert {name.removeprefix("numcodecs.") for name in CODECS_V2 | CODECS_V3} - {"endian"} <= words


def test_the_extras_with_zarr_name_its_codecs():
    """Versions of numcodecs that unpickle for any file are excluded wherever zarr is installed."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = [extra for extra in project["optional-dependencies"].values() if any(one[:4] == "zarr" for one in extra)]
    assert extras
    assert all({"zarr>=3.1", "numcodecs>=0.16.6"} <= set(extra) for extra in extras)
