"""Damaged and hostile files through every reader, in windows and whole: a result or an error of ours, never another.

python -m tools.campaigns.readers --count 20000 --seed 1

A case is a file of one format: some of its bytes are changed, or its header or metadata have other values. Workers
run the cases under a limit on their addresses; one that ends, or takes too long for a case, counts as wrong.
"""

import argparse
import gzip
import io
import json
import logging
import queue
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import tifffile
import zarr
from numcodecs import BZ2, LZ4, Blosc, Delta, Shuffle, Zlib
from PIL import Image

from unpool import images
from unpool.cli.cluster import open_array
from unpool.cli.inputs import list_members
from unpool.errors import UnpoolError
from unpool.images.axes import full_slices
from unpool.images.npy import read_member, read_npy
from unpool.images.sink import OutputSpec
from unpool.images.zarr import open_zarr_sink

ADDRESSES = 6 << 30
"""Bytes of addresses that a worker may take."""

LIMIT = 30.0
"""Seconds of one case, of which most take milliseconds; a busy machine is slow."""

START = 300.0
"""Seconds until a worker has imported all that it needs."""

SHAPE = (3, 20, 24)
NUMBERS = (0, 1, -1, 2, 7, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1, 2**70, 1e300)
WORDS = (
    "",
    "pickle",
    "numcodecs.pickle",
    "zstd",
    "bytes",
    "vlen-utf8",
    "object",
    "|O",
    "<f4",
    ">f8",
    "<U9",
    "NaN",
    "/",
    "é",
)
SIZES = ("0", "1", "-1", "True", "2**9", "1.5", "16", str(2**31), str(2**62), str(2**80), "9" * 5000, "'16'", "None")
TYPES = (
    "'<f4'",
    "'|O'",
    "'>f8'",
    "'|b1'",
    "'<U4'",
    "'|V0'",
    "[('a', '<f4')]",
    "'<M8[ns]'",
    "None",
    "5",
    "'<f16'",
    "''",
)
DEEP = ("(" * 9000, "[" * 9000, "-" * 9000 + "1", "{" * 400, "{'descr': " * 90, "lambda: 1", "'" * 3 + "\n" * 99)

Tree = dict[str, bytes]
"""The files of a folder by their places in it; a file alone is at ""."""


def pixels() -> "np.ndarray[Any, Any]":
    """What most files hold."""
    return np.random.default_rng(3).integers(0, 200, SHAPE, np.uint8)


def npy(**words: Any) -> bytes:
    """A .npy file."""
    stream = io.BytesIO()
    np.save(stream, np.array(pixels().astype(np.float32), **words))
    return stream.getvalue()


def tiff(**words: Any) -> bytes:
    """A .tif file."""
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels().transpose(1, 2, 0), photometric="rgb", **words)
    return stream.getvalue()


def picture(form: str, mode: str) -> bytes:
    """A picture as Pillow writes it."""
    stream = io.BytesIO()
    Image.fromarray(pixels().transpose(1, 2, 0)).convert(mode).save(stream, form)
    return stream.getvalue()


def nifti(*, is_packed: bool) -> bytes:
    """A NIfTI file, with a slope."""
    image = nibabel.Nifti1Image(pixels().astype(np.int16), np.eye(4))
    image.header.set_slope_inter(0.5, 10)
    content: bytes = image.to_bytes()
    return gzip.compress(content, mtime=0) if is_packed else content


def store(**words: Any) -> Tree:
    """The files of a Zarr array."""
    with tempfile.TemporaryDirectory() as folder:
        array = zarr.create_array(folder, shape=(1, *SHAPE), chunks=(1, 1, 10, 12), dtype="f4", **words)
        array[...] = pixels()[None]
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def archive() -> bytes:
    """A .npz file."""
    stream = io.BytesIO()
    np.savez_compressed(stream, x=pixels().astype(np.float32))
    return stream.getvalue()


@cache
def originals() -> dict[str, Tree]:
    """A file of every kind, by its name."""
    files: dict[str, Callable[[], bytes]] = {
        "c.npy": npy,
        "fortran.npy": lambda: npy(order="F"),
        "packed.npz": archive,
        "plain.tif": tiff,
        "strips.tif": lambda: tiff(rowsperstrip=4, compression="zlib"),
        "tiles.tif": lambda: tiff(tile=(16, 16), compression="lzw", bigtiff=True),
        "jpeg.tif": lambda: tiff(tile=(16, 16), compression="jpeg"),
        "zstd.tif": lambda: tiff(tile=(16, 16), compression="zstd"),
        "a.nii": lambda: nifti(is_packed=False),
        "b.nii.gz": lambda: nifti(is_packed=True),
        "colour.png": lambda: picture("PNG", "RGB"),
        "palette.png": lambda: picture("PNG", "P"),
        "a.jpg": lambda: picture("JPEG", "RGB"),
        "a.webp": lambda: picture("WEBP", "RGB"),
        "a.gif": lambda: picture("GIF", "P"),
        "a.bmp": lambda: picture("BMP", "RGB"),
    }
    codecs = zarr.codecs
    stores: dict[str, dict[str, Any]] = {
        "zstd": {"zarr_format": 3},
        "plain": {"zarr_format": 3, "compressors": None},
        "gzip": {"zarr_format": 3, "compressors": [codecs.GzipCodec()]},
        "blosc": {"zarr_format": 3, "compressors": [codecs.BloscCodec()]},
        "crc": {"zarr_format": 3, "compressors": [codecs.ZstdCodec(), codecs.Crc32cCodec()]},
        "shards": {"zarr_format": 3, "shards": (1, 3, 20, 24)},
        "old-zstd": {"zarr_format": 2},
        "old-plain": {"zarr_format": 2, "compressors": None},
        "old-blosc": {"zarr_format": 2, "compressors": [Blosc()], "filters": [Delta("<f4")]},
        "old-lz4": {"zarr_format": 2, "compressors": [LZ4()], "filters": [Shuffle(4)]},
        "old-zlib": {"zarr_format": 2, "compressors": [Zlib()]},
        "old-bz2": {"zarr_format": 2, "compressors": [BZ2()]},
    }
    found = {name: {"": make()} for name, make in files.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found |= {f"{name}.zarr": store(**words) for name, words in stores.items()}
    return found


def damage(rng: random.Random, name: str) -> Tree:
    """The files of one case: an original with some damage."""
    tree = dict(originals()[name])
    if name.endswith(".npy") and rng.random() < 0.5:
        return {"": hostile_npy(rng)}
    if name.endswith(".zarr") and rng.random() < 0.5:
        place = next(place for place in tree if place in ("zarr.json", ".zarray"))
        document = json.loads(tree[place])
        for _ in range(rng.choice((1, 1, 2))):
            change_value(rng, document)
        return tree | {place: json.dumps(document).encode()}
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.choice(sorted(tree))
        kind = rng.random()
        if place and kind < 0.1:
            del tree[place]
        elif place and kind < 0.2:
            tree[f"{place}/inside"] = tree.pop(place)  # a folder in the place of a file
        else:
            tree[place] = scratch(rng, tree[place])
        if not tree:
            break
    return tree


def scratch(rng: random.Random, content: bytes) -> bytes:
    """Bytes of which a few are changed, cut out, doubled or cut off; mostly near the beginning, where headers are."""
    data = bytearray(content)
    if not data:
        return b"\0"
    at = rng.randrange(min(len(data), 400)) if rng.random() < 0.6 else rng.randrange(len(data))
    length = rng.choice((1, 1, 2, 4, 8, 64))
    kind = rng.randrange(6)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at : at + length]
    elif kind == 2:
        data[at:at] = data[at : at + length]
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        width = rng.choice((1, 2, 4, 8))
        number = int(rng.choice(NUMBERS)) % 256**width
        data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
    else:
        data[at : at + length] = rng.randbytes(length)
    return bytes(data)


def hostile_npy(rng: random.Random) -> bytes:
    """A .npy file whose header says what nobody writes."""
    axes = rng.choice((0, 1, 3, 4, 4, 4, 70))
    shape = ", ".join(rng.choice(SIZES) if rng.random() < 0.5 else "4" for _ in range(axes))
    header = rng.choice(DEEP) if rng.random() < 0.2 else (
        f"{{'descr': {rng.choice(TYPES) if rng.random() < 0.5 else TYPES[0]}, "
        f"'fortran_order': {rng.choice(('False', 'True', '1', 'None'))}, 'shape': ({shape},), }}\n"
    )  # fmt: skip
    version = rng.choice(((1, 0), (2, 0), (3, 0), (9, 9)))
    width = 2 if version == (1, 0) else 4
    length = len(header) if rng.random() < 0.9 else rng.choice((0, 5, 256**width - 1))
    return (
        b"\x93NUMPY"
        + bytes(version)
        + length.to_bytes(width, "little")
        + header.encode()
        + bytes(rng.choice((0, 99, 4096)))
    )


def change_value(rng: random.Random, document: Any) -> None:
    """Another value at one place of a JSON document, or none."""
    places = list(all_places(document))
    owner, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.15:
        del owner[key]
    elif kind < 0.5:
        owner[key] = rng.choice(NUMBERS)
    elif kind < 0.75:
        owner[key] = rng.choice(WORDS)
    elif kind < 0.95:
        owner[key] = rng.choice(
            (None, True, [], {}, [[]], [10**9, 10**9], {"id": "pickle"}, {"name": "numcodecs.pickle"})
        )
    else:
        value: Any = []
        for _ in range(rng.choice((5, 400))):
            value = [value]
        owner[key] = value
    if not document:
        document["zarr_format"] = 3


def all_places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a JSON document, as what holds it and its key."""
    for key, value in list(document.items() if isinstance(document, dict) else enumerate(document)):
        yield document, key
        if isinstance(value, dict | list):
            yield from all_places(value)


def attempts(path: Path, rng: random.Random) -> dict[str, Callable[[], Any]]:
    """All ways in which the file is read."""
    ending = "".join(path.suffixes)
    rank = 5 if ending.startswith(".nii") else 4

    def windows() -> None:
        source = images.open(path, rank=rank, layout=rng.choice(("NCHW", "NCHW", "NHWC")), channels=3)
        source.fingerprint()
        for _ in range(3):
            first = [rng.randrange(max(1, size)) for size in source.shape]
            source[tuple(slice(at, min(at + rng.choice((1, 9)), at + 32)) for at in first)]
        source[tuple(slice(0, min(size, 64)) for size in source.shape)]

    def read_back() -> None:
        sink = open_zarr_sink(path, OutputSpec((1, *SHAPE), np.dtype(np.float32), 1, (1, *SHAPE)))
        sink.read(full_slices((1, *SHAPE)))

    def from_file(read: Callable[[Any, int], Any]) -> Any:
        with path.open("rb") as stream:
            return read(stream, path.stat().st_size)

    if ending == ".zarr":
        return {"windows": windows, "cluster": lambda: np.asarray(open_array(path)[0, 0, :5, :5]), "resume": read_back}
    if ending == ".npy":
        return {
            "windows": windows,
            "cluster": lambda: open_array(path),
            "whole": lambda: from_file(lambda stream, size: read_npy(stream, size, str(path))),
        }
    if ending == ".npz":
        return {
            "members": lambda: list_members(path),
            "whole": lambda: from_file(lambda stream, _: read_member(stream, "x", str(path))),
        }
    image = {"whole": lambda: images.read(path, spatial_rank=rank - 2, channels=rng.choice((None, 1, 3)))}
    return image if ending in (".png", ".jpg", ".webp", ".gif", ".bmp") else {"windows": windows} | image


def try_case(folder: Path, seed: int, number: int) -> tuple[str, dict[str, str]]:
    """The name of a case, and what each way of reading it came to: result, refused, or an exception.

    Args:
        folder: where its files are; what was there is removed.
        seed: of the campaign.
        number: of the case.
    """
    rng = random.Random(f"{seed} {number}")
    name = rng.choice(sorted(originals()))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / name
    for place, content in damage(rng, name).items():
        file = path / place if place else path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    outcomes = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for way, attempt in attempts(path, rng).items():
            try:
                attempt()
                outcomes[way] = "result"
            except UnpoolError:
                outcomes[way] = "refused"
            except Exception as error:  # the finding
                outcomes[way] = f"{type(error).__name__}: {error}"[:300]
    return name, outcomes


def work(seed: int, first: int, count: int) -> None:
    """Run cases, and print a line of JSON for each; ready is printed before the first."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, limits[1]))
    logging.disable(logging.CRITICAL)
    originals()
    print(json.dumps({"ready": True}), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, first + count):
            name, outcomes = try_case(Path(folder) / "case", seed, number)
            print(json.dumps({"number": number, "name": name, "outcomes": outcomes}), flush=True)


def run(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run cases in workers; how many attempts came to what, and what is wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    number = 0
    while number < count:
        command = [sys.executable, "-m", "tools.campaigns.readers", "--worker", str(number)]
        command += ["--seed", str(seed), "--count", str(count - number)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        why = ""
        for line in lines_of(worker):
            if line is None:
                why = "takes too long"
                worker.kill()
                break
            if "ready" in line:
                continue
            number = line["number"] + 1
            for way, outcome in line["outcomes"].items():
                counts[outcome if outcome in ("result", "refused") else "wrong"] += 1
                if outcome not in ("result", "refused"):
                    wrong.append(f"case {line['number']}, {line['name']}, {way}: {outcome}")
        code = worker.wait()
        if number < count:
            wrong.append(f"case {number}: {why or f'the worker ended with {code}'}")
            counts["wrong"] += 1
            number += 1
    return counts, wrong


def lines_of(worker: "subprocess.Popen[str]") -> Iterator[dict[str, Any] | None]:
    """What a worker prints; None when it takes too long."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    limit = START
    while True:
        try:
            line = lines.get(timeout=limit)
        except queue.Empty:
            yield None
            return
        if line is None:
            return
        limit = LIMIT
        yield json.loads(line)


def main() -> int:
    """Run the campaign; the exit status is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        work(given.seed, given.worker, given.count)
        return 0
    begun = time.monotonic()
    counts, wrong = run(given.count, given.seed)
    print(*wrong, sep="\n")
    print(
        f"{given.count} files, seed {given.seed}: {counts['result']} results, {counts['refused']} refused, "
        f"{counts['wrong']} wrong, {time.monotonic() - begun:.0f} s"
    )
    return int(bool(counts["wrong"]))


if __name__ == "__main__":
    raise SystemExit(main())
