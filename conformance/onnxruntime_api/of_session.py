"""Probes of InferenceSession: what it is made from, its methods, and what it refuses."""

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from conformance.onnxruntime_api.made import (
    CPU,
    bound,
    handed_on,
    loaded,
    of_text,
    options,
    run_options,
    session_of,
    total,
    types_of_text,
    value_of,
)
from conformance.onnxruntime_api.probe import Probe, warned
from tests.onnxruntime_api.nets import pools, with_words
from tests.support import models

X = np.ones(2, np.float32)
NAN_FIRST = np.float32([[[np.nan, 1, 2, 3]]])
POOL = "g (float[1, 1, 4] x) => (float[1, 1, 2] z) { z = MaxPool <kernel_shape = [2], strides = [2]> (x) }"
GROW = "g (double[1, 1, 2] x, double[1, 1, 1] w) => (double[1, 1, 2] z) { z = ConvTranspose (x, w) }"
UNPOOL = """g (float[1, 1, 2] x, int64[1, 1, 2] i) => (float[1, 1, 4] z) {
    z = MaxUnpool <kernel_shape = [2], strides = [2]> (x, i)
}"""
LENGTH = "g (seq(float[2]) x) => (int64[] z) { z = SequenceLength (x) }"
OPTIONAL = "g (optional(float[2]) x) => (bool z) { z = OptionalHasElement (x) }"
WORD = 'g () => (string[1] z) { z = Constant <value_strings = ["a"]> () }'
SEQUENCE = "g (float[2] x) => (seq(float[2]) z) { z = SequenceConstruct (x) }"
COPY = "g (string[2] x) => (string[2] z) { z = Identity (x) }"


def ends(values: Any) -> list[Any]:
    """Name, shape and type of inputs or outputs."""
    return [(one.name, one.shape, one.type) for one in values]


def from_path(ort: Any, kind: type) -> Any:
    """The result of a model in a file."""
    Path("m.onnx").write_bytes(pools().content)
    return total(ort.InferenceSession(kind("m.onnx")))


def junk_file(ort: Any) -> Any:
    """What comes of a file that is no model."""
    Path("junk.onnx").write_bytes(b"no model at all")
    return ort.InferenceSession("junk.onnx")


def asynchronous(ort: Any) -> Any:
    """Number of results, data and error of an asynchronous run."""
    came, found = threading.Event(), []

    def collect(made: Any, data: Any, error: str) -> None:
        found.append((len(made), data, error))
        came.set()

    session = session_of(ort, options(ort, intra_op_num_threads=2))  # held: onnxruntime 1.26 hangs if it ends first
    session.run_async(None, pools().feed, collect, "data")
    came.wait(60)
    return found[0]


def on_vectors(ort: Any) -> Any:
    """The shape that a run on vectors makes."""
    vector = onnxruntime.capi.onnxruntime_pybind11_state.OrtValueVector
    feeds, fetches = vector(), vector()
    feeds.push_back(onnxruntime.OrtValue.ortvalue_from_numpy(pools().x)._get_c_value())
    device = onnxruntime.OrtDevice.make("cpu", 0)._get_c_device()
    session_of(ort).run_with_ortvaluevector(run_options(ort), ["x"], feeds, ["z"], fetches, [device])
    return fetches[0].shape()


def on_values(ort: Any) -> Any:
    """The shapes that a run on OrtValues makes."""
    return [one.shape() for one in session_of(ort).run_with_ort_values(None, {"x": value_of(ort, pools().x)})]


def on_binding(ort: Any) -> Any:
    """What a run with a binding returns."""
    session, binding = bound(ort)
    return session.run_with_iobinding(binding)


def assigned(ort: Any) -> Any:
    """The operators of the model, from the records of which provider has which."""
    made = options(ort, {"session.record_ep_graph_assignment_info": "1"})
    parts = session_of(ort, made).get_provider_graph_assignment_info()
    return sorted(node.op_type for part in parts for node in part.get_nodes())


def after(ort: Any, method: str, *arguments: Any) -> Any:
    """What a method gives, and whether the session runs after it."""
    session = session_of(ort)
    return getattr(session, method)(*arguments), total(session)


def overridable(ort: Any) -> Any:
    """The initializers that may be fed."""
    model = models.model("g (float[2] x, float[2] w) => (float[2] z) { z = Mul (x, w) }", w=X)
    return ends(ort.InferenceSession(model.SerializeToString()).get_overridable_initializers())


def words_of(ort: Any) -> Any:
    """All words of a model about itself."""
    content = with_words(
        pools().content, producer_name="p", domain="d", doc_string="s", model_version=7, metadata={"a": "b"}
    )
    meta = ort.InferenceSession(content).get_modelmeta()
    return meta.producer_name, meta.domain, meta.description, meta.version, meta.graph_name, meta.custom_metadata_map


def profiled(ort: Any) -> Any:
    """Whether a profile begins with onnxruntime's prefix, and whether the second call gives none."""
    session = session_of(ort, options(ort, enable_profiling=True))
    total(session)
    return session.end_profiling().startswith("onnxruntime_profile_"), session.end_profiling() == ""


def started(ort: Any) -> Any:
    """Whether the start of a profile is a number of nanoseconds."""
    return session_of(ort, options(ort, enable_profiling=True)).get_profiling_start_time_ns() > 0


def stopped(ort: Any) -> Any:
    """What comes of a run that is told to stop."""
    return total(session_of(ort), run_options(ort, terminate=True))


def made_value(ort: Any) -> Any:
    """The shape of a value from the session's allocator."""
    return session_of(ort).create_ortvalue_from_shape_and_type([2, 3], np.float32, "cpu").shape()


def without_effect(ort: Any, **words: Any) -> float:
    """The sum of the output with keywords that have no effect; unpool warns of them."""
    found: list[Any] = []
    warned(lambda: found.append(session_of(ort, **words)))
    return total(found[0])


def without_gpu(ort: Any) -> Any:
    """The last provider, and the warnings, where a GPU is asked for that is not there."""
    found: list[Any] = []
    words = warned(lambda: found.append(session_of(ort, providers=["CUDAExecutionProvider", CPU])))
    return found[0].get_providers()[-1], words


def read_only_view(ort: Any) -> Any:
    """The sum of the result of an array that is read-only and backwards in memory."""
    x = pools().x[..., ::-1].copy()[..., ::-1]
    x.flags.writeable = False
    return float(session_of(ort).run(None, {"x": x})[0].sum())


def foreign_order(ort: Any) -> Any:
    """The sum of the result of an array in the other byte order."""
    return float(session_of(ort).run(None, {"x": pools().x.astype(">f4")})[0].sum())


def far_index(ort: Any) -> Any:
    """The result of an index outside of the output."""
    feed = {"x": np.ones((1, 1, 2), np.float32), "i": np.array([[[1, 1000]]])}
    return of_text(UNPOOL, feed, 17)(ort)


def total_of_value(ort: Any) -> float:
    """The sum of the result of an OrtValue that is fed to `run`."""
    return float(session_of(ort).run(None, {"x": value_of(ort, pools().x)})[0].sum())


def of(name: str, ask: Any, note: str = "") -> Probe:
    """A probe of a method of the session."""
    return Probe(name, ask, needs=f"InferenceSession.{name}", note=note)


CONSTRUCTION = (
    Probe("a path as str", lambda ort: from_path(ort, str)),
    Probe("a Path", lambda ort: from_path(ort, Path)),
    Probe("bytes", lambda ort: total(ort.InferenceSession(pools().content))),
    Probe(
        "an onnx.ModelProto",
        lambda ort: total(ort.InferenceSession(onnx.load_from_string(pools().content))),
        note="accepted by unpool only",
    ),
    Probe("sess_options", lambda ort: total(session_of(ort, options(ort)))),
    Probe("providers", lambda ort: total(session_of(ort, providers=[CPU]))),
    Probe("provider_options", lambda ort: total(session_of(ort, providers=[CPU], provider_options=[{}]))),
    Probe(
        "`provider_options` without providers",
        lambda ort: without_effect(ort, provider_options=[{"a": "1"}]),
        note="unpool warns that they have no effect",
    ),
    Probe(
        "an unknown keyword argument",
        lambda ort: without_effect(ort, blah=3),
        note="unpool warns that it has no effect",
    ),
    Probe("providers that are not installed", without_gpu, note="compared: the last provider and the warnings"),
    Probe("enable_fallback", lambda ort: total(session_of(ort, enable_fallback=0))),
    Probe("read_config_from_model", lambda ort: total(session_of(ort, read_config_from_model=0))),
    Probe("disabled_optimizers", lambda ort: total(session_of(ort, disabled_optimizers=["ConstantFolding"]))),
    Probe("a class derived from it", lambda ort: total(type("S", (ort.InferenceSession,), {})(pools().content))),
    Probe("copy.copy", lambda ort: total(copy.copy(session_of(ort)))),
    Probe("pickle.dumps", lambda ort: len(pickle.dumps(session_of(ort))) > 0, note="only with unpool"),
)
METHODS = (
    of("create_ortvalue_from_shape_and_type", made_value),
    of("disable_fallback", lambda ort: after(ort, "disable_fallback")),
    of("enable_fallback", lambda ort: after(ort, "enable_fallback")),
    of("end_profiling", profiled),
    of("get_input_epdevices", lambda ort: len(session_of(ort).get_input_epdevices())),
    of("get_input_memory_infos", lambda ort: [one.device_id for one in session_of(ort).get_input_memory_infos()]),
    of("get_inputs", lambda ort: ends(session_of(ort, net=pools("N")).get_inputs())),
    of("get_modelmeta", words_of),
    of("get_output_memory_infos", lambda ort: [one.device_id for one in session_of(ort).get_output_memory_infos()]),
    of("get_outputs", lambda ort: ends(session_of(ort, net=pools("N")).get_outputs())),
    of("get_overridable_initializers", overridable),
    of("get_profiling_start_time_ns", started),
    of("get_provider_graph_assignment_info", assigned, "with its session config entry"),
    of("get_provider_options", lambda ort: session_of(ort).get_provider_options(), "unpool comes first"),
    of("get_providers", lambda ort: session_of(ort).get_providers(), "unpool comes first"),
    of("get_session_options", lambda ort: session_of(ort, options(ort, logid="mine")).get_session_options().logid),
    of("get_tuning_results", lambda ort: session_of(ort).get_tuning_results()),
    of("io_binding", lambda ort: isinstance(session_of(ort).io_binding(), handed_on(ort, "IOBinding"))),
    of("release_captured_graph", lambda ort: after(ort, "release_captured_graph")),
    of("run", lambda ort: total(session_of(ort))),
    of("run_async", asynchronous),
    of("run_with_iobinding", on_binding),
    of("run_with_ort_values", on_values),
    of("run_with_ortvaluevector", on_vectors),
    of("set_ep_dynamic_options", lambda ort: after(ort, "set_ep_dynamic_options", {"ep.dynamic.workload_type": "A"})),
    of("set_providers", lambda ort: after(ort, "set_providers", [CPU])),
    of("set_tuning_results", lambda ort: after(ort, "set_tuning_results", [])),
)
VALUES = (
    Probe("an array in any layout", read_only_view),
    Probe("nested lists", lambda ort: float(session_of(ort).run(None, {"x": pools().x.tolist()})[0].sum())),
    Probe("an OrtValue to run", total_of_value),
    Probe("a list of arrays for a sequence", of_text(LENGTH, {"x": [X, X]})),
    Probe("None for an optional input", of_text(OPTIONAL, {"x": None})),
    Probe("an omitted optional input", of_text(OPTIONAL, {})),
    Probe("an array of str", of_text(COPY, {"x": np.array(["a", "ü"])})),
    Probe("an array of void", of_text(COPY, {"x": np.array([b"ab", b"cd"], np.void)})),
    Probe("strings as OrtValue", types_of_text(WORD, {})),
    Probe("a sequence as OrtValue", types_of_text(SEQUENCE, {"x": X})),
    Probe("an array in the other byte order", foreign_order, note="onnxruntime reads the bytes in the wrong order"),
    Probe("a NaN in a window of MaxPool", of_text(POOL, {"x": NAN_FIRST}, 17), note="see `exact`"),
    Probe("ConvTranspose of float64", of_text(GROW, {"x": np.ones((1, 1, 2)), "w": np.ones((1, 1, 1))}, 17)),
    Probe("an index outside of the output of MaxUnpool", far_index),
)
REFUSALS = (
    Probe("a source of another type", lambda ort: ort.InferenceSession(3)),
    Probe("options of another type", lambda ort: ort.InferenceSession(pools().content, "fast")),
    Probe("a missing file", lambda ort: ort.InferenceSession("nowhere.onnx")),
    Probe("a file without a model", junk_file),
    Probe("bytes without a model", loaded(b"no model at all")),
    Probe("empty bytes", loaded(b"")),
    Probe("an unknown operator", of_text("g (float[2] x) => (float[2] z) { z = Nonesuch (x) }", {"x": X})),
    Probe(
        "an unreleased opset",
        of_text("g (float[2] x) => (float[2] z) { z = Abs (x) }", {"x": X}, 99),
        note="unpool checks operators, not the opset",
    ),
    Probe("a missing input", lambda ort: session_of(ort).run(None, {})),
    Probe("an extra input", lambda ort: session_of(ort).run(None, pools().feed | {"y": X})),
    Probe("an unknown output", lambda ort: session_of(ort).run(["y"], pools().feed)),
    Probe("another element type", lambda ort: session_of(ort).run(None, {"x": pools().x.astype(np.float64)})),
    Probe("another rank", lambda ort: session_of(ort).run(None, {"x": X})),
    Probe("another size", lambda ort: session_of(ort).run(None, {"x": np.ones((1, 1, 4, 3), np.float32)})),
    Probe("a string as output names", lambda ort: session_of(ort).run("z", pools().feed)),
    Probe("a run that is terminated", stopped),
)


SECTIONS = {
    "The constructor": CONSTRUCTION,
    "Methods of InferenceSession": METHODS,
    "Inputs of a run": VALUES,
    "Errors": REFUSALS,
}
