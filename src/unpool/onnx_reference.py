"""Unpool's operators as classes for onnx's ReferenceEvaluator.

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
from unpool.graph.nodes import attributes
from unpool.graph.spec import naming, spec_of
from unpool.operators import unpool_domain
from unpool.operators.contract import DOMAINS, OPERATORS
from unpool.operators.semantics import Semantics
from unpool.passes.inline import inline

_LOG = logging.getLogger("unpool")


def new_ops(
    opset: int, *, compat: str = "spec", index_space: str = "auto", threads: int | None = None
) -> list[type[OpRun]]:
    """Classes for `ReferenceEvaluator(..., new_ops=...)`: MaxPool, MaxUnpool, ConvTranspose, and the domain `unpool`.

    They reach the subgraphs of If, Loop and Scan, but not model-local functions: see `inline_functions`.

    Args:
        opset: the version of the ONNX operators that the model imports.
        compat: "spec" or "ort", as for `InferenceSession`.
        index_space: the tensor in which MaxUnpool's indices count.
        threads: maximum number of threads; None for all available cores.
    """
    semantics = Semantics(compat, index_space, exact=True)
    settings = unpool_domain.Settings(opset, compat, index_space, exact=True)
    return [
        *(_operator(name, domain, opset, semantics, threads) for domain in DOMAINS for name in OPERATORS),
        *(_unpool_operator(name, settings, threads) for name in unpool_domain.OPERATORS),
    ]


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the nodes of its functions in place of their calls, where `new_ops` reaches them.

    The ReferenceEvaluator runs functions without the classes in `new_ops`. The names of the functions are logged at
    level INFO.

    Args:
        model: not changed; a model without functions is returned itself.

    Raises:
        ModelError: a function cannot be inlined.
    """
    if model.functions:
        _LOG.info("inlined: %s", ", ".join(f"{function.domain}.{function.name}" for function in model.functions))
    return inline(model)


def _operator(name: str, domain: str, opset: int, semantics: Semantics, threads: int | None) -> type[OpRun]:
    """A class that the ReferenceEvaluator finds by its domain and its name, which must be the operator type."""

    def run_node(self: OpRun, *inputs: AnyArray | None, **_: Any) -> tuple[AnyArray, ...]:
        opsets = {**self.run_params["opsets"], "": opset}
        spec = spec_of(self.onnx_node, opsets, semantics)
        last = max(position for position, output in enumerate(self.onnx_node.output) if output)
        with naming(self.onnx_node):
            return functional.run(spec, inputs, outputs=last + 1, threads=threads)

    return type(name, (OpRun,), {"op_domain": domain, "_run": run_node, "__doc__": f"{name} by unpool."})


def _unpool_operator(name: str, settings: unpool_domain.Settings, threads: int | None) -> type[OpRun]:
    """As `_operator`, of the domain `unpool`."""

    def run_node(self: OpRun, *inputs: AnyArray | None, **_: Any) -> tuple[AnyArray, ...]:
        last = max(position for position, output in enumerate(self.onnx_node.output) if output)
        with naming(self.onnx_node):
            spec = unpool_domain.spec(name, attributes(self.onnx_node), settings)
            return functional.run(spec, inputs, outputs=last + 1, threads=threads)

    members = {"op_domain": unpool_domain.DOMAIN, "_run": run_node, "__doc__": f"{name} of the domain unpool."}
    return type(name, (OpRun,), members)
