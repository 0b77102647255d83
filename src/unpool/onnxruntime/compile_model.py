"""Models whose nodes have their plans, for programs without Python."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from unpool.errors import ModelError, UnpoolError, UnsupportedError
from unpool.execute.plans import Kind, Operand, OperandView, PlanStep, is_shipped, kernel_level, library_file
from unpool.extras import require
from unpool.onnxruntime import planner, plans
from unpool.onnxruntime.compile_process import check_level, compile_in_process
from unpool.onnxruntime.register import register
from unpool.operators.unpool_domain import DOMAIN, OPERATORS

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

MAX_PLANS, MAX_INPUTS = 8, 8  # of a node, in node_kernel.h
_SPILLED_BYTES = 1 << 30  # weights from which on a model is handed over with external data

Shapes = Mapping[str, Sequence[int]]


def compile(
    model: "str | os.PathLike[str] | bytes | ModelProto",
    *,
    shapes: Shapes | Sequence[Shapes] | None = None,
    level: str | None = None,
    exact: bool = False,
    compat: str = "spec",
    index_space: str = "auto",
) -> "ModelProto":
    """The model for onnxruntime in programs without Python, with the library of `get_library_path`.

    The passes of `unpool.onnxruntime.InferenceSession` run, and the nodes that unpool computes there become nodes of
    the domain `unpool`, with packed weights and plans for some shapes. They run with the shipped kernels of this
    release, on processors of one level or of a higher one. From this machine, the result depends on the level and on
    the size of the second cache, which sets the tiles of Winograd's algorithm.

    A plan is code. A session loads such a model only if its configuration entry `unpool.trust_plans` is "1".

    Args:
        model: a model, its bytes, or its file.
        shapes: the shape of each input, by its name, or a list of such dictionaries for up to eight shapes. Inputs with
            fixed shapes may be omitted.
        level: the lowest level of the processors that will run the model, such as "x86-64-v3". This installation must
            have kernels for it, and it must not be higher than that of this processor. "native" or None is the highest
            such level, which `unpool doctor` prints.
        exact: as in `register`.
        compat: the same.
        index_space: the same.

    Raises:
        UnpoolError: a shape is missing or wrong, a node cannot be compiled, or this installation has no shipped kernels
            for this level.

    >>> import onnx
    >>> text = '''<ir_version: 8, opset_import: ["": 16]>
    ... half (float[1, 3, height, width] x) => (y) { y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }'''
    >>> compiled = compile(onnx.parser.parse_model(text), shapes={"x": (1, 3, 32, 48)})  # doctest: +SKIP
    >>> compiled.graph.node[0].domain  # doctest: +SKIP
    'unpool'
    """
    require("unpool compile", "run", "onnx", "onnxruntime")
    library = library_file()
    if library is None:
        raise UnpoolError(
            "compile: this process compiles its kernels, and a program without Python cannot. Install a wheel that has "
            "kernels, or run python -m unpool.build."
        )
    options = {"exact": exact, "compat": compat, "index_space": index_space}
    listed: Sequence[Shapes | None] = [shapes] if shapes is None or isinstance(shapes, Mapping) else shapes
    if level is not None and level not in ("native", kernel_level()):
        check_level(level)
        return compile_in_process(_load(model), level, {"shapes": listed, **options})
    settings = _session_options(options)
    result = _place_nodes(_load(model), options)
    nodes = _name_nodes(result)
    if not 1 <= len(listed) <= MAX_PLANS:
        raise UnpoolError(f"compile: 1 to {MAX_PLANS} sets of shapes are possible, got {len(listed)}.")
    recorded: dict[str, list[planner.PlanRecord]] = {name: [] for name in nodes}
    for each in listed:
        _record(result, _inputs(result, each or {}), recorded, settings)
    for name, (graph, node, old_name) in nodes.items():
        _replace(graph, node, old_name, recorded[name], library)
    for graph in {id(graph): graph for graph, _, _ in nodes.values()}.values():
        _drop_unused(graph)
    return result


def _session_options(options: dict[str, Any]) -> Any:
    """Options of a session that runs the nodes of the domain `unpool`, after the check of these arguments."""
    import onnxruntime

    from unpool.onnxruntime.silence import quiet_options

    settings = quiet_options()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    register(settings, domains="unpool", **options)
    return settings


def _place_nodes(model: "ModelProto", options: dict[str, Any]) -> "ModelProto":
    """The model after the passes of a session, with the nodes that unpool computes in its domain."""
    from unpool.onnxruntime.passes import PassContext, run_passes
    from unpool.onnxruntime.placement import make_plan, place
    from unpool.operators.semantics import Semantics
    from unpool.passes.inline import shorten_domains

    semantics = Semantics(options["compat"], options["index_space"], options["exact"])
    context = PassContext(semantics)
    model = run_passes(shorten_domains(model), context)
    plan = make_plan(model, semantics, {})
    if plan.has_own_nodes:
        place(model, plan, context.counts_in_output)
    return model


def _load(model: "str | os.PathLike[str] | bytes | ModelProto") -> "ModelProto":
    import onnx

    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
    try:
        return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    except OSError:
        raise
    except Exception as cause:
        where = "compile" if isinstance(model, bytes) else os.fspath(model)
        raise ModelError(f"{where}: expected an ONNX model, which cannot be read: {cause}") from cause


def _graphs(graph: "GraphProto") -> Iterator["GraphProto"]:
    """A graph and its sub-graphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for each in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(each)


def _name_nodes(model: "ModelProto") -> dict[str, tuple["GraphProto", "NodeProto", str]]:
    """Give all nodes of ours a name of their own; by this name the graph, the node, and the name that it had."""
    prefix = uuid4().hex
    found: dict[str, tuple[GraphProto, NodeProto, str]] = {}
    for graph in _graphs(model.graph):
        for node in graph.node:
            if node.domain == DOMAIN and all(attribute.name != "plans" for attribute in node.attribute):
                name = f"{prefix}_{len(found)}"
                found[name] = graph, node, node.name
                node.name = name
    return found


def _inputs(model: "ModelProto", shapes: Shapes) -> dict[str, Any]:
    """Zeros for all inputs."""
    import onnx

    constants = {each.name for each in model.graph.initializer}
    infos = {info.name: info.type.tensor_type for info in model.graph.input if info.name not in constants}
    unknown = sorted(shapes.keys() - infos.keys())
    if unknown:
        raise UnpoolError(f"compile: the model has no input {unknown[0]}; it has {', '.join(infos)}.")
    result = {}
    for name, info in infos.items():
        has_shape = info.HasField("shape")
        known = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in info.shape.dim]
        sizes = list(shapes.get(name, known if has_shape else [-1]))
        is_fitting = not has_shape or (
            len(sizes) == len(known) and all(old in (-1, new) for old, new in zip(known, sizes, strict=True))
        )
        if not is_fitting or any(size < 0 for size in sizes):
            wanted = f"[{', '.join('?' if size < 0 else str(size) for size in known)}]" if has_shape else "a shape"
            raise UnpoolError(
                f"compile: input {name} needs {wanted}, got {sizes}. Give its shape, such as {name}=1,3,480,640."
            )
        result[name] = np.zeros(sizes, onnx.helper.tensor_dtype_to_np_dtype(info.elem_type))
    return result


def _record(
    model: "ModelProto", inputs: dict[str, Any], recorded: dict[str, list[planner.PlanRecord]], settings: Any
) -> None:
    """Run the model once, and note what the planner is asked."""
    import onnx

    from unpool.onnxruntime.silence import quiet_session

    with tempfile.TemporaryDirectory() as folder, planner.recording(recorded):
        path = Path(folder, "model.onnx")
        onnx.save(model, path, save_as_external_data=model.ByteSize() > _SPILLED_BYTES)
        if path.stat().st_size > _SPILLED_BYTES:
            raise UnsupportedError("compile: a model without external data has to be smaller than 1 GiB.")
        try:
            quiet_session(str(path), settings).run(None, inputs)
        except Exception as cause:
            raise ModelError(f"compile: onnxruntime cannot run the model on zeros of these shapes: {cause}") from cause


def _replace(
    graph: "GraphProto", node: "NodeProto", old_name: str, recorded: list[planner.PlanRecord], library: str
) -> None:
    """Make a node one of the domain `unpool`, with the plans that were recorded for it."""
    import onnx

    label = f"compile: {node.op_type} {old_name or node.output[0]}"
    if not recorded:
        raise UnsupportedError(f"{label} did not run on zeros, so no plan of it is known. Move it out of the branch.")
    packs_weights, kept = OPERATORS[node.op_type].packs_weights, recorded[0].inputs
    data = [node.input[number] for number in kept]
    constants: list[Any] = []
    found: dict[tuple[int, ...], plans.NodePlan] = {}
    for each in recorded:
        if each.plan is None:
            raise UnsupportedError(f"{label} has no plan: its weights are no constants.")
        numbers = {(Kind.INPUT, old): new for new, old in enumerate(kept)}
        for operand in (operand for step in each.plan.steps for operand in step.operands()):
            origin = operand.kind, operand.number
            if operand.kind is Kind.CONSTANT and origin not in numbers and not _is_record(operand):
                number = len(data) + _number_of(constants, operand.value) if packs_weights else operand.number
                numbers[origin] = number
        found[each.key] = _renumber(each.plan, numbers)
    key_of_constants = [
        part
        for value in constants
        for part in (onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.ndim, *value.shape)
    ]
    encoded = [plans.encode(plan, (*key, *key_of_constants), library) for key, plan in found.items()]
    for plan_bytes in encoded:
        _check_kernels(label, plan_bytes.kernels, library)
    if len(data) + len(constants) > MAX_INPUTS:
        raise UnsupportedError(f"{label} packs its weights in another way for each shape. Compile it for fewer shapes.")
    for number, value in enumerate(constants):
        name = f"{node.output[0]}_packed_{number}"
        graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        data.append(name)
    for number, name in enumerate(node.output):
        _set_shape(graph, name, [each.plan.outputs[number] for each in recorded if each.plan and name])
    del node.input[:], node.attribute[:]
    node.input.extend(data)
    node.name, node.domain = old_name, DOMAIN
    node.attribute.append(onnx.helper.make_attribute("plans", b"".join(each.blob for each in encoded)))


def _renumber(plan: plans.NodePlan, numbers: dict[tuple[Kind, int], int]) -> plans.NodePlan:
    """The plan of a compiled node, whose inputs have these numbers."""
    steps = tuple(
        step._replace(args=_with_inputs(step.args, numbers), indices=_with_inputs(step.indices, numbers))
        for step in plan.steps
    )
    return plan._replace(inputs=MAX_INPUTS, steps=steps)


def _check_kernels(label: str, steps: Sequence[PlanStep], library: str) -> None:
    """An UnsupportedError for a kernel that the library lacks: it was compiled in this process."""
    for step in steps:
        if not is_shipped(step.kernel.name, step.sample()):
            raise UnsupportedError(
                f"{label} needs the kernel {step.kernel.name}, which {library} lacks. Install unpool again, or run "
                "python -m unpool.build."
            )


def _set_shape(graph: "GraphProto", name: str, outputs: list[Operand]) -> None:
    """Write the sizes of an output that are the same for all inputs: onnxruntime optimizes what follows by them."""
    import onnx

    if not outputs or any(info.name == name for info in graph.output):
        return
    for number, info in reversed(list(enumerate(graph.value_info))):
        if info.name == name:
            del graph.value_info[number]
    kind = onnx.helper.np_dtype_to_tensor_dtype(outputs[0].dtype)
    sizes = [each[0] if len(set(each)) == 1 else None for each in zip(*(each.shape for each in outputs), strict=True)]
    graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind, sizes))


def _number_of(constants: list[Any], value: Any) -> int:
    """The number of an array among others, to which it is added if it is new."""
    for number, each in enumerate(constants):
        if each is value or (each.dtype == value.dtype and np.array_equal(each.view(np.uint8), value.view(np.uint8))):
            return number
    constants.append(value)
    return len(constants) - 1


def _is_record(operand: Operand) -> bool:
    """True for a constant of a few numbers, which a plan holds."""
    return operand.value is not None and operand.dtype.names is not None


def _with_inputs(arg: Any, numbers: dict[tuple[Kind, int], int]) -> Any:
    """Arguments in which constants are inputs of the node, by their new numbers, or part of the plan."""
    if isinstance(arg, Operand) and (arg.kind, arg.number) in numbers:
        return Operand(Kind.INPUT, numbers[arg.kind, arg.number], arg.shape, arg.dtype)
    if isinstance(arg, OperandView) and _is_record(arg.operand):
        return arg.operand.value
    if isinstance(arg, OperandView):
        return arg._replace(operand=_with_inputs(arg.operand, numbers))
    if isinstance(arg, tuple):
        items = [_with_inputs(each, numbers) for each in arg]
        return type(arg)(*items) if hasattr(arg, "_fields") else tuple(items)
    return arg


def _drop_unused(graph: "GraphProto") -> None:
    """Remove initializers that no node reads any more."""
    used = {name for each in _graphs(graph) for node in each.node for name in node.input}
    used |= {output.name for each in _graphs(graph) for output in each.output}
    kept = [each for each in graph.initializer if each.name in used]
    inputs = [each for each in graph.input if each.name in used or each.name not in {t.name for t in graph.initializer}]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.extend(inputs)
