"""Makes inputs of the weights of a model that is too large for one message, for runtimes that take models as bytes."""

import onnx

from unpool.dtypes import AnyArray
from unpool.runtime.graph.serialized import is_too_large
from unpool.runtime.graph.weight_files import array_of, folder_of
from unpool.runtime.graph.without_weights import is_large, without_weights


def with_fed_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, AnyArray]]:
    """The model as it can be serialized, and what is to be fed to its last inputs beside the feed of the caller.

    Returns:
        the model itself and nothing, if its weights are inside and fit into a message; else one in which large
        initializers are inputs, and their arrays by name, those of weights in files mapped.
    """
    is_stored = any(folder_of(tensor) is not None for tensor in model.graph.initializer)
    if not is_stored and not is_too_large(model):
        return model, {}
    fed = {value.name for value in model.graph.input}
    weights = [tensor for tensor in model.graph.initializer if is_large(tensor) and tensor.name not in fed]
    return without_weights(model), {tensor.name: array_of(tensor) for tensor in weights}
