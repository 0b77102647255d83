"""A GPU of the CPU's memory: sessions on CUDA run all their steps with it, where there is none.

It stands in for CudaMemory alone, and onnxruntime's CPU provider for its CUDA provider. Kernels run interpreted.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime
import torch

from unpool.dtypes import AnyArray
from unpool.runtime.backends import cuda
from unpool.runtime.backends.ort_values import array_at

_LOCK = threading.RLock()
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class HostMemory(cuda.CudaMemory):
    """Memory of the CPU under the name of a GPU.

    Attributes:
        waits: for what somebody waited, in order.
        moved: which way an array or a tensor was copied, in order.
        stream: the one that the session was given.
    """

    def __init__(self, index: int, stream: int | None = None) -> None:
        super().__init__(index)
        self.device, self.place = torch.device("cpu"), ("cpu", 0)
        self.stream, self._stream = stream, stream
        self.waits: list[str] = []
        self.moved: list[str] = []

    @staticmethod
    def is_available() -> bool:
        """It is."""
        return True

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Nothing to choose; one thread at a time, because Triton's interpreter takes no more."""
        with _LOCK:
            yield

    def wait(self) -> None:
        """Nothing to wait for."""
        self.waits.append("stream")

    def wait_for_all(self) -> None:
        """Nothing to wait for."""
        self.waits.append("device")

    def to_device(self, value: Any) -> torch.Tensor:
        """As it is, and noted."""
        self.moved += [] if isinstance(value, torch.Tensor) else ["to the GPU"]
        return super().to_device(value).clone()

    def to_host(self, value: Any) -> Any:
        """As it is, and noted."""
        self.moved += ["to the host"] if isinstance(value, torch.Tensor) else []
        return super().to_host(value)

    def bytes_at(self, address: int, size: int, owner: object) -> torch.Tensor:
        """The same bytes."""
        found: AnyArray = array_at(address, [size], np.dtype(np.uint8), owner)
        return torch.from_numpy(found)


class CpuSession(onnxruntime.InferenceSession):  # type: ignore[misc]  # onnxruntime has no types
    """A session of onnxruntime that says it has CUDA, and has the CPU."""

    def __init__(self, model, options=None, providers=None, provider_options=None, **words) -> None:
        super().__init__(model, options, [CPU], None, **words)
        self.asked = [one if isinstance(one, str) else one[0] for one in providers or []]

    def get_providers(self) -> list[str]:
        """Those that it was asked for."""
        return self.asked
