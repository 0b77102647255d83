"""Dynamic dimensions of an exported model: those of the caller's dynamic_shapes, and those of torch's exporter.

With a Dim, the model takes every size in a range. torch's exporter may narrow that silently: if a network pools three
times and the example has 48 rows, a Dim `height` becomes 8 * height. So torch gets the hint Dim.DYNAMIC with the bounds
of the Dim, which it does not narrow, and the file gets the name of the Dim afterwards.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import torch
from onnxscript import ir
from sympy import And, Integer, true
from torch.export import Dim, ExportedProgram

from unpool.errors import UnpoolError, UnsupportedError
from unpool.torch.compat import torch_internal, torch_internal_attribute
from unpool.torch.exporting.size_forms import UNBOUNDED, SizeForm, narrow, parse_form

Axes: TypeAlias = Mapping[int, Any]
"""Axis of a tensor -> its entry in dynamic_shapes."""

InputAxes: TypeAlias = list[tuple[torch.Tensor, Axes]]
"""The tensors among the arguments in their order, each with its axes."""

SYM_NODE = "torch.fx.experimental.sym_node.SymNode"
SHAPE_ENV = "torch.fx.experimental.symbolic_shapes.ShapeEnv"

MAX_TRIED = 200
"""Number of sizes, from the smallest up, that are tried against the conditions of a model."""


@dataclass(frozen=True, slots=True)
class DynamicAxis:
    """A dynamic axis of an input.

    Attributes:
        form: the sizes that the file promises.
        size: in the example.
        is_promised: whether the caller wrote a Dim; a string or a hint has no range.
        expression: torch's, with its own symbols.
        accepts: whether the program takes a size.
    """

    form: SizeForm
    size: int
    is_promised: bool
    expression: Any
    accepts: Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Narrowing:
    """A dynamic axis for which the program does not accept the size `refused`.

    `accepted` is the form of the sizes that it takes, None if none was found.
    """

    axis: DynamicAxis
    refused: int
    accepted: SizeForm | None

    def __str__(self) -> str:
        form, accepted = self.axis.form, self.accepted
        promise = f"lets {form.name} be any size" if form.factor == 1 else f"allows every size {form.text}"
        if accepted is None:
            return f"{promise}, the model does not take {self.refused}"
        sizes = map(accepted.size, range(accepted.clamp(0), accepted.clamp(MAX_TRIED) + 1))
        first = islice(filter(self.axis.accepts, sizes), 3)
        return f"{promise}, the model takes {', '.join(map(str, first))} and so on"


def read_dynamic_shapes(call_args: Mapping[str, Any]) -> tuple[Any, InputAxes | None]:
    """The dynamic_shapes of a call of torch.onnx.export, as hints for torch's exporter and per tensor.

    None if unpool cannot assign entries to tensors. A Dim with several sizes in the example, or an example out of its
    range, is an error.
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
    dims = [leaf for leaf in pytree.tree_leaves(shapes) if isinstance(leaf, Dim)]
    derived = {form.name for dim in dims if _is_derived(dim) and (form := parse_form(dim.__name__)) is not None}

    def hint(leaf: Any) -> Any:
        """A hint in place of a Dim, unless others are computed from it, as 2 * Dim("n"): torch needs both then."""
        is_plain = isinstance(leaf, Dim) and not _is_derived(leaf) and leaf.__name__ not in derived
        return _hint(leaf) if is_plain else leaf

    return pytree.tree_map(hint, shapes), pairs


def replace_dims(call_args: Mapping[str, Any], forms: Mapping[str, SizeForm]) -> dict[str, Any]:
    """The arguments of a call with Dims of other forms, by the names of the Dims; see `read_dynamic_shapes`."""
    shapes, pytree = call_args["dynamic_shapes"], torch_internal("torch.utils._pytree")
    if hasattr(shapes, "dynamic_shapes"):
        shapes = shapes.dynamic_shapes(call_args["model"], *arguments_of(call_args))

    def other(leaf: Any) -> Any:
        return forms[leaf.__name__].dim if isinstance(leaf, Dim) and leaf.__name__ in forms else leaf

    return {**call_args, "dynamic_shapes": pytree.tree_map(other, shapes)}


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
    """True if a Dim is computed from another one, as 2 * Dim("n")."""
    return isinstance(dim, Dim) and not dim.__name__.isidentifier()


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


def input_axes(program: torch.onnx.ONNXProgram, pairs: InputAxes) -> list[dict[int, DynamicAxis]]:
    """The dynamic axes of the tensors among a program's inputs, for the pairs of `read_dynamic_shapes`."""
    if program.exported_program is None:
        return []
    values = inputs_of(program.exported_program)
    names = [value.name for value in program.model.graph.inputs]
    ranges = program.exported_program.range_constraints
    all_conditions: set[Any] = set().union(*map(_conditions, values))
    results = []
    for value, (tensor, entries), name in zip(values, pairs, names, strict=False):
        axes = {}
        for axis, expression in dynamic_dims(value).items():
            linear = _linear(expression)
            if linear is None:
                continue
            entry, bounds = entries.get(axis), ranges.get(linear[2])
            form = _promised_form(entry) or SizeForm(f"{name}_dim_{axis}", linear[0], linear[1])
            conditions = [condition for condition in all_conditions if condition.free_symbols == {linear[2]}]
            accepts = partial(_accepts, linear, bounds, conditions)
            axes[axis] = DynamicAxis(form, tensor.shape[axis], isinstance(entry, Dim), expression, accepts)
        results.append(axes)
    return results


def _linear(expression: Any) -> tuple[int, int, Any] | None:
    """Factor, offset and symbol of factor * symbol + offset; None for another expression."""
    offset, rest = expression.as_coeff_Add()
    factor, symbol = rest.as_coeff_Mul()
    is_linear = symbol.is_symbol and factor.is_Integer and offset.is_Integer and factor > 0
    return (int(factor), int(offset), symbol) if is_linear else None


def _promised_form(entry: Any) -> SizeForm | None:
    """The sizes of an entry of dynamic_shapes; None for a hint, which has no name."""
    form = parse_form(entry if isinstance(entry, str) else entry.__name__) if isinstance(entry, Dim | str) else None
    if form is None or isinstance(entry, str):
        return form or (SizeForm(entry) if isinstance(entry, str) else None)
    maximum = (int(entry.max) - form.offset) // form.factor if isinstance(entry.max, int) else UNBOUNDED
    return replace(form, minimum=max(0, (int(entry.min) - form.offset) // form.factor), maximum=maximum)


def _accepts(linear: tuple[int, int, Any], bounds: Any, conditions: Sequence[Any], size: int) -> bool:
    """True if a size fulfils the conditions on its symbol."""
    factor, offset, symbol = linear
    n = Integer((size - offset) // factor)
    if (size - offset) % factor or (bounds is not None and not bounds.lower <= n <= bounds.upper):
        return False
    return all(condition.xreplace({symbol: n}) == true for condition in conditions)


def narrowings(axes: Sequence[Mapping[int, DynamicAxis]]) -> list[Narrowing]:
    """The axes of which a program does not take every size of their form, from its smallest one up; one per name.

    A file does not hold such conditions: a run with other sizes would give wrong results.
    """
    found: dict[str, Narrowing] = {}
    for axis in (axis for each in axes for axis in each.values()):
        form = axis.form
        sizes = [form.size(n) for n in range(form.clamp(1), form.clamp(form.clamp(1) + MAX_TRIED) + 1)]
        accepted = [axis.accepts(size) for size in sizes]
        first = accepted.index(True) if True in accepted else 0
        if all(accepted[first:]):
            continue
        refused = sizes[first + accepted[first:].index(False)]
        narrowed = narrow(form, axis.size, axis.accepts)
        is_narrower = narrowed is not None and narrowed.factor > form.factor
        found.setdefault(form.name, Narrowing(axis, refused, narrowed if is_narrower else None))
    return list(found.values())


def name_dynamic_dims(program: torch.onnx.ONNXProgram, axes: Sequence[Mapping[int, DynamicAxis]]) -> None:
    """Replace torch's symbols by names in every shape of a program: the caller's names, or plain ones."""
    if program.exported_program is None:
        return
    names: dict[Any, str] = {}
    for axis in (axis for each in axes for axis in each.values()):
        linear = _linear(axis.expression)
        if linear is None or linear[:2] != (axis.form.factor, axis.form.offset):
            continue
        earlier = names.setdefault(linear[2], axis.form.name)
        if axis.is_promised and earlier != axis.form.name:
            raise UnsupportedError(
                f"export: dynamic_shapes has two names, {earlier} and {axis.form.name}, for sizes that have to be "
                "equal in this model. Use one Dim for both."
            )
    symbols = [symbol for symbol in program.exported_program.range_constraints if symbol.is_symbol]
    symbols += [
        symbol
        for value in inputs_of(program.exported_program)
        for each in dynamic_dims(value).values()
        for symbol in each.free_symbols
    ]
    unnamed = [symbol for symbol in dict.fromkeys(symbols) if symbol not in names]
    names |= {symbol: f"dim_{number}" for number, symbol in enumerate(unnamed)}
    _rename(program, {str(symbol): name for symbol, name in names.items()})


def inputs_of(program: ExportedProgram) -> list[torch.Tensor]:
    """The tensors among a program's inputs, without data, with symbols for dynamic dimensions."""
    users = set(program.graph_signature.user_inputs)
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in users]
    return [value for value in values if isinstance(value, torch.Tensor)]


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
    substitute = torch_internal_attribute(environment, f"{SHAPE_ENV}.replace")
    if groups is None or substitute is None:
        return set()
    expressions = [substitute(condition.expr) for group in groups.values() for condition in group]
    return {part for each in expressions for part in And.make_args(each)}


def _symbolic_nodes(value: Any) -> dict[int, Any]:
    """Dynamic axis of a tensor -> torch's node of its size."""
    sizes = {axis: size for axis, size in enumerate(value.shape) if not isinstance(size, int)}
    nodes = {axis: torch_internal_attribute(size, "torch.SymInt.node") for axis, size in sizes.items()}
    return {axis: node for axis, node in nodes.items() if node is not None}
