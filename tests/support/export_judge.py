"""What becomes of an exported module: the file, its operators, and its results in three runtimes beside torch's."""

import io
import warnings
from collections import Counter
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator

import unpool
import unpool.torch

EXPORTERS = {"dynamo=True": True, "dynamo=False": False}


@dataclass(frozen=True)
class Verdict:
    """How far a case came.

    `outcome` is "equal" (checked, and equal to torch in onnxruntime and in unpool), "unpool only" (onnxruntime cannot
    run it), "unsupported" (the export says so), "no export" (torch's exporter fails), or "wrong". `reference` says if
    onnx's ReferenceEvaluator agrees, None if it was not asked.
    """

    outcome: str
    reason: str = ""
    reference: bool | None = None


def exported(case, dynamo, opset, **options):
    """The case as a model, by unpool.torch.export; torch's warnings about its own internals are not for here."""
    names = [f"x{number}" for number in range(len(case.inputs))]
    axes = {axis: f"d{axis}" for axis in case.dynamic}
    if dynamo:
        options["dynamic_shapes"] = tuple(axes for _ in names) if axes else None
    elif axes:
        options["dynamic_axes"] = dict.fromkeys(names, axes)
    target = None if dynamo else io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = unpool.torch.export(
            case.module(),
            case.inputs,
            target,
            dynamo=dynamo,
            opset_version=opset,
            input_names=names,
            verbose=False,
            **options,
        )
    return program.model_proto if dynamo else onnx.load_from_string(target.getvalue())


def judge(case, dynamo, opset, *, reference=True):
    try:
        model = exported(case, dynamo, opset)
    except unpool.UnsupportedError as error:
        return Verdict("unsupported", first_line(error))
    except Exception as error:
        return Verdict("no export", first_line(error))
    fault = fault_of(case, model, opset)
    if fault:
        return Verdict("wrong", fault)
    try:
        sessions = [onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])]
    except Exception as error:
        sessions, refusal = [], first_line(error)
    sessions.append(unpool.InferenceSession(model.SerializeToString()))
    for session in sessions:
        difference = difference_of(case, model, session)
        if difference:
            return Verdict("wrong", f"{type(session).__module__.split('.')[0]}: {difference}")
    agrees = reference_agrees(case, model) if reference else None
    return Verdict("equal", "", agrees) if len(sessions) == 2 else Verdict("unpool only", refusal, agrees)


def fault_of(case, model, opset):
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return f"onnx.checker: {first_line(error)}"
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if versions != {"": opset}:
        return f"opsets {versions}"
    counts = Counter(node.op_type for node in model.graph.node)
    indexed = sum(node.op_type == "MaxPool" and len(node.output) == 2 for node in model.graph.node)
    found = (counts["MaxPool"], indexed, counts["MaxUnpool"], counts["ConvTranspose"], counts["ScatterND"])
    if found != (case.pools, case.indexed, case.unpools, case.grows, 0):
        return f"operators {dict(counts)}"
    return None


def difference_of(case, model, session):
    """The first difference between a runtime and torch over all inputs of the case."""
    names = [value.name for value in model.graph.input]
    for inputs in (case.inputs, *case.others):
        with torch.no_grad():
            expected = case.module()(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = session.run(None, {name: array_of(x) for name, x in zip(names, inputs, strict=True)})
        for y, wanted in zip(found, map(array_of, expected), strict=True):
            if y.shape != wanted.shape or y.dtype != wanted.dtype:
                return f"{y.dtype} {y.shape}, expected {wanted.dtype} {wanted.shape}"
            allowed = case.tolerance * np.abs(wanted.astype(np.float64)).max(initial=1)
            difference = np.abs(y.astype(np.float64) - wanted.astype(np.float64)).max(initial=0)
            if not difference <= allowed:
                return f"off by {difference:.3g}"
    return None


def reference_agrees(case, model):
    """Whether onnx's ReferenceEvaluator runs the model and agrees; it need not, for it has bugs."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return difference_of(case, model, ReferenceEvaluator(model)) is None
    except Exception:
        return False


def array_of(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def first_line(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
