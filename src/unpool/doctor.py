"""What this machine offers to unpool, and what is missing: versions, processor, Numba, its cache, extras, devices.

It needs no extra itself: `python -m unpool doctor` works where the command line does not.
"""

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unpool.display import display_line
from unpool.extras import EXTRAS, install_line

PACKAGES = (
    *("numpy", "numba", "llvmlite", "ml_dtypes", "onnx", "onnxruntime"),
    *("torch", "onnxscript", "openvino", "dask", "triton"),
)

FEATURES = (
    *("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512bf16", "avx512fp16", "amx-tile"),
    *("neon", "sve"),
)
"""Features of processors that kernels or the libraries beside them use."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found, by topic and name; `print` shows it line by line. All values are JSON types.

    Attributes:
        topics: versions, processor, cache, extras and devices.
        problems: what should be put right, in words.
    """

    topics: Mapping[str, Mapping[str, Any]]
    problems: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The same as one JSON document."""
        return {**self.topics, "problems": list(self.problems)}

    @property
    def lines(self) -> list[str]:
        """What `print` shows, line by line."""
        lines = []
        for topic, found in self.topics.items():
            lines += [topic, *(f"  {name}: {_words(value)}" for name, value in found.items())]
        problems = [f"problem: {one}" for one in self.problems]
        return [*lines, *(problems or ["no problem found"])]

    def __str__(self) -> str:
        return "\n".join(map(display_line, self.lines))


def examine() -> Diagnosis:
    """Look at this machine; nothing is compiled or written.

    Example:
        >>> "versions" in examine().topics
        True
    """
    cache = _cache()
    topics = {
        "versions": _versions(),
        "processor": _processor(),
        "cache": cache,
        "extras": _extras(),
        "devices": _devices(),
    }
    return Diagnosis(topics, tuple(_problems(topics)))


def _versions() -> dict[str, str]:
    found = {"unpool": _version("unpool"), "Python": f"{platform.python_version()} on {platform.platform()}"}
    return found | {name: _version(name) for name in PACKAGES if find_spec(name) is not None}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed as a package"


def _processor() -> dict[str, Any]:
    from llvmlite import binding

    from unpool.kernels.cpu.machine import affinity, host

    features = binding.get_host_cpu_features()
    return {
        "name": _processor_name(),
        "LLVM CPU name": binding.get_host_cpu_name(),
        "features": [name for name in FEATURES if features.get(name)],
        "vector width in bytes": host.vector_bytes(),
        "cores of the machine": os.cpu_count(),
        "cores for this process": affinity.available_cores(),
    }


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cache() -> dict[str, Any]:
    from unpool.kernels.cpu.machine.cache import folder_for

    root = Path(str(resources.files("unpool.kernels.cpu")))
    sources = {path.parent: path for path in sorted(root.rglob("*.py"))}
    folders = {_or_none(partial(folder_for, path)) for path in sources.values()}
    known = sorted(folder for folder in folders if folder is not None)
    files = [file for folder in known if folder.is_dir() for file in folder.glob("*.nb[ci]")]
    return {
        "place": os.path.commonpath(known) if known else None,
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", ""),
    }


def _extras() -> dict[str, Any]:
    found = {}
    for name, (purpose, modules) in EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        install = install_line(name) if missing else ""
        found[name] = {"for": purpose, "missing": missing, "install": install}
    return found


def _devices() -> dict[str, Any]:
    found: dict[str, Any] = {"cpu": "always"}
    askers = {"onnxruntime": _onnxruntime_providers, "openvino": _openvino_devices, "torch": _cuda_devices}
    return found | {name: _or_none(ask) for name, ask in askers.items() if find_spec(name) is not None}


def _onnxruntime_providers() -> list[str]:
    import onnxruntime

    return list(onnxruntime.get_available_providers())


def _openvino_devices() -> list[str]:
    import openvino

    return list(openvino.Core().available_devices)


def _cuda_devices() -> list[str]:
    import torch

    return [f"cuda:{number} {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]


def _problems(topics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = []
    if topics["cache"]["place"] is None:
        found.append("no folder for machine code can be written, so every process compiles. Set NUMBA_CACHE_DIR.")
    if sys.maxsize < 2**32:
        found.append("this Python has 32 bits, so arrays above 2 GiB cannot be had. Install one of 64 bits.")
    return found


def _or_none(ask: Callable[[], Any]) -> Any:
    """What a package says; None where it fails, for its own fault is no reason to say nothing about the others."""
    try:
        return ask()
    except Exception:
        return None


def _words(value: Any) -> str:
    """A value in words.

    >>> _words(["avx2", "fma"]), _words([]), _words(None)
    ('avx2, fma', 'none', 'unknown')
    >>> _words({"for": "unpool demo", "missing": ["skimage"], "install": "pip install '.[demo]'"})
    "missing skimage, for unpool demo: pip install '.[demo]'"
    """
    if isinstance(value, Mapping):
        if not value["missing"]:
            return f"here, for {value['for']}"
        return f"missing {', '.join(value['missing'])}, for {value['for']}: {value['install']}"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "unknown" if value is None else str(value) or "not set"
