"""Sessions on a CUDA GPU (experimental): values stay in its memory as tensors of torch.

onnxruntime's CUDA provider works on streams of its own. It waits for no other stream before a run, and for its own at
the end. So a step of unpool begins and ends when torch's current stream is idle: no step reads memory that is not yet
written, and onnxruntime gets back no memory that a kernel still reads. With `user_compute_stream` among the options of
the provider, all work is queued on that one stream, and no step waits.

Sources: https://github.com/microsoft/onnxruntime/issues/26609 (no wait before a run),
https://github.com/microsoft/onnxruntime/issues/28539 (what is waited for at its end),
https://github.com/microsoft/onnxruntime/pull/19229 (`user_compute_stream`; 0 is none).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch

from unpool.arrays import is_on_gpu, like, to_numpy
from unpool.errors import UnpoolError
from unpool.execute import gpu
from unpool.operators.resolve import Spec
from unpool.runtime.backends import ort_values
from unpool.runtime.backends.ort_backend import OrtPartition, Weights
from unpool.runtime.backends.ort_options import PartitionOptions, Providers, run_config_entry
from unpool.runtime.backends.ort_values import KINDS, from_ort_value
from unpool.runtime.backends.step import Constants, RunOptions, Targets, Values
from unpool.runtime.backends.unpool_backend import NodeStep
from unpool.runtime.requirements import onnxruntime

NAME = "cuda"  # the name of such devices in onnxruntime and torch
_NUMPY = {getattr(torch, kind.name): kind for kind in KINDS.values()}
_TORCH = {kind: torch_type for torch_type, kind in _NUMPY.items()}
_COUNTS = ("tensor(int64)", "tensor(int32)", "tensor(bool)")

FIRST_ON_HOST = 2  # first of MaxUnpool's inputs that stays on the host: `output_shape` decides how much memory is taken


class CudaMemory:
    """The memory of one GPU. Only `device`, `place` and four methods name it, so that tests can replace them.

    `stream` is CUDA's handle of the stream for all work of the session; None where every step waits for its own.
    """

    def __init__(self, index: int, stream: int | None = None) -> None:
        self.index = index
        self.device = torch.device(NAME, index)
        self.place = (NAME, index)  # as onnxruntime's bindings take it
        self._stream = None if stream is None else torch.cuda.ExternalStream(stream, self.device)  # type: ignore[no-untyped-call]

    def __str__(self) -> str:
        return f"{NAME}:{self.index}"

    @staticmethod
    def is_available() -> bool:
        """True if torch can use such devices."""
        return torch.cuda.is_available()

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Inside the block torch uses this device, and the session's stream if there is one."""
        with torch.cuda.device(self.index), nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            yield

    def wait(self) -> None:
        """Wait until torch's current stream is idle."""
        torch.cuda.current_stream(self.device).synchronize()

    def wait_for_all(self) -> None:
        """Wait until all streams of the device are idle."""
        torch.cuda.synchronize(self.device)

    def bytes_at(self, address: int, size: int, owner: object) -> torch.Tensor:
        """A tensor of bytes in existing memory; it holds the owner."""
        return torch.as_tensor(ort_values.Memory(address, size, owner, "__cuda_array_interface__"), device=self.device)

    @contextmanager
    def running(self, run_options: RunOptions | None = None) -> Iterator[None]:
        """Run a step inside the block: it begins after all earlier work, and is complete at the end."""
        with self.on_stream():
            if self._stream is not None:
                yield
                return
            self.wait()
            try:
                yield
            finally:
                if run_config_entry(run_options, "disable_synchronize_execution_providers") == "1":
                    self.wait_for_all()  # onnxruntime has not waited for its streams
                else:
                    self.wait()

    def as_tensor(self, value: Any, where: str) -> torch.Tensor | None:
        """A caller's value in this memory as a tensor that shares it; None for a value in other memory."""
        if isinstance(value, onnxruntime.OrtValue):
            is_here = value.is_tensor() and value.device_name() == self.place[0] and can_share(value.data_type())
            x = tensor_of(value) if is_here else None
        elif isinstance(value, torch.Tensor):
            x = None if value.device.type == "cpu" != self.device.type else value
        else:
            x = torch.utils.dlpack.from_dlpack(value) if is_on_gpu(value) else None
        if x is not None and x.device != self.device:
            raise UnpoolError(
                f"{where}: expected memory of {self} or of the CPU, got {x.device}. Move it to that device."
            )
        if x is not None and x.requires_grad:
            raise UnpoolError(f"{where}: expected a tensor without gradient. Use x.detach().")
        return x

    def to_device(self, value: Any) -> torch.Tensor:
        """An array or a tensor as a tensor in this memory."""
        if isinstance(value, torch.Tensor):
            return value
        x = np.asarray(value, order="C")
        with self.on_stream():
            tensor: torch.Tensor = like(x if x.flags.writeable else x.copy(), torch.empty(0))
            return tensor.to(self.device)

    def to_host(self, value: Any) -> Any:
        """A tensor as an array of its own; any other value as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        with self.on_stream():
            return to_numpy(torch.empty(value.shape, dtype=value.dtype).copy_(value), "a value")

    def clone(self, value: Any) -> Any:
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
        """A tensor in existing memory; it holds the owner."""
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
        """Arguments of onnxruntime's bindings for a contiguous tensor: device, number, type, shape and address."""
        return *self.place, ort_values.binding_type(self.kind(x)), tuple(x.shape), x.data_ptr()


def tensor_of(value: onnxruntime.OrtValue) -> torch.Tensor:
    """The tensor of an OrtValue, whose memory it shares and holds, by DLPack."""
    x: torch.Tensor = torch.utils.dlpack.from_dlpack(value._get_c_value())
    return x.view(torch.bool) if value.data_type() == "tensor(bool)" else x


def ort_value_of(x: torch.Tensor) -> onnxruntime.OrtValue:
    """An OrtValue that shares and holds the memory of a tensor."""
    return ort_values.ort_value_sharing(x.contiguous(), torch.uint8, is_bool=x.dtype == torch.bool)


@cache
def can_share(type_name: str) -> bool:
    """True if onnxruntime and torch share tensors of this type, by the name that onnxruntime gives it."""
    kind = KINDS.get(type_name)
    if kind is None:
        return False
    try:
        return tensor_of(ort_value_of(torch.zeros(1, dtype=_TORCH[kind]))).dtype is _TORCH[kind]
    except (RuntimeError, BufferError, TypeError, ValueError):
        return False


class CudaPartition(OrtPartition):
    """A partition that onnxruntime's CUDA provider runs, on tensors in its memory without copies.

    Sizes, counts and conditions stay on the host, where onnxruntime computes and reads them. So do types that torch
    does not share with onnxruntime. A partition with sequences or strings reads all inputs from the host.
    """

    def __init__(
        self,
        model: bytes,
        where: str,
        options: PartitionOptions,
        providers: Providers,
        weights: Weights,
        *,
        memory: CudaMemory,
    ) -> None:
        super().__init__(model, where, options, providers, weights)
        self._memory = memory
        self._stays_on_gpu = {
            info.name: can_share(info.type) and not (info.type in _COUNTS and len(info.shape) < 2)
            for info in self.session.get_outputs()
        }

    def _run(self, values: Values, run_options: RunOptions | None, targets: Targets | None) -> list[Any]:
        memory = self._memory
        if not self._has_only_numbers:
            return super()._run([memory.to_host(value) for value in values], run_options, targets)
        with memory.running(run_options):
            binding = self.session.io_binding()
            inputs = [  # kept until the end of the run
                np.asarray(value, order="C") if isinstance(value, np.ndarray) else value.contiguous()
                for value in values
            ]
            for name, value in zip(self._inputs, inputs, strict=True):
                arguments = ort_values.binding_of(value) if isinstance(value, np.ndarray) else memory.binding(value)
                binding.bind_input(name, *arguments)
            binding.synchronize_inputs()
            for name, stays in self._stays_on_gpu.items():
                binding.bind_output(name, *(memory.place if stays else ("cpu", 0)))
            self.session.run_with_iobinding(binding, run_options)
            outputs = zip(binding.get_outputs(), self._stays_on_gpu.values(), strict=True)
            return [tensor_of(value) if stays else from_ort_value(value) for value, stays in outputs]


class CudaStep(NodeStep):
    """A node that unpool runs on a GPU; its constant inputs are in the memory of the GPU from the start.

    Constant weights of a ConvTranspose are packed once.
    """

    def __init__(
        self, node: onnx.NodeProto, spec: Spec, constants: Constants, outputs: Sequence[str], memory: CudaMemory
    ) -> None:
        super().__init__(node, constants, outputs)
        self._spec = spec
        self._memory = memory
        self._sources: list[tuple[Callable[[Any], Any], int | None, Any]] = []  # how to move which value, or a constant
        for position, name in enumerate(node.input):
            stays_on_host = node.op_type == "MaxUnpool" and position >= FIRST_ON_HOST
            move = memory.to_host if stays_on_host else memory.to_device
            index = self._fed.index(name) if name in self._fed else None
            constant = move(constants[name]) if name in constants else None
            if constant is not None and node.op_type == "ConvTranspose" and position == 1:
                with memory.running():
                    constant = gpu.own_weights(spec, constant)
            self._sources.append((move, index, constant))

    def _compute(self, values: Values, targets: Targets | None) -> Sequence[Any]:  # noqa: ARG002
        with self._memory.running():
            inputs = [constant if index is None else move(values[index]) for move, index, constant in self._sources]
            return gpu.run(self._spec, inputs, outputs=self._output_count, check="now")
