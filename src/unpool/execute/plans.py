"""The parts of plans, for runtimes that run them on their own threads. `unpool` itself needs none of them."""

from unpool.kernels.cpu.machine.checked_files import source_digest
from unpool.kernels.cpu.machine.libraries import (
    c_symbol,
    is_shipped,
    library_file,
    shipped_levels,
    type_names,
    usable_levels,
)
from unpool.kernels.cpu.machine.libraries import level as kernel_level
from unpool.kernels.cpu.machine.plan import ALL_FALLBACKS, Kind, Operand, OperandView, PlanStep
from unpool.kernels.cpu.machine.threads import ForeignPool, use_pool

__all__ = [
    "ALL_FALLBACKS",
    "ForeignPool",
    "Kind",
    "Operand",
    "OperandView",
    "PlanStep",
    "c_symbol",
    "is_shipped",
    "kernel_level",
    "library_file",
    "shipped_levels",
    "source_digest",
    "type_names",
    "usable_levels",
    "use_pool",
]
