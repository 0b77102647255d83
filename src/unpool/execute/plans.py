"""What plans of prepared calls are made of, for runtimes whose threads run them; `unpool` itself needs none of it."""

from unpool.kernels.cpu.machine.checked_files import source_digest
from unpool.kernels.cpu.machine.libraries import c_symbol, is_shipped, library_file, type_names
from unpool.kernels.cpu.machine.plan import Kind, Operand, OperandView, PlanStep
from unpool.kernels.cpu.machine.threads import ForeignPool, use_pool

__all__ = [
    "ForeignPool",
    "Kind",
    "Operand",
    "OperandView",
    "PlanStep",
    "c_symbol",
    "is_shipped",
    "library_file",
    "source_digest",
    "type_names",
    "use_pool",
]
