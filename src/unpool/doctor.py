"""Diagnosis of an installation: versions, processor, kernels, cache, extras, devices; it needs no extra."""

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unpool.display import display_line
from unpool.errors import UnpoolError
from unpool.extras import EXTRAS, install_advice, install_line, missing_modules

PACKAGES = (
    *("numpy", "numba", "llvmlite", "ml_dtypes", "onnx", "onnxruntime"),
    *("torch", "onnxscript", "openvino", "dask", "triton"),
)

FEATURES = (
    *("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512bf16", "avx512fp16", "amx-tile"),
    *("neon", "sve"),
)
"""Features of processors that kernels or other runtimes use."""


@dataclass(frozen=True)
class Diagnosis:
    """The findings by topic and name, and problems with their remedies; `print` shows them line by line."""

    topics: Mapping[str, Mapping[str, Any]]
    problems: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """One JSON document."""
        return {**self.topics, "problems": list(self.problems)}

    @property
    def lines(self) -> list[str]:
        """The lines that `print` shows."""
        lines = []
        for topic, values in self.topics.items():
            lines += [topic, *(f"  {name}: {_format(value)}" for name, value in values.items())]
        problems = [f"problem: {problem}" for problem in self.problems]
        return [*lines, *(problems or ["no problem found"])]

    def __str__(self) -> str:
        return "\n".join(map(display_line, self.lines))


def examine() -> Diagnosis:
    """Diagnose this installation; nothing is compiled or written.

    Example:
        >>> "versions" in examine().topics
        True
    """
    versions = {"unpool": _version("unpool"), "Python": f"{platform.python_version()} on {platform.platform()}"}
    versions |= {name: _version(name) for name in PACKAGES if find_spec(name) is not None}
    kernels, problems = _kernels()
    kernels["library for onnxruntime"] = _operator_library()
    topics = {"versions": versions, "processor": _processor(), "kernels": kernels}
    if find_spec("numba") is not None:
        cache = topics["cache"] = _cache()
        if cache["place"] is None:
            problems.append("no folder for machine code can be written: every process compiles. Set NUMBA_CACHE_DIR.")
    if sys.maxsize < 2**32:
        problems.append("this Python has 32 bits, so arrays above 2 GiB cannot be allocated. Install a 64-bit Python.")
    if not missing_modules(("onnx", "onnxruntime")):
        topics["cache of models"] = _model_cache()
    topics |= {"extras": _extras(), "devices": _devices()}
    return Diagnosis(topics, tuple(problems))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed as a package"


def _processor() -> dict[str, Any]:
    from unpool.kernels.cpu.machine import host

    values: dict[str, Any] = {"name": host.processor_name()}
    if find_spec("llvmlite") is not None:
        from llvmlite import binding

        features = binding.get_host_cpu_features()
        values["LLVM CPU name"] = binding.get_host_cpu_name()
        values["features"] = [name for name in FEATURES if features.get(name)]
    values["cores of the machine"], values["cores for this process"] = os.cpu_count(), host.available_cores()
    return values


def _kernels() -> tuple[dict[str, Any], list[str]]:
    """Where machine code comes from, and problems."""
    from unpool.kernels.cpu.machine import host, libraries

    library, values = libraries.load(), {"UNPOOL_KERNELS": os.environ.get("UNPOOL_KERNELS", "auto")}
    if library.level is None:
        values["library"] = f"none: {library.problem}"
    else:
        entry = libraries.manifest()["libraries"][library.level]
        values |= {"library": str(libraries.FOLDER / entry["file"]), "sha256": entry["sha256"]}
    can_compile = libraries.can_compile()
    values["what the library lacks"] = "is compiled by Numba" if can_compile else "cannot be compiled without Numba"
    if library.level is None and not can_compile:
        return values, [f"kernels: {library.problem}, and there is no Numba to compile them. {install_advice('jit')}."]
    level = host.level()
    return {"level": level.name, "vector width in bytes": level.vector_bytes, **values}, []


def _operator_library() -> str:
    """The library that onnxruntime loads, or why there is none."""
    from unpool.onnxruntime import get_library_path

    try:
        return get_library_path()
    except UnpoolError as error:
        return f"none: {error}"


def _cache() -> dict[str, Any]:
    """The folder of what is compiled and measured, and its size."""
    from unpool.kernels.cpu.machine.checked_files import cache_folders

    folders = [folder for folder in cache_folders() if _is_writable(folder)]
    files = [file for folder in folders[:1] for file in folder.glob("*-*/*")]
    return {
        "place": str(folders[0]) if folders else None,
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", ""),
    }


def _model_cache() -> dict[str, Any]:
    """The folder of what passes made of models, and its size; no place where it is off or cannot be written."""
    from unpool.onnxruntime import model_cache

    folder = model_cache.folder()
    files = model_cache.files_in(folder) if folder else []
    return {
        "models in": str(folder) if folder and _is_writable(folder) else "no folder",
        "models": len(files),
        "bytes of models": sum(file.stat().st_size for file in files),
        model_cache.VARIABLE: model_cache.ON if model_cache.is_on() else model_cache.OFF,
    }


def _is_writable(folder: Path) -> bool:
    """True if files can be written to a folder, which may have to be made."""
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    return existing.is_dir() and os.access(existing, os.W_OK)


def _extras() -> dict[str, Any]:
    values = {}
    for name, (purpose, modules) in EXTRAS.items():
        missing = missing_modules(modules)
        values[name] = {"for": purpose, "missing": missing, "install": install_line(name) if missing else ""}
    return values


def _devices() -> dict[str, Any]:
    values: dict[str, Any] = {"cpu": "always"}
    queries: dict[str, Callable[[Any], list[str]]] = {
        "onnxruntime": lambda ort: list(ort.get_available_providers()),
        "openvino": lambda openvino: list(openvino.Core().available_devices),
        "torch": lambda torch: [
            f"cuda:{number} {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())
        ],
    }
    for name, query in queries.items():
        if find_spec(name) is not None:
            values[name] = _result_or_none(lambda query, name: query(import_module(name)), query, name)
    return values


def _result_or_none(query: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a query of a package; None if it fails, so that other topics are still shown."""
    try:
        return query(*arguments)
    except Exception:
        return None


def _format(value: Any) -> str:
    """A value as text.

    >>> _format(["avx2", "fma"]), _format([]), _format(None)
    ('avx2, fma', 'none', 'unknown')
    >>> _format({"for": "unpool demo", "missing": ["skimage"], "install": "pip install '.[demo]'"})
    "missing skimage, for unpool demo: pip install '.[demo]'"
    """
    if isinstance(value, Mapping):
        if not value["missing"]:
            return f"here, for {value['for']}"
        return f"missing {', '.join(value['missing'])}, for {value['for']}: {value['install']}"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "unknown" if value is None else str(value) or "not set"
