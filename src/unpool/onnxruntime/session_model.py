"""The model of a session, changed by passes and given to onnxruntime; as it came where that is refused."""

import logging
import os
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx

from unpool.errors import UnpoolError, UnsupportedError
from unpool.graph import weights
from unpool.graph.bare import without_elements
from unpool.graph.errors import is_from_signal_handler, short_message, source_name
from unpool.graph.graph import Graph, lift_constants
from unpool.graph.load import FOLDERS_ENTRY, SMALL, ModelSource, external_tensors, load, needs_libraries, stable_source
from unpool.graph.nodes import with_subgraph_nodes
from unpool.graph.semantics import Semantics
from unpool.graph.shape_inference import PreparedGraph, infer
from unpool.graph.torch_operators import export_advice
from unpool.graph.weights import ElementsNeededError, restore_initializers, serialize, strip_initializers
from unpool.onnxruntime import model_cache, passes
from unpool.onnxruntime.engine import Engine
from unpool.onnxruntime.errors import loading_error
from unpool.onnxruntime.kernel_table import check_settings
from unpool.onnxruntime.model_cache import ChangedModel
from unpool.onnxruntime.options import (
    DATA_FOLDER,
    clone,
    config_entry,
    has_providers,
    set_config_entry,
    spin_entries,
)
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.passes import PassContext, run_passes
from unpool.onnxruntime.placement import Reason, SessionPlan, make_plan, place
from unpool.onnxruntime.register import is_registered, register
from unpool.onnxruntime.source import (
    SplitModel,
    as_bytes,
    as_memory_file,
    as_values,
    join,
    path_of,
    read,
    skeleton_of,
    split,
)
from unpool.passes.inline import check_functions, inline, shorten_domains

_WITH_ENGINES = "with onnx's ReferenceEvaluator for some nodes"
ORT_IDENTIFIER = b"ORTM"  # behind the first four bytes of a file
NEWEST_CONV_TRANSPOSE = 11  # the opset since which a ConvTranspose means the same
SAFE_IF = 11  # the opset since which onnxruntime gives an If no sizes that only one of its branches has

Create: TypeAlias = Callable[[str | bytes, onnxruntime.SessionOptions, Callable[[], object]], None]
"""Creates a session of onnxruntime from a path or bytes, and calls a function when these are parsed, if it can."""

_log = logging.getLogger("unpool")


class _Candidate(NamedTuple):
    """A model as onnxruntime may get it, the options for it, and its plan."""

    name: str
    source: str | bytes
    options: onnxruntime.SessionOptions
    plan: SessionPlan = SessionPlan()
    engines: tuple[Engine, ...] = ()
    refused: Mapping[str, str] = MappingProxyType({})  # reasons by nodes that engines compute
    values: Mapping[str, onnxruntime.OrtValue] = MappingProxyType({})  # of the options; the session copies them
    file: FileIO | None = None  # in memory, whose path `source` is

    def create(self, create: Create) -> None:
        """Create its session, and free what that was parsed from."""
        with self.file or nullcontext():
            create(self.source, self.options, partial(self.file.truncate, 0) if self.file else lambda: None)


class SessionModel:
    """What a session is made from: the source, the caller's options, and what unpool does with the model.

    Candidates are tried one after another, until onnxruntime accepts one: the model after the passes; as it came, with
    the library; as it came, without; and where it refuses nodes, with onnx's ReferenceEvaluator for these. `refused`
    has the reasons for which it refuses them, by their names.
    """

    def __init__(
        self,
        source: ModelSource,
        options: onnxruntime.SessionOptions | None,
        semantics: Semantics,
        threads: int | None,
        disabled: Collection[str],
    ) -> None:
        self.given = source
        self.plan = SessionPlan()
        self.refused: Mapping[str, str] = {}
        self.semantics = semantics
        self._options, self._disabled, self._threads = options, disabled, threads
        self.has_other_provider = False  # than that of the CPU
        self._unread: UnpoolError | None = None  # why unpool cannot read the model
        self._has_own_data = False  # True where the model differs from what came by its data files
        self._nodes: Iterable[onnx.NodeProto] = ()  # of the model
        self._has_files = False  # True where options have a data file of the model in memory
        self._hidden: set[str] = set()  # initializers for which the options may have other values
        self._engines: tuple[Engine, ...] = ()  # of the session

    @property
    def source(self) -> ModelSource:
        """The source in a form that does not change: an absolute path, bytes, or a ModelProto too large for bytes."""
        return stable_source(self.given)

    def create(self, create: Create) -> None:
        """Create the session of the first candidate that onnxruntime accepts; the plan is that of its model."""
        check_settings()  # passes and placement take an error of a kernel's cost for shapes that do not fit
        refusals: dict[str, Exception] = {}  # by candidate
        for candidate in self._candidates():
            try:
                candidate.create(create)
            except Exception as error:
                if is_from_signal_handler(error):
                    raise
                refusals.setdefault(candidate.name, error)
                continue
            for name, refusal in refusals.items() if not candidate.refused else ():
                _log.warning(
                    "%s: onnxruntime refuses the model %s, and gets it %s: %s",
                    source_name(self.given), name, candidate.name, short_message(refusal),
                )  # fmt: skip
            self.plan, self.refused, self._engines = candidate.plan, candidate.refused, candidate.engines
            return
        refusals.pop(_WITH_ENGINES, None)
        errors = list(refusals.values())
        is_unknown = type(errors[-1]).__name__ == "NotImplemented"  # for onnxruntime alone, which says less than unpool
        last = errors[-2] if is_unknown and len(errors) > 1 else errors[-1]
        raise loading_error(last, source_name(self.given), self._unread, export_advice(self._nodes, "")) from last

    def tune(self, session: Any, create: Create, seconds: float, feed: Mapping[str, Any] | None) -> None:
        """Create the session again, with the whole model in OpenVINO, if that is faster on these or random inputs."""
        options, model = self._options, self._read()
        has_additions = options is not None and model is not None and _has_additions(options, model)
        if model is None or has_additions or self._engines or self.semantics.exact or not _is_tunable(session):
            return
        if options is not None and (options.optimized_model_filepath or _replaceable(options, model)):
            return
        threads = self._threads or (0 if options is None else options.intra_op_num_threads) or None
        from unpool.onnxruntime.tuning import TuningTrial, fastest_model  # loads statistics, and random numbers

        key = repr((self.fingerprint(), sorted(self._disabled)))
        tuned = fastest_model(TuningTrial(session, model, self._raw(), self.semantics, threads, key, feed), seconds)
        if tuned is not None:
            options = self._registered(None, tuned.plan, is_copied=True, domains="unpool")
            _Candidate("tuned", tuned.content, options).create(create)
            self.plan, self._engines = tuned.plan, (tuned.engine,)

    def _candidates(self) -> Iterator[_Candidate]:
        model = self._read()
        self._nodes = () if model is None else model.graph.node
        is_large = isinstance(self.given, onnx.ModelProto) and weights.is_too_large(self.given)
        is_copied = self._options is None or not (model is None or _has_additions(self._options, model))
        changed, joined = (None, None) if model is None else self._change(model)
        if changed is not None and not (changed.is_changed or self._has_own_data or is_large):
            options = self._session_options(changed.plan, is_copied=is_copied)
            yield _Candidate("as it came", self._raw(), options, changed.plan)
            yield from self._engine_candidates(model, is_copied=is_copied)
            return
        if changed is not None and joined is not None and (is_copied or joined.folder is None):
            candidate = self._changed_candidate(changed, joined, is_copied=is_copied)
            if candidate is not None:
                yield candidate
                if is_large and is_copied:  # the others are no message
                    return
        plan = None if changed is None else changed.plan
        opset = None if model is None else _opset(model)
        without = "as it came, without unpool"
        if model is None and self._is_in_ort_format():  # options that are not copied keep the library
            yield _Candidate(without, self._raw(), self._session_options(SessionPlan(), is_copied=is_copied))
        options = self._registered(opset, plan, is_copied=is_copied)
        yield _Candidate("as it came", self._raw(), options, plan or SessionPlan())
        yield _Candidate(without, self._raw(), self._session_options(SessionPlan(), is_copied=is_copied))
        yield from self._engine_candidates(model, is_copied=is_copied)

    def _engine_candidates(self, model: onnx.ModelProto | None, *, is_copied: bool) -> Iterator[_Candidate]:
        """The model with engines for nodes that onnxruntime refuses, if there are such nodes."""
        if model is None or (self._options is not None and self._options.optimized_model_filepath):
            return  # a file with an engine would be of this process only
        from unpool.onnxruntime.reference import with_engines  # loads onnx's evaluator

        try:
            plain = run_passes(
                inline(model), PassContext(self.semantics), self._disabled, optimizes=False, has_own_nodes=False
            )
            found = with_engines(plain, make_plan(plain, self.semantics, {}), self.semantics, self._threads)
            if found is None:
                return
            joined = split(found.model)
            source = as_bytes(joined)
        except UnpoolError as error:
            _log.info("%s: no node runs in onnx's ReferenceEvaluator: %s", source_name(self.given), error)
            return
        folder = joined.folder
        own = self._registered(_opset(found.model), found.plan, is_copied=is_copied, folder=folder, domains="unpool")
        yield _Candidate(_WITH_ENGINES, source, own, found.plan, found.engines, found.refused)

    def _changed_candidate(self, changed: ChangedModel, model: SplitModel, *, is_copied: bool) -> _Candidate | None:
        """The model after the passes, with its weights; None if it cannot be written."""
        is_written = self._options is not None and bool(self._options.optimized_model_filepath)
        content: str | bytes
        values: dict[str, onnxruntime.OrtValue] = {}
        try:
            is_alone = model.folder is None and not is_written and not self.has_other_provider
            file = as_memory_file(model) if is_alone else None  # of which onnxruntime makes one session only
            if file is None and is_copied and not is_written and model.size() >= SMALL:
                content, values = as_values(model, self._hidden)
            else:
                content = path_of(file) if file else as_bytes(model)
        except UnpoolError as error:
            _log.warning("%s: the model after the passes cannot be used: %s", source_name(self.given), error)
            return None
        domains = "unpool" if self._has_own_nodes else "all"
        options = self._registered(
            changed.opset, changed.plan, is_copied=is_copied, folder=model.folder, domains=domains
        )
        if values:
            options.add_external_initializers(list(values), list(values.values()))
        nodes = with_subgraph_nodes(self._nodes) if (changed.opset or 0) < SAFE_IF else ()
        if any(node.op_type == "If" for node in nodes):  # values of unlike sizes would share memory
            options.enable_mem_reuse = False
        return _Candidate("after the passes", content, options, changed.plan, values=values, file=file)

    def _read(self) -> onnx.ModelProto | None:
        """The model; None if unpool cannot read it: onnxruntime can, or has its own words for what is wrong."""
        folder, links = "", ""
        if self._options is not None:
            folder, links = (config_entry(self._options, key) or "" for key in (DATA_FOLDER, FOLDERS_ENTRY))
        self._has_files = False
        try:
            if links:  # onnxruntime follows no link out of the folder, so the data become a part of the model
                self._has_own_data = True
                model = shorten_domains(load(self.given, None, folder, links.split(os.pathsep)))
            else:
                model = shorten_domains(read(self.given, folder, self._refuse_files))
        except UnpoolError as error:
            _log.info("%s: no pass runs: %s", source_name(self.given), error)
            self._unread = error
            return None
        check_functions(model)  # onnxruntime inlines all functions, however many nodes they become
        return model

    def _refuse_files(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The model, unless options have a data file of it in memory, which may differ from that on the disk."""
        if self._options is None or not hasattr(self._options, "add_external_initializers_from_files_in_memory"):
            return model
        entries = (entry for tensor in external_tensors(model) for entry in tensor.external_data)
        names = sorted({entry.value for entry in entries if entry.key == "location"})
        other = clone(self._options) if names else self._options
        for name in names:
            try:
                other.add_external_initializers_from_files_in_memory([name], [bytes(1)], [1])
            except RuntimeError:  # it has one of this name
                self._has_files = True
                raise UnsupportedError(f"the data file {name!r} is in the memory of the options") from None
        return model

    def _is_in_ort_format(self) -> bool:
        """True for a model in onnxruntime's own format."""
        if isinstance(self.given, onnx.ModelProto):
            return False
        try:
            if not isinstance(self.given, str | os.PathLike):
                return bytes(self.given[4:8]) == ORT_IDENTIFIER
            with Path(self.given).open("rb") as file:
                return file.read(8)[4:] == ORT_IDENTIFIER
        except (OSError, TypeError):  # onnxruntime says what is wrong
            return False

    def _change(self, model: onnx.ModelProto) -> tuple[ChangedModel, SplitModel]:
        """The model after the passes, or as an earlier session had it, and the same with its weights.

        The passes see no elements of large weights; if one of them asks for these, all run again on the whole model.
        """
        self._hidden = set() if self._options is None else _replaceable(self._options, model)
        context, bare = PassContext(self.semantics), without_elements(model)
        key = None if os.environ.get(passes.DUMP) else self._key(bare)
        changed = None if key is None else model_cache.find(key)
        if changed is not None:
            return changed, join(changed.skeleton, model)
        try:
            passed = self._passed(bare, context, self._hidden)
            is_changed = passed is not bare
        except ElementsNeededError:
            context, key = PassContext(self.semantics), None
            whole = self._passed(model, context, self._hidden)
            is_changed, model, passed = whole is not model, whole, without_elements(whole)
        changed = self._place(passed, context, is_changed=is_changed)
        has_warned = context.has_failed or any(row.reason is Reason.REFUSED for row in changed.plan)
        if key is not None and not has_warned:
            model_cache.keep(key, changed)
        return changed, join(changed.skeleton, model)

    def _key(self, bare: onnx.ModelProto) -> model_cache.Key | None:
        """The key of a bare model and of the arguments that decide what becomes of it."""
        semantics = self.semantics.compat, self.semantics.index_space, self.semantics.exact
        facts = self._optimizes, self._has_own_nodes, self.has_other_provider, tuple(sorted(self._hidden))
        names = tuple(each.name for each in passes.PASSES if each.name not in self._disabled)
        return model_cache.key_of(bare, *semantics, *facts, names)

    def _place(self, model: onnx.ModelProto, context: PassContext, *, is_changed: bool) -> ChangedModel:
        """A bare model, which is changed, with the nodes that unpool computes in its domain."""
        details, types = context.details(), context.types
        plan = make_plan(
            model, self.semantics, details, types, has_other_provider=self.has_other_provider,
            counts_in_output=context.counts_in_output,
        )  # fmt: skip
        if self._has_own_nodes and plan.has_own_nodes:
            place(model, plan, context.counts_in_output)
        return ChangedModel(skeleton_of(model), plan, is_changed or plan.has_own_nodes, _opset(model))

    def _passed(
        self, model: onnx.ModelProto, context: PassContext, hidden: Container[str], *, has_own_nodes: bool = True
    ) -> onnx.ModelProto:
        """The model after the passes, which do not see the data of initializers that options may replace: `hidden`."""
        if not hidden:
            return self._run_passes(model, context, has_own_nodes)
        skeleton = strip_initializers(model, lambda tensor: tensor.name in hidden)
        changed = self._run_passes(skeleton, context, has_own_nodes)
        if changed is skeleton:
            return model
        return restore_initializers(changed, model, lambda tensor: tensor.name in hidden)

    def _run_passes(self, model: onnx.ModelProto, context: PassContext, has_own_nodes: bool) -> onnx.ModelProto:
        has_own_nodes = has_own_nodes and self._has_own_nodes
        return run_passes(model, context, self._disabled, optimizes=self._optimizes, has_own_nodes=has_own_nodes)

    @property
    def _optimizes(self) -> bool:
        """True unless the options or another provider leave the model as it is."""
        levels = onnxruntime.GraphOptimizationLevel
        level = levels.ORT_ENABLE_ALL if self._options is None else self._options.graph_optimization_level
        return level not in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_BASIC) and not self.has_other_provider

    @property
    def _has_own_nodes(self) -> bool:
        """True if the model may have nodes of unpool's domain.

        A file that onnxruntime writes keeps the names of the standard, so that it runs without the library, and options
        that are registered already may have the library for these names.
        """
        options = self._options
        return options is None or not (options.optimized_model_filepath or is_registered(options))

    def use_providers(self, providers: Sequence[Any] | None) -> None:
        """Note whether the session has another provider than that of the CPU."""
        names = [each[0] if isinstance(each, tuple) and each else each for each in providers or ()]
        others = set(onnxruntime.get_available_providers()) - {"CPUExecutionProvider"}
        is_added = self._options is not None and has_providers(self._options)
        self.has_other_provider = is_added or any(name in names for name in others)

    def _raw(self) -> str | bytes:
        """The model as it came, as onnxruntime takes it."""
        if isinstance(self.given, onnx.ModelProto):
            return serialize(self.given, "model")
        if isinstance(self.given, str | os.PathLike):
            return os.fspath(self.given)
        return bytes(self.given) if isinstance(self.given, bytearray | memoryview) else self.given

    def _registered(
        self,
        opset: int | None,
        plan: SessionPlan | None,
        *,
        is_copied: bool,
        folder: str | None = None,
        domains: str = "all",
    ) -> onnxruntime.SessionOptions:
        """Options with the library, for the opset of a model, and with the folder of its data files."""
        options, semantics = self._session_options(plan, is_copied=is_copied), self.semantics
        if folder is not None:
            set_config_entry(options, DATA_FOLDER, folder)
        if not is_registered(options):
            exact, compat, index_space = semantics.exact, semantics.compat, semantics.index_space
            register(options, exact=exact, compat=compat, index_space=index_space, opset=opset, domains=domains)
        return options

    def _session_options(self, plan: SessionPlan | None, *, is_copied: bool) -> onnxruntime.SessionOptions:
        """The caller's options, or a copy of them, with threads, and how they wait beside long nodes of unpool.

        A plan of None is that of a model that unpool cannot read: it may compute long nodes of it.
        """
        if self._options is None:
            options = onnxruntime.SessionOptions()
        else:
            options = clone(self._options) if is_copied else self._options
        if self._threads is not None:
            options.intra_op_num_threads = self._threads
        for key, value in spin_entries(options).items() if plan is None or plan.has_long_nodes else ():
            set_config_entry(options, key, value)
        return options

    def prepared_graph(self, *, has_own_nodes: bool) -> PreparedGraph:
        """The graph without functions, after all passes, and the types of its values; the model is read again.

        Without `has_own_nodes`, passes make no nodes of the domain unpool, and none that reshapes an image.

        Raises:
            UnpoolError: it cannot be read, or its types cannot be inferred.
        """
        context = PassContext(self.semantics, keeps_axes=not has_own_nodes)
        model = inline(shorten_domains(read(self.given)))
        self._hidden = set() if self._options is None else _replaceable(self._options, model)
        model = self._passed(model, context, self._hidden, has_own_nodes=has_own_nodes)
        graph = replace(lift_constants(Graph.from_model(model)), origins=context.origins)
        types = infer(graph, self.semantics).types | (context.types or {})  # it knows no result of unpool's domain
        return PreparedGraph(graph, types, self.semantics)

    def unpicklable(self) -> str:
        """Why the arguments cannot be pickled; "" if they can."""
        if isinstance(self.source, onnx.ModelProto):
            fact = "a ModelProto of 2 GiB or more cannot be pickled"
            return f"{fact}. Save it to a file, and make the session from its path."
        model = None if self._options is None else self._read()
        if self._options is None or (model is None and not self._has_files):
            return ""
        if model is None or _has_additions(self._options, model) or _replaced(self._options, model):
            return (
                "SessionOptions with initializers, libraries or providers cannot be pickled. Make a new session in the "
                "other process."
            )
        return ""

    def fingerprint(self) -> str:
        """A digest of the model: for a file, of its content and that of its data files."""
        source = self.source
        if isinstance(source, str):
            from unpool.graph.save import external_files  # loads writers of files
            from unpool.images.source import fingerprint_file  # and readers of images

            files = (Path(source), *external_files(Path(source)).paths(Path(source)))
            return " ".join(map(fingerprint_file, files))
        assert isinstance(source, bytes | onnx.ModelProto)
        content = source if isinstance(source, bytes) else source.SerializeToString(deterministic=True)
        return blake2b(content, digest_size=16).hexdigest()


def _opset(model: onnx.ModelProto) -> int | None:
    """The opset of a model, for the library; None where all nodes mean what they mean in the newest one."""
    opset = next((entry.version for entry in model.opset_import if entry.domain == ""), NEWEST_CONV_TRANSPOSE)
    return opset if opset < NEWEST_CONV_TRANSPOSE else None


def _is_tunable(session: Any) -> bool:
    """True if a session runs on the CPU, and its callers cannot replace weights."""
    return session.get_providers() == ["CPUExecutionProvider"] and not session.get_overridable_initializers()


def _has_additions(options: onnxruntime.SessionOptions, model: onnx.ModelProto) -> bool:
    """True if a copy of options would lack something: operator libraries or added providers."""
    return is_registered(options) or has_providers(options) or needs_libraries(model)


def _replaceable(options: onnxruntime.SessionOptions, model: onnx.ModelProto) -> set[str]:
    """The initializers for which options have other values, and those in data files, for which they may have.

    onnxruntime does not tell what options have, but refuses a second value for a name.
    """
    found = _replaced(options, model)
    for tensor in model.graph.initializer:
        if weights.folder_of(tensor) is not None and not weights.is_in_model_file(tensor):
            found.add(tensor.name)
    return found


def _replaced(options: onnxruntime.SessionOptions, model: onnx.ModelProto) -> set[str]:
    """The initializers for which options have other values."""
    found, other = set(), clone(options)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32))
    for tensor in model.graph.initializer:
        try:
            other.add_initializer(tensor.name, value)
        except RuntimeError:
            found.add(tensor.name)
    return found
