"""The work of `unpool demo`: the bundled network finds the coins in a photograph."""

import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.classes import class_map, shares
from unpool.cli.feeds import to_input
from unpool.cli.metadata import Metadata
from unpool.cli.model import SessionOptions, open_session, slots
from unpool.cli.outputs import write_picture
from unpool.cli.pixels import PixelRule
from unpool.display import format_shape
from unpool.extras import require
from unpool.files import FileSet
from unpool.images.overlay import legend_for, mask_picture, overlay_picture
from unpool.images.pixels import Picture, for_display

MASK = "coins-mask.png"
OVERLAY = "coins-overlay.png"


def run_demo(folder: Path, threads: int | None = None) -> list[str]:
    """Run the bundled network on scikit-image's coin photograph and write the mask and the overlay.

    Args:
        folder: where the two pictures go.
        threads: as in the session.

    Returns:
        the lines to print.

    Raises:
        MissingExtraError: scikit-image is not installed.
    """
    photograph = _photograph()
    begin = time.perf_counter()
    with as_file(files("unpool") / "data" / "coins.onnx") as path:
        session = open_session(path, SessionOptions(threads=threads))
    (slot,) = slots(session).values()
    feed = to_input(Picture(photograph[..., None], 255), slot, PixelRule(), "coins")
    slot.check(feed, "coins")
    (scores,) = session.run(None, {slot.name: feed})
    seconds = time.perf_counter() - begin
    batch, count = class_map(scores, "nchw", "coins.onnx")
    classes = batch[0]
    said = Metadata(session.get_modelmeta().custom_metadata_map, "coins.onnx")
    legend = legend_for(count, said.classes())
    with FileSet() as pictures:
        with pictures.open(folder / MASK) as stream:
            write_picture(stream, "png", mask_picture(classes, legend))
        with pictures.open(folder / OVERLAY) as stream:
            write_picture(stream, "png", overlay_picture(for_display(photograph[..., None]), classes, legend, 0.5))
    coins = shares(np.bincount(classes.ravel()).tolist(), legend.names).get(legend.names[1], 0.0)
    return [
        f"wrote {MASK} (the class of every pixel, {format_shape(classes.shape)}) and {OVERLAY} (to look at)",
        f"coins cover {100 * coins:.1f} % of the photograph; loading and running took {seconds:.2f} s",
    ]


def _photograph() -> NDArray[Any]:
    require("unpool demo", "demo", "skimage")
    from skimage.data import coins

    return np.asarray(coins())  # type: ignore[no-untyped-call]
