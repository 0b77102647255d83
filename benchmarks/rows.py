"""Results as CSV: one row per engine, case, kind of outputs and round; seconds."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.machine import Machine
from unpool import files

Record = TypeVar("Record", bound="Row | MachineRow | SteadyRow | GpuRow | GpuDeviceRow | PartRow | ZooRow | LibraryRow")


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        operator: max_pool, max_unpool, conv_transpose, training or network.
        case: its name.
        type: of the values.
        engine: who was measured.
        version: of the engine.
        outputs: "pooled" into memory that was written before, "fresh" into memory that was not, "own" of a peer.
        cpu: name of the CPU.
        threads: how many were allowed.
        round: from 0 on; every round has processes and inputs of its own.
        median: seconds per call.
        p20: one call in five is faster.
        p80: one call in five is slower.
        first: the first call, with loading and compiling.
        date: ISO 8601.
    """

    operator: str
    case: str
    type: str
    engine: str
    version: str
    outputs: str
    cpu: str
    threads: int
    round: int
    median: float
    p20: float
    p80: float
    first: float
    date: str

    @property
    def key(self) -> tuple[str | int, ...]:
        """What a later run of the same case replaces."""
        return self.operator, self.case, self.type, self.cpu, self.threads


@dataclass(frozen=True)
class MachineRow:
    """What a machine did in one round; see `Machine`."""

    cpu: str
    threads: int
    round: int
    read: float
    written: float
    flops: float
    date: str

    @property
    def key(self) -> tuple[str | int, ...]:
        """What a later run replaces."""
        return self.cpu, self.threads


@dataclass(frozen=True)
class SteadyRow:
    """What many runs of a whole network took on one engine, in seconds; `load` cores were kept busy by others."""

    case: str
    engine: str
    version: str
    load: int
    cpu: str
    threads: int
    runs: int
    fastest: float
    median: float
    p95: float
    date: str

    @property
    def key(self) -> tuple[str | int, ...]:
        """What a later run of the same network replaces."""
        return self.case, self.load, self.cpu, self.threads


@dataclass(frozen=True)
class ZooRow:
    """What one engine did with a network of the zoo; seconds and bytes.

    Attributes:
        network: its name.
        group: of networks with the same operators of unpool, see `benchmarks.zoo.model_file`.
        input: shapes.
        operators: how often each occurs.
        engine: who was measured, or "export" where the network was not exported.
        version: of the engine.
        cpu: name of the CPU.
        threads: how many were allowed.
        runs: how many were timed; 0 if the engine cannot run the network.
        load: from the file to a session, in the first round.
        reload: the same, the median of later rounds, which find what unpool has stored; 0 without any.
        first: the first run, the median of the rounds.
        median: of all runs.
        p95: one run in twenty takes longer.
        memory: peak above what imports take, the largest of the rounds.
        error: largest difference from torch's result over the largest value.
        reason: why the engine cannot run the network; "" if it can.
        steps: the nodes that unpool computes, in order; "" for other engines.
        date: ISO 8601.
    """

    network: str
    group: str
    input: str
    operators: str
    engine: str
    version: str
    cpu: str
    threads: int
    runs: int
    load: float
    reload: float
    first: float
    median: float
    p95: float
    memory: int
    error: float
    reason: str
    steps: str
    date: str

    @property
    def key(self) -> tuple[str | int, ...]:
        """What a later run of the same network replaces."""
        return self.network, self.cpu, self.threads


@dataclass(frozen=True)
class LibraryRow:
    """What one engine of `benchmarks.library` did with a network; seconds and bytes, medians of the rounds.

    Attributes:
        network: its name.
        input: shapes.
        engine: onnxruntime alone, with the library, with a compiled model, or unpool's session.
        version: of onnxruntime.
        cpu: name of the CPU.
        threads: how many were allowed.
        runs: how many were timed; 0 if the engine cannot run the network.
        imports: of unpool.
        created: registering and creating the session.
        load: the same, and the first run.
        reload: the same again, in the same process.
        median: of all runs.
        p95: one run in twenty takes longer.
        memory: peak of the process.
        error: largest difference from onnxruntime's result over the largest value.
        reason: why the engine cannot run the network; "" if it can.
        date: ISO 8601.
    """

    network: str
    input: str
    engine: str
    version: str
    cpu: str
    threads: int
    runs: int
    imports: float
    created: float
    load: float
    reload: float
    median: float
    p95: float
    memory: int
    error: float
    reason: str
    date: str

    @property
    def key(self) -> tuple[str | int, ...]:
        """What a later run of the same network replaces."""
        return self.network, self.cpu, self.threads


@dataclass(frozen=True)
class GpuRow:
    """One measurement on a GPU; shape is the call in words, way "forward" or "training", times are seconds.

    Bytes and flops are what the case takes at least, see `benchmarks.gpu.cases`.
    """

    operator: str
    case: str
    shape: str
    type: str
    way: str
    engine: str
    version: str
    device: str
    median: float
    p95: float
    bytes: int
    flops: int
    date: str

    @property
    def call(self) -> tuple[str, ...]:
        """What engines are compared on."""
        return self.operator, self.case, self.type, self.way

    @property
    def key(self) -> tuple[str, ...]:
        """What a later run of the same case replaces."""
        return *self.call, self.device


@dataclass(frozen=True)
class GpuDeviceRow:
    """What a GPU does at most: bytes per second of a copy, operations per second of a product in a type."""

    device: str
    type: str
    copy: float
    flops: float
    date: str

    @property
    def key(self) -> tuple[str, ...]:
        """What a later run replaces."""
        return self.device, self.type


@dataclass(frozen=True)
class PartRow:
    """One line of `python -m benchmarks device`: a time, a fact, or what was not measured.

    Attributes:
        part: 1 to 6, see `benchmarks.device_parts`.
        case: what was measured or asked.
        engine: who was measured; "" for a fact.
        threads: how many were allowed; 0 on a GPU.
        median: seconds; 0 for a fact.
        p95: one call in twenty takes longer; 0 for a fact.
        limit: minimum seconds on this machine; 0 where it is not known.
        state: "" or one of the states of `benchmarks.device_parts`.
        note: in words.
        machine: names of the GPU and of the CPU.
        date: ISO 8601.
    """

    part: int
    case: str
    engine: str
    threads: int
    median: float
    p95: float
    limit: float
    state: str
    note: str
    machine: str
    date: str

    @property
    def key(self) -> tuple[str | int, ...]:
        """What a repeated part replaces: all of its rows."""
        return self.part, self.machine


def read(path: Path, kind: type[Record]) -> list[Record]:
    """The records of a file; none where there is no file.

    Raises:
        ValueError: its columns are not the fields of the records.
    """
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        names = [field.name for field in fields(kind)]
        if reader.fieldnames != names:
            raise ValueError(f"{path}: expected columns {', '.join(names)}; got {reader.fieldnames}. Measure again.")
        return [kind(**{field.name: _parsed(field.type, row[field.name]) for field in fields(kind)}) for row in reader]


def write(path: Path, records: Sequence[Record]) -> None:
    """Write a file of records; numbers keep six digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(type(records[0]))])
    writer.writerows([_written(value) for value in asdict(record).values()] for record in records)
    files.write(path, text.getvalue().encode())


def merged(old: Iterable[Record], new: Sequence[Record]) -> list[Record]:
    """The new records, and those of the old ones whose key has no new one."""
    keys = {record.key for record in new}
    return [*(record for record in old if record.key not in keys), *new]


def best_machine(rows: Sequence[MachineRow]) -> Machine:
    """The fastest of the rounds in each respect: the speed of the machine when it is idle."""
    first = rows[0]
    return Machine(
        first.cpu,
        first.threads,
        max(row.read for row in rows),
        max(row.written for row in rows),
        max(row.flops for row in rows),
    )


def _parsed(kind: Any, text: str) -> Any:
    by_name = {"int": int, "float": float, "str": str}
    return by_name.get(getattr(kind, "__name__", kind), str)(text)


def _written(value: str | float) -> str | int:
    return f"{value:.6g}" if isinstance(value, float) else value
