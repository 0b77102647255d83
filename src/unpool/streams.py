"""Images and volumes in files, window by window: `run` a model from files to a file, and go on after any end.

run(session, {"x": "slide.tif"}, "mask.zarr", max_memory=2 << 30)                reads, computes and writes at once
run(session, {"x": "slide.tif"}, "mask.zarr", max_memory=2 << 30, resume=True)   goes on after it was killed
blend(session, {"x": "slide.tif"}, "mask.zarr", (512, 512), overlap=0.5)          averages overlapping windows
"""

from unpool.runtime.streams.blend import blend
from unpool.runtime.streams.doing import Finished, WrittenFile
from unpool.runtime.streams.progress import Progress
from unpool.runtime.streams.run import run

__all__ = ["Finished", "Progress", "WrittenFile", "blend", "run"]


def __dir__() -> list[str]:
    """The public names alone."""
    return sorted({"__doc__", *__all__})
