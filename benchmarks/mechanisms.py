"""What makes unpool fast beyond plain loops, and how to do without each: `python -m benchmarks rent` times both.

A mechanism is taken out of a process before anything is computed there, by putting something else in its place, so the
code that is timed carries no switches. What computes instead is what would be there without it: results are the same.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Mechanism:
    """Something that could go.

    Attributes:
        instead: what happens without it.
        cases: patterns of the cases that it may speed up.
        take_out: called in the process that does without.
    """

    instead: str
    cases: tuple[str, ...]
    take_out: Callable[[], None]


def _replaced(*places: str, by: Any) -> Callable[[], None]:
    """Puts `by` in the place of names, each `module:name`, all of which exist."""

    def replace() -> None:
        for place in places:
            module, _, name = place.partition(":")
            home = import_module(module)
            getattr(home, name)
            setattr(home, name, by)

    return replace


def _tuned(place: str, **fields: int) -> Callable[[], None]:
    """Puts other numbers in the fields of a record of `tuning.py` that a module reads, named `module:name`."""

    def replace() -> None:
        module, _, name = place.partition(":")
        home = import_module(module)
        setattr(home, name, getattr(home, name)._replace(**fields))

    return replace


def _never(*_: object, **__: object) -> bool:
    return False


def _nothing(*_: object, **__: object) -> None:
    return None


def _without_converting(graph: Any, *_: object) -> Any:
    return graph


def _share_in_python() -> None:
    threads = import_module(f"{_CPU}.machine.threads")
    pool = ThreadPoolExecutor(threads.max_threads())

    def compute(_: Any, kernel: Any, first: int, stop: int, count: int, parts: int, __: float, args: Any) -> list[Any]:
        parts = min(parts, (stop - first) // count)
        edges = [first + (stop - first) * part // (count * parts) for part in range(count * parts + 1)]
        others = pool.map(lambda part: kernel(*args, *part), pairwise(edges[parts:]))
        return [*(kernel(*args, *part) for part in pairwise(edges[: parts + 1])), *others]

    threads._Workers.compute = compute


def _without_non_temporal_stores() -> None:
    _tuned(f"{_CPU}.max_pool.tiles:POOL_MEMORY", non_temporal=1 << 62)()
    _tuned(f"{_CPU}.max_unpool.windows:UNPOOL", non_temporal=1 << 62)()
    _replaced(f"{_CPU}.max_pool.rolling:indices_fill_lines", by=_never)()


_CPU = "unpool.kernels.cpu"
_EVERYWHERE = ("max_pool/*", "max_unpool/*", "network/*")

MECHANISMS = {
    "hand-over in compiled code": Mechanism("threads take their parts in Python", _EVERYWHERE, _share_in_python),
    "memory of outputs used again": Mechanism(
        "every output is fresh memory",
        _EVERYWHERE,
        _replaced("benchmarks.engines.unpool_functions:DEFAULT_LIMIT", by=0),
    ),
    "stores past the cache": Mechanism(
        "large outputs displace inputs",
        ("max_pool/*", "max_unpool/*"),
        _without_non_temporal_stores,
    ),
    "tiles ask for memory ahead": Mechanism(
        "memory comes when it is read",
        ("max_pool/*",),
        _tuned(f"{_CPU}.max_pool.tiles:POOL_MEMORY", prefetch_reach=-1),
    ),
    "pooling by tiles": Mechanism(
        "direct, rolling or separable", ("max_pool/*",), _replaced(f"{_CPU}.max_pool.tiles:tiling", by=_nothing)
    ),
    "pooling by rolling rows": Mechanism(
        "separable, tiles or direct", ("max_pool/*",), _replaced(f"{_CPU}.max_pool.rolling:is_possible", by=_never)
    ),
    "pooling axis by axis": Mechanism(
        "direct",
        ("max_pool/*", "max_pool_windows/*"),
        _replaced(f"{_CPU}.max_pool.separable:is_possible", by=_never),
    ),
    "unpooling by windows": Mechanism(
        "indices are checked, then scattered",
        ("max_unpool/*", "network/SegNet*", "network/ENet*"),
        _replaced(f"{_CPU}.max_unpool:route", by=_nothing),
    ),
    "Winograd's tiles": Mechanism(
        "phases",
        ("conv_transpose/*", "network/DCGAN*"),
        _replaced(f"{_CPU}.conv_transpose.winograd:is_cheapest", by=_never),
    ),
    "transposed convolution directly": Mechanism(
        "phases or rows",
        ("conv_transpose/*", "network/DCGAN*"),
        _replaced(f"{_CPU}.conv_transpose.direct:is_cheapest", by=_never),
    ),
    "transposed convolution of points": Mechanism(
        "phases or rows",
        ("conv_transpose/GAN*", "network/DCGAN*"),
        _replaced(f"{_CPU}.conv_transpose.gemm_1x1:is_possible", by=_never),
    ),
    "Conv as ConvTranspose": Mechanism(
        "onnxruntime's Conv",
        ("network/*",),
        _replaced("unpool.onnxruntime.passes:convert_conv", by=_without_converting),
    ),
    "workers wait awake": Mechanism(
        "threads of unpool sleep as soon as they have nothing to do",
        ("max_pool/*", "network/*"),
        _replaced(f"{_CPU}.machine.work_queue:SPIN", by=0.0),
    ),
}
