"""The profile of a session: times of its steps as Chrome trace JSON, in the format of onnxruntime's profiles.

Every node has an event. Events of nodes in a partition of onnxruntime come from its own profile; the partition has an
event too, of the category Session.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from unpool.files import write
from unpool.runtime.backends.ort_backend import OrtPartition, PartitionTrace
from unpool.runtime.backends.ort_options import OPENVINO, UNPOOL
from unpool.runtime.backends.schedule import ScheduledStep
from unpool.runtime.plan.placement import RunnerName

REFERENCE = "ReferenceEvaluator"
KERNEL_TIME = "_kernel_time"
"""Onnxruntime's suffix of the name of a node's event."""

PARTITION_TIME = "_partition_time"
"""The suffix of the name of a partition's event."""


class Profile:
    """Events of all runs since the session was made; threads may add events at the same time.

    Args:
        prefix: of the name of the file.
        provider: the first of onnxruntime's.

    Attributes:
        start: of the profile, in nanoseconds of `time.monotonic_ns`.
        traces: the profiles of partitions, which are read at the end.
    """

    traces: Sequence[PartitionTrace] = ()

    def __init__(self, prefix: str, provider: str) -> None:
        self._prefix = prefix
        self._providers: dict[RunnerName, str] = {
            "unpool": UNPOOL,
            "onnxruntime": provider,
            "openvino": OPENVINO,
            "reference": REFERENCE,
        }
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._is_open = True
        self._begin = time.perf_counter_ns()
        self.start = time.monotonic_ns()

    def add_loading(self) -> None:
        """Add the loading of the session, from the start of the profile until now."""
        self._add("Session", "session_initialization", self._begin, {})

    def add_run(self, begin: int) -> None:
        """Add a run, from `begin`, in nanoseconds of `time.perf_counter_ns`, until now."""
        self._add("Session", "model_run", begin, {})

    def add_step(self, step: ScheduledStep, operators: str, begin: int) -> None:
        """Add a step, from `begin` until now."""
        words = {"op_name": operators, "provider": self._providers[step.step.runner]}
        if isinstance(step.loaded, OrtPartition) and step.loaded.trace is not None:
            self._add("Session", f"{step.name}{PARTITION_TIME}", begin, words)
        else:
            self._add("Node", f"{step.name}{KERNEL_TIME}", begin, words)

    def add_folded(self, name: str, folded: Iterable[tuple[str, str]], runner: RunnerName) -> None:
        """Add the nodes that were folded into a step, each with its name and its operator, without duration."""
        for node, operator in folded:
            words = {"op_name": operator, "provider": self._providers[runner], "folded_into": name}
            self._add("Node", f"{node}{KERNEL_TIME}", time.perf_counter_ns(), words)

    def _add(self, kind: str, name: str, begin: int, words: dict[str, str]) -> None:
        event = {
            "cat": kind,
            "ph": "X",
            "name": name,
            "ts": (begin - self._begin) // 1000,
            "dur": (time.perf_counter_ns() - begin) // 1000,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "args": words,
        }
        with self._lock:
            if self._is_open:
                self._events.append(event)

    def _shifted_events(self, trace: PartitionTrace) -> Iterator[dict[str, Any]]:
        """The events of a partition, with times from the start of this profile."""
        shift = (trace.begin - self._begin) // 1000
        for event in trace.nodes():
            yield {**event, "ts": event["ts"] + shift}

    def end(self) -> str:
        """Write a new file and return its name; "" after the first call.

        Raises:
            FileError: it cannot be written.
        """
        with self._lock:
            if not self._is_open:
                return ""
            self._is_open = False
            events = [*self._events, *(event for trace in self.traces for event in self._shifted_events(trace))]
            self.traces = ()
            content = json.dumps(sorted(events, key=itemgetter("ts"))).encode()
        stem = f"{self._prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
        path, number = Path(f"{stem}.json"), 1
        while os.path.lexists(path):
            number += 1
            path = Path(f"{stem}_{number}.json")
        write(path, content)
        return str(path)
