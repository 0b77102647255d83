"""unpool with `tune=True`: whole networks, by the runners that were the fastest in a trial when the session loaded."""

from benchmarks import network
from benchmarks.case import Case
from benchmarks.engines import Ready
from benchmarks.engines.unpool_functions import start, version
from benchmarks.one_node import Arrays

__all__ = ["prepare", "start", "version"]


def prepare(case: Case, arrays: Arrays, outputs: str, threads: int) -> Ready:  # noqa: ARG001  outputs are used again
    """A run of a session that is tuned."""
    return Ready(network.by_unpool(case, arrays, threads, tune=True), tuple)
