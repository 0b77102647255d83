"""Stages that work at the same time, each in a thread of its own, with few things waiting between them."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

AHEAD = 1
"""Things that wait between two stages, at most; as many more are in the hands of each."""

_SOON = 0.05
"""Seconds after which a stage that waits looks whether it shall end."""

_END = object()


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


def flow(items: Iterable[Any], stages: Sequence[Callable[[Any], Any]], end: Callable[[], None]) -> Iterator[Any]:
    """What the last stage makes of the items, in their order.

    The caller's thread only waits, so that it hears Ctrl-C at once, whatever the stages do. They end on their own then,
    each with what it has in hands; nobody waits for them.

    Args:
        items: go through all stages.
        stages: each is called with one thing at a time, and its result goes to the next.
        end: is called when nothing more is wanted, whether all was done or not.

    Raises:
        whatever a stage raises; the things behind it are left out.

    >>> list(flow([1, 2, 3], [lambda x: x + 1, str], lambda: None))
    ['2', '3', '4']
    """
    stop = threading.Event()
    queues: list[queue.Queue[Any]] = [queue.Queue(AHEAD) for _ in stages]
    given = iter(items)
    for place, stage in enumerate(stages):
        taken = _taken(queues[place - 1], stop) if place else given
        threading.Thread(target=_work, args=(stage, taken, queues[place], stop), daemon=True).start()
    try:
        yield from _taken(queues[-1], stop)
    finally:
        stop.set()
        end()


def _work(stage: Callable[[Any], Any], items: Iterator[Any], made: "queue.Queue[Any]", stop: threading.Event) -> None:
    try:
        for item in items:
            result = stage(item)
            if stop.is_set() or not _put(made, result, stop):
                return
            del item, result
        _put(made, _END, stop)
    except BaseException as error:
        _put(made, _Failed(error), stop)


def _put(made: "queue.Queue[Any]", item: Any, stop: threading.Event) -> bool:
    """Whether it could be handed on before the end."""
    while not stop.is_set():
        try:
            made.put(item, timeout=_SOON)
            return True
        except queue.Full:
            continue
    return False


def _taken(given: "queue.Queue[Any]", stop: threading.Event) -> Iterator[Any]:
    """Things from a queue until its end.

    Raises:
        what the stage before raised.
    """
    while not stop.is_set():
        try:
            item = given.get(timeout=_SOON)
        except queue.Empty:
            continue
        if item is _END:
            return
        if isinstance(item, _Failed):
            raise item.error
        yield item
        del item
