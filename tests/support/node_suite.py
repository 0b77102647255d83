"""onnx's node tests through one engine, in a process that may die: `python node_suite.py ENGINE RESULTS FIRST`.

A line of RESULTS is [name] when a case begins and [name, "" or why it failed] when it ends, as JSON.
"""

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

Run = Callable[[Sequence[Any]], Sequence[Any]]


def by_onnxruntime(model: onnx.ModelProto, options: onnxruntime.SessionOptions | None = None) -> Run:
    """The model in onnxruntime, alone or with what the options have registered, on its CPU provider."""
    options = options or onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def by_library(model: onnx.ModelProto) -> Run:
    """The model in onnxruntime, with unpool's library of custom operators."""
    import unpool.onnxruntime

    options = onnxruntime.SessionOptions()
    unpool.onnxruntime.register(options)
    return by_onnxruntime(model, options)


def by_unpool(model: onnx.ModelProto) -> Run:
    from unpool.runtime import onnx_backend

    return onnx_backend.prepare(model).run


ENGINES = {"onnxruntime": by_onnxruntime, "library": by_library, "unpool": by_unpool}


def as_array(value: Any) -> Any:
    """Test data as arrays: some are tensors, some NumPy scalars."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def failure(case: Any, prepare: Callable[[onnx.ModelProto], Run]) -> str:
    """Why the case fails, by onnx's own comparison and tolerances; "" if it passes."""
    from onnx.backend.test.runner import Runner

    try:
        run = prepare(case.model)
        for inputs, expected in case.data_sets:
            wanted = [as_array(value) for value in expected]
            got = run([as_array(value) for value in inputs])
            Runner.assert_similar_outputs(wanted, got, rtol=case.rtol, atol=case.atol)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def main(engine: str, results: str, first: int) -> None:
    warnings.simplefilter("ignore")
    from onnx.backend.test.loader import load_model_tests

    cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    with Path(results).open("a", encoding="utf-8") as file:
        for case in cases[first:]:
            print(json.dumps([case.name]), file=file, flush=True)
            print(json.dumps([case.name, failure(case, ENGINES[engine])]), file=file, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
