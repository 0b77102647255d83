"""The model of a session, changed by passes and given to onnxruntime; as it came where that is refused."""

import logging
import os
import pickle
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import onnx

from unpool.errors import UnpoolError, UnsupportedError
from unpool.graph import weights
from unpool.graph.bare import without_elements
from unpool.graph.data_file import FOLDERS_ENTRY, DataRange
from unpool.graph.errors import is_from_signal_handler, short_message, source_name
from unpool.graph.graph import Graph, lift_constants
from unpool.graph.load import ModelSource, external_tensors, load, needs_libraries, stable_source
from unpool.graph.nodes import with_subgraph_nodes
from unpool.graph.shape_inference import PreparedGraph, infer
from unpool.graph.torch_operators import export_advice
from unpool.graph.weights import ElementsNeededError, restore_initializers, serialize, strip_initializers
from unpool.onnxruntime import model_cache, passes, stored_model
from unpool.onnxruntime.engine import Engine
from unpool.onnxruntime.errors import loading_error
from unpool.onnxruntime.options import CPU, DATA_FOLDER, clone, config_entry, replaced
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.passes import PassContext, run_passes
from unpool.onnxruntime.placement import Reason, SessionPlan, make_plan, place
from unpool.onnxruntime.session_arguments import SessionArguments
from unpool.onnxruntime.source import Skeleton, SplitModel, as_bytes, as_values, join, read, skeleton_of, split
from unpool.onnxruntime.stored_model import StoredModel
from unpool.onnxruntime.weight_values import Create, WeightValue, create_with
from unpool.passes.inline import check_functions, inline, shorten_domains

_WITH_ENGINES = "with onnx's ReferenceEvaluator for some nodes"
ORT_IDENTIFIER = b"ORTM"  # behind the first four bytes of a file
NEWEST_CONV_TRANSPOSE = 11  # the opset since which a ConvTranspose means the same
SAFE_IF = 11  # the opset since which onnxruntime gives an If no sizes that only one of its branches has

_log = logging.getLogger("unpool")


class ChangedModel(NamedTuple):
    """A model after the passes, with the nodes that unpool computes in its domain, and its plan."""

    skeleton: Skeleton
    plan: SessionPlan
    is_changed: bool  # False where no pass has changed it, and unpool computes no node
    opset: int | None  # for the library


class _Candidate(NamedTuple):
    """A model as onnxruntime may get it, the options for it, and its plan."""

    name: str
    source: str | bytes  # a path, or a model without `weights`
    options: onnxruntime.SessionOptions
    plan: SessionPlan = SessionPlan()
    engines: tuple[Engine, ...] = ()
    refused: Mapping[str, str] = MappingProxyType({})  # reasons by nodes that engines compute
    weights: tuple[WeightValue, ...] = ()
    is_parsed_once: bool = True  # False where onnxruntime may load it again, with fewer providers
    stored: StoredModel | None = None  # for later sessions of the same file

    def create(self, create: Create) -> None:
        """Create its session."""
        if isinstance(self.source, str):
            create(self.source, self.options, lambda: None)
        else:
            create_with(self.source, self.weights, self.options, create, is_parsed_once=self.is_parsed_once)


class SessionModel:
    """What a session is made from: the source, the caller's options, and what unpool does with the model.

    Candidates are tried one after another, until onnxruntime accepts one: the model after the passes; as it came, with
    the library; as it came, without; and where it refuses nodes, with onnx's ReferenceEvaluator for these. `refused`
    has the reasons for which it refuses them, by their names.
    """

    def __init__(self, source: ModelSource, arguments: SessionArguments) -> None:
        self.given = source
        self.plan = SessionPlan()
        self.refused: Mapping[str, str] = {}
        self.semantics = arguments.semantics
        self._arguments, self._disabled = arguments, arguments.disabled & passes.NAMES
        self._unread: UnpoolError | None = None  # why unpool cannot read the model
        self._has_own_data = False  # True where the model differs from what came by its data files
        self._nodes: Iterable[onnx.NodeProto] = ()  # of the model
        self._names: tuple[str, ...] = ()  # of its initializers
        self._has_files = False  # True where options have a data file of the model in memory
        self._hidden: set[str] = set()  # initializers for which the options may have other values
        self._has_data_files = False  # True where a part of the model is in other files
        self._has_warned = False  # about what passes did
        self._engines: tuple[Engine, ...] = ()  # of the session

    @property
    def source(self) -> ModelSource:
        """The source in a form that does not change: an absolute path, bytes, or a ModelProto too large for bytes."""
        return stable_source(self.given)

    def create(self, create: Create) -> None:
        """Create the session of the first candidate that onnxruntime accepts; the plan is that of its model."""
        key = stored_model.key_of(self.given, self._arguments)  # of the file before it is read
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
            self._nodes = ()  # they would keep the parsed model in memory
            if key is not None and candidate.stored is not None:
                stored_model.keep(key, candidate.stored, self.given, self._arguments)
            return
        refusals.pop(_WITH_ENGINES, None)
        errors = list(refusals.values())
        is_unknown = type(errors[-1]).__name__ == "NotImplemented"  # for onnxruntime alone, which says less than unpool
        last = errors[-2] if is_unknown and len(errors) > 1 else errors[-1]
        raise loading_error(last, source_name(self.given), self._unread, export_advice(self._nodes, "")) from last

    def tune(self, session: Any, create: Create, seconds: float, feed: Mapping[str, Any] | None) -> bool:
        """Create the session again, with the whole model in OpenVINO, if that is faster on these or random inputs."""
        model = self._read()
        if model is None or not self._is_copied(model) or self._engines or not _is_tunable(session):
            return False
        if self.semantics.exact or self._arguments.writes_model or self._replaceable(model):
            return False
        options = self._arguments.options
        threads = self._arguments.threads or (0 if options is None else options.intra_op_num_threads) or None
        from unpool.onnxruntime.tuning import TuningTrial, fastest_model  # loads statistics, and random numbers

        key = repr((self.fingerprint(), sorted(self._disabled)))
        tuned = fastest_model(TuningTrial(session, model, self._raw(), self.semantics, threads, key, feed), seconds)
        if tuned is not None:
            has_own_nodes = tuned.plan.has_own_nodes
            options = self._arguments.registered(None, spins_briefly=has_own_nodes, is_copied=True, domains="unpool")
            create(tuned.content, options, lambda: None)
            self.plan, self._engines = tuned.plan, (tuned.engine,)
        return tuned is not None

    def _candidates(self) -> Iterator[_Candidate]:
        arguments, model = self._arguments, self._read()
        is_large = isinstance(self.given, onnx.ModelProto) and weights.is_too_large(self.given)
        is_copied = self._is_copied(model)
        changed, joined = (None, None) if model is None else self._change(model)
        plan, spins_briefly = (None, True) if changed is None else (changed.plan, changed.plan.has_own_nodes)
        if changed is not None and not (changed.is_changed or self._has_own_data or is_large):
            options = arguments.session_options(spins_briefly=spins_briefly, is_copied=is_copied)
            candidate = _Candidate(
                "as it came", self._raw(), options, changed.plan, stored=self._stored(changed) if is_copied else None
            )
            model, changed, joined, self._nodes = None, None, None, ()  # free while onnxruntime loads its own
            yield candidate
            yield from self._engine_candidates(self._read(), is_copied=is_copied)
            return
        if changed is not None and joined is not None and (is_copied or joined.folder is None):
            after = self._changed_candidate(changed, joined, is_copied=is_copied)
            if after is not None:
                model, changed, joined, self._nodes = None, None, None, ()
                yield after
                if is_large and is_copied:  # the others are no message
                    return
                model = self._read()
        opset = None if model is None else _opset(model)
        without = "as it came, without unpool"
        plain = partial(arguments.session_options, spins_briefly=False, is_copied=is_copied)
        if model is None and self._is_in_ort_format():  # options that are not copied keep the library
            yield _Candidate(without, self._raw(), plain())
        options = arguments.registered(opset, spins_briefly=spins_briefly, is_copied=is_copied)
        yield _Candidate("as it came", self._raw(), options, plan or SessionPlan())
        yield _Candidate(without, self._raw(), plain())
        yield from self._engine_candidates(model, is_copied=is_copied)

    def _engine_candidates(self, model: onnx.ModelProto | None, *, is_copied: bool) -> Iterator[_Candidate]:
        """The model with engines for nodes that onnxruntime refuses, if there are such nodes."""
        if model is None or self._arguments.writes_model:
            return  # a file with an engine would be of this process only
        from unpool.onnxruntime.reference import with_engines  # loads onnx's evaluator

        try:
            plain = run_passes(
                inline(model), PassContext(self.semantics), self._disabled, optimizes=False, has_own_nodes=False
            )
            plan = make_plan(plain, self.semantics, {})
            found = with_engines(plain, plan, self.semantics, self._arguments.threads)
            if found is None:
                return
            joined = split(found.model)
            source = as_bytes(joined)
        except UnpoolError as error:
            _log.info("%s: no node runs in onnx's ReferenceEvaluator: %s", source_name(self.given), error)
            return
        folder = joined.folder
        own = self._arguments.registered(
            _opset(found.model), spins_briefly=found.plan.has_own_nodes, is_copied=is_copied, folder=folder,
            domains="unpool",
        )  # fmt: skip
        yield _Candidate(_WITH_ENGINES, source, own, found.plan, found.engines, found.refused)

    def _changed_candidate(self, changed: ChangedModel, model: SplitModel, *, is_copied: bool) -> _Candidate | None:
        """The model after the passes, with its weights; None if it cannot be written."""
        arguments, values = self._arguments, tuple[WeightValue, ...]()
        try:
            if is_copied and not arguments.writes_model:
                content, values = as_values(model, self._hidden)
            else:
                content = as_bytes(model)
        except UnpoolError as error:
            _log.warning("%s: the model after the passes cannot be used: %s", source_name(self.given), error)
            return None
        options = arguments.registered(
            changed.opset, spins_briefly=changed.plan.has_own_nodes, is_copied=is_copied, folder=model.folder,
            domains="unpool" if arguments.has_own_nodes else "all",
        )  # fmt: skip
        stored = self._stored(changed, content, values) if is_copied and model.folder is None else None
        options.enable_mem_reuse &= self._shares_memory(changed)
        is_parsed_once = not arguments.has_other_provider
        return _Candidate(
            "after the passes", content, options, changed.plan,
            weights=values, is_parsed_once=is_parsed_once, stored=stored,
        )  # fmt: skip

    def _shares_memory(self, changed: ChangedModel) -> bool:
        """False for a model in which values of unlike sizes would share memory."""
        is_old = changed.opset is not None and changed.opset < SAFE_IF
        return not (is_old and any(node.op_type == "If" for node in with_subgraph_nodes(self._nodes)))

    def _stored(
        self, changed: ChangedModel, content: bytes = b"", values: tuple[WeightValue, ...] = ()
    ) -> StoredModel | None:
        """What is kept of a changed model; None where it is large, or depends on more than its file."""
        inside = sum(0 if isinstance(each.data, DataRange) else each.data.nbytes for each in values)
        is_large = len(content) + inside > model_cache.MOST_BYTES
        if is_large or self._has_data_files or self._hidden or self._has_warned:
            return None
        plan, shares_memory = changed.plan, self._shares_memory(changed)
        return StoredModel(
            content, values, pickle.dumps(plan), plan.has_own_nodes, changed.opset, shares_memory, self._names
        )

    def _read(self) -> onnx.ModelProto | None:
        """The model; None if unpool cannot read it: onnxruntime can, or has its own words for what is wrong."""
        folder, links = "", ""
        if self._arguments.options is not None:
            options = self._arguments.options
            folder, links = (config_entry(options, key) or "" for key in (DATA_FOLDER, FOLDERS_ENTRY))
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
        self._nodes, self._names = model.graph.node, _initializer_names(model)
        check_functions(model)  # onnxruntime inlines all functions, however many nodes they become
        return model

    def _refuse_files(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The model, unless options have a data file of it in memory, which may differ from that on the disk."""
        tensors = list(external_tensors(model))
        self._has_data_files = not all(map(weights.is_in_model_file, tensors))
        options = self._arguments.options
        if options is None or not hasattr(options, "add_external_initializers_from_files_in_memory"):
            return model
        entries = (entry for tensor in tensors for entry in tensor.external_data)
        names = sorted({entry.value for entry in entries if entry.key == "location"})
        other = clone(options) if names else options
        for name in names:
            try:
                other.add_external_initializers_from_files_in_memory([name], [bytes(1)], [1])
            except RuntimeError:  # it has one of this name
                self._has_files = True
                raise UnsupportedError(f"the data file {name!r} is in the memory of the options") from None
        return model

    def _is_copied(self, model: onnx.ModelProto | None) -> bool:
        """True if the session has a copy of the options, which lacks nothing."""
        if self._arguments.options is None:
            return True
        return not (self._arguments.has_additions or model is None or needs_libraries(model))

    def _replaceable(self, model: onnx.ModelProto) -> set[str]:
        """The initializers for which options have other values, and those in data files, for which they may have."""
        if self._arguments.options is None:
            return set()
        found = replaced(self._arguments.options, _initializer_names(model))
        for tensor in model.graph.initializer:
            if weights.folder_of(tensor) is not None and not weights.is_in_model_file(tensor):
                found.add(tensor.name)
        return found

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
        self._hidden = self._replaceable(model)
        context, bare = PassContext(self.semantics), without_elements(model)
        key = self._key(bare)
        changed = None if key is None else model_cache.find(key, ChangedModel)
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
        self._has_warned = context.has_failed or any(row.reason is Reason.REFUSED for row in changed.plan)
        if key is not None and not self._has_warned and len(changed.skeleton.content) <= model_cache.MOST_BYTES:
            model_cache.keep(key, changed)
        return changed, join(changed.skeleton, model)

    def _key(self, bare: onnx.ModelProto) -> model_cache.Key | None:
        """The key of a bare model and of the arguments that decide what becomes of it."""
        semantics = self.semantics.compat, self.semantics.index_space, self.semantics.exact
        given = self._arguments
        facts = given.optimizes, given.has_own_nodes, given.has_other_provider, tuple(sorted(self._hidden))
        names = tuple(each.name for each in passes.PASSES if each.name not in self._disabled)
        return model_cache.key_of(bare, *semantics, *facts, names)

    def _place(self, model: onnx.ModelProto, context: PassContext, *, is_changed: bool) -> ChangedModel:
        """A bare model, which is changed, with the nodes that unpool computes in its domain."""
        details, types = context.details(), context.types
        plan = make_plan(
            model, self.semantics, details, types, has_other_provider=self._arguments.has_other_provider,
            counts_in_output=context.counts_in_output,
        )  # fmt: skip
        if self._arguments.has_own_nodes and plan.has_own_nodes:
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
        given = self._arguments
        has_own_nodes = has_own_nodes and given.has_own_nodes
        return run_passes(model, context, self._disabled, optimizes=given.optimizes, has_own_nodes=has_own_nodes)

    def _raw(self) -> str | bytes:
        """The model as it came, as onnxruntime takes it."""
        if isinstance(self.given, onnx.ModelProto):
            return serialize(self.given, "model")
        if isinstance(self.given, str | os.PathLike):
            return os.fspath(self.given)
        return bytes(self.given) if isinstance(self.given, bytearray | memoryview) else self.given

    def prepared_graph(self, *, has_own_nodes: bool) -> PreparedGraph:
        """The graph without functions, after all passes, and the types of its values; the model is read again.

        Without `has_own_nodes`, passes make no nodes of the domain unpool, and none that reshapes an image.

        Raises:
            UnpoolError: it cannot be read, or its types cannot be inferred.
        """
        context = PassContext(self.semantics, keeps_axes=not has_own_nodes)
        model = inline(shorten_domains(read(self.given)))
        self._hidden = self._replaceable(model)
        model = self._passed(model, context, self._hidden, has_own_nodes=has_own_nodes)
        graph = replace(lift_constants(Graph.from_model(model)), origins=context.origins)
        types = infer(graph, self.semantics).types | (context.types or {})  # it knows no result of unpool's domain
        return PreparedGraph(graph, types, self.semantics)

    def unpicklable(self) -> str:
        """Why the arguments cannot be pickled; "" if they can."""
        if isinstance(self.source, onnx.ModelProto):
            fact = "a ModelProto of 2 GiB or more cannot be pickled"
            return f"{fact}. Save it to a file, and make the session from its path."
        options = self._arguments.options
        model = None if options is None else self._read()
        if options is None or (model is None and not self._has_files):
            return ""
        if model is None or not self._is_copied(model) or replaced(options, _initializer_names(model)):
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


def _initializer_names(model: onnx.ModelProto) -> tuple[str, ...]:
    return tuple(tensor.name for tensor in model.graph.initializer)


def _opset(model: onnx.ModelProto) -> int | None:
    """The opset of a model, for the library; None where all nodes mean what they mean in the newest one."""
    opset = next((entry.version for entry in model.opset_import if entry.domain == ""), NEWEST_CONV_TRANSPOSE)
    return opset if opset < NEWEST_CONV_TRANSPOSE else None


def _is_tunable(session: Any) -> bool:
    """True if a session runs on the CPU, and its callers cannot replace weights."""
    return session.get_providers() == [CPU] and not session.get_overridable_initializers()
