"""The level of onnxruntime's default log. Pieces are silent until somebody chooses it here, and follow it from then on.

What nobody chose here cannot be seen: onnxruntime does not say its level, and by default it would write a line about
every piece that it refuses.
"""

from unpool.runtime.requirements import onnxruntime

_chosen: list[int] = []


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the log of every session that is made from now on and whose options name none.

    Args:
        severity: 0 for all lines, 1 information, 2 warnings, 3 errors, 4 fatal ones alone.

    Raises:
        RuntimeError: another number.
    """
    onnxruntime.set_default_logger_severity(severity)
    _chosen[:] = [severity]


def is_chosen() -> bool:
    """Whether somebody set that level."""
    return bool(_chosen)
