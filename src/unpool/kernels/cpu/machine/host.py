"""The machine of this process: the cores it may use, its vector registers and its second cache."""

import ctypes
import math
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

from unpool.errors import UnpoolError
from unpool.kernels.cpu.machine import libraries
from unpool.kernels.cpu.tuning import LEVELS, Level
from unpool.memory import cgroup_folders, read_text

_WIDE = ("x86-64-v4", "skylake-avx512", "icelake", "sapphirerapids", "znver4", "znver5")
_MIDDLE = ("x86-64-v3", "haswell", "broadwell", "skylake", "alderlake", "znver1", "znver2", "znver3")

_AMX_FLAGS = {"amx_tile", "amx_bf16"}
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18  # a system call, its command, a part of the registers


def available_cores() -> int:
    """The number of cores that this process may use, 1 or more: its affinity, limited by its control groups."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, quota() or cores)


@cache
def quota(root: str = "/") -> int | None:
    """The number of cores that the control groups allow, rounded up; None if they set no limit. `root` holds /proc."""
    quotas = []
    for group in cgroup_folders("cpu", Path(root)):
        periods = f"{read_text(group / 'cpu.cfs_quota_us')} {read_text(group / 'cpu.cfs_period_us')}"
        words = (read_text(group / "cpu.max") or periods).split()
        if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
            quotas.append(int(words[0]) / int(words[1]))
    return max(1, math.ceil(min(quotas))) if quotas else None


@cache
def level() -> Level:
    """The level of processors that kernels run on: that of the shipped library, otherwise of Numba's compiler.

    Numba uses all features of the host and ignores NUMBA_CPU_NAME, unless that is "generic" or NUMBA_CPU_FEATURES is
    set.
    """
    chosen = os.environ.get("UNPOOL_LEVEL") or libraries.level()
    if chosen is not None and chosen not in LEVELS:
        raise UnpoolError(f"UNPOOL_LEVEL: expected one of {', '.join(LEVELS)}; got {chosen!r}.")
    if chosen is not None:
        return LEVELS[chosen]
    libraries.require_compiler()
    from llvmlite import binding
    from numba import config

    processor = binding.get_process_triple().partition("-")[0]
    if processor in ("aarch64", "arm64"):
        return LEVELS["aarch64"]
    if processor not in ("x86_64", "i386", "i686"):
        return LEVELS["generic"]
    name, features = getattr(config, "CPU_NAME", None), getattr(config, "CPU_FEATURES", None)
    if features is None and name != "generic":
        has = {feature for feature, is_there in binding.get_host_cpu_features().items() if is_there}
    else:
        has = {feature.removeprefix("+") for feature in (features or "").split(",") if feature.startswith("+")}
        has |= {"avx2"} if str(name).startswith(_MIDDLE) else set()
        has |= {"avx512bw", "avx512vl"} if str(name).startswith(_WIDE) else set()
    if "avx512bw" in has:
        return LEVELS["x86-64-v4"]
    return LEVELS["x86-64-v3" if "avx2" in has else "x86-64-v2"]


@cache
def has_amx() -> bool:
    """True if kernels that are compiled here may multiply tiles of bfloat16 by AMX: Linux allows it on request.

    Libraries hold no such kernel, so this is False while they are built, and where nothing can be compiled.
    """
    if os.environ.get("UNPOOL_LEVEL") or not libraries.can_compile() or platform.system() != "Linux":
        return False
    if platform.machine() != "x86_64" or level().vector_bytes != LEVELS["x86-64-v4"].vector_bytes:
        return False
    if not _AMX_FLAGS <= set(_processor_field("flags").split()):
        return False
    from llvmlite import binding
    from numba import config

    if getattr(config, "CPU_FEATURES", None) is not None or getattr(config, "CPU_NAME", None) == "generic":
        return False
    features = binding.get_host_cpu_features()
    if not (features.get("amx-tile") and features.get("amx-bf16")):
        return False
    system_call = ctypes.CDLL(None).syscall
    return bool(system_call(*map(ctypes.c_long, (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA))) == 0)


@cache
def processor_name() -> str:
    """The processor as the system names it, such as "AMD EPYC 9B14"."""
    return _processor_field("model name") or platform.processor() or platform.machine()


def _processor_field(name: str) -> str:
    """A field of /proc/cpuinfo for the first core; an empty string where the system has none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def vector_bytes() -> int:
    """Bytes in one register: 64 with AVX-512, 32 with AVX2, otherwise 16 (SSE, NEON)."""
    return level().vector_bytes


def vector_registers() -> int:
    """The number of vector registers: 32 with AVX-512 and on AArch64, otherwise 16."""
    return level().vector_registers


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@cache
def second_cache_bytes() -> int:
    """Bytes of the second cache of a core, as Linux reports it for the first core; 0 where unknown."""
    with suppress(OSError, ValueError):
        for index in sorted(_CACHES.glob("index*")):
            level, size = ((index / name).read_text().strip() for name in ("level", "size"))
            if level == "2":
                return int(size.removesuffix("K")) << 10
    return 0
