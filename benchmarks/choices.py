"""Every kernel or algorithm that can compute a case, timed against the one that unpool chooses."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.case import Call, Case
from benchmarks.engines import operator
from benchmarks.measure import say
from benchmarks.tables import in_markdown, milliseconds
from unpool.dtypes import storage_type
from unpool.execute.autotune import time_calls
from unpool.execute.conv_transpose import PreparedConvTranspose
from unpool.geometry import Axis, Window
from unpool.kernels.cpu import max_pool, max_unpool
from unpool.kernels.cpu.max_pool.pool import ElementType, PoolMode, PoolProblem
from unpool.kernels.cpu.weights import own_weights
from unpool.operators import resolve
from unpool.operators.conv_transpose import ConvTransposeSpec

WORTH = 0.05
"""What the taken path may lose against the best one."""

Paths = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Choice:
    """What was measured of one case.

    Attributes:
        case: the case.
        taken: the name of the path that unpool takes.
        times: seconds of each path.
    """

    case: Case
    taken: str
    times: Mapping[str, float]

    @property
    def loss(self) -> float:
        """The time of the taken path over that of the best one, less 1."""
        return self.times[self.taken] / min(self.times.values()) - 1


def choices(cases: Iterable[Case], threads: int) -> Iterator[Choice]:
    """Time the paths of every single call; one with one path alone has no choice."""
    for case in cases:
        if not isinstance(case, Call):
            continue
        taken, paths = _PATHS[case.operator](case, threads)
        if len(paths) > 1:
            found = Choice(case, taken, time_calls(paths))
            say(f"{case.path} {case.title}: {taken}, {found.loss:.1%} above the best")
            yield found


def report(found: Sequence[Choice]) -> str:
    """A table, what loses most first, and how many lose more than WORTH."""
    rows = [
        (f"{one.case.path} {one.case.title}", one.taken, f"{one.loss:.1%}", _text(one.times))
        for one in sorted(found, key=lambda one: -one.loss)
    ]
    wrong = sum(one.loss > WORTH for one in found)
    table = in_markdown(("case", "takes", "above the best", "milliseconds"), 2, rows)
    return f"{table}\n{len(found)} cases, {wrong} more than {WORTH:.0%} above the best"


def _text(times: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {milliseconds(one)}" for name, one in sorted(times.items(), key=lambda each: each[1]))


def _of_max_pool(call: Call, threads: int) -> tuple[str, Paths]:
    """Every kernel, each with outputs through the cache and past it."""
    x = operator(call).arrays(call, np.random.default_rng(0))["X"]
    storage, is_last = storage_type(x.dtype, call.name), call.layout == "NHWC"
    n, c, *sizes = call.shape
    window = Window(call.window, call.stride, call.dilation)
    axes = [Axis(large, small, window, call.pad) for large, small in zip(sizes, call.y_shape[2:], strict=True)]
    lowest = int(np.array(storage.lowest, storage.dtype).view(storage.bits))
    elements = ElementType(np.dtype(storage.bits), storage.infinity, lowest)
    shape = (n, *sizes, c) if is_last else (n * c, *sizes)
    pool = PoolProblem.of(shape, axes, elements, call.indices, PoolMode(is_last, is_recycled=True))
    y = np.zeros(call.y_shape, x.dtype)
    indices = np.zeros(call.y_shape if call.indices else 0, np.int64)
    plain, kernels = pool._replace(mode=pool.mode._replace(is_recycled=False)), max_pool.kernels(pool)
    runs = {
        f"{kernel.name}{suffix}": kernel.launch(each)
        for suffix, each in (("", pool), (", cached", plain))
        for kernel in kernels
    }
    return kernels[0].name, {name: _running(run, x, y, indices, threads) for name, run in runs.items()}


def _of_max_unpool(call: Call, threads: int) -> tuple[str, Paths]:
    """Outputs through the cache and past it."""
    given = operator(call).arrays(call, np.random.default_rng(0))
    x, y = given["X"], np.zeros(call.shape, call.numpy_type)
    window = Window(call.window, call.stride)
    axes = tuple(Axis(large, small, window) for large, small in zip(call.shape[2:], x.shape[2:], strict=True))
    names = {"windows": True, "windows, cached": False}
    made = {
        name: max_unpool.route(
            axes, x.shape[0] * x.shape[1], x.itemsize, channels_last=False, counts_in_y=True, is_recycled=is_recycled
        )
        for name, is_recycled in names.items()
    }
    return "windows", {name: _running(run, x, given["I"], y, threads) for name, run in made.items() if run is not None}


def _of_conv_transpose(call: Call, threads: int) -> tuple[str, Paths]:
    """Every algorithm, with weights that are packed already."""
    w = operator(call).arrays(call, np.random.default_rng(0))["W"]
    spec = resolve.spec("ConvTranspose", operator(call).attributes(call))
    assert isinstance(spec, ConvTransposeSpec)
    x = np.random.default_rng(0).standard_normal(call.shape, np.float32).astype(w.dtype)
    weights = own_weights(w)

    def prepare(algorithm: str | None) -> PreparedConvTranspose:
        return PreparedConvTranspose(spec._replace(algorithm=algorithm), ((call.shape, w.dtype), (w.shape, w.dtype)))

    def running(algorithm: str) -> Callable[[], object]:
        prepared = prepare(algorithm)
        return lambda: prepared.run((x, weights), (None,), threads)

    taken = prepare(None)
    return taken.kernel, {name: running(name) for name in taken.algorithms}


def _running(run: Callable[..., object], *given: object) -> Callable[[], object]:
    return lambda: run(*given)


_PATHS: Mapping[str, Callable[[Call, int], tuple[str, Paths]]] = {
    "max_pool": _of_max_pool, "max_unpool": _of_max_unpool, "conv_transpose": _of_conv_transpose
}  # fmt: skip
