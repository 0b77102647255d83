"""A record of what ran when, written as Chrome trace JSON."""

import json
import os
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from unpool.files import write


class Profile:
    """Events of all runs since the session was made; threads may add events at the same time."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._begin = time.perf_counter_ns()

    def add(self, name: str, runner: str, begin: int, end: int) -> None:
        """Add what ran from `begin` to `end`, both in nanoseconds of `time.perf_counter_ns`."""
        event = {
            "cat": "Node",
            "ph": "X",
            "name": name,
            "ts": (begin - self._begin) // 1000,
            "dur": (end - begin) // 1000,
            "pid": os.getpid(),
            "tid": threading.get_ident(),
            "args": {"provider": runner},
        }
        with self._lock:
            self._events.append(event)

    def write(self) -> str:
        """Write the file and give its name, which no other file had.

        Raises:
            FileError: it cannot be written.
        """
        stem = f"{self._prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
        with self._lock:
            content = json.dumps(self._events).encode()
        path, number = Path(f"{stem}.json"), 1
        while os.path.lexists(path):
            number += 1
            path = Path(f"{stem}_{number}.json")
        write(path, content)
        return str(path)
