"""The inputs of a run: files opened as sources, the fingerprints that its settings hold, and the paths it reads."""

from collections.abc import Collection, Mapping
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import UnpoolError
from unpool.images import formats
from unpool.images.axes import Array, full_slices
from unpool.images.source import cast_source, fingerprint_file, fingerprint_source
from unpool.runtime.graph.save import external_files
from unpool.runtime.graph.shapes import numpy_type

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


def open_sources(session: "InferenceSession", feed: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """By input, an object with a shape and a type that returns windows; a missing input is an error."""
    values = {value.name: value for value in session.get_inputs()}
    if set(values) != set(feed):
        raise UnpoolError(
            f"feed: expected the inputs {', '.join(values)}; got {', '.join(feed) or 'none'}. "
            "Give a source for each of them, and no other."
        )
    sources: dict[str, Any] = {}
    for name, source in feed.items():
        if isinstance(source, (str, Path)):
            source = formats.open(source, rank=len(values[name].shape or ()), layout=layout)
        elif not hasattr(source, "shape"):
            source = np.asarray(source)
        sources[name] = cast_source(source, numpy_type(values[name].type), name)
    return sources


def load_uncut(sources: Mapping[str, Any], cut: Collection[str]) -> dict[str, Any]:
    """The sources; those that are not cut into tiles become arrays."""

    def load(source: Any) -> Array:
        return source if isinstance(source, np.ndarray) else np.asarray(source[full_slices(tuple(source.shape))])

    return {name: source if name in cut else load(source) for name, source in sources.items()}


def spatial_header(sources: Mapping[str, Any]) -> Any:
    """The header of the input volume; None where no source has one."""
    headers = (getattr(source, "spatial_header", None) for source in sources.values())
    return next((header for header in headers if header is not None), None)


def base_settings(session: "InferenceSession", sources: Mapping[str, Any]) -> dict[str, Any]:
    """Fingerprints of the model and its inputs, the semantics, and the versions of the packages that run the model."""
    config = session._config
    files = session_files(session)
    source: Any = config.source
    if files:
        model = " ".join(map(fingerprint_file, files))
    else:
        content = source if isinstance(source, bytes) else source.SerializeToString(deterministic=True)
        model = blake2b(content, digest_size=16).hexdigest()
    return {
        "model": model,
        "semantics": f"{config.semantics} providers={session.get_providers()}",
        "versions": f"unpool {version('unpool')}, onnxruntime {version('onnxruntime')}",
        "inputs": {name: fingerprint_source(source) for name, source in sources.items()},
    }


def session_files(session: "InferenceSession") -> list[Path]:
    """The file of the model and those of its weights; none where the model is in memory."""
    if not isinstance(source := session._config.source, str):
        return []
    return [Path(source), *map(Path, external_files(Path(source)).paths(Path(source)))]


def input_paths(session: "InferenceSession", feed: Mapping[str, Any]) -> list[Path]:
    """The files that a run reads: those of the model, and those of its inputs."""
    return [*session_files(session), *filter(None, map(_source_path, feed.values()))]


def _source_path(source: Any) -> Path | None:
    """The file or folder of an input; None where it has none, or an unknown one."""
    inner = source
    while not hasattr(inner, "path") and hasattr(inner, "source"):  # a source that casts or scales another one
        inner = inner.source
    if isinstance(inner, np.ndarray):
        while not isinstance(inner, np.memmap) and isinstance(inner.base, np.ndarray):
            inner = inner.base
        path = getattr(inner, "filename", None)
    elif hasattr(inner, "store"):  # an array of zarr, whose path is that in its store
        root = getattr(inner.store, "root", None)
        path = None if root is None else Path(root, getattr(inner, "path", ""))
    else:
        path = inner if isinstance(inner, (str, Path)) else getattr(inner, "path", None)
    return Path(path) if isinstance(path, (str, Path)) else None
