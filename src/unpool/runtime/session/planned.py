"""The plan of a model as a function: which node runs where, and why."""

import warnings
from collections.abc import Sequence

from unpool.runtime.backends.ort_options import Provider
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.plan.plan import Plan
from unpool.runtime.session.session import FallbackWarning, InferenceSession


def plan(
    source: ModelSource,
    *,
    compat: str = "spec",
    index_space: str = "auto",
    exact: bool = False,
    providers: Sequence[Provider] | None = None,
) -> Plan:
    """Which node of a model runs where and why, as `unpool inspect` shows it.

    Iterating gives a record per node, `print` a table of them, and `print(found.folded)` the table with one line for
    all nodes of a step that onnxruntime runs.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        compat: how the model is to be read where the standard's text and ONNX Runtime differ.
        index_space: in which tensor MaxUnpool's indices count where that is not certain.
        exact: whether unpool runs every MaxPool.
        providers: as for `InferenceSession`; with CUDA, the plan says what is on which GPU.

    Raises:
        UnpoolError: as `InferenceSession`, for the model is loaded to see what onnxruntime refuses.

    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink (float[1, 1, h, w] x) => (float[1, 1, a, b] y) {
    ...         s = Sigmoid (x)
    ...         t = Neg (s)
    ...         y, i = MaxPool <kernel_shape = [2, 2]> (t)
    ...     }''')
    >>> print(plan(model).folded)
    step  node                           operator          runs on      why
    ----  -----------------------------  ----------------  -----------  --------------------------------------
    0     2 nodes, Sigmoid->s to Neg->t  1 Sigmoid, 1 Neg  onnxruntime  not an operator of unpool
    1     MaxPool->y                     MaxPool-12        unpool       unpool runs every MaxPool with Indices
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # the plan says it node by node
        return InferenceSession(source, compat=compat, index_space=index_space, exact=exact, providers=providers).plan
