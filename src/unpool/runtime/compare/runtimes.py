"""A run of a model in one runtime: as it is, and with all its values as outputs, up to the first unsupported node."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import onnx

from unpool.errors import UnpoolError
from unpool.extras import missing_extra
from unpool.runtime.compare.align import ComparableModel
from unpool.runtime.compare.records import UnsupportedNode
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.nodes import node_name
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.lower.runtimes import Call, Feed, Runtime, runtimes
from unpool.runtime.session.executor import load_as_session

UNPOOL = "unpool"
TORCH = "torch"
NAMES = (UNPOOL, "onnxruntime", "reference", "openvino", TORCH)

_OPENVINO_NOISE = re.compile(
    r"Exception from \S+: |Check '.*?' failed at \S+: |FrontEnd API failed with OpConversionFailure: "
    r"|Model wasn't fully converted\. (Summary: -- )?|To facilitate .*"
)
"""Parts of OpenVINO's messages: places in its own code, and advice to extend it."""


@dataclass(frozen=True)
class RuntimeValues:
    """The results of a model in a runtime.

    Attributes:
        outputs: by name, of the model as it is; None where the runtime cannot run it.
        values: by name, of the nodes before the first one that is not supported.
        unsupported: that node, if there is one.
    """

    outputs: Mapping[str, Any] | None
    values: Mapping[str, Any] = field(default_factory=dict)
    unsupported: tuple[UnsupportedNode, ...] = ()


def find_runtime(word: str, semantics: Semantics) -> Runtime:
    """The runtime of a name, except torch, which runs no models.

    Raises:
        MissingExtraError: it is not installed.
    """
    if word == UNPOOL:
        return unpool_runtime(semantics)
    known = {runtime.word: runtime for runtime in runtimes()}
    if word not in known:
        raise missing_extra("compare", word, [word])
    return known[word]


def unpool_runtime(semantics: Semantics) -> Runtime:
    """Unpool's own session as one of the runtimes."""

    def prepare(model: onnx.ModelProto, feed: Feed) -> Call:
        executor = load_as_session(model, semantics)
        return lambda: executor.run(None, feed)

    return Runtime(UNPOOL, f"unpool {version('unpool')}", prepare)


def run_model(runtime: Runtime, model: ComparableModel, feed: Feed) -> RuntimeValues:
    """Run a model; an exception of the runtime becomes the reason for its first unsupported node."""
    outputs, output_error = _run(runtime, model.model, feed)
    values, error = _run(runtime, model.with_value_outputs(), feed)
    if values is not None:
        return RuntimeValues(outputs, values, () if outputs is not None else (UnsupportedNode("", "", output_error),))
    known: Mapping[str, Any] = {}
    low, high = 0, len(model.graph.nodes)  # the first `low` nodes run, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        values, message = _run(runtime, model.with_value_outputs(middle), feed)
        if values is None:
            high, error = middle, message
        else:
            low, known = middle, values
    node = model.graph.nodes[max(high - 1, 0)]
    where = "" if outputs is None else "with its values as outputs: "
    return RuntimeValues(outputs, known, (UnsupportedNode(node_name(node), model.operator(node), where + error),))


def _run(runtime: Runtime, model: onnx.ModelProto, feed: Feed) -> tuple[dict[str, Any] | None, str]:
    """The outputs by name, or None and the runtime's message."""
    names = [value.name for value in model.graph.output]
    if not names:
        return {}, ""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return dict(zip(names, runtime.prepare(model, feed)(), strict=True)), ""
    except Exception as error:  # any exception means that the runtime does not run the model
        return None, short_message(UnpoolError(_OPENVINO_NOISE.sub("", " ".join(str(error).split()))))
