"""Images and volumes in files, window by window: `run` a model from files to files, and resume an interrupted run.

run(session, {"x": "slide.tif"}, "mask.zarr", max_memory=2 << 30)                reads, computes and writes at once
run(session, {"x": "slide.tif"}, "mask.zarr", max_memory=2 << 30, resume=True)   continues after an interruption
blend(session, {"x": "slide.tif"}, "mask.zarr", (512, 512), overlap=0.5)          averages overlapping windows
"""

from unpool.runtime.streams.run import blend, run
from unpool.runtime.streams.runner import OutputFile, Progress, RunResult

__all__ = ["OutputFile", "Progress", "RunResult", "blend", "run"]


def __dir__() -> list[str]:
    return sorted({"__doc__", *__all__})
