"""The profiles that pieces of onnxruntime write of themselves: kept in a folder of ours, and read as events."""

import json
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from unpool.runtime.requirements import onnxruntime


class PieceTraces:
    """Where pieces write their profiles; the folder goes with this object."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="unpool-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._prefixes = (str(Path(folder, str(number))) for number in count())

    def attributes(self) -> dict[str, Any]:
        """What SessionOptions say for the next piece to write a profile of its own."""
        return {"enable_profiling": True, "profile_file_prefix": next(self._prefixes)}


class PieceTrace:
    """The profile of a piece that was loaded just now; `begin` is its start, of `time.perf_counter_ns`."""

    def __init__(self, session: onnxruntime.InferenceSession, place: PieceTraces) -> None:
        self._session, self._place = session, place
        self.begin = time.perf_counter_ns() - _age(session.get_profiling_start_time_ns())

    def nodes(self) -> Iterable[Mapping[str, Any]]:
        """The events of nodes; none behind the first call, and where no file could be written."""
        path = self._session.end_profiling()
        try:
            events = json.loads(Path(path).read_bytes()) if path else []
        except (OSError, ValueError):
            events = []
        return [event for event in events if event.get("cat") == "Node"]


def _age(start: int) -> int:
    """Nanoseconds since `start`, of the clock of onnxruntime: which one that is depends on the system."""
    return min((clock() - start for clock in (time.time_ns, time.monotonic_ns)), key=abs)
