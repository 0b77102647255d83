"""The work of `unpool inspect`: the inputs, outputs, versions and plan of a model, as data and as tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unpool.cli.model import SessionOptions, open_session

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

WIDE = 160
COLOURS = {"unpool": "green", "onnxruntime": "default", "openvino": "cyan", "reference": "yellow"}


def describe(path: Path, options: SessionOptions, sizes: Mapping[str, int]) -> dict[str, Any]:
    """What the session knows of a model, as JSON types.

    Args:
        path: ONNX file.
        options: as for running it; the plan depends on `exact`.
        sizes: for the names of sizes that the model leaves open.

    Returns:
        model, opsets, inputs, outputs, plan: one row per node with node, operator, domain, version, runner, reason,
        step and level; and tiles: shapes, stride, outputs with step, field, before and after per axis, bytes, refusal.
    """
    import onnx

    from unpool.runtime.tiles.overview import overview

    session = open_session(path, options)
    imports = onnx.load(path, load_external_data=False).opset_import
    return {
        "model": str(path),
        "opsets": {one.domain: one.version for one in imports},
        "inputs": _values(session.get_inputs()),
        "outputs": _values(session.get_outputs()),
        "plan": [asdict(record) for record in _plan(session)],
        "tiles": _json(asdict(overview(session, sizes))),
    }


def print_description(description: Mapping[str, Any]) -> None:
    """Print tables for people: values first, then the plan and who runs how much."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in description["opsets"].items())
    console.print(Text(f"{description['model']}: opset {opsets}"), soft_wrap=True)
    console.print(_value_table(description["inputs"], description["outputs"]))
    console.print(_plan_table(description["plan"]))
    console.print(Text(summary(description["plan"])))
    for line in tile_lines(description["tiles"]):
        console.print(Text(line), soft_wrap=True)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line: who runs how many nodes.

    >>> summary([{"runner": "unpool", "step": 0}, {"runner": "unpool", "step": 1}])
    'nodes: unpool 2; steps: 2'
    """
    counts = Counter(row["runner"] for row in rows)
    nodes = ", ".join(f"{runner} {count}" for runner, count in sorted(counts.items(), reverse=True))
    return f"nodes: {nodes or 'none'}; steps: {len({row['step'] for row in rows})}"


def tile_lines(tiles: Mapping[str, Any]) -> list[str]:
    """How the model can be tiled, in words.

    >>> axis = {"step": "2", "field": 44, "before": 20, "after": 22}
    >>> found = {"shapes": {"x": [1, 3, 64]}, "stride": [8], "outputs": {"y": [axis]}, "bytes": 3 << 20, "refusal": ""}
    >>> for line in tile_lines(found):
    ...     print(line)
    tiles: exact, at multiples of 8
    tiles: 'y' every 2, receptive field 44, halo 20 before and 22 behind
    tiles: a run on x of 1x3x64 takes about 3 MiB, beside its inputs and the session
    """
    if tiles["refusal"]:
        return [f"tiles: none are exact. {tiles['refusal']}"]
    lines = [f"tiles: exact, at multiples of {_by(tiles['stride'])}"]
    for name, axes in tiles["outputs"].items():
        step, field, before, after = (_by([axis[key] for axis in axes]) for key in ("step", "field", "before", "after"))
        lines.append(f"tiles: {name!r} every {step}, receptive field {field}, halo {before} before and {after} behind")
    shapes = ", ".join(f"{name} of {_by(shape)}" for name, shape in tiles["shapes"].items())
    mib = round(tiles["bytes"] / 2**20)
    return [*lines, f"tiles: a run on {shapes} takes about {mib} MiB, beside its inputs and the session"]


def _by(sizes: Sequence[Any]) -> str:
    return "x".join(map(str, sizes))


def _json(value: Any) -> Any:
    """Fractions as text, such as 1/2, and tuples as lists."""
    if isinstance(value, Mapping):
        return {name: _json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    return str(value) if isinstance(value, Fraction) else value


def _plan(session: "InferenceSession") -> Any:
    return session.plan


def _values(values: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"name": value.name, "shape": list(value.shape or []), "type": value.type} for value in values]


def _value_table(inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("", "name", "shape", "type", box=SIMPLE_HEAD)
    for title, values in (("input", inputs), ("output", outputs)):
        for value in values:
            shape = "x".join("?" if size is None else str(size) for size in value["shape"]) or "scalar or unknown"
            table.add_row(title, Text(value["name"]), Text(shape), value["type"])
    return table


def _plan_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("step", "node", "operator", "runs on", "why", box=SIMPLE_HEAD)
    for row in rows:
        operator = f"{row['operator']}-{row['version']}" + (f" ({row['domain']})" if row["domain"] else "")
        runner = Text(row["runner"], style=COLOURS.get(row["runner"], "default"))
        table.add_row(str(row["step"]), Text(row["node"]), operator, runner, Text(row["reason"]))
    return table
