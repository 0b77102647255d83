"""Max pooling: which kernel runs a call, and why.

| windows | kernel | why |
|---|---|---|
| side by side on data alone, 1, 2 or 4 wide | tiles | each vector is read once, and split into taps |
| short, overlapping, of floats in planes | rolling | a row is read once, and its maxima stay in registers |
| channels last, few taps | tiles | channels are side by side in memory, so any window loads whole vectors |
| that do not overlap otherwise, or have few taps | direct | each element is read once or twice, in registers |
| channels last, fewer channels than a register holds | direct | its registers may be filled in part |
| a plane of 2**31 elements, or a row too long to lay out | direct | its places have 64 bits, and it lays out nothing |
| the rest: overlapping | separable | work grows with the sum of the window's logarithms, not with its product |
| that share so many elements that walking them takes very long | doubling | as separable, for planes of any size |
| with NaN | the same, with full comparisons where NaN occurs | ignoring NaN makes a comparison cheaper |
| with a maximum that equals padding | separable, then direct for that part | separable cannot tell them apart |

Each is a `PoolKernel` in a file of its name, beside a function `launch` that prepares its call, and the compiled
kernel. They are compared from the last to the first. To add one, write such a file, put its record into `KERNELS`
before those that it is compared with, and add a line of the table.

    pool_kernel.py                            the record of a kernel
    pool.py                                   the description of a call, which every kernel takes
    elements.py, maxima.py                    the order of elements, and instructions that compare vectors of them
    running_max.py                            the running maximum of kernels that walk whole windows
    separable_plan.py, separable_combine.py   how separable splits planes, pads rows, and combines them
"""

from unpool.kernels.cpu.machine.plan import KernelStep, Operand
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool import direct, doubling, rolling, separable, tiles
from unpool.kernels.cpu.max_pool.pool import PoolProblem
from unpool.kernels.cpu.max_pool.pool_kernel import PoolKernel, Run

KERNELS: tuple[PoolKernel, ...] = (tiles.KERNEL, rolling.KERNEL, separable.KERNEL, doubling.KERNEL, direct.KERNEL)
"""All kernels; each is compared with the best of those behind it."""


def kernels(pool: PoolProblem) -> tuple[PoolKernel, ...]:
    """The kernels for a call with results, the fastest first."""
    taking, chosen = [each for each in KERNELS if each.takes(pool)], list[PoolKernel]()
    for kernel in reversed(taking):
        if not chosen or kernel.is_faster(pool, chosen[-1]):
            chosen.append(kernel)
    return (*reversed(chosen), *(each for each in taking if each not in chosen))


def route(pool: PoolProblem) -> Run:
    """The call that writes the largest element of every window to y, and its index to indices."""
    return kernels(pool)[0].launch(pool) if pool.results else Launch(None, 0, 0)


def steps(run: Run, arrays: tuple[Operand, Operand, Operand]) -> tuple[KernelStep, ...]:
    """The steps of a call from `route`."""
    return run.steps(arrays) if isinstance(run, separable.PaddingGuard) else (KernelStep(run, arrays),)
