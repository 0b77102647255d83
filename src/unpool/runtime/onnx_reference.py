"""Our operators as classes for onnx's ReferenceEvaluator.

>>> import numpy as np
>>> from onnx import helper, reference
>>> x = helper.make_tensor_value_info("x", 1, [1, 1, 4])
>>> y = helper.make_tensor_value_info("y", 1, [1, 1, 2])
>>> pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2])
>>> model = helper.make_model(helper.make_graph([pool], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 22)])
>>> evaluator = reference.ReferenceEvaluator(model, new_ops=new_ops(22))
>>> evaluator.run(None, {"x": np.float32([[[1, 4, 3, 2]]])})[0].tolist()
[[[4.0, 3.0]]]
"""

import logging
from typing import Any

import onnx
from onnx.reference.op_run import OpRun

from unpool import functional
from unpool.dtypes import AnyArray
from unpool.operators.contract import DOMAINS, OPERATORS
from unpool.runtime.graph.semantics import Semantics, naming, spec_of
from unpool.runtime.passes.inline import inline

_LOG = logging.getLogger("unpool")


def new_ops(
    opset: int, *, compat: str = "spec", index_space: str = "auto", threads: int | None = None
) -> list[type[OpRun]]:
    """Classes for `ReferenceEvaluator(..., new_ops=...)`: MaxPool, MaxUnpool, ConvTranspose of both domains.

    They reach the bodies of If, Loop and Scan, but not model-local functions: see `inlined`.

    Args:
        opset: the version of the ONNX operators that the model imports.
        compat: "spec" or "ort", as everywhere in unpool.
        index_space: in which tensor MaxUnpool's indices count.
        threads: at most so many; None for all available cores.
    """
    semantics = Semantics(compat, index_space, exact=True)
    return [_operator(name, domain, opset, semantics, threads) for domain in DOMAINS for name in OPERATORS]


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the nodes of its functions in the places of their calls, where `new_ops` reaches them.

    The ReferenceEvaluator runs the body of a function without the classes that it was given. The names of the functions
    are logged at level INFO.

    Args:
        model: any; it is not changed, and comes back itself if it has no functions.

    Raises:
        ModelError: a function cannot be inlined.
    """
    if model.functions:
        _LOG.info("inlined: %s", ", ".join(f"{one.domain}.{one.name}" for one in model.functions))
    return inline(model)


def _operator(name: str, domain: str, opset: int, semantics: Semantics, threads: int | None) -> type[OpRun]:
    """The ReferenceEvaluator finds a class by its name, which must be the bare operator type, and its domain."""

    def run_node(self: OpRun, *inputs: AnyArray | None, **_: Any) -> tuple[AnyArray, ...]:
        opsets = {**self.run_params["opsets"], "": opset}
        spec = spec_of(self.onnx_node, opsets, semantics)
        wanted = max(position for position, output in enumerate(self.onnx_node.output) if output)
        with naming(self.onnx_node):
            return functional.run(spec, inputs, outputs=wanted + 1, threads=threads)

    return type(name, (OpRun,), {"op_domain": domain, "_run": run_node, "__doc__": f"{name} by unpool."})
