"""Comparison of a written file in onnxruntime with its module, at the example's sizes and at other sizes."""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from unpool.arrays import to_numpy
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.extras import require
from unpool.numerics import EXPORT, diff_arrays
from unpool.torch.compat import torch_internal
from unpool.torch.exporting.dynamic_shapes import DynamicAxis, arguments_of, input_axes, read_dynamic_shapes
from unpool.torch.exporting.size_forms import SizeForm, advice, narrow, parse_form

_log = logging.getLogger("unpool")
UNPOOLS = (torch.nn.MaxUnpool1d, torch.nn.MaxUnpool2d, torch.nn.MaxUnpool3d)

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""Shapes of all inputs, in the order of the tensors among the arguments."""

MAX_TRIALS = 64
"""Number of sizes, from 1 up, that are tried to find the smallest one that a module takes."""

CONSECUTIVE = 5
"""Number of consecutive sizes that a module takes from its smallest one up."""

IGNORED: tuple[type[Exception], ...] = (RuntimeError, ValueError, IndexError, AssertionError)
"""Exceptions by which a module refuses sizes."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The shapes at which a file gave the results of its module, those of the example first.

    `left_out` are smaller ones, which the module does not take, or for which torch's export does not hold.
    """

    compared: list[Shapes]
    left_out: list[Shapes]


def verify(
    call_args: Mapping[str, Any], file: str | Path | bytes, program: torch.onnx.ONNXProgram | None
) -> Verification:
    """Check that a file gives the results of its module, at the example's sizes and at others that the file promises.

    `call_args` are the arguments of torch.onnx.export; `program` is the result of the default exporter, None with
    dynamo=False, where an axis that `dynamic_axes` calls 8*H takes multiples of 8.
    """
    pytree = torch_internal("torch.utils._pytree")
    if pytree is None:
        raise UnsupportedError(f"export: verify=True does not know torch {torch.__version__}. Export without it.")
    session = _session(file)
    model = call_args["model"]
    model = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    model = copy.deepcopy(model).eval() if getattr(model, "training", False) and program is None else model
    leaves, structure = pytree.tree_flatten(arguments_of(call_args))
    axes, least = _axes(call_args, program, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
    names = [*(call_args.get("input_names") or ())]
    comparison = _Comparison(session, model, pytree, leaves, structure, axes, least, names)

    example = comparison.compare({})
    if example is None:
        raise UnpoolError(
            "export: verify=True expects a module that runs on its example, it fails. "
            "Call the module on the example to see the error."
        )
    near, refused = [], []
    for sizes in _near_example(comparison):
        shapes = comparison.compare(sizes)
        if shapes is None:
            refused.append(sizes)
        else:
            near.append(shapes)
    small, left_out, least = _smallest(comparison)
    exported = comparison.compare({name: comparison.least.get(name, 1) for name in comparison.numbers})
    small += [] if exported is None else [exported]
    for sizes in refused:
        if not any(n < least[name] for name, n in sizes.items()):
            raise _refusal(comparison, sizes)
        left_out.append(comparison.shapes(sizes))
    result = Verification(list(dict.fromkeys([example, *near, *small])), list(dict.fromkeys(left_out)))
    _log.info("export: compared at %s; smaller sizes that were left out: %s", result.compared, result.left_out)
    return result


def _smallest(comparison: "_Comparison") -> tuple[list[Shapes], list[Shapes], dict[str, int]]:
    """The smallest consecutive sizes that a module takes, compared; smaller ones that it does not take; its numbers.

    The numbers are the smallest of these by name, or the first that it takes if it never takes consecutive ones.
    """
    taken: list[tuple[dict[str, int], Shapes]] = []
    first: dict[str, int] | None = None
    left_out: list[Shapes] = []
    for count in range(1, min(MAX_TRIALS, max(comparison.numbers.values(), default=0))):
        sizes = {name: comparison.clamp(name, count) for name in comparison.numbers}
        if taken and taken[-1][0] == sizes:
            continue
        shapes = comparison.compare(sizes)
        if shapes is None:
            left_out.append(comparison.shapes(sizes))
            taken = []
            continue
        first = first or sizes
        taken.append((sizes, shapes))
        if len(taken) == CONSECUTIVE:
            break
    least = taken[0][0] if taken else first or comparison.numbers
    return [shapes for _, shapes in taken], left_out, least


def _near_example(comparison: "_Comparison") -> list[dict[str, int]]:
    """Sizes by name, close to those of the example and twice as large, odd and even, without repeated ones."""
    trials = [
        {
            name: comparison.clamp(name, factor * number + offset * (-1) ** (position * turn))
            for position, (name, number) in enumerate(comparison.numbers.items())
        }
        for factor, offset, turn in ((1, 1, 0), (1, -1, 0), (1, 2, 0), (1, 1, 1), (2, 0, 0), (2, 1, 0))
    ]
    return [trial for position, trial in enumerate(trials) if trial and trial not in trials[:position]]


def _refusal(comparison: "_Comparison", sizes: Mapping[str, int]) -> UnpoolError:
    """The error for sizes that the file promises and the module does not take, with a form that it takes.

    A form is tried in module and file, at larger sizes than the example's.
    """
    alone = {name: n for name, n in sizes.items() if not comparison.takes({name: n})}
    forms = []
    for name in alone:
        form, size = comparison.forms[name], comparison.forms[name].size(comparison.numbers[name])
        narrowed = narrow(form, size, partial(comparison.is_right, name))
        forms += [narrowed] if narrowed is not None and narrowed.factor > form.factor else []
    where = comparison.words(alone or sizes)
    has_unpool = any(isinstance(module, UNPOOLS) for module in getattr(comparison.model, "modules", list)())
    return UnpoolError(
        f"export: verify=True expects a module that takes every size that the file promises, it does not take {where}. "
        f"{advice(forms if len(forms) == len(alone) else [], has_unpool)}"
    )


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
) -> tuple[list[dict[int, SizeForm]], dict[str, int]]:
    """The sizes that a file promises along the dynamic axes of every tensor; the smallest numbers by name."""
    if program is not None:
        pairs = read_dynamic_shapes(call_args)[1] or [(tensor, {}) for tensor in tensors]
        found = input_axes(program, pairs)
        least = {axis.form.name: _least(axis) for axes in found for axis in axes.values()}
        return [{at: axis.form for at, axis in axes.items()} for axes in found], least
    dynamic_axes = call_args.get("dynamic_axes") or {}
    results = []
    for _, name in zip(tensors, [*(call_args.get("input_names") or ()), *[""] * len(tensors)], strict=False):
        axes = dynamic_axes.get(name) or {}
        entries = axes.items() if isinstance(axes, Mapping) else ((axis, f"{name}_{axis}") for axis in axes)
        results.append({axis: parse_form(str(entry)) or SizeForm(str(entry)) for axis, entry in entries})
    return results, {}


def _least(axis: DynamicAxis) -> int:
    """The smallest number of an axis for which the program has no condition."""
    form = axis.form
    return next((n for n in range(form.clamp(1), MAX_TRIALS) if axis.accepts(form.size(n))), form.clamp(1))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A file in onnxruntime, and its module with an example, which `pytree` has flattened.

    `axes` are those of every tensor among the leaves, `names` those of the file's inputs for these tensors; without
    names the file's own order counts. Sizes are numbers of their forms by name: those that are not given are the
    example's. `least` are the smallest numbers for which torch's export holds.
    """

    session: Any
    model: Any
    pytree: Any
    leaves: list[Any]
    structure: Any
    axes: list[dict[int, SizeForm]]
    least: dict[str, int]
    names: list[str]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors of the example."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    @property
    def forms(self) -> dict[str, SizeForm]:
        """A form by every name."""
        return {form.name: form for each in self.axes for form in each.values()}

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of the example."""
        pairs = zip(self.tensors, self.axes, strict=True)
        return {form.name: form.number(x.shape[axis]) for x, each in pairs for axis, form in each.items()}

    def clamp(self, name: str, n: int) -> int:
        """The nearest number in the ranges of a name."""
        for form in (form for each in self.axes for form in each.values() if form.name == name):
            n = form.clamp(n)
        return n

    def shapes(self, sizes: Mapping[str, int]) -> Shapes:
        """The shapes of the inputs."""
        return tuple(_shape(x, axes, sizes) for x, axes in zip(self.tensors, self.axes, strict=True))

    def words(self, sizes: Mapping[str, int]) -> str:
        """Sizes by the name of their axis in the file."""
        return ", ".join(f"{self.forms[name]}={self.forms[name].size(n)}" for name, n in sizes.items())

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """True if the module takes sizes."""
        return self.run_module(self.inputs(sizes)) is not None

    def is_right(self, name: str, size: int) -> bool:
        """True if the module takes one other size than the example's, and the file gives the same."""
        try:
            return self.compare({name: self.forms[name].number(size)}) is not None
        except UnpoolError:
            return False

    def inputs(self, sizes: Mapping[str, int]) -> list[Any]:
        """The leaves of the example at other sizes."""
        axes = iter(self.axes)
        return [_resize(leaf, next(axes), sizes) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]

    def run_module(self, leaves: list[Any]) -> list[AnyArray] | None:
        """The results of the module, None if it does not take its inputs."""
        args, kwargs = self.pytree.tree_unflatten(leaves, self.structure)
        try:
            with torch.no_grad():
                outputs = self.model(*args, **kwargs)
        except IGNORED:
            return None
        return [_array(leaf) for leaf in self.pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]

    def compare(self, sizes: Mapping[str, int]) -> Shapes | None:
        """The shapes of the inputs at sizes, none for the example; None if the module does not take them.

        Raises an error if the file then fails or differs, and also gives None if torch did not export these sizes.
        """
        sizes = {name: self.clamp(name, n) for name, n in sizes.items()}
        leaves = self.inputs(sizes)
        expected = self.run_module(leaves)
        if expected is None:
            return None
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        input_names = [each.name for each in self.session.get_inputs()]
        by_name = dict(zip(self.names or input_names, map(_array, tensors), strict=False))
        cause: Exception | None = None
        try:
            results = self.session.run(None, {name: by_name[name] for name in input_names})
        except Exception as error:
            cause, reason = error, f"it fails: {_first_line(error)}"
        else:
            reason = _difference(results, expected)
        if reason and any(n < self.least.get(name, n) for name, n in sizes.items()):
            return None
        if reason:
            where = f"sizes {self.words(sizes)}" if sizes else "the example"
            raise UnpoolError(
                f"export: verify=True expects the file to give what the module gives; for {where} {reason}. "
                "Pass output_size to every unpooling, keep sizes out of int(), or fix these sizes in the export."
            ) from cause
        return tuple(tuple(x.shape) for x in tensors)


def _shape(x: torch.Tensor, axes: Mapping[int, SizeForm], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a tensor at other sizes."""
    others = {axis: form.size(sizes[form.name]) for axis, form in axes.items() if form.name in sizes}
    return tuple(others.get(axis, size) for axis, size in enumerate(x.shape))


def _resize(x: torch.Tensor, axes: Mapping[int, SizeForm], sizes: Mapping[str, int]) -> torch.Tensor:
    """A tensor of other sizes, with the values of `x` in random order, plus noise if all are equal."""
    shape = list(_shape(x, axes, sizes))
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
