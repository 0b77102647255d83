"""The GPU memory of a session, and the requirements for it."""

from importlib import import_module
from typing import TYPE_CHECKING

from unpool.errors import UnsupportedError
from unpool.runtime.backends.ort_options import CUDA, Providers

if TYPE_CHECKING:
    from unpool.runtime.backends.cuda import CudaMemory

_GRAPH = "enable_cuda_graph"


def cuda_memory(providers: Providers) -> "CudaMemory | None":
    """The GPU memory in which values stay; None where partitions run on the CPU, or unpool lacks something for the GPU.

    Raises:
        UnsupportedError: the options ask for CUDA graphs, which read and write the same addresses in every run.
    """
    options = providers.cuda
    if options is None or missing_requirement():
        return None
    if options.get(_GRAPH, "0").lower() in ("1", "true"):
        raise UnsupportedError(
            f"{CUDA}: expected {_GRAPH} to be 0, for partitions get memory at other addresses in every run; got 1. "
            "Leave it out."
        )
    device, stream = int(options.get("device_id", 0)), int(options.get("user_compute_stream", 0))
    return _memory()(device, stream or None)


def missing_requirement() -> str:
    """The first thing that unpool lacks to run on a GPU, and the way out; "" if it lacks nothing."""
    try:
        import_module("unpool.execute.gpu")
    except ModuleNotFoundError as error:
        return str(error)
    if _memory().is_available():
        return ""
    return "torch finds no GPU here. Install a build of torch with CUDA: https://pytorch.org/get-started"


def _memory() -> "type[CudaMemory]":
    return import_module("unpool.runtime.backends.cuda").CudaMemory  # type: ignore[no-any-return]
