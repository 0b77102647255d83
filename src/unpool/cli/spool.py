"""Runs in tiles whose files cannot be written window by window: pictures, archives, and standard output.

Outputs go into temporary files next to the result, as they would go into .npy or .nii, and from there row by row, or
piece by piece, into the file that is asked for. So what is held does not grow with the image, but for

    .jpg                  the encoder's picture: 4 bytes per pixel
    an overlay of a volume    the voxels and their classes, to choose three planes
"""

import gzip
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from unpool.cli.inputs import Item
from unpool.cli.model import Slot
from unpool.cli.outputs import ARRAY_FORMATS, safe_names
from unpool.cli.render import ArraySpec, ClassStyle, view_of_file, write_drawn, write_stored_pixels
from unpool.cli.run_config import RunConfig
from unpool.cli.windows import PixelSource, are_plain, open_feed, run_over_windows
from unpool.errors import UnsupportedError
from unpool.images.axes import channel_axis, spatial_axes
from unpool.images.encode import BAND, FLAT_FORMATS
from unpool.images.npy import open_npy
from unpool.images.pixels import Backdrop
from unpool.images.source import OpenOptions
from unpool.runtime.streams.runner import OutputFile, ProgressCallback, RunResult

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

STAGED = {"nii": "nii", "nii.gz": "nii", "tif": "tif"}
"""Format of the temporary file by output format; .npy for the others."""
DRAWING = 120
"""Bytes per pixel of a band of rows that is drawn."""
IN_JPEG = 4
"""Bytes per pixel that Pillow holds."""
PIECE = 1 << 20
"""Bytes that are copied at a time."""


def spools(config: RunConfig, session: "InferenceSession", wanted: Sequence[str]) -> bool:
    """True if a run in tiles goes through temporary files; otherwise its outputs are held in memory.

    Raises:
        UnsupportedError: they would have to be held, and memory is limited.
    """
    if config.tile is None:
        return False
    numbers = _are_numbers(config, session, wanted[0])
    if are_plain(session, wanted) and (config.is_drawn or not numbers):
        return True
    if config.max_memory is None:
        return False
    kinds = {value.name: value.type for value in session.get_outputs()}
    raise UnsupportedError(
        f"--max-memory: output {wanted[0]!r}, {kinds[wanted[0]]}, would be held whole to become .{config.format}. "
        "Leave --max-memory out, or write .npy without --argmax."
    )


def _are_numbers(config: RunConfig, session: "InferenceSession", name: str) -> bool:
    """True if an output holds class numbers rather than scores."""
    kind = next(value.type for value in session.get_outputs() if value.name == name)
    is_float = kind in ("tensor(float)", "tensor(double)", "tensor(float16)")
    return config.makes_classes and config.threshold is None and not is_float


@dataclass(frozen=True)
class TemporaryOutputs:
    """The outputs of one item in temporary files.

    Attributes:
        config: the command line.
        done: which files, and how far the run was.
        feed: every input, as windows of it are read.
        notes: what was taken for granted about pixels.
        item: whose outputs they are.
    """

    config: RunConfig
    done: RunResult
    feed: Mapping[str, Any]
    notes: Sequence[str]
    item: Item

    def write(
        self, stream: BinaryIO, names: Sequence[str], style: ClassStyle
    ) -> tuple[dict[str, ArraySpec], dict[str, float]]:
        """Write some outputs into one file; what stands in it, and the share of the area of every class."""
        files = {name: self.done.files[name] for name in names}
        held = {name: ArraySpec(file.shape, file.dtype) for name, file in files.items()}
        form = self.config.format
        if self.config.is_drawn:
            ((name, file),) = files.items()
            classes = view_of_file(_stored(file), file.classes, self.config.rule.layout, name)
            found, areas = write_drawn(stream, self.config, (name, classes), self._bases(), style)
            return dict(found), areas
        if form in FLAT_FORMATS:
            ((name, file),) = files.items()
            write_stored_pixels(stream, self.config, name, _stored(file))
        elif form == "npz":
            members = safe_names(names)
            with zipfile.ZipFile(stream, "w") as archive:
                for name, file in files.items():
                    with archive.open(f"{members[name]}.npy", "w", force_zip64=True) as member:
                        _copy(file.path, member)
        elif form == "nii.gz":
            with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") as packed:
                _copy(files[names[0]].path, packed)
        else:
            _copy(files[names[0]].path, stream)
        return held, {}

    def _bases(self) -> list[Backdrop]:
        """The first image among the inputs, or all pages of it."""
        images = (self.feed[name] for name, source in self.item.sources.items() if source.is_image)
        pixels = next(images, None)
        if not isinstance(pixels, PixelSource):
            return []
        return [backdrop_of(pixels, self.config.rule.layout, page) for page in range(pixels.shape[0])]


@contextmanager
def spool(
    session: "InferenceSession",
    config: RunConfig,
    item: Item,
    slots: Mapping[str, Slot],
    wanted: Sequence[str],
    folder: Path | None,
    on_progress: ProgressCallback,
    undo: Callable[[], None],
    check: Callable[[Mapping[str, Any]], None],
) -> Iterator[TemporaryOutputs]:
    """The outputs of one item in temporary files, which go at the end of the block.

    Args:
        session: of the model.
        config: the command line.
        item: that is run.
        slots: the inputs.
        wanted: the names of the outputs.
        folder: where the temporary files are made; None takes the system's place for them.
        on_progress: called with the progress of the run.
        undo: removes what else an interrupted command would leave.
        check: raises where the inputs cannot be run.
    """
    inner = replace(config, argmax=config.makes_classes, overlay=False)
    if _are_numbers(config, session, wanted[0]):
        inner = replace(inner, argmax=False)

    def beside(feed: Mapping[str, Any]) -> int:
        return _encoder_bytes(config, feed)

    feed, notes = open_feed(session, inner, item, slots, wanted, check, beside)
    if config.max_memory is not None:
        inner = replace(inner, max_memory=config.max_memory - beside(feed))
    form = "npy" if config.is_drawn else STAGED.get(config.format, "npy")
    scratch = Path(tempfile.mkdtemp(prefix=".unpool-", dir=folder))
    try:
        places = {name: scratch / f"{number}.{form}" for number, name in enumerate(wanted)}

        def remove() -> None:
            shutil.rmtree(scratch, ignore_errors=True)
            undo()

        done = run_over_windows(session, inner, feed, places, on_progress, remove, can_resume=False)
        yield TemporaryOutputs(config, done, feed, notes, item)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_to_stdout(
    spooled: TemporaryOutputs, names: Sequence[str], style: ClassStyle, stdout: BinaryIO
) -> tuple[Any, Any]:
    """As `TemporaryOutputs.write`, through one more temporary file, because writers of formats seek."""
    with tempfile.TemporaryFile(dir=next(iter(spooled.done.files.values())).path.parent) as whole:
        found = spooled.write(whole, names, style)
        whole.seek(0)
        shutil.copyfileobj(whole, stdout, PIECE)
        stdout.flush()
    return found


def backdrop_of(pixels: PixelSource, layout: str, page: int = 0) -> Backdrop:
    """An image of a batch as the backdrop of classes; windows of it are read."""
    rank = len(pixels.shape)
    first, *others = spatial_axes(rank, layout.upper())
    sizes = tuple(pixels.shape[axis] for axis in (first, *others))

    def read(start: int, stop: int) -> Any:
        slices = [slice(0, size) for size in pixels.shape]
        slices[0], slices[first] = slice(page, page + 1), slice(start, stop)
        slices[channel_axis(rank, layout.upper())] = slice(None)
        (picture,) = pixels.picture(tuple(slices)).pages
        return picture

    return Backdrop(sizes, read)


def _encoder_bytes(config: RunConfig, feed: Mapping[str, Any]) -> int:
    """Bytes that it takes to write the file once the tiles are done."""
    image = max((one.shape for one in feed.values()), key=len)
    spatial: list[int] = [image[axis] for axis in spatial_axes(len(image), config.rule.layout.upper())]
    if config.format in ARRAY_FORMATS or not spatial:
        return 0
    width: int = prod(spatial[1:])
    band = DRAWING * max(BAND, 16 * width) if config.is_drawn else 0
    if config.overlay and len(spatial) == 3:
        # voxels, copied once where they are not in a row, their classes, and which of these have a colour
        held = max((np.dtype(one.dtype).itemsize for one in feed.values()), default=4)
        return band + prod(spatial) * (2 * held + 3)
    return band + (IN_JPEG * prod(spatial) if config.format == "jpg" else 0)


def _stored(file: OutputFile) -> Any:
    """A temporary .npy as a source of windows."""
    return open_npy(file.path, OpenOptions(len(file.shape)))


def _copy(path: Path, stream: Any) -> None:
    with path.open("rb") as file:
        shutil.copyfileobj(file, stream, PIECE)
