"""Comparison of a written file in onnxruntime with its module, at the example's sizes and at other sizes."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from unpool.arrays import to_numpy
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.extras import require
from unpool.numerics import EXPORT, diff_arrays
from unpool.torch.compat import torch_internal
from unpool.torch.exporting.dynamic_shapes import arguments_of, dynamic_dims, inputs_of

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""Shapes of all inputs, in the order of the tensors among the arguments."""

MAX_TRIALS = 64
"""Number of sizes, from 1 up, that are tried to find the smallest one that a module takes."""


@dataclass(frozen=True, slots=True)
class DimRange:
    """A dynamic dimension: `factor` times a number from `minimum` to `maximum`, which is `example` in the example."""

    name: str
    minimum: int
    maximum: int
    example: int
    factor: int = 1

    def clamp(self, size: int) -> int:
        """The nearest number in the range."""
        return max(self.minimum, min(self.maximum, size))


def verify(
    call_args: Mapping[str, Any], file: str | Path | bytes, program: torch.onnx.ONNXProgram | None
) -> list[Shapes]:
    """Check that a file gives the results of its module.

    Args:
        call_args: the arguments of torch.onnx.export.
        file: its path, or its bytes.
        program: the result of the default exporter, None with dynamo=False.

    Returns:
        the shapes of the inputs of all comparisons, those of the example first.

    Raises:
        UnpoolError: at a size that the module takes, the file fails or differs; the message has the size.
        UnsupportedError: onnxruntime cannot load the file.
        MissingExtraError: onnxruntime is not installed.
    """
    pytree = torch_internal("torch.utils._pytree")
    if pytree is None:
        raise UnsupportedError(f"export: verify=True does not know torch {torch.__version__}. Export without it.")
    session = _session(file)
    model = call_args["model"]
    model = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    model = copy.deepcopy(model).eval() if getattr(model, "training", False) and program is None else model
    example, structure = pytree.tree_flatten(arguments_of(call_args))
    tensors = [position for position, leaf in enumerate(example) if isinstance(leaf, torch.Tensor)]
    axes = _axes(call_args, program, [example[position] for position in tensors])
    comparison = _Comparison(session, model, structure, pytree, [*(call_args.get("input_names") or ())])

    compared: list[Shapes] = []

    def compare(sizes: Mapping[str, int]) -> bool:
        leaves = list(example)
        for position, dims_of_tensor in zip(tensors, axes, strict=True):
            leaves[position] = _resize(
                example[position], {axis: dim.factor * sizes[dim.name] for axis, dim in dims_of_tensor.items() if sizes}
            )
        resized = [leaves[position] for position in tensors]
        is_accepted = comparison.compare(leaves, resized, sizes)
        compared.extend([tuple(tuple(x.shape) for x in resized)] if is_accepted else [])
        return is_accepted

    if not compare({}):
        raise UnpoolError(
            "export: verify=True expects a module that runs on its example, it fails. "
            "Call the module on the example to see the error."
        )
    near_example, smallest_trials = _trials(axes)
    for sizes in near_example:
        compare(sizes)
    smallest = (sizes for sizes in smallest_trials if compare(sizes))
    next(smallest, None)
    next(smallest, None)
    return compared


def _session(file: str | Path | bytes) -> Any:
    require("export with verify=True", "run", "onnxruntime")
    import onnxruntime
    from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession

    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors come as exceptions
        return InferenceSession(
            file if isinstance(file, bytes) else str(file), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise UnsupportedError(
            f"export: verify=True expects a file that onnxruntime loads, it says: {_first_line(error)} "
            "Export without verify, and compare with unpool.InferenceSession."
        ) from error


def _axes(
    call_args: Mapping[str, Any], program: torch.onnx.ONNXProgram | None, tensors: Sequence[torch.Tensor]
) -> list[dict[int, DimRange]]:
    """The dynamic dimensions of every tensor among the arguments."""
    if program is not None and program.exported_program is not None:
        ranges = program.exported_program.range_constraints
        return [
            {
                axis: _dynamic_dim(str(symbol), ranges.get(symbol), tensor.shape[axis] // int(factor), int(factor))
                for axis, size in dynamic_dims(value).items()
                for factor, symbol in [size.as_coeff_Mul()]
                if symbol.is_symbol and factor.is_Integer
            }
            for value, tensor in zip(inputs_of(program.exported_program), tensors, strict=True)
        ]
    dynamic_axes = call_args.get("dynamic_axes") or {}
    results = []
    for tensor, name in zip(tensors, [*(call_args.get("input_names") or ()), *[""] * len(tensors)], strict=False):
        axes = dynamic_axes.get(name) or {}
        entries = axes.items() if isinstance(axes, Mapping) else ((axis, f"{name}_{axis}") for axis in axes)
        results.append({axis: _dynamic_dim(str(entry), None, tensor.shape[axis]) for axis, entry in entries})
    return results


def _dynamic_dim(name: str, bounds: Any, example: int, factor: int = 1) -> DimRange:
    if bounds is None:
        return DimRange(name, 1, 2**31, example, factor)
    maximum = int(bounds.upper) if bounds.upper.is_Integer else 2**31
    return DimRange(name, max(1, int(bounds.lower)), maximum, example, factor)


def _trials(axes: Sequence[Mapping[int, DimRange]]) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """Two lists of sizes by name.

    The first has sizes close to those of the example, and twice as large, odd and even. The second counts up from 1.
    """
    dims = {dim.name: dim for each in axes for dim in each.values()}
    near_example = [
        {
            name: dim.clamp(factor * dim.example + offset * (-1) ** (position * turn))
            for position, (name, dim) in enumerate(dims.items())
        }
        for factor, offset, turn in ((1, 1, 0), (1, -1, 0), (1, 1, 1), (2, 0, 0), (2, 1, 0))
    ]
    smallest_trials = [
        {name: dim.clamp(size) for name, dim in dims.items()}
        for size in range(1, min(MAX_TRIALS, max((dim.example for dim in dims.values()), default=0)))
    ]
    return _unique(near_example), _unique(smallest_trials)


def _unique(trials: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """The trials without empty and repeated ones."""
    return [trial for position, trial in enumerate(trials) if trial and trial not in trials[:position]]


def _resize(x: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    """A tensor of other sizes, with the values of `x` in random order, plus noise if all are equal."""
    if all(x.shape[axis] == size for axis, size in sizes.items()) or x.numel() == 0:
        return x
    shape = [sizes.get(axis, size) for axis, size in enumerate(x.shape)]
    repeats = [-(-wide // size) for wide, size in zip(shape, x.shape, strict=True)]
    larger = x.detach().repeat(repeats)[tuple(map(slice, shape))]
    generator = torch.Generator().manual_seed(0)
    mixed = larger.flatten()[torch.randperm(larger.numel(), generator=generator)].view(shape)
    if x.is_floating_point() and mixed.numel() and bool((mixed == mixed.flatten()[0]).all()):
        mixed = mixed + torch.rand(shape, generator=generator).to(x.dtype)
    return mixed


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A file in onnxruntime, and its module.

    Attributes:
        session: of onnxruntime.
        model: the module.
        structure: of the module's arguments, as `pytree` describes it.
        pytree: torch's module that flattens and unflattens arguments.
        names: of the file's inputs, in the order of the tensors among the arguments; empty for the file's own order.
    """

    session: Any
    model: Any
    structure: Any
    pytree: Any
    names: list[str]

    def compare(self, leaves: list[Any], tensors: list[torch.Tensor], sizes: Mapping[str, int]) -> bool:
        """True if the module takes these inputs; raises an error if the file then differs."""
        args, kwargs = self.pytree.tree_unflatten(leaves, self.structure)
        try:
            with torch.no_grad():
                outputs = self.model(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, AssertionError):
            return False
        expected = [leaf for leaf in self.pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        input_names = [each.name for each in self.session.get_inputs()]
        by_name = dict(zip(self.names or input_names, map(_array, tensors), strict=False))
        try:
            results = self.session.run(None, {name: by_name[name] for name in input_names})
        except Exception as error:
            raise UnpoolError(_difference_message(sizes, f"it fails: {_first_line(error)}")) from error
        reason = _describe_difference(results, [_array(each) for each in expected])
        if reason is not None:
            raise UnpoolError(_difference_message(sizes, reason))
        return True


def _array(x: torch.Tensor) -> AnyArray:
    return to_numpy((torch.view_as_real(x) if x.is_complex() else x).detach().contiguous(), "export")


def _describe_difference(results: Sequence[AnyArray], expected: Sequence[AnyArray]) -> str | None:
    """The first difference beyond rounding."""
    if len(results) != len(expected):
        return f"{len(results)} outputs for {len(expected)}"
    for position, (y, reference) in enumerate(zip(results, expected, strict=True)):
        if y.shape != reference.shape or y.dtype != reference.dtype:
            return f"output {position} is {y.dtype} {list(y.shape)}, not {reference.dtype} {list(reference.shape)}"
        diff = diff_arrays(reference, y, EXPORT)
        if diff.differs:
            return f"output {position} differs in {diff.count} of {diff.size} elements"
    return None


def _difference_message(sizes: Mapping[str, int], reason: str) -> str:
    where = f"sizes {', '.join(f'{name}={size}' for name, size in sizes.items())}" if sizes else "the example"
    return (
        f"export: verify=True expects the file to give what the module gives; for {where} {reason}. Pass output_size "
        "to every unpooling, keep sizes out of int(), or fix these sizes in the export."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
