"""The profile of a session: times of its steps as Chrome trace JSON, in the format of onnxruntime's profiles.

Every node has an event. Events of nodes in a partition of onnxruntime come from its own profile; the partition has an
event too, of the category Session.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from unpool.files import write
from unpool.runtime.backends.ort_backend import OrtPartition, PartitionTrace
from unpool.runtime.backends.ort_options import OPENVINO, UNPOOL
from unpool.runtime.backends.step import ScheduledStep

REFERENCE = "ReferenceEvaluator"
KERNEL_TIME = "_kernel_time"  # onnxruntime's suffix of the name of a node's event
PARTITION_TIME = "_partition_time"  # the suffix of the name of a partition's event


class Profile:
    """Events of all runs since the session was made; threads may add events at the same time."""

    traces: Sequence[PartitionTrace] = ()  # the profiles of partitions, which are read at the end

    def __init__(self, prefix: str, provider: str) -> None:
        self._prefix = prefix
        self._providers = {"unpool": UNPOOL, "onnxruntime": provider, "openvino": OPENVINO, "reference": REFERENCE}
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._is_open = True
        self._begin = time.perf_counter_ns()
        self.start = time.monotonic_ns()

    def add_step(self, step: ScheduledStep, folded: Iterable[tuple[str, str]], begin: int) -> None:
        """Add a step, from `begin` until now, and name and operator of the nodes folded into it, without duration."""
        provider = self._providers[step.step.runner]
        words = {"op_name": step.operators, "provider": provider}
        if isinstance(step.loaded, OrtPartition) and step.loaded.trace is not None:
            self.add("Session", f"{step.name}{PARTITION_TIME}", begin, words)
        else:
            self.add("Node", f"{step.name}{KERNEL_TIME}", begin, words)
        for node, operator in folded:
            words = {"op_name": operator, "provider": provider, "folded_into": step.name}
            self.add("Node", f"{node}{KERNEL_TIME}", time.perf_counter_ns(), words)

    def add(self, kind: str, name: str, begin: int | None = None, words: Mapping[str, str] | None = None) -> None:
        """Add an event from `begin`, in nanoseconds of `time.perf_counter_ns`, by default the start, until now."""
        begin = self._begin if begin is None else begin
        event = {
            "cat": kind,
            "ph": "X",
            "name": name,
            "ts": (begin - self._begin) // 1000,
            "dur": (time.perf_counter_ns() - begin) // 1000,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "args": words or {},
        }
        with self._lock:
            if self._is_open:
                self._events.append(event)

    def end(self) -> str:
        """Write a new file and return its name; "" after the first call."""
        with self._lock:
            if not self._is_open:
                return ""
            self._is_open = False
            events = list(self._events)
            for trace in self.traces:
                shift = (trace.begin - self._begin) // 1000
                events += [{**event, "ts": event["ts"] + shift} for event in trace.nodes()]
            self.traces = ()
            content = json.dumps(sorted(events, key=itemgetter("ts"))).encode()
        stem = f"{self._prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
        path, number = Path(f"{stem}.json"), 1
        while os.path.lexists(path):
            number += 1
            path = Path(f"{stem}_{number}.json")
        write(path, content)
        return str(path)
