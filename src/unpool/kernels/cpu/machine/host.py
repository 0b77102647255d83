"""Vector width and second cache of the CPU, and the digest of the sources of all kernels."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from llvmlite import binding
from numba import config

_WIDE = ("x86-64-v4", "skylake-avx512", "icelake", "sapphirerapids", "znver4", "znver5")
_MIDDLE = ("x86-64-v3", "haswell", "broadwell", "skylake", "alderlake", "znver1", "znver2", "znver3")


@cache
def vector_bytes() -> int:
    """Bytes in one register: 64 with AVX-512, 32 with AVX2, otherwise 16 (SSE, NEON).

    Follows Numba: it uses all features of the host, whatever NUMBA_CPU_NAME says, unless that is "generic" or
    NUMBA_CPU_FEATURES is set.
    """
    name, features = getattr(config, "CPU_NAME", None), getattr(config, "CPU_FEATURES", None)
    if features is None and name != "generic":
        has = binding.get_host_cpu_features()
        return 64 if has.get("avx512bw") and has.get("avx512vl") else 32 if has.get("avx2") else 16
    if "+avx512bw" in (features or "") or str(name).startswith(_WIDE):
        return 64
    return 32 if "+avx2" in (features or "") or str(name).startswith(_MIDDLE) else 16


@cache
def vector_registers() -> int:
    """The number of vector registers: 16 on x86 without AVX-512, otherwise 32."""
    is_x86 = binding.get_process_triple().startswith(("x86_64", "i386", "i686"))
    return 16 if is_x86 and vector_bytes() < 64 else 32


@cache
def second_cache_bytes() -> int:
    """Bytes of the second cache of a core, as Linux reports it for the first core; 0 where unknown."""
    try:
        for index in sorted(_CACHES.glob("index*")):
            level, size = ((index / name).read_text().strip() for name in ("level", "size"))
            if level == "2":
                return int(size.removesuffix("K")) << 10
    except (OSError, ValueError):
        return 0
    return 0


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@cache
def source_digest() -> str:
    """A digest of the sources of the kernels, in a folder or an archive, or of their bytecode if there are no sources.

    The cache compares it, because Numba detects changes only in the file of a kernel, not in functions that it calls.
    It is empty where a loader shows no files, as in a frozen application: nothing may be cached then.
    """
    try:
        files = dict(_sources(resources.files("unpool.kernels.cpu"), ""))
    except Exception:  # a loader may lack any part of this
        return ""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name].read_bytes())
    return digest.hexdigest() if files else ""


def _sources(folder: Traversable, where: str) -> Iterator[tuple[str, Traversable]]:
    """All sources below a folder, by their place in it."""
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            yield from _sources(each, f"{where}{each.name}/")
        elif each.name.endswith((".py", ".pyc")):
            yield where + each.name, each
