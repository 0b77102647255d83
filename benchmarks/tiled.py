"""The cost of tiles: a slide under a memory limit, killed and resumed; a photograph; exact and blended tiles.

slide       a generated image through the demo's network by `unpool run`, killed twice with SIGKILL and resumed;
            compared with untiled runs on crops around random seams and along all borders
photograph  the same command with a limit of memory and without tiles: time and peak of each process
blending    pixels per second of exact tiles, of overlapping windows, and of the halo-corrected ideal
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tifffile

import unpool
from unpool import tiles

SEED = 7
TILE = 256
CROP = 512
"""Elements of a crop along each axis: more than twice the halo of the demo's network, and a multiple of its stride."""

HALO = 64
KILLED_AT = (1 / 3, 2 / 3)
COMMAND = (sys.executable, "-c", "from unpool.cli import main; main()", "run")


def model() -> str:
    """The demo's network."""
    return str(files("unpool") / "data" / "coins.onnx")


def generate(path: Path, height: int, width: int) -> None:
    """Write a tiled TIFF of noise and blobs, without holding it."""
    random = np.random.default_rng(SEED)
    blobs = random.integers(0, 160, (64, 64)).astype(np.uint8)
    grown = np.repeat(np.repeat(blobs, TILE // 64, 0), TILE // 64, 1)

    def pieces() -> Iterator[np.ndarray[Any, Any]]:
        for _ in range(-(-height // TILE) * -(-width // TILE)):
            shift = random.integers(0, TILE, 2)
            yield np.roll(grown, shift, (0, 1)) + random.integers(0, 96, (TILE, TILE)).astype(np.uint8)

    tifffile.imwrite(
        path, pieces(), shape=(height, width), dtype=np.uint8, tile=(TILE, TILE), photometric="minisblack",
        compression="zlib", compressionargs={"level": 1}, bigtiff=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """A process that has ended: seconds that it took, its peak in bytes, and what it printed."""

    seconds: float
    peak: int
    code: int
    printed: str

    def __str__(self) -> str:
        return f"{self.seconds:7.1f} s, peak {self.peak / 2**30:.2f} GiB, exit code {self.code}"


def command(*words: str, until: Callable[[], bool] = lambda: False) -> Ended:
    """Run `unpool run` in a process of its own; SIGKILL ends it as soon as `until` says so."""
    begin = time.monotonic()
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True)
    while not until():
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            printed = process.stdout.read() if process.stdout else ""
            process.returncode = os.waitstatus_to_exitcode(status)
            return Ended(time.monotonic() - begin, usage.ru_maxrss << 10, process.returncode, printed)
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    return Ended(time.monotonic() - begin, usage.ru_maxrss << 10, os.waitstatus_to_exitcode(status), "")


def slide(folder: Path, side: int, memory: str) -> Iterator[str]:
    """Run, kill, resume, and compare; a line for each."""
    image, made = folder / "slide.tif", folder / "slide.zarr"
    generate(image, side, side)
    yield f"slide {side}x{side}: {image.stat().st_size / 2**20:.0f} MiB of TIFF"
    words = (model(), "-i", str(image), "-o", str(made), "--max-memory", memory, "--json")
    count = tile_count(side, words, folder)
    for share in KILLED_AT:
        wanted = max(1, int(count * share))
        yield f"killed at {wanted} of {count} tiles: {command(*words, '--resume', until=partial(has, made, wanted))}"
    last = command(*words, "--resume")
    tiles_of = json.loads(last.printed)["results"][0]["tiles"]
    yield f"resumed with {tiles_of['resumed']} of {tiles_of['tiles']} tiles: {last}"
    yield compared(image, made, side)


def tile_count(side: int, words: Sequence[str], folder: Path) -> int:
    """How many tiles the command makes of the image, as its journal says when it begins."""
    made = folder / "slide.zarr"
    command(*words, until=partial(has, made, 1))
    cell = json.loads((folder / "slide.zarr.part" / "journal").read_text().splitlines()[0])["settings"]["cell"]
    return int(np.prod([-(-side // max(8, length // 8 * 8)) for length in cell]))


def has(made: Path, tiles: int) -> bool:
    """Whether so many tiles of an output are finished."""
    return finished(made) >= tiles


def finished(made: Path) -> int:
    """The tiles in the journal next to an output."""
    journal = made.with_name(made.name + ".part") / "journal"
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def compared(image: Path, made: Path, side: int) -> str:
    """The output compared with untiled runs on crops: the number of differing values, and the largest difference."""
    import zarr

    session, source = unpool.InferenceSession(model()), unpool.images.open(image)
    output: Any = zarr.open(str(made), mode="r")
    different = largest = values = 0.0
    places = list(crops(side, output.chunks[-1]))
    for top, left in places:
        read = np.ascontiguousarray(source[:, :, top : top + CROP, left : left + CROP].astype(np.float32))
        (whole,) = session.run(None, {"image": read})
        rows, columns = (inner(first, side) for first in (top, left))
        kept = output[:, :, top + rows.start : top + rows.stop, left + columns.start : left + columns.stop]
        gap = np.abs(kept - whole[:, :, rows, columns])
        different, largest, values = different + np.count_nonzero(gap), max(largest, gap.max()), values + gap.size
    return f"{len(places)} crops: {different:.0f} of {values:.0f} values differ, by {largest:g} at most"


def inner(first: int, side: int) -> slice:
    """The part of a crop that its own ends do not reach, but where they are those of the image."""
    return slice(0 if first == 0 else HALO, CROP if first + CROP == side else CROP - HALO)


def crops(side: int, cell: int) -> Iterator[tuple[int, int]]:
    """Where crops begin: around 50 random places where tiles meet, and along all four borders."""
    random, last = np.random.default_rng(SEED), side - CROP
    for _ in range(50):
        seam, along = int(random.integers(1, max(2, side // cell))) * cell, int(random.integers(0, side))
        pair = (seam - CROP // 2, along)
        top, left = (
            min(max(0, one // 8 * 8), last // 8 * 8) for one in (pair if random.random() < 0.5 else pair[::-1])
        )
        yield top, left
    steps = range(0, last, max(CROP, last // 40 // 8 * 8))
    for at in steps:
        yield from ((0, at), (at, 0), (last // 8 * 8, at), (at, last // 8 * 8))
    yield last // 8 * 8, last // 8 * 8


def photograph(folder: Path, height: int, width: int, memory: str) -> Iterator[str]:
    """The command without tiles and with them, time and peak of each."""
    image = folder / "photograph.tif"
    generate(image, height, width)
    words = (model(), "-i", str(image), "--json")
    yield f"photograph {height}x{width}"
    tiled = command(*words, "-o", str(folder / "tiled.npy"), "--max-memory", memory)
    yield f"{memory}: {tiled}"
    whole = command(*words, "-o", str(folder / "whole.npy"))
    yield f"untiled: {whole}"
    one, other = (np.load(folder / name, mmap_mode="r") for name in ("tiled.npy", "whole.npy"))
    gaps = [
        np.abs(one[:, :, rows : rows + 500] - other[:, :, rows : rows + 500]).max() for rows in range(0, height, 500)
    ]
    yield f"tiled / untiled: {tiled.seconds / whole.seconds:.3f} of the time; largest difference {max(gaps):g}"


def blending(side: int, tile: int, repeats: int = 3) -> Iterator[str]:
    """Seconds for one image of exact tiles and of overlapping windows, and the halo-corrected ideal of the former."""
    options = onnxruntime.SessionOptions()
    options.enable_mem_pattern = False
    session = unpool.InferenceSession(model(), options)
    image = np.random.default_rng(SEED).integers(0, 255, (1, 1, side, side)).astype(np.float32)
    feed = {"image": image}
    tiling = tiles.Tiler(session).tiling({"image": image.shape}, (tile, tile), is_even=True)
    part = tiling[len(tiling) // 2]
    size = [one.stop - one.start for one in part.inputs["image"][2:]]
    alone = np.ascontiguousarray(image[:, :, : size[0], : size[1]])
    ideal = best(lambda: session.run(None, {"image": alone}), 3 * repeats) / (size[0] * size[1])
    computed = sum(_area(one.inputs["image"]) for one in tiling)
    exact = best(lambda: tiles.run_tiling(session, tiling, feed), repeats)
    yield f"{side}x{side} in tiles of {tile}: {computed / side**2:.3f} pixels computed per pixel kept"
    yield f"exact tiles    {exact:7.2f} s   {exact / (ideal * computed):.3f} x the halo-corrected ideal"
    for overlap in (0.25, 0.5):
        seconds = best(partial(tiles.blend, session, feed, (tile, tile), overlap=overlap, mode="gaussian"), repeats)
        yield f"blended, {overlap:<5} {seconds:7.2f} s   {seconds / exact:.3f} x exact tiles"


def _area(slices: Sequence[slice]) -> int:
    return int(np.prod([one.stop - one.start for one in slices[2:]]))


def best(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest call, behind one that is not counted."""
    call()
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return min(found)
