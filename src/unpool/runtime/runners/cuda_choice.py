"""Whether the values of a session stay on a GPU: what has to be there for it, and which options it does not take."""

from importlib import import_module
from typing import TYPE_CHECKING

from unpool.errors import UnsupportedError
from unpool.runtime.runners.ort_options import CUDA, Providers

if TYPE_CHECKING:
    from unpool.runtime.runners.cuda_memory import CudaMemory

_GRAPH = "enable_cuda_graph"


def cuda_memory(providers: Providers) -> "CudaMemory | None":
    """The memory in which values stay; None where pieces are not on a GPU, or unpool has no kernels for it.

    Raises:
        UnsupportedError: onnxruntime shall capture CUDA graphs, which read and write the same addresses in every run.
    """
    options = providers.cuda
    if options is None or what_is_missing():
        return None
    if options.get(_GRAPH, "0").lower() in ("1", "true"):
        raise UnsupportedError(
            f"{CUDA}: expected {_GRAPH} to be 0, for pieces get memory at other addresses in every run; got 1. "
            "Leave it out."
        )
    device, stream = int(options.get("device_id", 0)), int(options.get("user_compute_stream", 0))
    return _memory()(device, stream or None)


def what_is_missing() -> str:
    """What unpool lacks to run on a GPU, and what to do; "" if nothing."""
    try:
        import_module("unpool.execute.gpu")
    except ModuleNotFoundError as error:
        return str(error)
    if _memory().is_there():
        return ""
    return "torch finds no GPU here. Install a build of torch with CUDA: https://pytorch.org/get-started"


def _memory() -> "type[CudaMemory]":
    return import_module("unpool.runtime.runners.cuda_memory").CudaMemory  # type: ignore[no-any-return]
