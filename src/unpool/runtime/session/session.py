"""InferenceSession: a whole ONNX model, its three operators by unpool and the rest by onnxruntime.

Constructor and methods are those of `onnxruntime.InferenceSession`; `plan` says which node runs where and why.
"""

import inspect
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from unpool.errors import UnpoolError, UnsupportedError, suggest_name, warn_caller
from unpool.runtime.errors import LOADING, also, as_onnxruntime
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.graph.node_contract import Meaning
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_options import Provider, Providers, thread_budget
from unpool.runtime.session.asynchronous import AsyncRuns
from unpool.runtime.session.described import Described
from unpool.runtime.session.opened import opened
from unpool.runtime.session.opening import require_words
from unpool.runtime.session.pickled import told_in, words_of
from unpool.runtime.session.providers import providers_of
from unpool.runtime.session.runs import Runs
from unpool.runtime.session.told import Told, lasting, names_of, tuning_seconds
from unpool.runtime.session.whole import WholeModel


class FallbackWarning(UserWarning):
    """onnxruntime refuses nodes of a model, so onnx's slow ReferenceEvaluator runs them."""


class InferenceSession(Runs, Described, onnxruntime.InferenceSession):  # type: ignore[misc]  # onnxruntime has no types
    """A model, planned and loaded once; `run` may be called from many threads.

    Args:
        path_or_bytes: path of a model, its bytes, or an `onnx.ModelProto`; one above 2 GiB is kept as it is, and not to
            be changed.
        sess_options: `onnxruntime.SessionOptions`; every option is honoured, or refused. At the highest level of
            optimisation, the default, unpool also computes a Conv where it is faster.
        providers: names, or (name, options) pairs, for the pieces that onnxruntime runs; CPU by default.
        provider_options: one dict per provider; without `providers` they have no effect, as in onnxruntime.
        compat: "spec" follows the text of the standard, "ort" follows ONNX Runtime where the two differ.
        index_space: in which tensor MaxUnpool's indices count: "auto", "output" or "inferred".
        exact: whether unpool runs every MaxPool, those without Indices too, and every product of a ConvTranspose or
            Conv is formed as it is written: by default larger ones take fewer products, which are rounded differently.
        threads: at most so many for unpool and for onnxruntime; None for all cores that this process may use.

        tune: whether the ways to compute each ConvTranspose are timed and the fastest one is taken, rather than the one
            that should be; and, if no options are given, whether unpool is faster at a Conv on which Indices depend,
            and, where OpenVINO is installed, whether the pieces, or the pieces and every ConvTranspose, are faster
            there. For 30 seconds at most, or as many as are given, and some more for what has begun. What was found is
            kept beside the machine code, for later sessions with `tune`. Other ways round differently, by which Indices
            may change. Nodes with open sizes stay, and so does a model with open inputs.
        others: keywords that the constructor does not know have no effect, as in onnxruntime; a warning names them.

    Raises:
        MissingFileError: no such file.
        FileError: the file cannot be read.
        ModelError: not an ONNX model, or an invalid one.
        UnsupportedError: a node, attribute or type that no version here accepts.
        UnpoolError: an attribute or an argument breaks its contract.

    >>> import numpy as np
    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink_and_grow (float[1, 1, 4] x) => (float[1, 1, 4] z) {
    ...         y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
    ...         z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
    ...     }''')
    >>> session = InferenceSession(model)
    >>> session.run(None, {"x": np.float32([[[1, 3, 4, 2]]])})[0].tolist()
    [[[0.0, 3.0, 4.0, 0.0]]]
    >>> print(session.plan)
    step  node          operator      runs on  why
    ----  ------------  ------------  -------  --------------------------------------
    0     MaxPool->y    MaxPool-12    unpool   unpool runs every MaxPool with Indices
    1     MaxUnpool->z  MaxUnpool-11  unpool   unpool runs every MaxUnpool
    """

    def __init__(  # noqa: PLR0913  the words of onnxruntime, and our own by keyword only
        self,
        path_or_bytes: ModelSource,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
        *,
        compat: str = "spec",
        index_space: str = "auto",
        exact: bool = False,
        threads: int | None = None,
        tune: bool | float = False,
        enable_fallback: int = 1,
        read_config_from_model: int | None = None,
        disabled_optimizers: Iterable[str] | None = None,
        **others: Any,
    ) -> None:
        _require_options(sess_options)
        _tell_unknown(others)
        self._enable_fallback = int(enable_fallback) == 1
        told = Told(
            path_or_bytes,
            sess_options,
            _providers(providers, provider_options, falls_back=self._enable_fallback),
            Meaning(compat, index_space, exact),
            thread_budget(None, threads),
            None if read_config_from_model is None else int(read_config_from_model) == 1,
            names_of(disabled_optimizers),
            tuning_seconds(tune),
        )
        self._open(told)
        if self._model.refused:
            warn_caller(_fallback_text(self._model.refused), FallbackWarning)

    def __repr__(self) -> str:
        """The model, its inputs and outputs, and its providers, on one line."""
        source = self._told.source
        name = Path(source).name if isinstance(source, str | Path) else self._model.metadata.graph_name
        inputs, outputs = (
            ", ".join(f"{value.name} {value.type} {value.shape}" for value in values)
            for values in (self.get_inputs(), self.get_outputs())
        )
        return f"<InferenceSession {name!r}: {inputs} -> {outputs}; {', '.join(self.get_providers())}>"

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Load the model again with other providers for the pieces; what was bound before belongs to no session.

        Raises:
            UnpoolError: as the constructor, and for a name that nobody knows; the session is as before then.
        """
        self._open(self._told.with_providers(_providers(providers, provider_options, falls_back=False)))

    def enable_fallback(self) -> None:
        """Let pieces whose provider fails in a run change to the CPU."""
        self._enable_fallback = True
        for piece in self._model.pieces:
            piece.enable_fallback()

    def disable_fallback(self) -> None:
        """Let pieces whose provider fails in a run raise its error."""
        self._enable_fallback = False
        for piece in self._model.pieces:
            piece.disable_fallback()

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> onnxruntime.OrtValue:
        """An OrtValue that this session alone may use."""
        if isinstance(self._model, WholeModel):
            return self._model.session.create_ortvalue_from_shape_and_type(
                shape, element_type, device_type, device_id, vendor_id
            )
        make = onnxruntime.OrtValue.ortvalue_from_shape_and_type
        made = make(shape, element_type, device_type, device_id, *([] if vendor_id == -1 else [vendor_id]))
        made._session = self._sess
        return made

    def set_tuning_results(self, results: Sequence[Mapping[str, Any]], *, error_on_invalid: bool = False) -> None:
        """Hand on what providers of pieces once found out about speed.

        Raises:
            UnpoolError: `error_on_invalid`, and the session has no such provider; also a RuntimeError.
        """
        unknown = [str(one.get("ep")) for one in results if one.get("ep") not in self.get_providers()]
        if unknown and error_on_invalid:
            raise also(UnpoolError, RuntimeError)(
                f"set_tuning_results: expected results of {', '.join(self.get_providers())}; "
                f"got those of {', '.join(unknown)}. Leave them out."
            )
        for piece in self._model.pieces:
            piece.set_tuning_results(results, error_on_invalid=error_on_invalid)

    def set_ep_dynamic_options(self, options: dict[str, str]) -> None:
        """Hand options on to the providers of the pieces."""
        for piece in self._model.pieces:
            piece.set_ep_dynamic_options(options)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Let the providers of the pieces forget a graph that they captured; the CPU captures none."""
        for piece in self._model.pieces:
            if hasattr(piece, "release_captured_graph"):
                piece.release_captured_graph(graph_annotation_id)

    def end_profiling(self) -> str:
        """Name of the Chrome trace of all runs; "" unless the options enable profiling, and behind the first call.

        It has an event for loading, one for every run, and one for every step of it. A session that goes writes it too.
        """
        if isinstance(self._model, WholeModel):
            return str(self._model.session.end_profiling())
        return "" if self._profile is None else self._profile.end()

    def map_tiles(  # noqa: PLR0913  keyword-only public options
        self,
        feed: Any,
        tile: Sequence[int],
        *,
        client: Any,
        to: Any,
        outputs: Iterable[str] | None = None,
        inputs: Iterable[str] | None = None,
        layout: str = "NCHW",
        retries: int = 3,
        threads: int = 1,
    ) -> dict[str, Any]:
        """The outputs of the model for an image of any size, computed tile by tile on a cluster, and kept in Zarr.

        A worker loads the model once, and writes its results itself. When a worker ends in the middle, others run its
        tiles again; what was written stays. The dashboard shows each tile as `unpool-tile-...` with its row and column.

        Args:
            feed: an array for a model with one input, else every input by name. Zarr arrays, and others that can be
                sliced and pickled, are read by the workers; NumPy arrays and memory maps are cut here, a few tiles
                ahead; dask arrays are computed on the cluster, tile by tile.
            tile: elements of the first input of which one tile gives the results, by spatial axis, rounded down to a
                multiple of the total stride.
            client: `distributed.Client` of the cluster. Workers need unpool, and the storage of `to` and of Zarr inputs
                under the same name; a model in one file goes to them, one with external data must be there too.
            to: path, URL or store in which nothing is yet: a Zarr array, for several outputs a group with one for each.
                Their attribute `unpool_finished` becomes true when all tiles are there.
            outputs: names of the outputs that are wanted; by default all.
            inputs: names of the inputs to cut; by default all of the highest rank.
            layout: "NCHW" where inputs have channels before the spatial axes, of which there may be one or more.
            retries: how often a tile that raises an error is tried again. How many workers may end in a tile says
                Dask's `distributed.scheduler.allowed-failures`.
            threads: of the model in one tile; a worker runs as many tiles at once as it has threads.

        Returns:
            Zarr arrays by output: the results of `run` on the whole image, as `unpool.tiles.run` gives them.

        Raises:
            UnsupportedError: a node does not treat every position of the image alike, or Zarr lacks the type.
            FileError: something is at `to`.
            UnpoolError: `tile` or the inputs do not fit, or workers ended in the same tile again and again.
            MissingExtraError: distributed or zarr is not installed.
        """
        cluster = import_module("unpool.runtime.cluster")
        work = cluster.Work(client, retries, threads)
        found: dict[str, Any] = cluster.map_tiles(
            self, feed, tile, to, work, outputs=outputs, inputs=inputs, layout=layout
        )
        return found

    def _open(self, told: Told) -> None:
        """Load the model; the session stays as it was if that fails."""
        try:
            told, model, options, profile = opened(told)
        except UnpoolError as error:
            raise as_onnxruntime(error, LOADING) from error.__cause__
        source = lasting(told.source)
        self._told = told if source is told.source else replace(told, source=source)
        self._model, self._options, self._profile = model, options, profile
        self._sess = model.session._sess if isinstance(model, WholeModel) else model
        self._model_path = self._told.source if isinstance(self._told.source, str) else None
        self._model_bytes = self._told.source if isinstance(self._told.source, bytes) else None
        self._async_runs = AsyncRuns(thread_budget(options, told.threads))
        self.__dict__.update(self._private_attributes())
        if profile is not None:
            weakref.finalize(self, profile.end)

    def __copy__(self) -> "InferenceSession":
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __getstate__(self) -> dict[str, Any]:
        try:
            require_words(self._told)
            told = words_of(self._told, self._options)
        except UnsupportedError as error:
            raise also(UnsupportedError, TypeError)(*error.args) from error.__cause__
        own = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {"told": told, "enable_fallback": self._enable_fallback, "own": own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._enable_fallback = state["enable_fallback"]
        self._open(told_in(state["told"]))
        self.__dict__.update(state["own"])


def _providers(
    names: Sequence[Provider] | None, options: Sequence[dict[str, Any]] | None, *, falls_back: bool
) -> Providers | None:
    """The providers that were asked for; None if none were: options alone have no effect in onnxruntime either."""
    if names is None:
        if isinstance(options, Sequence) and any(options):
            warn_caller("InferenceSession: provider_options have no effect without providers. Name the providers.")
        return None
    return providers_of(names, options, falls_back=falls_back)


def _tell_unknown(keywords: Mapping[str, Any]) -> None:
    if not keywords:
        return
    known = [name for name in inspect.signature(InferenceSession.__init__).parameters if name not in ("self", "others")]
    for name in keywords:
        advice = suggest_name(name, known, "Leave it out.")
        warn_caller(f"InferenceSession: the keyword {name!r} is unknown and has no effect. {advice}")


def _require_options(options: object) -> None:
    if options is not None and not isinstance(options, onnxruntime.SessionOptions):
        raise also(UnpoolError, TypeError)(
            f"InferenceSession: expected sess_options to be onnxruntime.SessionOptions or None, "
            f"got {type(options).__name__}. Other options go by keyword."
        )


def _fallback_text(refused: Mapping[str, str]) -> str:
    (name, reason), *others = refused.items()
    more = f" and {len(others)} more" if others else ""
    return (
        f"onnxruntime refuses node {name!r}{more}: {reason}. "
        "onnx's ReferenceEvaluator runs them, slowly; session.plan lists them."
    )
