"""Runs in tiles whose files cannot be written window by window: pictures, archives, and standard output.

Outputs go into temporary files next to the result, as they would go into .npy or .nii, and from there row by row, or
piece by piece, into the file that is asked for. So memory does not grow with the image, except for

    .jpg                      the encoder's picture: 4 bytes per pixel
    an overlay of a volume    the voxels and their classes, to choose three planes
"""

import gzip
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from unpool.cli.inputs import Item
from unpool.cli.outputs import ARRAY_FORMATS, safe_names
from unpool.cli.render import Areas, ArraySpecs, specs_of, view_of_file, write_drawn, write_stored_pixels
from unpool.cli.run_config import RunConfig
from unpool.cli.windows import ModelRun, PixelSource, ending_at_once, open_feed
from unpool.images.axes import spatial_axes
from unpool.images.npy import open_npy
from unpool.images.raster import BAND
from unpool.images.source import OpenOptions
from unpool.runtime.streams.output_transform import ScoreFormat
from unpool.runtime.streams.run import run_locked
from unpool.runtime.streams.runner import OutputFile, RunResult

DRAWING = 120  # bytes per pixel of a band of rows that is drawn
IN_JPEG = 4  # bytes per pixel that Pillow holds
PIECE = 1 << 20  # bytes that are copied at a time


@dataclass(frozen=True)
class TemporaryOutputs:
    """The outputs of one item in temporary files, its inputs to read windows of, and assumptions about pixels."""

    run: ModelRun
    item: Item
    done: RunResult
    feed: Mapping[str, Any]
    notes: Sequence[str]

    def write(self, stream: BinaryIO, names: Sequence[str]) -> tuple[ArraySpecs, Areas]:
        """Write some outputs into one file; the arrays in it, and the share of the area of every class."""
        config = self.run.config
        files = {name: self.done.files[name] for name in names}
        name, file = next(iter(files.items()))
        if config.is_drawn:
            images = (self.feed[name] for name, source in self.item.sources.items() if source.is_image)
            image = next(images, None)  # the first one among the inputs
            bases = [image.backdrop(page) for page in range(image.shape[0])] if isinstance(image, PixelSource) else []
            classes = view_of_file(_stored(file), file.classes, config.layout, name)
            return write_drawn(stream, config, (name, classes), bases, self.run.style)
        if config.file_format.channels:
            write_stored_pixels(stream, config, name, _stored(file))
        elif config.format == "npz":
            members = safe_names(names)
            with zipfile.ZipFile(stream, "w") as archive:
                for name, file in files.items():
                    with archive.open(f"{members[name]}.npy", "w", force_zip64=True) as member:
                        _copy(file.path, member)
        elif config.format == "nii.gz":
            with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") as packed:
                _copy(file.path, packed)
        else:
            _copy(file.path, stream)
        return specs_of(files), self.run.style.shares(file)

    def write_to_stream(self, stream: BinaryIO, names: Sequence[str]) -> tuple[ArraySpecs, Areas]:
        """As `write`, through one more temporary file, because writers of formats seek."""
        with tempfile.TemporaryFile(dir=self.done.files[names[0]].path.parent) as whole:
            written = self.write(whole, names)
            whole.seek(0)
            shutil.copyfileobj(whole, stream, PIECE)
            stream.flush()
        return written


@contextmanager
def spool(run: ModelRun, item: Item, folder: Path | None, undo: Callable[[], None]) -> Iterator[TemporaryOutputs]:
    """The outputs of one item in temporary files in `folder`, or the system's; `undo` is called on an interruption."""
    config, request = run.config, run.request
    if run.gives_class_numbers:
        request = replace(request, scores=ScoreFormat())
    encoder_bytes = partial(_encoder_bytes, config)
    feed, notes = open_feed(run, item, request, encoder_bytes)
    if request.max_memory is not None:
        request = replace(request, max_memory=request.max_memory - encoder_bytes(feed))
    form = "npy" if config.is_drawn else config.file_format.temporary_format
    scratch = Path(tempfile.mkdtemp(prefix=".unpool-", dir=folder))

    def remove() -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        undo()

    try:
        places = {name: scratch / f"{number}.{form}" for number, name in enumerate(run.outputs)}
        with ending_at_once(remove, can_resume=False):
            done = run_locked(run.session, feed, places, request, resume=False, on_progress=run.progress.on_progress)
        yield TemporaryOutputs(run, item, done, feed, notes)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _encoder_bytes(config: RunConfig, feed: Mapping[str, Any]) -> int:
    """Bytes that it takes to write the file once the tiles are done."""
    image = max((source.shape for source in feed.values()), key=len)
    spatial: list[int] = [image[axis] for axis in spatial_axes(len(image), config.layout.upper())]
    if config.format in ARRAY_FORMATS or not spatial:
        return 0
    width: int = prod(spatial[1:])
    band = DRAWING * max(BAND, 16 * width) if config.is_drawn else 0
    if config.overlay and len(spatial) == 3:
        # voxels, copied once where they are not in a row, their classes, and which of these have a colour
        widest = max((np.dtype(source.dtype).itemsize for source in feed.values()), default=4)
        return band + prod(spatial) * (2 * widest + 3)
    return band + (IN_JPEG * prod(spatial) if config.format == "jpg" else 0)


def _stored(file: OutputFile) -> Any:
    return open_npy(file.path, OpenOptions(len(file.shape)))


def _copy(path: Path, stream: Any) -> None:
    with path.open("rb") as file:
        shutil.copyfileobj(file, stream, PIECE)
