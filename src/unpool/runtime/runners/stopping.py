"""Stops a run that its caller has told to stop, by `RunOptions.terminate`, from any thread."""

from typing import Any

from unpool.errors import UnpoolError
from unpool.runtime.errors import also
from unpool.runtime.requirements import onnxruntime

STOPPED = "the run was stopped, because RunOptions.terminate is True. Set it to False to run again."


def stop_if_told(run_options: onnxruntime.RunOptions) -> None:
    """Nothing, unless the run shall end.

    Raises:
        UnpoolError: `terminate` is set; also onnxruntime's Fail.
    """
    if run_options.terminate:
        raise also(UnpoolError, "Fail")(f"run: {STOPPED}")


def require_run_options(run_options: Any) -> None:
    """Refuse options of another kind.

    Raises:
        UnpoolError: neither None nor RunOptions; also a TypeError.
    """
    if not isinstance(run_options, onnxruntime.RunOptions | None):
        raise also(UnpoolError, TypeError)(
            f"run: expected run_options to be onnxruntime.RunOptions or None, got {type(run_options).__name__}. "
            "Make RunOptions and set its attributes."
        )
