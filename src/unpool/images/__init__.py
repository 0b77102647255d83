"""Images, volumes and arrays in files: `read` an image whole, `open` a file to read windows of it.

read("photo.png").pixels                                 (H, W, C), as it is displayed
read_stream(upload, ".png", "the upload", 2, channels=3) the same as `read` of an open file
open("slide.tif", level=1)[:, :, 4096:4608, :512]        a window of a level of a pyramid
"""

from unpool.images.formats import open, read, read_stream
from unpool.images.pixels import Picture
from unpool.images.source import TiledSource

__all__ = ["Picture", "TiledSource", "open", "read", "read_stream"]


def __dir__() -> list[str]:
    """The public names alone."""
    return sorted({"__doc__", *__all__})
