"""Symbolics for torch's exporter with dynamo=False: one MaxPool per pool, one MaxUnpool per unpooling, from opset 9 on.

torch 2.13 alone cannot export an unpooling this way: it has no symbolic for one, and its check of the output size fails
on the tensors that sizes are during tracing.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import add, mul, sub
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unpool.errors import UnsupportedError
from unpool.torch.compat import LEGACY_EXPORT, REGISTRATION, torch_internal, torch_internal_attribute
from unpool.torch.exporting import nodes
from unpool.torch.ops.eager_fallback import TRACING, is_tracing, unchecked_sizes

VERSIONS = (9, 10)
"""The versions for which torch has its own symbolics of pools; torch takes the newest up to the opset."""

FUNCTION = "torch.autograd.function._SingleLevelFunction"
"""The base of torch.autograd.Function, whose apply every Function calls, also by a name that the caller gave it; not
from torch 2.14.1 on, where Function.apply is compiled."""

GROUP_FUNCTIONS = f"{REGISTRATION}._SymbolicFunctionGroup._functions"
REGISTRY_GROUPS = f"{REGISTRATION}.SymbolicRegistry._registry"

ARITHMETIC: dict[str, Callable[[int, int], int]] = {"onnx::Add": add, "onnx::Sub": sub, "onnx::Mul": mul}
RESHAPES = ("onnx::Reshape", "onnx::Squeeze", "onnx::Unsqueeze")


_log = logging.getLogger("unpool")


@contextmanager
def legacy_translations() -> Iterator[None]:
    """Let torch.onnx.export(..., dynamo=False) write one MaxPool per pool and one MaxUnpool per unpooling.

    `unpool.torch.export` does this by itself. Inside the with statement, torch uses unpool's symbolics, except for
    operators for which the caller has registered one. It does not check the output size of an unpooling while it traces
    a model; the operator itself still rejects negative sizes. It traces the forward of an autograd.Function like other
    code, unless the Function has a symbolic and does not unpool. At the end, also after an error, the earlier state is
    restored.

    torch's registry and its exporter with dynamo=False are global, so only one thread can be inside at a time; others
    wait. Models can run at the same time.

    Raises:
        UnsupportedError: the exporter of this version of torch is not in the modules of torch 2.13.

    Example:
        >>> from torch.onnx._internal.torchscript_exporter.registration import registry
        >>> with legacy_translations():
        ...     registry.is_registered_op("aten::max_unpool2d", 20)
        True
        >>> registry.is_registered_op("aten::max_unpool2d", 20)
        False
    """
    for name in LEGACY_EXPORT:
        if torch_internal(name) is None:
            raise _missing_error(name)
    with TRACING, ExitStack() as undo:
        for name, symbolic in _symbolics().items():
            undo.callback(_remove_empty_group, name)
            for version in [version for version in VERSIONS if not _is_registered_by_caller(name, version)]:
                torch_internal("torch.onnx.utils.register_custom_op_symbolic")(name, symbolic, version)
                undo.callback(torch_internal("torch.onnx.utils.unregister_custom_op_symbolic"), name, version)
        undo.enter_context(unchecked_sizes())
        undo.enter_context(_traced_functions())
        yield


def _missing_error(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"export: expected {name} for dynamo=False, torch {torch.__version__} does not have it. "
        "Export with dynamo=True, or with torch 2.13."
    )


def _is_registered_by_caller(name: str, version: int) -> bool:
    """True if the caller has registered a translation, at this version or an older one, that would be hidden."""
    group = torch_internal(f"{REGISTRATION}.registry.get_function_group")(name)
    if group is None:
        return False
    functions = torch_internal_attribute(group, GROUP_FUNCTIONS)
    if functions is None:
        raise _missing_error(GROUP_FUNCTIONS)
    is_overridden = torch_internal(f"{REGISTRATION}.OverrideDict.overridden")
    return any(is_overridden(functions, older) for older in range(version + 1))


def _remove_empty_group(name: str) -> None:
    """Remove an operator without symbolics from torch's registry: torch fails on it when it lists operators."""
    get_group = torch_internal(f"{REGISTRATION}.registry.get_function_group")
    groups = torch_internal_attribute(get_group.__self__, REGISTRY_GROUPS)
    functions = torch_internal_attribute(get_group(name), GROUP_FUNCTIONS)
    if groups is not None and functions is not None and not list(functions):
        del groups[name]


@contextmanager
def _traced_functions() -> Iterator[None]:
    """Trace the forward of an autograd.Function like other code, in threads that trace a model.

    torch records it as a block of its own, and fails on sizes in it. Functions with a symbolic that do not unpool stay.
    """
    base = torch_internal(FUNCTION)
    if base is None:
        yield
        return
    if not isinstance(vars(torch.autograd.Function).get("apply"), classmethod):
        base = torch.autograd.Function  # its apply is compiled, and calls no other

    def apply(cls: Any, *arguments: Any, **named: Any) -> Any:
        if not is_tracing() or (hasattr(cls, "symbolic") and not _unpools(cls.forward)):
            return super(base, cls).apply(*arguments, **named)
        if hasattr(cls, "symbolic"):
            _log.info("export: the symbolic of %s is not used, its unpooling becomes a MaxUnpool", cls.__name__)
        with torch.no_grad():
            if cls.setup_context is not torch.autograd.Function.setup_context:
                return cls.forward(*arguments, **named)
            context: Any = torch.autograd.function.FunctionCtx()
            context.needs_input_grad = (False,) * (len(arguments) + len(named))
            return cls.forward(context, *arguments, **named)

    outer = vars(base).get("apply")
    base.apply = classmethod(apply)
    try:
        yield
    finally:
        if outer is None:
            del base.apply
        else:
            base.apply = outer


def _unpools(forward: Callable[..., Any]) -> bool:
    """True if a function names an unpooling, such as max_unpool2d."""
    return any("unpool" in name.lower() for name in forward.__code__.co_names)


def _symbolics() -> Mapping[str, Callable[..., Any]]:
    """Name of ATen's operator -> its symbolic."""
    pools = {
        f"aten::max_pool{rank}d{suffix}": _pool_symbolic(rank, with_indices=bool(suffix))
        for rank in (1, 2, 3)
        for suffix in ("", "_with_indices")
    }
    return pools | {f"aten::max_unpool{rank}d": _unpool_symbolic(rank) for rank in (2, 3)}


def _pool_symbolic(rank: int, *, with_indices: bool) -> Callable[..., Any]:
    def max_pool(g: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        _check_type(g, "MaxPool", x)
        pool = nodes.pool_of(rank, kernel_size, stride, padding, dilation, ceil_mode)
        return nodes.write_max_pool(_TracedWriter(g), x, pool, with_indices=with_indices)

    parsed = torch_internal("torch.onnx.symbolic_helper.parse_args")("v", "is", "is", "is", "is", "b")(max_pool)
    symbolic: Callable[..., Any] = torch_internal("torch.onnx.symbolic_helper.quantized_args")(not with_indices)(parsed)
    return symbolic


def _unpool_symbolic(rank: int) -> Callable[..., Any]:
    # ATen has strides and padding in the 3-D one only; with a known output size they are not needed.
    def max_unpool(g: Any, x: Any, indices: Any, output_size: Any, stride: Any = None, padding: Any = None) -> Any:  # noqa: ARG001
        _check_type(g, "MaxUnpool", x)
        writer = _TracedWriter(g)
        return nodes.write_max_unpool(writer, x, indices, writer.sizes_in(output_size, rank))

    return max_unpool


def _check_type(g: Any, operator: str, x: Any) -> None:
    dtype = x.type().dtype() if isinstance(x.type(), torch.TensorType) else None
    if dtype is not None:
        nodes.check_type(operator, g.opset, str(dtype).removeprefix("torch."))


class _TracedWriter(nodes.NodeWriter):
    """Writes into the graph `g` that torch hands to a symbolic; a dynamic size is an int64 value of shape ().

    Opset 9 has no Mod, opset 10 no Range: other nodes replace them.
    """

    def __init__(self, g: Any) -> None:
        self.g = g
        self.opset = int(g.opset)

    def static_sizes(self, x: Any) -> list[int | None]:
        sizes = x.type().varyingSizes() if isinstance(x.type(), torch.TensorType) else None
        if sizes is None:
            raise UnsupportedError(
                f"export: expected a tensor with a known number of axes, got {x.debugName()} of type {x.type()}. "
                "Export with dynamo=True, or trace the model instead of scripting it."
            )
        return list(sizes)

    def size(self, x: Any, axis: int) -> Any:
        sizes = self.static_sizes(x)
        length = sizes[axis]
        return self.node("Gather", self.node("Shape", x), axis % len(sizes), axis=0) if length is None else length

    def sizes_in(self, output_size: Any, rank: int) -> list[Any]:
        """ATen's output_size."""
        helper = "torch.onnx.symbolic_helper"
        if torch_internal(f"{helper}._is_packed_list")(output_size):
            values = torch_internal(f"{helper}._unpack_list")(output_size)
            known_sizes = map(_known_size, values)
            return [value if known is None else known for value, known in zip(values, known_sizes, strict=True)]
        sizes = torch_internal(f"{helper}._maybe_get_const")(output_size, "is")
        if isinstance(sizes, list):
            return sizes
        return [self.node("Gather", output_size, axis, axis=0) for axis in range(rank)]

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        """The output of a new node whose attributes are ints or lists of ints."""
        values = [self.constant(value) if isinstance(value, int) else value for value in inputs]
        return self.g.op(op_type, *values, **_suffix_kinds(attributes))

    def constant(self, numbers: npt.NDArray[np.int64] | list[int] | int) -> Any:
        return self.g.op("Constant", value_t=torch.as_tensor(numbers, dtype=torch.int64))

    def vector(self, sizes: Sequence[Any]) -> Any:
        if all(isinstance(size, int) for size in sizes):
            return self.constant(list(sizes))
        one = self.constant([1])
        parts = [self.constant([size]) if isinstance(size, int) else self.node("Reshape", size, one) for size in sizes]
        return self.node("Concat", *parts, axis=0)

    def reshape(self, x: Any, sizes: Sequence[Any]) -> Any:
        # Reshape is the same in all opsets, unlike Squeeze and Unsqueeze.
        if self.static_sizes(x) == list(sizes):
            return x
        return _set_sizes(super().reshape(x, sizes), x, [length if length != -1 else None for length in sizes])

    def arange(self, count: Any) -> Any:
        if self.opset >= 11:
            return self.node("Range", 0, count, 1)
        ones = self.g.op("ConstantOfShape", self.vector([count]), value_t=torch.ones(1, dtype=torch.int64))
        return self.node("NonZero", ones)

    def add_batch(self, x: Any) -> Any:
        return self.reshape(x, [1, *self.all_sizes(x)])

    def remove_batch(self, x: Any) -> Any:
        return self.reshape(x, self.all_sizes(x)[1:])

    def all_sizes(self, x: Any) -> list[Any]:
        return [self.size(x, axis) for axis in range(len(self.static_sizes(x)))]

    def max_pool(self, x: Any, attributes: dict[str, Any], sizes: Any, *, with_indices: bool) -> list[Any]:
        known = [*self.static_sizes(x)[:2], *sizes[1]]
        if not with_indices:
            return [_set_sizes(self.node("MaxPool", x, **attributes), x, known)]
        values, indices = self.g.op("MaxPool", x, outputs=2, **_suffix_kinds(attributes))
        return [_set_sizes(values, x, known), _set_sizes(indices, x, known, torch.int64)]

    def indices_in_plane(self, indices: Any, plane: Any) -> Any:
        plane = self.constant(plane) if isinstance(plane, int) else plane
        if self.opset >= 10:
            remainder = super().indices_in_plane(indices, plane)
        else:  # the same, as no index is negative
            remainder = self.node("Sub", indices, self.node("Mul", self.node("Div", indices, plane), plane))
        return _set_sizes(remainder, indices, self.static_sizes(indices))

    def max_unpool(self, inputs: Sequence[Any], attributes: dict[str, Any], large: Sequence[Any]) -> Any:
        x = inputs[0]
        return _set_sizes(super().max_unpool(inputs, attributes, large), x, [*self.static_sizes(x)[:2], *large])

    def source_pool(self, indices: Any, rank: int) -> nodes.SourcePool | None:
        pool, _ = _source_pool(indices)
        if pool is None:
            return None
        get: Any = torch_internal("torch.onnx.symbolic_helper._node_get")
        windows = nodes.pool_windows({name: get(pool, name) for name in pool.attributeNames()}, rank)
        small, large = (self.static_sizes(x)[2:] for x in (pool.outputsAt(1), pool.inputsAt(0)))
        return nodes.SourcePool(windows, nodes.static_planes(small, large))

    def indices_in_tensor(self, indices: Any) -> Any:
        pool, is_reshaped = _source_pool(indices)
        pool_indices = pool.outputsAt(1)
        return self.reshape(pool_indices, self.all_sizes(indices)) if is_reshaped else pool_indices


def _set_sizes(value: Any, like: Any, sizes: Sequence[Any], dtype: torch.dtype | None = None) -> Any:
    """Set the type of a value to that of `like` with these sizes; sizes that are not ints are dynamic."""
    kind = like.type().with_sizes([length if isinstance(length, int) else None for length in sizes])
    value.setType(kind if dtype is None else kind.with_dtype(dtype))
    return value


def _known_size(value: Any) -> int | None:
    """The number of a value, if it follows from constants and static sizes; else None."""
    node = value.node()
    kind, inputs = node.kind(), list(node.inputs())
    if kind == "onnx::Constant":
        tensor = node.t("value")
        return int(tensor) if tensor.numel() == 1 else None
    if kind == "onnx::Gather" and inputs[0].node().kind() == "onnx::Shape":
        axis = _known_size(inputs[1])
        sizes = inputs[0].node().inputsAt(0).type().varyingSizes()
        return None if axis is None or sizes is None else sizes[axis]
    if kind in (*RESHAPES, "onnx::Cast", "onnx::Identity"):
        return _known_size(inputs[0])
    if kind in ARITHMETIC:
        left, right = map(_known_size, inputs)
        return None if left is None or right is None else ARITHMETIC[kind](left, right)
    return None


def _source_pool(indices: Any) -> tuple[Any, bool]:
    """The MaxPool of indices that a Mod or Sub counts inside their plane, or None; and whether they were reshaped."""
    node, steps = indices.node(), 0
    while node.kind() in RESHAPES:
        node, steps = node.inputsAt(0).node(), steps + 1
    pool = node.inputsAt(0).node() if node.kind() in ("onnx::Mod", "onnx::Sub") else None
    return (None if pool is None or pool.kind() != "onnx::MaxPool" else pool), steps > 0


def _suffix_kinds(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with torch's suffix for ints."""
    return {f"{name}_i": value for name, value in attributes.items()}
