"""Values of a session that stay in the memory of one GPU, as tensors of torch, and the order of the work on them.

onnxruntime's CUDA provider works on streams of its own. It waits for no other before a run, and for them at the end.
So a step of ours begins when torch's current stream is done, and ends when it is done again: nobody reads what is not
yet written, and no memory goes back to onnxruntime that a kernel still reads. With `user_compute_stream` among the
options of the provider, everything goes to that one stream in its order, and no step waits.

Sources: https://github.com/microsoft/onnxruntime/issues/26609 (no wait before a run),
https://github.com/microsoft/onnxruntime/issues/28539 (what is waited for at its end),
https://github.com/microsoft/onnxruntime/pull/19229 (`user_compute_stream`; 0 is none).
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch
from onnxruntime.capi import _pybind_state

from unpool.arrays import is_on_gpu, like, to_numpy
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_values import KINDS, element_of, knows_booleans

NAME = "cuda"
"""How onnxruntime and torch call such devices."""

_NUMPY = {getattr(torch, kind.name): kind for kind in KINDS.values()}
_TORCH = {kind: mine for mine, kind in _NUMPY.items()}


class CudaMemory:
    """The memory of one GPU; what tests without one replace is all that names it: `device`, `place` and four methods.

    Args:
        index: of the GPU.
        stream: on which all work of the session is done, as CUDA's handle; None where every step waits for itself.

    Attributes:
        device: torch's.
        place: name and number of the device, as onnxruntime's bindings take them.
    """

    def __init__(self, index: int, stream: int | None = None) -> None:
        self.index = index
        self.device = torch.device(NAME, index)
        self.place = (NAME, index)
        self._stream = None if stream is None else torch.cuda.ExternalStream(stream, self.device)  # type: ignore[no-untyped-call]

    def __str__(self) -> str:
        return f"{NAME}:{self.index}"

    @staticmethod
    def is_there() -> bool:
        """Whether torch can work on such devices."""
        return torch.cuda.is_available()

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Torch works on this device, and on the session's stream if there is one."""
        with torch.cuda.device(self.index), nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            yield

    def wait(self) -> None:
        """Wait for what torch's current stream has to do."""
        torch.cuda.current_stream(self.device).synchronize()

    def wait_for_all(self) -> None:
        """Wait for what any stream of the device has to do."""
        torch.cuda.synchronize(self.device)

    def bytes_at(self, address: int, size: int, owner: object) -> torch.Tensor:
        """Memory that somebody else keeps; the tensor holds the owner."""
        return torch.as_tensor(_Bytes(address, size, owner), device=self.device)

    @contextmanager
    def running(self, run_options: onnxruntime.RunOptions | None = None) -> Iterator[None]:
        """A step is done in here: it sees what was done before, and nothing of it is left to do behind it."""
        with self.on_stream():
            if self._stream is not None:
                yield
                return
            self.wait()
            try:
                yield
            finally:
                if _is_left_running(run_options):
                    self.wait_for_all()
                else:
                    self.wait()

    def held(self, value: Any, where: str) -> torch.Tensor | None:
        """A caller's value in this memory as a tensor that shares it; None for one that is elsewhere.

        Raises:
            UnpoolError: it is on another GPU, or part of a gradient graph.
        """
        if isinstance(value, onnxruntime.OrtValue):
            is_here = value.is_tensor() and value.device_name() == self.place[0] and travels(value.data_type())
            found = tensor_of(value) if is_here else None
        elif isinstance(value, torch.Tensor):
            found = None if value.device.type == "cpu" != self.device.type else value
        else:
            found = torch.utils.dlpack.from_dlpack(value) if is_on_gpu(value) else None
        if found is not None and found.device != self.device:
            raise UnpoolError(f"{where}: expected memory of {self} or of the CPU, got {found.device}. Move it there.")
        if found is not None and found.requires_grad:
            raise UnpoolError(f"{where}: expected a tensor without gradient. Use x.detach().")
        return found

    def to_device(self, value: Any) -> torch.Tensor:
        """An array or a tensor as a tensor in this memory."""
        if isinstance(value, torch.Tensor):
            return value
        with self.on_stream():
            return _shared(value).to(self.device)

    def to_host(self, value: Any) -> Any:
        """A tensor as an array of its own; any other value as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        with self.on_stream():
            made = torch.empty(value.shape, dtype=value.dtype)
            return to_numpy(made.copy_(value), "a value")

    def copied(self, value: Any) -> Any:
        """A tensor with memory of its own; any other value as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        with self.running():
            return value.clone()

    def copy_to(self, target: Any, value: Any) -> None:
        """Copy an array or a tensor into memory of the same type and shape, here or on the host."""
        with self.running():
            if isinstance(target, torch.Tensor):
                target.copy_(self.to_device(value))
            else:
                np.copyto(target, self.to_host(value))

    def at(self, address: int, shape: Sequence[int], kind: np.dtype[Any], owner: object = None) -> torch.Tensor:
        """A tensor in memory that somebody else keeps."""
        size = math.prod(shape) * kind.itemsize
        if not size:
            return torch.empty(tuple(shape), dtype=_TORCH[kind], device=self.device)
        return self.bytes_at(address, size, owner).view(_TORCH[kind]).reshape(tuple(shape))

    def kind(self, value: Any) -> Any:
        """NumPy's type of the elements of an array or a tensor, or the name of what is neither."""
        if not isinstance(value, torch.Tensor):
            return value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        return _NUMPY.get(value.dtype) or np.dtype(str(value.dtype).removeprefix("torch."))

    def to_ort_value(self, x: torch.Tensor) -> onnxruntime.OrtValue:
        """An OrtValue that shares and holds the memory of a tensor."""
        with self.running():
            return ort_value_of(x)

    def binding(self, x: torch.Tensor) -> tuple[str, int, Any, tuple[int, ...], int]:
        """Device, its number, type, shape and address of a tensor without gaps, for a binding of onnxruntime."""
        return *self.place, element_of(self.kind(x)), tuple(x.shape), x.data_ptr()


def tensor_of(value: onnxruntime.OrtValue) -> torch.Tensor:
    """The tensor of an OrtValue, whose memory it shares and holds, by DLPack."""
    found: torch.Tensor = torch.utils.dlpack.from_dlpack(value._get_c_value())
    return found.view(torch.bool) if value.data_type() == "tensor(bool)" else found


def ort_value_of(x: torch.Tensor) -> onnxruntime.OrtValue:
    """An OrtValue that shares and holds the memory of a tensor, by DLPack."""
    x = x.contiguous()
    if x.dtype != torch.bool or knows_booleans():
        return onnxruntime.OrtValue(_pybind_state.OrtValue.from_dlpack(x.__dlpack__()))
    return onnxruntime.OrtValue(_pybind_state.OrtValue.from_dlpack(x.view(torch.uint8).__dlpack__(), True))


@cache
def travels(type_name: str) -> bool:
    """Whether this release of onnxruntime hands tensors of a type, in its own words, to torch and takes them back.

    >>> travels("tensor(float)"), travels("tensor(string)")
    (True, False)
    """
    kind = KINDS.get(type_name)
    if kind is None:
        return False
    try:
        found = tensor_of(ort_value_of(torch.zeros(1, dtype=_TORCH[kind])))
    except (RuntimeError, BufferError, TypeError, ValueError):
        return False
    return found.dtype is _TORCH[kind]


class _Bytes:
    """Bytes at an address, in the words in which torch asks for them."""

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {"version": 3, "data": (address, False), "shape": (size,), "typestr": "|u1"}


def _shared(array: AnyArray) -> torch.Tensor:
    """An array as a tensor on the CPU; one that cannot be written, or lies backwards, is copied."""
    whole = np.asarray(array, order="C")
    return like(whole if whole.flags.writeable else whole.copy(), torch.empty(0))  # type: ignore[no-any-return]


def _is_left_running(run_options: onnxruntime.RunOptions | None) -> bool:
    """Whether a caller tells onnxruntime not to wait for its streams at the end of a run."""
    if run_options is None:
        return False
    try:
        return str(run_options.get_run_config_entry("disable_synchronize_execution_providers")) == "1"
    except RuntimeError:
        return False
