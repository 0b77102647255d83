"""`unpool inspect`, a model's values, versions, plan and image sizes; and `unpool check`, its questionable nodes."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from unpool.cli import options
from unpool.cli.command import CommandResult, command
from unpool.cli.errors import FINDINGS, OK
from unpool.display import format_shape

if TYPE_CHECKING:
    from unpool.onnxruntime.placement import NodePlacement
    from unpool.onnxruntime.session import InferenceSession

DEFAULT_WIDTH = 160
COLOURS = {"unpool": "green", "onnxruntime": "default", "openvino": "cyan", "reference": "yellow"}


@command
def inspect(
    model: options.ModelPath,
    size: Annotated[
        list[str] | None, options.SizeOption(help="Value of a dynamic dimension, for the memory estimate.")
    ] = None,
    layout: options.LayoutWord = options.Layout.NCHW,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    exact: options.Exact = False,
    provider: options.ProviderWord = options.Provider.ONNXRUNTIME,
    shows_all: Annotated[bool, options.Flag("--all", help="List every node, also of onnxruntime.")] = False,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Print the inputs, outputs and plan of a model, its receptive field, smallest input and memory.

    The plan has the nodes of unpool's operators: which runtime computes each, and why.

    Example: unpool inspect segnet.onnx --size height=360 --size width=480
    """
    from unpool.cli import console
    from unpool.cli.model import open_session

    sizes = options.parse_sizes(size)
    session = open_session(model, provider=provider, **options.semantics(compat, index_space, exact=exact))
    plan = all_rows(session) if shows_all else session.plan
    document = describe_model(model, session, sizes, layout, plan)
    if as_json:
        console.say_json(document)
    else:
        print_tables(plan, document)


@command
def check(model: options.ModelPath, size: options.Size = None, as_json: options.Json = False) -> CommandResult:
    """List nodes that runtimes interpret differently, or that are probably wrong; the exit code is then 1.

    Example: unpool check segnet.onnx
    """
    from unpool.runtime.lint.lint import lint

    findings = lint(model, sizes=options.parse_sizes(size))
    count = f"{len(findings)} finding{'s' * (len(findings) > 1)}" if findings else "nothing found"
    rules = "; for the rules see docs/semantics.md in the source of unpool" if findings else ""
    document = {"model": str(model), "findings": [asdict(finding) for finding in findings]}
    lines = [*map(str, findings), f"{model}: {count}{rules}"]
    return CommandResult(lines, document, FINDINGS if findings else OK)


def all_rows(session: "InferenceSession") -> Sequence["NodePlacement"]:
    """A row for every node after the passes, in their order."""
    from unpool.graph.nodes import node_name, with_subgraph_nodes
    from unpool.onnxruntime.placement import NodePlacement, Reason

    graph = session.prepared_graph(has_own_nodes=True).graph
    known = {(row.node, row.operator): row for row in session.plan}
    return [
        known.get((node_name(node), node.op_type))
        or NodePlacement.of_node(node, graph.opsets, Reason.OTHER, "", position)
        for position, node in enumerate(with_subgraph_nodes(graph.nodes))
    ]


def describe_model(
    path: Path,
    session: "InferenceSession",
    sizes: Mapping[str, int],
    layout: str,
    plan: Sequence["NodePlacement"],
) -> dict[str, Any]:
    """A model as its session sees it, as JSON types: `plan` has rows of `describe_node`, `tiles` the Overview."""
    import onnx

    from unpool.graph.shapes import check_size_names
    from unpool.runtime.tiles.tiler import overview

    check_size_names(sizes, [size for value in session.get_inputs() for size in value.shape or ()])
    model = onnx.ModelProto()
    with suppress(Exception):  # a .ort file, which onnxruntime alone reads
        model = onnx.load(path, load_external_data=False)
    tiles = overview(session, sizes, layout.upper())

    def describe(values: Sequence[Any]) -> list[dict[str, Any]]:
        return [{"name": value.name, "shape": list(value.shape or []), "type": value.type} for value in values]

    return {
        "model": str(path),
        "opsets": {opset.domain: opset.version for opset in model.opset_import},
        "inputs": describe(session.get_inputs()),
        "outputs": describe(session.get_outputs()),
        "plan": [describe_node(row) for row in plan],
        "tiles": json.loads(json.dumps(asdict(tiles), default=str)),  # Fractions as text, like 1/2
    }


def describe_node(row: "NodePlacement") -> dict[str, Any]:
    """A row of the plan: `reason` is the name of the code, and `text` says it."""
    names = ("node", "operator", "domain", "version", "runner", "kernel", "text")
    return {**{name: getattr(row, name) for name in names}, "reason": row.reason.name}


def print_tables(plan: Sequence["NodePlacement"], document: Mapping[str, Any]) -> None:
    """Print the document of `describe_model` as tables and lines."""
    from unpool.cli import console

    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in document["opsets"].items())
    console.say(f"{document['model']}: opset {opsets}")
    values, nodes = console.table(("", "name", "shape", "type")), console.table(("node", "operator", "runs on", "why"))
    for title in ("input", "output"):
        for value in document[f"{title}s"]:
            shape = format_shape(value["shape"]) if value["shape"] else "scalar or unknown"
            values.add_row(title, console.cell(value["name"]), console.cell(shape), value["type"])
    for row in plan:
        runner = console.cell(row.runner, COLOURS.get(row.runner, "default"))
        nodes.add_row(console.cell(row.node), console.cell(row.operator_version), runner, console.cell(row.text))
    screen = console.Screen(DEFAULT_WIDTH)
    screen.print(values)
    if plan:
        screen.print(nodes)
    for line in (summary(document["plan"]), *image_lines(document["tiles"])):
        console.say(line)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line: who runs how many nodes of the plan.

    >>> summary([{"runner": "unpool"}, {"runner": "unpool"}])
    'nodes: unpool 2; onnxruntime all others'
    """
    counts = Counter(row["runner"] for row in rows)
    nodes = ", ".join(f"{runner} {count}" for runner, count in sorted(counts.items(), reverse=True))
    if any(row.get("reason") == "OTHER" for row in rows):
        return f"nodes: {nodes}"
    return f"nodes: {nodes}; onnxruntime all others" if nodes else "nodes: onnxruntime all"


def image_lines(tiles: Mapping[str, Any]) -> list[str]:
    """Lines about receptive fields, image sizes, memory and tiling.

    >>> axis = {"step": "2", "field": 44, "before": 20, "after": 22}
    >>> tiles = {"shapes": {"x": [1, 3, 64]}, "stride": [8], "outputs": {"y": [axis]}, "refusal": ""}
    >>> more = {"smallest": [{"least": 8, "step": 4}], "bytes": 3 << 20, "lean_bytes": 2 << 20}
    >>> for line in image_lines(tiles | more):
    ...     print(line)
    receptive field: 'y' sees 44 of the input, and has an element every 2; halo 20 before and 22 after
    smallest input: 8, then in steps of 4
    memory: a run on x of 1x3x64 takes about 3 MiB, plus its inputs and the session
    cluster: a worker needs at least 2 MiB per thread for such a run, plus its process
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
        lines.append(f"receptive field: {seen}; halo {before} before and {after} after")
    shapes = ", ".join(f"{name} of {format_shape(shape)}" for name, shape in tiles["shapes"].items())
    smallest = f"not known, because the model does not take {shapes}. Give sizes that it takes with --size"
    if (axes := tiles["smallest"]) is not None:
        least, steps = (format_shape([axis[key] for axis in axes]) for key in ("least", "step"))
        is_open = any(axis["step"] for axis in axes)
        smallest = f"{least}, {f'then in steps of {steps}' if is_open else 'the only one that it takes'}"
    return [
        *lines,
        f"smallest input: {smallest}",
        f"memory: a run on {shapes} takes about {round(tiles['bytes'] / 2**20)} MiB, plus its inputs and the session",
        f"cluster: a worker needs at least {round(tiles['lean_bytes'] / 2**20)} MiB per thread for such a run, "
        "plus its process",
        f"tiles: exact, at multiples of {format_shape(tiles['stride'])}",
    ]
