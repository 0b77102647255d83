"""Launches of kernels, on the device of a tensor and its current stream.

Triton compiles a kernel, and CUDA's driver launches it: Triton's own launch converts every argument again each time,
which takes longer than a small kernel. A launch here writes the addresses of the tensors into the arguments that are
kept, and calls `cuLaunchKernel`. If the driver does not confirm the sizes of the arguments, Triton launches.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import torch
import triton

from unpool.kernels.gpu.elements import INTERPRETED, bits_of

LIMIT32 = 2**31  # number of elements that needs places of 64 bits
_OPTIONS = {"enable_fp_fusion": True}  # the default of all versions; 3.9 requires it to be named

# starts a kernel with (addresses and numbers in place of its tensors, raw stream)
Start: TypeAlias = Callable[[Sequence[int], int], None]


class Launcher:
    """Launches one kernel for one call, any number of times, on the device of its tensors and its current stream.

    All arguments but the tensors stay the same. The kernel takes (tensors and numbers that change, args, meta): `args`
    are named tuples, each of numbers alone, or tuples alone, which Triton 3.6 needs; `meta` are constants of the
    kernel. `stages` are loads that overlap in loops of products; None for Triton's own choice. The kernel takes tensors
    as bits, except for those at the positions `floats`. Their types are the same in every launch, and so are numbers
    that are no booleans.
    """

    def __init__(
        self, kernel: Any, programs: int, args: Any, meta: Any, warps: int = 4, stages: int | None = None,
        floats: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.kernel, self.programs, self.args, self.meta, self._floats = kernel, programs, args, meta, floats
        self._options = {**_OPTIONS, "num_warps": warps} | ({} if stages is None else {"num_stages": stages})
        self._starts: dict[tuple[Any, ...], Start] = {}

    def __call__(self, *operands: Any) -> None:
        """Start the kernel; the first operand is a tensor."""
        if not self.programs:
            return
        if INTERPRETED:
            numbers = (int(x) if isinstance(x, bool) else x for x in self._as_bits(operands))  # 3.7 takes no booleans
            with np.errstate(all="ignore"):
                self.kernel[(self.programs,)](*numbers, self.args, self.meta, **self._options)
            return
        device = operands[0].device
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self(*operands)
            return
        values = [x.data_ptr() if isinstance(x, torch.Tensor) else x for x in operands]
        key = (device.index, *[value & 15 for value in values])  # what Triton compiles depends on 16-byte alignment
        start = self._starts.get(key)
        if start is None:
            start = self._starts[key] = self.prepare(*operands)
        start(values, _current_stream(device.index))

    def compile(self, *operands: Any) -> Any:
        """The kernel, compiled by Triton for operands of these types and alignments."""
        return self.kernel.warmup(*self._as_bits(operands), self.args, self.meta, grid=(1,), **self._options)

    def prepare(self, *operands: Any) -> Start:
        """A function that starts the compiled kernel with other operands of the same types and alignments."""
        compiled = self.compile(*operands)
        by_triton = compiled[(self.programs, 1, 1)]  # loads the kernel

        def start_by_triton(values: Sequence[int], stream: int) -> None:
            by_triton(*values, self.args, self.meta, stream=stream)

        return _start_by_driver(compiled, self.programs, (*operands, self.args), start_by_triton) or start_by_triton

    def _as_bits(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            bits_of(x) if isinstance(x, torch.Tensor) and number not in self._floats else x
            for number, x in enumerate(operands)
        )


def _current_stream(device: int | None) -> int:
    """The raw stream of torch on a device; 0 without one."""
    if device is None:
        return 0
    stream: int = triton.runtime.driver.active.get_current_stream(device)
    return stream


_NUMBERS = {  # by type in the signature of a compiled kernel
    "i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
}  # fmt: skip
_MAX_SCRATCH = 2  # pointers that Triton adds to the arguments


def _start_by_driver(compiled: Any, programs: int, arguments: Sequence[Any], otherwise: Start) -> Start | None:
    """A function that starts a kernel by CUDA's driver, or `otherwise` if that fails; None if it cannot.

    `arguments` are the operands and the named tuples of the first launch.
    """
    driver, metadata = cuda_driver(), compiled.metadata
    uses_more = (getattr(metadata, name, 0) for name in ("global_scratch_size", "profile_scratch_size"))
    starts_otherwise = (getattr(metadata, name, False) for name in ("launch_cooperative_grid", "launch_pdl"))
    if driver is None or any(uses_more) or any(starts_otherwise) or getattr(metadata, "num_ctas", 1) != 1:
        return None
    slots = kernel_arguments(compiled.src.signature.values(), arguments)
    if slots is None:
        return None
    kept = [slot for slot in flat(slots) if slot is not None]
    function = ctypes.c_void_p(compiled.function)
    sizes = parameter_sizes(driver, function)
    scratch = [ctypes.c_void_p() for _ in sizes[len(kept) :]]
    if sizes != [ctypes.sizeof(each) for each in (*kept, *scratch)] or len(scratch) > _MAX_SCRATCH:
        return None
    parameters = (ctypes.c_void_p * len(sizes))(*map(ctypes.addressof, (*kept, *scratch)))
    grid = *map(ctypes.c_uint, (programs, 1, 1, 32 * metadata.num_warps, 1, 1)), ctypes.c_uint(metadata.shared)
    changing = [(number, slot) for number, slot in enumerate(slots[:-1]) if slot is not None]
    launch, lock = driver.cuLaunchKernel, Lock()

    def start(values: Sequence[int], stream: int) -> None:
        with lock:
            for number, slot in changing:
                slot.value = values[number]
            code = launch(function, *grid, ctypes.c_void_p(stream), parameters, None)
        if code:  # such as a thread without a context, which Triton gives it
            otherwise(values, stream)

    start.arguments = kept, scratch  # type: ignore[attr-defined]  # which `parameters` has the addresses of
    return start


@cache
def cuda_driver() -> Any:
    """CUDA's driver, or None if it is not there or cannot tell the sizes of a kernel's arguments (before CUDA 12.4)."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        return driver if hasattr(driver, "cuFuncGetParamInfo") else None
    return None


def parameter_sizes(driver: Any, function: ctypes.c_void_p) -> list[int]:
    """The sizes in bytes of the arguments of a loaded kernel, as the driver knows them."""
    sizes: list[int] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    while not driver.cuFuncGetParamInfo(
        function, ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)
    ):
        sizes.append(size.value)
    return sizes


def kernel_arguments(types: Any, values: Sequence[Any]) -> list[Any] | None:
    """Arguments as C has them, in the nesting of `types`, a kernel's signature; None for a constant of the kernel.

    None if a type is unknown. `values` may be fewer: those that follow are constants.
    """
    found: list[Any] = []
    for kind, value in zip(types, values, strict=False):
        if isinstance(kind, tuple):
            inner = kernel_arguments(kind, value)
            if inner is None:
                return None
            found.append(inner)
        elif kind == "constexpr":
            found.append(None)
        elif kind.startswith("*"):
            found.append(ctypes.c_void_p())
        elif kind in _NUMBERS:
            found.append(_NUMBERS[kind](value))
        else:
            return None
    return found


def flat(nested: list[Any]) -> Iterator[Any]:
    """The elements of nested lists."""
    for each in nested:
        if isinstance(each, list):
            yield from flat(each)
        else:
            yield each


def blocks(count: int, size: int) -> int:
    """Number of blocks of `size` elements that hold `count` elements."""
    return -(-count // size)


def power_of_two(size: int, most: int) -> int:
    """The smallest power of two that is at least `size`, or `most` if that is less.

    >>> power_of_two(5, 64), power_of_two(0, 64), power_of_two(100, 64)
    (8, 1, 64)
    """
    return min(1 << max(size - 1, 0).bit_length(), most)
