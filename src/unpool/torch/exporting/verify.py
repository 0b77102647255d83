"""Comparison of a written file in onnxruntime with its module, at the example's sizes and at other sizes."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
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

UNBOUNDED = 2**31


@dataclass(frozen=True, slots=True)
class DimRange:
    """A dynamic dimension: `factor` times a number from `minimum` to `maximum`, which is `example` in the example."""

    name: str
    example: int
    factor: int = 1
    minimum: int = 1
    maximum: int = UNBOUNDED

    def clamp(self, size: int) -> int:
        """The nearest number in the range."""
        return max(self.minimum, min(self.maximum, size))


def verify(
    call_args: Mapping[str, Any], file: str | Path | bytes, program: torch.onnx.ONNXProgram | None
) -> list[Shapes]:
    """Check that a file gives the results of its module; the shapes of all comparisons, those of the example first.

    `call_args` are the arguments of torch.onnx.export; `program` is the result of the default exporter, None with
    dynamo=False.
    """
    pytree = torch_internal("torch.utils._pytree")
    if pytree is None:
        raise UnsupportedError(f"export: verify=True does not know torch {torch.__version__}. Export without it.")
    session = _session(file)
    model = call_args["model"]
    model = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    model = copy.deepcopy(model).eval() if getattr(model, "training", False) and program is None else model
    leaves, structure = pytree.tree_flatten(arguments_of(call_args))
    axes = _axes(call_args, program, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
    comparison = _Comparison(session, model, pytree, leaves, structure, axes, [*(call_args.get("input_names") or ())])

    example = comparison.compare({})
    if example is None:
        raise UnpoolError(
            "export: verify=True expects a module that runs on its example, it fails. "
            "Call the module on the example to see the error."
        )
    near_example, smallest = (
        (shapes for sizes in trials if (shapes := comparison.compare(sizes)) is not None) for trials in _trials(axes)
    )
    return [example, *near_example, *islice(smallest, 2)]


def _session(file: str | Path | bytes) -> Any:
    require("export with verify=True", "run", "onnxruntime")
    import onnxruntime
    from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession

    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors come as exceptions
        source = file if isinstance(file, bytes) else str(file)
        return InferenceSession(source, options, providers=["CPUExecutionProvider"])
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
                axis: _dim_range(str(symbol), tensor.shape[axis] // int(factor), int(factor), ranges.get(symbol))
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
        results.append({axis: DimRange(str(entry), tensor.shape[axis]) for axis, entry in entries})
    return results


def _dim_range(name: str, example: int, factor: int, bounds: Any) -> DimRange:
    if bounds is None:
        return DimRange(name, example, factor)
    maximum = int(bounds.upper) if bounds.upper.is_Integer else UNBOUNDED
    return DimRange(name, example, factor, max(1, int(bounds.lower)), maximum)


def _trials(axes: Sequence[Mapping[int, DimRange]]) -> list[list[dict[str, int]]]:
    """Two lists of sizes by name, without empty and repeated ones.

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
    smallest = [
        {name: dim.clamp(size) for name, dim in dims.items()}
        for size in range(1, min(MAX_TRIALS, max((dim.example for dim in dims.values()), default=0)))
    ]
    return [
        [trial for position, trial in enumerate(trials) if trial and trial not in trials[:position]]
        for trials in (near_example, smallest)
    ]


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A file in onnxruntime, and its module with an example, which `pytree` has flattened.

    `axes` are those of every tensor among the leaves, `names` those of the file's inputs for these tensors; without
    names the file's own order counts.
    """

    session: Any
    model: Any
    pytree: Any
    leaves: list[Any]
    structure: Any
    axes: list[dict[int, DimRange]]
    names: list[str]

    def compare(self, sizes: Mapping[str, int]) -> Shapes | None:
        """The shapes of the inputs at sizes by name, none for the example; None if the module does not take them.

        Raises an error if the file then fails or differs.
        """
        axes = iter(self.axes)
        leaves = [_resize(leaf, next(axes), sizes) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        args, kwargs = self.pytree.tree_unflatten(leaves, self.structure)
        try:
            with torch.no_grad():
                outputs = self.model(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, AssertionError):
            return None
        expected = [_array(leaf) for leaf in self.pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        input_names = [each.name for each in self.session.get_inputs()]
        by_name = dict(zip(self.names or input_names, map(_array, tensors), strict=False))
        cause: Exception | None = None
        try:
            results = self.session.run(None, {name: by_name[name] for name in input_names})
        except Exception as error:
            cause, reason = error, f"it fails: {_first_line(error)}"
        else:
            reason = _difference(results, expected)
        if reason:
            where = f"sizes {', '.join(f'{name}={size}' for name, size in sizes.items())}" if sizes else "the example"
            raise UnpoolError(
                f"export: verify=True expects the file to give what the module gives; for {where} {reason}. "
                "Pass output_size to every unpooling, keep sizes out of int(), or fix these sizes in the export."
            ) from cause
        return tuple(tuple(x.shape) for x in tensors)


def _resize(x: torch.Tensor, dims: Mapping[int, DimRange], sizes: Mapping[str, int]) -> torch.Tensor:
    """A tensor of other sizes, with the values of `x` in random order, plus noise if all are equal."""
    shape = list(x.shape)
    for axis, dim in dims.items():
        shape[axis] = dim.factor * sizes[dim.name] if sizes else shape[axis]
    if shape == list(x.shape) or x.numel() == 0:
        return x
    repeats = [-(-wide // size) for wide, size in zip(shape, x.shape, strict=True)]
    larger = x.detach().repeat(repeats)[tuple(map(slice, shape))]
    generator = torch.Generator().manual_seed(0)
    mixed = larger.flatten()[torch.randperm(larger.numel(), generator=generator)].view(shape)
    if x.is_floating_point() and mixed.numel() and bool((mixed == mixed.flatten()[0]).all()):
        mixed = mixed + torch.rand(shape, generator=generator).to(x.dtype)
    return mixed


def _array(x: torch.Tensor) -> AnyArray:
    return to_numpy((torch.view_as_real(x) if x.is_complex() else x).detach().contiguous(), "export")


def _difference(results: Sequence[AnyArray], expected: Sequence[AnyArray]) -> str:
    """The first difference beyond rounding in words; empty without one."""
    if len(results) != len(expected):
        return f"{len(results)} outputs for {len(expected)}"
    for position, (y, reference) in enumerate(zip(results, expected, strict=True)):
        if y.shape != reference.shape or y.dtype != reference.dtype:
            return f"output {position} is {y.dtype} {list(y.shape)}, not {reference.dtype} {list(reference.shape)}"
        diff = diff_arrays(reference, y, EXPORT)
        if diff.differs:
            return f"output {position} differs in {diff.count} of {diff.size} elements"
    return ""


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
