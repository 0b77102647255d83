"""Model-local functions replaced by their nodes, so that the plan sees every operator."""

import onnx
from onnx import inliner

from unpool.errors import ModelError
from unpool.runtime.light import lighten, put_back


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions; the model itself when it has none.

    Raises:
        ModelError: a function cannot be inlined.
    """
    if not model.functions:
        return model
    try:
        flat = inliner.inline_local_functions(lighten(model))
    except Exception as error:
        words = " ".join(str(error).split()).rstrip(".")
        raise ModelError(f"model: expected functions that can be inlined, got: {words}. Export it again.") from error
    return put_back(flat, model)
