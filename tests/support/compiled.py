"""Compiles the kernels in Triton for an H100 or H200 (sm_90), which needs no GPU, and prints what became of them.

`python -m tests.support.compiled all | wide | random STEP`: one line of JSON for each kernel. Tensors are on torch's
device "meta", which has shapes and no memory: so they may be as large as one likes. Of the random cases, one in STEP is
compiled as it would be run: a compiler makes a constant of every size that is 1, which the interpreter does not.
"""

import ctypes
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from tests.cases.generated import judged
from tests.support.gpu import run_gpu
from unpool.execute import gpu
from unpool.geometry import Axis, Window
from unpool.kernels.gpu import conv_transpose, max_pool, max_unpool
from unpool.kernels.gpu.conv_transpose import weight_gradient
from unpool.kernels.gpu.elements import BITS, bits_of
from unpool.kernels.gpu.launch import Launcher, flat, kernel_arguments
from unpool.kernels.gpu.max_unpool import gather, gradient

HUGE = 65536  # squared, with 8 channels or more, beyond what 32 bits count


class Hopper:
    """As much of a driver as a compiler asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def tensor(*shape: int, kind: str = "float32") -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, kind), device="meta")


def axes_of(small: int, large: int, window: Window, begin: int, rank: int) -> tuple[Axis, ...]:
    return (Axis(large, small, window, begin),) * rank


def pooled(kind: str, rank: int = 2, size: int = 32, **named: Any) -> None:
    """MaxPool with indices, and its gradient."""
    axes = axes_of(size // 2, size, Window(3, 2), 1, rank)
    x, y = (tensor(1, 8, *[each] * rank, kind=kind) for each in (size, size // 2))
    indices = tensor(*y.shape, kind="int64")
    max_pool.launch(max_pool.GpuPoolProblem(axes, 1, 8, kind, 0, **named), True)(x, y, indices)
    in_passes = axes_of(size, size, Window(13), 6, rank)
    max_pool.launch(max_pool.GpuPoolProblem(in_passes, 1, 8, kind, 0, **named), True)(
        x, x, tensor(*x.shape, kind="int64")
    )
    if kind not in ("int8", "uint8") and not named.get("is_channels_last"):
        all_reach = axes_of(size // 2, size, Window(size, 1), size // 4, rank)
        for each in (axes, all_reach):
            gradient.launch(each, 1, 8, kind)(y, indices, x)
        for each, small in ((axes, y), (in_passes, x)):  # few and many windows reach an element
            problem = max_unpool.GpuUnpoolProblem(each, (), 1, 8, kind, per_plane=True)
            gather.launch(problem, accumulate=True)(
                bits_of(small), tensor(*small.shape, kind="int64"), bits_of(x), indices
            )


def unpooled(kind: str, rank: int = 2, size: int = 32, **named: Any) -> None:
    """MaxUnpool by every kernel, into memory of our own and of the caller, and its gradients."""
    window, begin = (Window(2, 2), 0) if named.get("per_plane") else (Window(4, 2), 1)
    axes = axes_of(size // 2, size, window, begin, rank)
    x, y = (tensor(1, 8, *[each] * rank, kind=kind) for each in (size // 2, size))
    indices = tensor(*x.shape, kind="int64")
    problem = max_unpool.GpuUnpoolProblem(axes, (size,) * rank, 1, 8, kind, **named)
    for is_callers in (False, True):
        max_unpool.launch(problem)(x, indices, y, is_callers)
    if named.get("per_plane"):
        gradient.scatter_add(x, indices, size**rank)
        gradient.gather_elements(y.flatten(2), indices)


def convolved(kind: str, rank: int = 2, size: int = 32, group: int = 1, **named: Any) -> None:
    """ConvTranspose by every kernel, and its gradients."""
    channels = 8 if named.pop("is_depthwise", False) else 128
    axes = axes_of(size // 2, size, Window(4, 2), 1, rank)
    problem = conv_transpose.GpuConvProblem(axes, 1, group, channels // group, channels // group, kind, **named)
    x, y = (tensor(1, channels, *[each] * rank, kind=kind) for each in (size // 2, size))
    w, b = tensor(channels, channels // group, *[4] * rank, kind=kind), tensor(channels, kind=kind)
    strides = conv_transpose.WindowStrides((2,) * rank, (1,) * rank)
    conv_transpose.launch(problem)(x, conv_transpose.pack(w, group, strides), b, y)
    conv_transpose.launch_adjoint(problem)(y, conv_transpose.pack(w, group, None), None, x)
    weight_gradient.launch(problem)(x, y)


def everything() -> None:
    for kind in BITS:
        for rank in (1, 2, 3):
            for is_last in (False, True):
                pooled(kind, rank, is_channels_last=is_last, nan_last=True)
                unpooled(kind, rank, is_channels_last=is_last, index_space="auto")
            unpooled(kind, rank)
        if kind not in ("int8", "uint8"):
            for rank in (1, 2, 3):
                unpooled(kind, rank, per_plane=True)
                convolved(kind, rank, activation="Sigmoid")
                convolved(kind, rank, is_channels_last=True)
                convolved(kind, rank, group=8, is_depthwise=True)


def wide() -> None:
    pooled("float16", size=HUGE)
    unpooled("float16", size=HUGE, per_plane=True)
    unpooled("float16", size=HUGE, index_space="auto")
    convolved("float16", size=HUGE)


def some_random(step: int) -> None:
    """One in so many of the random cases of the contract, on tensors of the CPU that no kernel touches."""
    gpu.INTERPRETED = True  # that is: tensors of the CPU are taken
    for seed in range(0, 3000, step):
        case, expected = judged(seed)
        if expected is not None:
            run_gpu(case)


def used(cubin: bytes) -> dict[str, int]:
    """Registers, and bytes of stack and of local memory for each thread, and of shared memory for all."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True)
    return {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL|SHARED):(\d+)", done.stdout)}


def offsets(ttir: str) -> list[str]:
    """The types of what is added to pointers, each once; single offsets, as into a verdict of four, left out."""
    lines = [line for line in ttir.splitlines() if "tt.addptr" in line]
    return sorted({each for line in lines for each in re.findall(r"tensor<(?:\d+x)*(i\d+)>", line)})


def compiling(found: list[dict[str, Any]]) -> Callable[..., Any]:
    """What stands for the launch of a kernel: compiles it, and notes what became of it."""

    def prepare(launcher: Launcher, *operands: Any) -> Callable[..., None]:
        made = launcher.compile(*operands)
        found.append({
            "kernel": launcher.kernel.__name__,
            "setting": repr(launcher.meta),
            "shared": made.metadata.shared,
            "offsets": offsets(made.asm["ttir"]),
            "has_matrix_units": any(word in made.asm["ptx"] for word in ("wgmma.", "mma.sync")),
            "arguments": arguments(made, (*operands, launcher.args)),
            **used(made.asm["cubin"]),
        })  # fmt: skip
        return lambda *_: None

    return prepare


def arguments(made: Any, values: tuple[Any, ...]) -> list[list[int]]:
    """Sizes in bytes of a kernel's arguments: as a launch passes them, and as the machine code takes them."""
    slots = kernel_arguments(made.src.signature.values(), values)
    assert slots is not None, made.src.signature
    passed = [ctypes.sizeof(each) for each in flat(slots) if each is not None]
    declared = re.findall(r"\.param \.[a-z](\d+)", made.asm["ptx"].split(".entry")[1].split(")")[0])
    return [passed, [int(bits) // 8 for bits in declared]]


def main(what: str, *more: str) -> Iterator[str]:
    found: list[dict[str, Any]] = []
    driver.set_active(Hopper())
    Launcher.prepare = compiling(found)  # type: ignore[method-assign]
    {"all": everything, "wide": wide, "random": some_random}[what](*map(int, more))
    yield from map(json.dumps, found)


if __name__ == "__main__":
    for line in main(*sys.argv[1:]):
        sys.stdout.write(f"{line}\n")
