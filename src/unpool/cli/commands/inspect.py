"""`unpool inspect`: the inputs, outputs, versions and plan of a model, and the images that it takes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpool.cli.errors import guard
from unpool.cli.options import (
    Compat,
    CompatWord,
    Exact,
    Flag,
    IndexSpace,
    IndexWord,
    Json,
    ModelPath,
    Provider,
    ProviderWord,
    Verbose,
    parse_sizes,
)
from unpool.display import format_shape

if TYPE_CHECKING:
    from rich.table import Table

    from unpool.runtime.plan.plan import Plan, TableRow
    from unpool.runtime.session.session import InferenceSession

WIDE = 160
COLOURS = {"unpool": "green", "onnxruntime": "default", "openvino": "cyan", "reference": "yellow"}


def inspect(
    model: ModelPath,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="NAME=NUMBER", help="Value of a dynamic dimension, for the memory estimate."),
    ] = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    exact: Exact = False,
    provider: ProviderWord = Provider.ONNXRUNTIME,
    shows_all: Annotated[bool, Flag("--all", help="List every node, those of onnxruntime too.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print the inputs, the outputs and the plan of a model, and what images it takes: which node runs where, and why.

    Example: unpool inspect segnet.onnx --size height=360 --size width=480
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.model import SessionOptions, open_session

        console.set_up_log(verbose)
        sizes = parse_sizes(size or ())
        session = open_session(model, SessionOptions(compat, index_space, exact, provider=provider))
        document = describe_model(model, session, sizes)
        if as_json:
            console.say_json(document)
        else:
            print_tables(session.plan, document, shows_all)


def describe_model(path: Path, session: "InferenceSession", sizes: Mapping[str, int]) -> dict[str, Any]:
    """A model as its session sees it, as JSON types.

    Args:
        path: ONNX file.
        session: of it.
        sizes: values of dynamic dimensions.

    Returns:
        model, opsets, inputs, outputs, plan with one row per node (node, operator, domain, version, runner, reason,
        step and level), and tiles (shapes, stride, outputs with step, field, before and after per axis, smallest with
        least and step per axis, bytes, refusal).
    """
    import onnx

    from unpool.runtime.graph.shapes import check_size_names
    from unpool.runtime.tiles.overview import overview

    check_size_names(sizes, [size for value in session.get_inputs() for size in value.shape or ()])
    imports = onnx.load(path, load_external_data=False).opset_import
    return {
        "model": str(path),
        "opsets": {one.domain: one.version for one in imports},
        "inputs": _values(session.get_inputs()),
        "outputs": _values(session.get_outputs()),
        "plan": [asdict(record) for record in session.plan],
        "tiles": _json(asdict(overview(session, sizes))),
    }


def print_tables(plan: "Plan", document: Mapping[str, Any], shows_all: bool) -> None:
    """Print tables for people: values first, then the plan and who runs how much, then what images it takes.

    Args:
        plan: of the session.
        document: about the model, as `inspect_file` makes it.
        shows_all: whether every node has its line, those of a step of onnxruntime too.
    """
    from unpool.cli import console
    from unpool.runtime.plan.plan import list_rows, summarize

    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in document["opsets"].items())
    console.say(f"{document['model']}: opset {opsets}")
    screen = console.Screen(WIDE)
    screen.print(_value_table(document["inputs"], document["outputs"]))
    screen.print(_plan_table(list_rows(plan) if shows_all else summarize(plan)))
    for line in (summary(document["plan"]), *image_lines(document["tiles"])):
        console.say(line)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line: who runs how many nodes.

    >>> summary([{"runner": "unpool", "step": 0}, {"runner": "unpool", "step": 1}])
    'nodes: unpool 2; steps: 2'
    """
    counts = Counter(row["runner"] for row in rows)
    nodes = ", ".join(f"{runner} {count}" for runner, count in sorted(counts.items(), reverse=True))
    return f"nodes: {nodes or 'none'}; steps: {len({row['step'] for row in rows})}"


def image_lines(tiles: Mapping[str, Any]) -> list[str]:
    """Lines about receptive fields, image sizes, memory and tiling.

    >>> axis = {"step": "2", "field": 44, "before": 20, "after": 22}
    >>> found = {"shapes": {"x": [1, 3, 64]}, "stride": [8], "outputs": {"y": [axis]}, "bytes": 3 << 20, "refusal": ""}
    >>> for line in image_lines(found | {"smallest": [{"least": 8, "step": 4}]}):
    ...     print(line)
    receptive field: 'y' sees 44 of the input, and has an element every 2; halo 20 before and 22 behind
    smallest input: 8, then in steps of 4
    memory: a run on x of 1x3x64 takes about 3 MiB, beside its inputs and the session
    tiles: exact, at multiples of 8
    """
    if tiles["refusal"]:
        return [
            "receptive field, smallest input and memory: known only of models that exact tiles can be made of",
            f"tiles: none are exact. {tiles['refusal'].removeprefix('tiles: ')}",
        ]
    lines = []
    for name, axes in tiles["outputs"].items():
        step, field, before, after = (
            format_shape([axis[key] for axis in axes]) for key in ("step", "field", "before", "after")
        )
        seen = f"{name!r} sees {field} of the input, and has an element every {step}"
        lines.append(f"receptive field: {seen}; halo {before} before and {after} behind")
    shapes = ", ".join(f"{name} of {format_shape(shape)}" for name, shape in tiles["shapes"].items())
    mib = round(tiles["bytes"] / 2**20)
    return [
        *lines,
        f"smallest input: {_smallest(tiles['smallest'], shapes)}",
        f"memory: a run on {shapes} takes about {mib} MiB, beside its inputs and the session",
        f"tiles: exact, at multiples of {format_shape(tiles['stride'])}",
    ]


def _smallest(axes: Sequence[Mapping[str, int]] | None, shapes: str) -> str:
    if axes is None:
        return f"not known, for the model does not take {shapes}. Give sizes that it takes with --size"
    least, steps = (format_shape([axis[key] for axis in axes]) for key in ("least", "step"))
    is_open = any(axis["step"] for axis in axes)
    return f"{least}, then in steps of {steps}" if is_open else f"{least}, the only one that it takes"


def _json(value: Any) -> Any:
    """Fractions as text, such as 1/2, and tuples as lists."""
    if isinstance(value, Mapping):
        return {name: _json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    return str(value) if isinstance(value, Fraction) else value


def _values(values: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"name": value.name, "shape": list(value.shape or []), "type": value.type} for value in values]


def _value_table(inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> "Table":
    from unpool.cli import console

    table = console.table(("", "name", "shape", "type"))
    for title, values in (("input", inputs), ("output", outputs)):
        for value in values:
            shape = format_shape(value["shape"]) if value["shape"] else "scalar or unknown"
            table.add_row(title, console.cell(value["name"]), console.cell(shape), value["type"])
    return table


def _plan_table(lines: "Sequence[TableRow]") -> "Table":
    from unpool.cli import console
    from unpool.runtime.plan.plan import TITLES

    table = console.table(TITLES)
    for line in lines:
        runner = console.cell(line.runner, COLOURS.get(line.runner.partition(",")[0], "default"))
        table.add_row(
            line.step, console.cell(line.node), console.cell(line.operator), runner, console.cell(line.reason)
        )
    return table
