"""onnxruntime's own sessions for measuring and evaluating: on the CPU, with no log, as errors come as exceptions."""

from unpool.onnxruntime.package import onnxruntime

FATAL = 4  # the level of a log of fatal errors only


def quiet_options(threads: int = 0) -> onnxruntime.SessionOptions:
    """Options of such a session; 0 threads are as many as there are cores."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL
    options.intra_op_num_threads = threads
    return options


def quiet_session(
    source: str | bytes, options: onnxruntime.SessionOptions | None = None, *, threads: int = 0
) -> onnxruntime.InferenceSession:
    """Such a session; options, if there are any, are those of `quiet_options`, with changes."""
    return onnxruntime.InferenceSession(source, options or quiet_options(threads), providers=["CPUExecutionProvider"])
