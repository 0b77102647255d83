"""Reads a model and what a caller's SessionOptions bring to it, and settles what its steps are loaded with."""

import os
from collections.abc import Iterable
from typing import NamedTuple

import onnx

from unpool.errors import UnpoolError, UnsupportedError
from unpool.execute.autotune import Tuner
from unpool.operators.contract import DOMAINS
from unpool.runtime.errors import also
from unpool.runtime.graph.boundary import brief
from unpool.runtime.graph.external import FOLDERS
from unpool.runtime.graph.load import ModelSource, load
from unpool.runtime.graph.nodes import domain, with_inner
from unpool.runtime.graph.weight_files import folder_of, with_data
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.cuda_choice import cuda_memory
from unpool.runtime.runners.ort_config import VARIABLE, configured, is_asked_for
from unpool.runtime.runners.ort_copies import copied, entry
from unpool.runtime.runners.ort_format import in_onnx
from unpool.runtime.runners.ort_given import FOLDER, Given, given, put
from unpool.runtime.runners.ort_options import PieceOptions, piece_options, thread_budget
from unpool.runtime.runners.ort_traces import PieceTraces
from unpool.runtime.runners.settings import Settings
from unpool.runtime.session.told import Told

_BUILT_IN = (
    *("ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"),
    *("com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc", "org.pytorch.aten", *DOMAINS),
)
"""Domains whose operators need no library that a caller registered."""

_DISABLED = "optimization.disable_specified_optimizers"
_NO_CPU = "session.disable_cpu_ep_fallback"


class Brought(NamedTuple):
    """A model, the options as they were, and what the steps are loaded with.

    The model has all its tensors, those that the options bring too; large ones may stay in files.
    """

    model: onnx.ModelProto
    options: onnxruntime.SessionOptions
    settings: Settings


def brought(told: Told) -> Brought:
    """The model with what the options bring to it.

    Raises:
        UnpoolError: the model cannot be read, or the options do not fit to it.
    """
    fresh = onnxruntime.SessionOptions()
    source = in_onnx(told.source, fresh if told.options is None else told.options)
    left = lends = None
    if told.options is None and not is_asked_for():
        model, options = load(source, leaves_weights=True), fresh
    else:
        opening = _Opening(told, source)
        model = load(source, opening.change, *_folders(opening.options), leaves_weights=True)
        options, left = opening.options, opening.given.left
        lends = _lends(told.options, model, opening.given)
        if options.optimized_model_filepath:
            _fetch_weights(model)
    budget = thread_budget(options, told.threads)
    brings = lends is not None and told.providers is None and has_providers(lends)
    traces = PieceTraces() if options.enable_profiling and not is_asked_for() else None
    several, one = (
        piece_options(left, count, lends=lends, brings_providers=brings, traces=traces) for count in (budget, 1)
    )
    one.copy.inter_op_num_threads = 1
    for each in (several, one):
        _disable(each, told.disabled_optimizers)
    providers = told.all_providers
    cuda = None if brings else cuda_memory(providers)
    settings = Settings(
        told.meaning,
        budget,
        several,
        one,
        providers.of_onnxruntime,
        openvino=providers.openvino,
        tuner=Tuner(told.tuning) if told.tuning and cuda is None else None,
        delegates=bool(told.delegates),
        before_indices=told.before_indices,
        cuda=cuda,
    )
    return Brought(model, options, settings)


def require_words(told: Told) -> None:
    """Refuse options that say more than words can: their attributes and known entries are what is kept of them.

    Raises:
        UnsupportedError: they bring initializers, sizes, libraries or providers.
    """
    if told.options is None or is_asked_for():
        return
    opening = _Opening(told, in_onnx(told.source, told.options))
    model = load(opening.source, opening.change, *_folders(opening.options), leaves_weights=True)
    if not opening.given.is_empty or needs_libraries(model) or has_providers(told.options):
        raise UnsupportedError(
            "InferenceSession: expected SessionOptions of attributes and entries alone to be pickled, got some with "
            "initializers, sizes, libraries or providers. Make the session anew where it is needed."
        )


class _Opening:
    """Changes a model as options ask for, which may be its own."""

    given: Given

    def __init__(self, told: Told, source: ModelSource) -> None:
        self.source = source
        self.options = _copied(told.options or onnxruntime.SessionOptions())
        if is_asked_for() and told.reads_config is False:
            raise also(UnpoolError, RuntimeError)(
                f"InferenceSession: expected read_config_from_model to be as {VARIABLE}, which is 1, got 0. Unset it."
            )

    def change(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The model with what the options bring; a model of the caller is copied before it is changed."""
        if is_asked_for():
            self.options = configured(model)
            self.given = Given({}, {}, self.options)
            return model
        _require_cpu(self.options)
        self.given = given(self.options, model, self._folder())
        if self.given.is_empty:
            return model
        if model is self.source:
            model = onnx.ModelProto()
            model.CopyFrom(self.source)
        put(model, self.given)
        return model

    def _folder(self) -> str:
        """Where the model's data files are."""
        if isinstance(self.source, (str, os.PathLike)):
            return os.path.dirname(os.path.abspath(self.source))
        return entry(self.options, FOLDER) or os.getcwd()


def _folders(options: onnxruntime.SessionOptions) -> tuple[str, list[str]]:
    """The folder of the data of a model that is no file, and further ones to which links may lead."""
    return entry(options, FOLDER) or "", [one for one in (entry(options, FOLDERS) or "").split(os.pathsep) if one]


def _copied(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    try:
        return copied(options)
    except Exception as error:
        raise also(UnpoolError, type(error))(
            f"SessionOptions: expected options that onnxruntime takes, got its refusal: {brief(error)}. "
            "Change or remove that option."
        ) from error


def _fetch_weights(model: onnx.ModelProto) -> None:
    """Put weights that stayed in their files into the model, for a file that is written has weights of its own."""
    for tensor in model.graph.initializer:
        if folder_of(tensor) is not None:
            tensor.CopyFrom(with_data(tensor))


def _lends(
    own: onnxruntime.SessionOptions | None, model: onnx.ModelProto, brings: Given
) -> onnxruntime.SessionOptions | None:
    """The caller's own object, if pieces need what no copy of it has.

    Raises:
        UnsupportedError: it has external initializers too, which no piece alone has.
    """
    if own is None or not (needs_libraries(model) or has_providers(own)):
        return None
    if brings.has_external:
        raise UnsupportedError(
            "SessionOptions.add_external_initializers: expected a model whose operators need no library and no "
            "provider that the options bring too, got both. Put the initializers into the model."
        )
    return own


def has_providers(options: onnxruntime.SessionOptions) -> bool:
    """Whether providers were added to the options; older releases of onnxruntime cannot add any."""
    return bool(getattr(options, "has_providers", bool)())


def needs_libraries(model: onnx.ModelProto) -> bool:
    """Whether a node is of a domain that neither the model's functions nor onnxruntime itself have."""
    known = {*_BUILT_IN, *(function.domain for function in model.functions)}
    nodes = (*model.graph.node, *(node for function in model.functions for node in function.node))
    return any(domain(node) not in known for node in with_inner(nodes))


def _require_cpu(options: onnxruntime.SessionOptions) -> None:
    """Refuse options that forbid the CPU."""
    if entry(options, _NO_CPU) == "1":
        raise also(UnsupportedError, "Fail")(
            f"SessionOptions: expected a session that may use the CPU, where unpool runs, got the entry {_NO_CPU} = 1. "
            "Remove the entry or set it to 0."
        )


def _disable(options: PieceOptions, optimizers: Iterable[str]) -> None:
    """Have onnxruntime leave out these optimizers too."""
    names = {*filter(None, (entry(options.copy, _DISABLED) or "").split(";")), *optimizers}
    if names:
        options.copy.add_session_config_entry(_DISABLED, ";".join(sorted(names)))
