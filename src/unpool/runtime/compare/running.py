"""Runs a model in one runtime: as it is, and with all its values as outputs, as far as the runtime takes it."""

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
from unpool.runtime.compare.compared import Refusal
from unpool.runtime.compare.stepwise import Stepwise
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.nodes import node_name
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.lower.runtimes import Call, Feed, Runtime, runtimes
from unpool.runtime.session.executor import load_as_session

UNPOOL = "unpool"
TORCH = "torch"
_CHATTER = re.compile(
    r"Exception from \S+: |Check '.*?' failed at \S+: |FrontEnd API failed with OpConversionFailure: "
    r"|Model wasn't fully converted\. (Summary: -- )?|To facilitate .*"
)
"""What OpenVINO says beside the matter: where in its own code it raises, and its advice to extend it."""

WORDS = (UNPOOL, "onnxruntime", "reference", "openvino", TORCH)


@dataclass(frozen=True)
class Run:
    """What a runtime makes of a model.

    Attributes:
        outputs: by name, of the model as it is; None where it was refused.
        values: by name, of the nodes up to the one that was refused.
        refusals: that one, if there is one.
    """

    outputs: Mapping[str, Any] | None
    values: Mapping[str, Any] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()


def runtime_of(word: str, semantics: Semantics) -> Runtime:
    """The runtime that a word names, but torch, which runs no models.

    Raises:
        MissingExtraError: it is not installed.
    """
    if word == UNPOOL:
        return ours(semantics)
    known = {one.word: one for one in runtimes()}
    if word not in known:
        raise missing_extra("compare", word, [word])
    return known[word]


def ours(semantics: Semantics) -> Runtime:
    """Unpool's own session as one of the runtimes."""

    def prepare(model: onnx.ModelProto, feed: Feed) -> Call:
        loaded = load_as_session(model, semantics)
        return lambda: loaded.run(None, feed)

    return Runtime(UNPOOL, f"unpool {version('unpool')}", prepare)


def run(runtime: Runtime, model: Stepwise, feed: Feed) -> Run:
    """Run a model; what the runtime raises becomes a refusal, with the first node that it does not run."""
    outputs, reason = _made(runtime, model.model, feed)
    values, late = _made(runtime, model.exposed(), feed)
    if values is not None:
        return Run(outputs, values, () if outputs is not None else (Refusal("", "", reason),))
    before, position, said = _as_far_as_it_goes(runtime, model, feed, late)
    node = model.graph.nodes[position]
    where = "" if outputs is None else "with its values as outputs: "
    return Run(outputs, before, (Refusal(node_name(node), model.operator(node), where + said),))


def _as_far_as_it_goes(
    runtime: Runtime, model: Stepwise, feed: Feed, reason: str
) -> tuple[Mapping[str, Any], int, str]:
    """The values before the first node that is refused, its position, and why; found by halving."""
    values: Mapping[str, Any] = {}
    low, high = 0, len(model.graph.nodes)
    while high - low > 1:
        middle = (low + high) // 2
        made, said = _made(runtime, model.exposed(middle), feed)
        if made is None:
            high, reason = middle, said
        else:
            low, values = middle, made
    return values, max(high - 1, 0), reason


def _made(runtime: Runtime, model: onnx.ModelProto, feed: Feed) -> tuple[dict[str, Any] | None, str]:
    """The outputs by name, or None and what the runtime says."""
    names = [value.name for value in model.graph.output]
    if not names:
        return {}, ""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return dict(zip(names, runtime.prepare(model, feed)(), strict=True)), ""
    except Exception as error:  # whatever a runtime raises means that it does not run the model
        return None, short_message(UnpoolError(_CHATTER.sub("", " ".join(str(error).split()))))
