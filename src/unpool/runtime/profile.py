"""A record of what ran when, written as Chrome trace JSON."""

import json
import os
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from unpool.errors import FileError


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
        """Write the file and give its name.

        Raises:
            FileError: it cannot be written.
        """
        path = Path(f"{self._prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S}.json")
        try:
            with self._lock:
                path.write_text(json.dumps(self._events))
        except OSError as error:
            raise FileError(
                f"{path}: expected a place to write the profile to, got: {error}. Change the prefix."
            ) from error
        return str(path)
