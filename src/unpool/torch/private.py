"""Every private name of torch that is used here, and what becomes of us where a torch does not have it.

A name is looked up when it is needed, so that nothing fails to import, and only here.
"""

from importlib import import_module
from typing import Any

WITHOUT = {
    "torch._C._AutoDispatchBelowAutograd": "operators are registered as torch.library does, without forward mode",
    "torch._C._after_autograd_keyset": "likewise",
    "torch._C._any_requires_grad": "likewise",
    "torch._C._are_functorch_transforms_active": "likewise",
    "torch._C._is_fwd_grad_enabled": "likewise",
    "torch._functorch.utils.enable_single_level_autograd_function": "likewise",
    "torch.autograd.forward_ad._set_fwd_grad_enabled": "likewise",
    "torch.autograd.forward_ad._current_level": "every call of an operator is recorded as if it had a tangent",
    "torch._C._is_tracing": "the size of a traced unpooling stays checked, which fails where it is a tensor",
    "torch.nn.functional._check_unpool_output_size": "there is no check to leave out",
    "torch.onnx._constants.ONNX_MAX_OPSET": "torch refuses opsets that its exporter with dynamo=False does not have",
    "torch.onnx._internal.torchscript_exporter.registration.registry": "dynamo=False is refused",
    "torch.onnx.symbolic_helper": "likewise",
    "torch.onnx.utils": "likewise",
    "torch.utils._pytree": "dynamic_shapes are handed to torch as they are, and nothing is verified",
}
"""Name -> what happens without it."""


def private(name: str) -> Any:
    """What a private name of torch stands for, None where this torch does not have it.

    Example:
        >>> private("torch._C._is_tracing")()
        False
    """
    if name not in WITHOUT:
        raise LookupError(f"private: expected a name that WITHOUT explains, got {name}. Write there what it is for.")
    place, _, last = name.rpartition(".")
    try:
        return getattr(import_module(place), last, None)
    except ImportError:
        return None
