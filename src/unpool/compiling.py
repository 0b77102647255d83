"""How long this process has compiled kernels, for whoever wants to say why the first call takes so long."""

import sys

CLOCK = "unpool.kernels.cpu.machine.clock"


def compiling_seconds() -> float:
    """Seconds that kernels have been compiled for in this process, what runs at the moment included; nothing is loaded.

    Example:
        >>> compiling_seconds() >= 0
        True
    """
    clock = sys.modules.get(CLOCK)  # whoever compiles has imported it
    return 0.0 if clock is None else float(clock.seconds())
