"""The files of a network in the cache folder: the model, an input with torch's result, or why it was not exported."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from unpool.files import write

INPUT, OUTPUT = "input:", "output:"
"""How the names of arrays begin in the file of arrays."""

OPERATORS = ("ConvTranspose", "MaxPool", "MaxPool+Indices", "MaxUnpool", "ScatterND")
"""Counted in every model; unpool's own ones, and what torch.onnx.export writes in place of MaxUnpool."""

GROUPS = ("MaxUnpool or Indices", "ConvTranspose", "MaxPool", "other operators only", "dynamic sizes")


@dataclass(frozen=True)
class ModelFile:
    """A network that was exported, or failed to be.

    Attributes:
        folder: the cache folder.
        name: of the network.
        share: of the numbers of each output that may differ from torch's.
    """

    folder: Path
    name: str
    share: float = 0.0

    @property
    def model(self) -> Path:
        """The ONNX file, weights included."""
        return self.folder / f"{self.name}.onnx"

    @property
    def arrays(self) -> Path:
        """One input, and torch's result for it."""
        return self.folder / f"{self.name}.npz"

    @property
    def log(self) -> Path:
        """Why the network was not exported."""
        return self.folder / f"{self.name}.txt"

    @property
    def is_complete(self) -> bool:
        """Whether the network can be measured; the arrays are written last."""
        return self.model.is_file() and self.arrays.is_file()

    @property
    def reason(self) -> str:
        """Why the network was not exported, in one line; "" if it was not tried."""
        return self.log.read_text(encoding="utf-8").strip() if self.log.is_file() else ""

    def save_arrays(self, inputs: Mapping[str, np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Write the file of arrays."""
        arrays = {f"{INPUT}{name}": array for name, array in inputs.items()}
        arrays |= {f"{OUTPUT}{number:03}": array for number, array in enumerate(outputs)}
        part = self.arrays.with_suffix(".part.npz")
        np.savez(part, **arrays)  # type: ignore[arg-type]
        part.replace(self.arrays)

    def load_arrays(self) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """The inputs by name, and torch's outputs in the order of the model's."""
        with np.load(self.arrays) as arrays:
            inputs = {name.removeprefix(INPUT): arrays[name] for name in arrays.files if name.startswith(INPUT)}
            return inputs, [arrays[name] for name in sorted(arrays.files) if name.startswith(OUTPUT)]

    def fail(self, reason: str) -> None:
        """Write why the network was not exported."""
        write(self.log, f"{' '.join(reason.split())[:400]}\n".encode())

    def shapes(self) -> str:
        """Of the inputs, as 1x3x64x64; 1x2."""
        inputs, _ = self.load_arrays()
        return "; ".join("x".join(map(str, array.shape)) for array in inputs.values())

    def summary(self) -> tuple[str, str]:
        """How often each of OPERATORS occurs, as "4×MaxPool 2×ScatterND", and the one of GROUPS."""
        graph = onnx.load(self.model, load_external_data=False).graph
        counts = Counter(_kind(node) for node in nodes(graph))
        text = " ".join(f"{counts[kind]}×{kind}" for kind in OPERATORS if counts[kind])
        if any(dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim):
            return text, "dynamic sizes"
        if counts["MaxUnpool"] or counts["MaxPool+Indices"]:
            return text, "MaxUnpool or Indices"
        return text, next((kind for kind in ("ConvTranspose", "MaxPool") if counts[kind]), "other operators only")


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of subgraphs too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs):
                yield from nodes(subgraph)


def default_folder() -> Path:
    """The cache folder of the user, or the folder of the environment variable UNPOOL_ZOO."""
    if "UNPOOL_ZOO" in os.environ:
        return Path(os.environ["UNPOOL_ZOO"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "unpool-zoo"
    cache = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "unpool-zoo"


def _kind(node: onnx.NodeProto) -> str:
    has_indices = node.op_type == "MaxPool" and len(node.output) > 1 and bool(node.output[1])
    return "MaxPool+Indices" if has_indices else node.op_type
