"""Dynamic dimensions of an exported model: those of the caller's dynamic_shapes, and those of torch's exporter.

With a Dim, the model takes every size in a range. torch's exporter may narrow that silently: if a network pools three
times and the example has 48 rows, a Dim `height` becomes 8 * height. So torch gets the hint Dim.DYNAMIC with the bounds
of the Dim, which it does not narrow, and the file gets the name of the Dim afterwards.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Any, TypeAlias

import torch
from onnxscript import ir
from sympy import Integer, true
from torch.export import Dim, ExportedProgram

from unpool.errors import UnpoolError, UnsupportedError, warn_caller
from unpool.torch.compat import torch_internal, torch_internal_attribute

Axes: TypeAlias = Mapping[int, Any]
"""Axis of a tensor -> its entry in dynamic_shapes."""

SYM_NODE = "torch.fx.experimental.sym_node.SymNode"
SHAPE_ENV = "torch.fx.experimental.symbolic_shapes.ShapeEnv"

MAX_TRIED = 200
"""Number of sizes, from the smallest up, that are tried against the conditions of a model."""


def read_dynamic_shapes(call_args: Mapping[str, Any]) -> tuple[Any, list[Axes] | None]:
    """The dynamic_shapes of a call of torch.onnx.export, as hints for torch's exporter and per tensor.

    The axes are those of the tensors among the arguments in their order, None if unpool cannot assign entries to
    tensors. A Dim with several sizes in the example, or an example out of its range, is an error.
    """
    model, shapes = call_args["model"], call_args.get("dynamic_shapes")
    pytree = torch_internal("torch.utils._pytree")
    if not shapes or pytree is None or isinstance(model, ExportedProgram | torch.onnx.ExportableModule):
        return shapes, None
    args, kwargs = arguments_of(call_args)
    if hasattr(shapes, "dynamic_shapes"):  # torch.export.ShapesCollection and its like
        shapes = shapes.dynamic_shapes(model, args, kwargs)
    bound = inspect.signature(getattr(model, "forward", model)).bind(*args, **kwargs).arguments
    entries = [shapes.get(name) for name in bound] if isinstance(shapes, Mapping) else list(shapes)
    pairs = list(_pairs(pytree, list(bound.values()), entries))
    _check_examples(pairs)
    if not any(_is_derived(leaf) for leaf in pytree.tree_leaves(shapes)):
        shapes = pytree.tree_map(lambda leaf: _hint(leaf) if isinstance(leaf, Dim) else leaf, shapes)
    return shapes, [axes for _, axes in pairs]


def arguments_of(call_args: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example: positional and keyword arguments of the model."""
    args, kwargs = call_args.get("args", ()), call_args.get("kwargs")
    args = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    if not kwargs and args and isinstance(args[-1], dict):
        return args[:-1], args[-1]
    return args, dict(kwargs or {})


def _hint(dim: Dim) -> Any:
    bounds = {"min": dim.min or None, "max": dim.max if isinstance(dim.max, int) else None}
    hint: Any = Dim.DYNAMIC
    return hint(**bounds) if any(bounds.values()) else hint


def _is_derived(dim: Any) -> bool:
    """True if a Dim is computed from another one, as 2 * Dim("n"): then torch needs both."""
    root = torch_internal_attribute(dim, "torch.export.dynamic_shapes._DerivedDim.root")
    return isinstance(dim, Dim) and root is not None


def _pairs(pytree: Any, value: Any, hints: Any) -> Iterator[tuple[torch.Tensor, Axes]]:
    """Every tensor in nested arguments, with the entries of its axes."""
    if isinstance(value, torch.Tensor):
        entries = hints.items() if isinstance(hints, Mapping) else enumerate(hints or ())
        yield value, {axis % value.dim(): dim for axis, dim in entries if dim is not None}
    elif isinstance(value, dict) and isinstance(hints, Mapping):
        for key in value:
            yield from _pairs(pytree, value[key], hints.get(key))
    else:
        parts = _parts(pytree, value)
        hints_of_parts = _parts(pytree, hints) if hints is not None else [None] * len(parts)
        for part, part_hints in zip(parts, hints_of_parts, strict=False):
            yield from _pairs(pytree, part, part_hints)


def _parts(pytree: Any, value: Any) -> list[Any]:
    """The members of a container that torch can flatten; empty for other values."""
    parts = pytree.tree_leaves(value, is_leaf=lambda part: part is not value)
    return [] if len(parts) == 1 and parts[0] is value else parts


def _check_examples(pairs: Sequence[tuple[torch.Tensor, Axes]]) -> None:
    """Check that each Dim has one size in the example, in its range."""
    sizes: dict[str, int] = {}
    for tensor, axes in pairs:
        for axis, dim in axes.items():
            if not isinstance(dim, Dim) or _is_derived(dim):
                continue
            name, size = dim.__name__, tensor.shape[axis]
            if not dim.min <= size <= dim.max:
                raise UnpoolError(
                    f"export: dynamic_shapes lets {name} be {dim.min} to {dim.max}, the example has {size}. "
                    "Give an example in that range."
                )
            if sizes.setdefault(name, size) != size:
                raise UnpoolError(
                    f"export: dynamic_shapes has one Dim {name} for axes of {sizes[name]} and {size} elements. "
                    "Give axes that may differ Dims of their own."
                )


def name_dynamic_dims(program: torch.onnx.ONNXProgram, axes: Sequence[Axes] | None) -> None:
    """Write the names of Dims into a program, and check that it takes every size in their ranges."""
    if program.exported_program is None:
        return
    names: dict[Any, str] = {}
    promised_symbols = set()
    for value, hints in zip(inputs_of(program.exported_program), axes or (), strict=False):
        expressions = dynamic_dims(value)
        for axis, dim in hints.items():
            expression = expressions.get(axis)
            if not isinstance(dim, Dim | str) or expression is None or _is_derived(dim):
                continue
            name = dim if isinstance(dim, str) else dim.__name__
            if isinstance(dim, Dim):
                _check_symbol(name, expression, names)
                promised_symbols.add(expression)
            names[expression] = name
    _check_conditions(program.exported_program, names, promised_symbols)
    _rename(program, {str(symbol): name for symbol, name in names.items() if symbol in promised_symbols})


def _check_symbol(name: str, expression: Any, names: Mapping[Any, str]) -> None:
    """Check that a size is not computed from another one, and has one name."""
    if not expression.is_symbol:
        raise UnsupportedError(_narrowing_message(name, f"{expression} only", 2))
    if names.get(expression, name) != name:
        raise UnsupportedError(
            f"export: dynamic_shapes has two names, {names[expression]} and {name}, for sizes that have to be equal in "
            "this model. Use one Dim for both."
        )


def _narrowing_message(name: str, what: str, step: int) -> str:
    return (
        f"export: dynamic_shapes lets {name} be any size, the model takes {what}. Pass output_size to every "
        f"unpooling, or write {step} * torch.export.Dim('part_of_{name}'), as {step}{name} in the text of an example."
    )


def inputs_of(program: ExportedProgram) -> list[torch.Tensor]:
    """The tensors among a program's inputs, without data, with symbols for dynamic dimensions."""
    users = set(program.graph_signature.user_inputs)
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in users]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _check_conditions(program: ExportedProgram, names: Mapping[Any, str], promised_symbols: set[Any]) -> None:
    """Find dynamic dimensions that a model narrows to some sizes: an error for a Dim, else a warning.

    A file does not hold such conditions: a run with other sizes would give wrong results.
    """
    all_conditions: set[Any] = set().union(*map(_conditions, inputs_of(program)))
    for symbol, bounds in program.range_constraints.items():
        conditions = [condition for condition in all_conditions if condition.free_symbols == {symbol}]
        start = max(1, int(bounds.lower))
        stop = min(start + MAX_TRIED, int(bounds.upper)) if bounds.upper.is_Integer else start + MAX_TRIED
        sizes = range(start, stop + 1) if conditions else ()
        accepted = [
            size for size in sizes if all(each.xreplace({symbol: Integer(size)}) == true for each in conditions)
        ]
        if len(accepted) < 2 or accepted[-1] - accepted[0] + 1 == len(accepted):
            continue
        step = gcd(*(size - accepted[0] for size in accepted))
        what = f"{', '.join(map(str, accepted[:3]))} and so on in steps of {step} only"
        message = _narrowing_message(names.get(symbol, str(symbol)), what, step)
        if symbol in promised_symbols:
            raise UnsupportedError(message)
        warn_caller(message)


def _rename(program: torch.onnx.ONNXProgram, names: Mapping[str, str]) -> None:
    """Replace torch's symbols by names in every shape of a program, also in expressions."""
    if not names:
        return
    symbols = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    graph = program.model.graph
    for value in [*graph.inputs, *(value for node in graph.all_nodes() for value in node.outputs)]:
        sizes = [size if isinstance(size, int) else size.value for size in value.shape or ()]
        renamed = [symbols.sub(lambda at: names[at[1]], size) if isinstance(size, str) else size for size in sizes]
        if renamed != sizes:
            value.shape = ir.Shape(renamed)


def dynamic_dims(value: Any) -> dict[int, Any]:
    """Axis -> SymPy expression of every dynamic dimension of a tensor in an exported program."""
    nodes = _symbolic_nodes(value)
    expressions = {axis: torch_internal_attribute(node, f"{SYM_NODE}.expr") for axis, node in nodes.items()}
    return {axis: expression for axis, expression in expressions.items() if expression is not None}


def _conditions(value: Any) -> set[Any]:
    """SymPy conditions on the dynamic dimensions of a program, from one of its tensors."""
    node = next(iter(_symbolic_nodes(value).values()), None)
    environment = torch_internal_attribute(node, f"{SYM_NODE}.shape_env")
    groups = torch_internal_attribute(environment, f"{SHAPE_ENV}.deferred_runtime_asserts")
    replace = torch_internal_attribute(environment, f"{SHAPE_ENV}.replace")
    if groups is None or replace is None:
        return set()
    return {replace(condition.expr) for group in groups.values() for condition in group}


def _symbolic_nodes(value: Any) -> dict[int, Any]:
    """Dynamic axis of a tensor -> torch's node of its size."""
    sizes = {axis: size for axis, size in enumerate(value.shape) if not isinstance(size, int)}
    nodes = {axis: torch_internal_attribute(size, "torch.SymInt.node") for axis, size in sizes.items()}
    return {axis: node for axis, node in nodes.items() if node is not None}
