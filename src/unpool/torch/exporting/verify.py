"""Runs a written file in onnxruntime and compares it with the module, at the example's sizes and at other open ones."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from unpool.arrays import to_numpy
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.extras import require
from unpool.torch.compat import torch_internal
from unpool.torch.exporting.dynamic_shapes import arguments_of, inputs_of, open_sizes

TOLERANCES = {"float64": 1e-6, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
"""Type -> how far an output may be off, as a part of its largest value: two runtimes add in another order."""

FLIPPED = 1e-3
"""The part of an output's elements that may be off by more.

Where the two largest elements of a window are nearly equal, rounding decides which index is found.
"""

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""Of all inputs, in the order of the tensors among the arguments."""

MOST_TRIED = 64
"""How many sizes are tried, from 1 up, to find the smallest that a module takes."""


@dataclass(frozen=True, slots=True)
class Open:
    """A size that is open: its name, its smallest and largest value, the one of the example, and what it is times."""

    name: str
    least: int
    thresholds: int
    example: int
    times: int = 1

    def near(self, size: int) -> int:
        """The nearest value that it can have."""
        return max(self.least, min(self.thresholds, size))


def verify(given: Mapping[str, Any], file: str | Path | bytes, program: torch.onnx.ONNXProgram | None) -> list[Shapes]:
    """Check that a file gives what the module gives that it was made of.

    Args:
        given: the arguments of torch.onnx.export.
        file: its path, or its bytes.
        program: what the default exporter returned, None with dynamo=False.

    Returns:
        the shapes of the inputs for which the two were compared, those of the example first.

    Raises:
        UnpoolError: at a size that the module takes, the file fails or gives something else; the message has the size.
        UnsupportedError: onnxruntime cannot load the file.
        MissingExtraError: onnxruntime is not installed.
    """
    pytree = torch_internal("torch.utils._pytree")
    if pytree is None:
        raise UnsupportedError(f"export: verify=True does not know torch {torch.__version__}. Export without it.")
    session = _session(file)
    model = given["model"]
    model = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    model = copy.deepcopy(model).eval() if getattr(model, "training", False) and program is None else model
    example, structure = pytree.tree_flatten(arguments_of(given))
    tensors = [at for at, leaf in enumerate(example) if isinstance(leaf, torch.Tensor)]
    axes = _axes(given, program, [example[at] for at in tensors])
    pair = _Pair(session, model, structure, pytree, [*(given.get("input_names") or ())])

    compared: list[Shapes] = []

    def agrees(sizes: Mapping[str, int]) -> bool:
        leaves = list(example)
        for at, own in zip(tensors, axes, strict=True):
            leaves[at] = _resized(
                example[at], {axis: one.times * sizes[one.name] for axis, one in own.items() if sizes}
            )
        resized = [leaves[at] for at in tensors]
        is_taken = pair.agrees(leaves, resized, sizes)
        compared.extend([tuple(tuple(one.shape) for one in resized)] if is_taken else [])
        return is_taken

    if not agrees({}):
        raise UnpoolError(
            "export: verify=True expects a module that runs on its example, it fails. "
            "Call the module on the example to see the error."
        )
    near, small = _trials(axes)
    for sizes in near:
        agrees(sizes)
    smallest = (sizes for sizes in small if agrees(sizes))
    next(smallest, None)
    next(smallest, None)
    return compared


def _session(file: str | Path | bytes) -> Any:
    require("export with verify=True", "run", "onnxruntime")
    import onnxruntime
    from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession

    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what it has to say comes as an exception
        return InferenceSession(
            file if isinstance(file, bytes) else str(file), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise UnsupportedError(
            f"export: verify=True expects a file that onnxruntime loads, it says: {_first_line(error)} "
            "Export without verify, and compare with unpool.InferenceSession."
        ) from error


def _axes(
    given: Mapping[str, Any], program: torch.onnx.ONNXProgram | None, tensors: Sequence[torch.Tensor]
) -> list[dict[int, Open]]:
    """The open axes of every tensor among the arguments."""
    if program is not None and program.exported_program is not None:
        ranges = program.exported_program.range_constraints
        return [
            {
                axis: _bounded(str(symbol), ranges.get(symbol), tensor.shape[axis] // int(times), int(times))
                for axis, size in open_sizes(value).items()
                for times, symbol in [size.as_coeff_Mul()]
                if symbol.is_symbol and times.is_Integer
            }
            for value, tensor in zip(inputs_of(program.exported_program), tensors, strict=True)
        ]
    said = given.get("dynamic_axes") or {}
    found = []
    for tensor, name in zip(tensors, [*(given.get("input_names") or ()), *[""] * len(tensors)], strict=False):
        axes = said.get(name) or {}
        entries = axes.items() if isinstance(axes, Mapping) else ((axis, f"{name}_{axis}") for axis in axes)
        found.append({axis: _bounded(str(own), None, tensor.shape[axis]) for axis, own in entries})
    return found


def _bounded(name: str, bounds: Any, example: int, times: int = 1) -> Open:
    if bounds is None:
        return Open(name, 1, 2**31, example, times)
    thresholds = int(bounds.upper) if bounds.upper.is_Integer else 2**31
    return Open(name, max(1, int(bounds.lower)), thresholds, example, times)


def _trials(axes: Sequence[Mapping[int, Open]]) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """Two lists of sizes to run at, by name.

    The first has sizes next to those of the example, and twice as large, odd and even. The second counts up from 1.
    """
    opens = {one.name: one for each in axes for one in each.values()}
    near = [
        {
            name: one.near(times * one.example + offset * (-1) ** (at * turn))
            for at, (name, one) in enumerate(opens.items())
        }
        for times, offset, turn in ((1, 1, 0), (1, -1, 0), (1, 1, 1), (2, 0, 0), (2, 1, 0))
    ]
    small = [
        {name: one.near(size) for name, one in opens.items()}
        for size in range(1, min(MOST_TRIED, max((one.example for one in opens.values()), default=0)))
    ]
    return _different(near), _different(small)


def _different(trials: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """The trials without those that are empty or occur a second time."""
    return [trial for at, trial in enumerate(trials) if trial and trial not in trials[:at]]


def _resized(x: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    """A tensor of other sizes, filled with the values of `x` in another order, plus noise where all are the same."""
    if all(x.shape[axis] == size for axis, size in sizes.items()) or x.numel() == 0:
        return x
    shape = [sizes.get(axis, size) for axis, size in enumerate(x.shape)]
    times = [-(-wide // size) for wide, size in zip(shape, x.shape, strict=True)]
    larger = x.detach().repeat(times)[tuple(map(slice, shape))]
    generator = torch.Generator().manual_seed(0)
    mixed = larger.flatten()[torch.randperm(larger.numel(), generator=generator)].view(shape)
    if x.is_floating_point() and mixed.numel() and bool((mixed == mixed.flatten()[0]).all()):
        mixed = mixed + torch.rand(shape, generator=generator).to(x.dtype)
    return mixed


@dataclass(frozen=True, slots=True)
class _Pair:
    """A file in onnxruntime, and the module that it was made of.

    Attributes:
        session: of onnxruntime.
        model: the module.
        structure: of the module's arguments, as `pytree` describes it.
        pytree: torch's module that takes arguments apart and puts them together.
        names: of the file's inputs, in the order of the tensors among the arguments; empty for the file's own order.
    """

    session: Any
    model: Any
    structure: Any
    pytree: Any
    names: list[str]

    def agrees(self, leaves: list[Any], tensors: list[torch.Tensor], sizes: Mapping[str, int]) -> bool:
        """Whether the module takes these inputs; raises an error if it does and the file gives something else."""
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
            found = self.session.run(None, {name: by_name[name] for name in input_names})
        except Exception as error:
            raise UnpoolError(_difference_message(sizes, f"it fails: {_first_line(error)}")) from error
        reason = _describe_difference(found, [_array(each) for each in expected])
        if reason is not None:
            raise UnpoolError(_difference_message(sizes, reason))
        return True


def _array(x: torch.Tensor) -> AnyArray:
    return to_numpy((torch.view_as_real(x) if x.is_complex() else x).detach().contiguous(), "export")


def _describe_difference(found: Sequence[AnyArray], expected: Sequence[AnyArray]) -> str | None:
    """The first difference that rounding does not explain."""
    if len(found) != len(expected):
        return f"{len(found)} outputs for {len(expected)}"
    for at, (y, reference) in enumerate(zip(found, expected, strict=True)):
        if y.shape != reference.shape or y.dtype != reference.dtype:
            return f"output {at} is {y.dtype} {list(y.shape)}, not {reference.dtype} {list(reference.shape)}"
        if reference.dtype.name not in TOLERANCES:
            off = y != reference
        else:
            y, reference = y.astype(np.float64), reference.astype(np.float64)
            largest = np.abs(reference[np.isfinite(reference)]).max(initial=0)
            near = TOLERANCES[expected[at].dtype.name] * largest
            off = ~((y == reference) | (np.isnan(y) & np.isnan(reference)) | (np.abs(y - reference) <= near))
        if np.count_nonzero(off) > FLIPPED * off.size:
            return f"output {at} differs in {np.count_nonzero(off)} of {off.size} elements"
    return None


def _difference_message(sizes: Mapping[str, int], reason: str) -> str:
    where = f"sizes {', '.join(f'{name}={size}' for name, size in sizes.items())}" if sizes else "the example"
    return (
        f"export: verify=True expects the file to give what the module gives; for {where} {reason}. Pass output_size "
        "to every unpooling, keep sizes out of int(), or fix these sizes in the export."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
