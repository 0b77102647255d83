"""Private names of torch that unpool uses, and the fallback for a torch without them.

Other files get such a name from here, when they need it. So `unpool.torch` can be imported with a torch that renames
one.
"""

from importlib import import_module
from typing import Any

import torch

FORWARD_MODE = (
    "torch._C._AutoDispatchBelowAutograd",
    "torch._C._after_autograd_keyset",
    "torch._C._any_requires_grad",
    "torch._C._are_functorch_transforms_active",
    "torch._C._is_fwd_grad_enabled",
    "torch._functorch.utils.enable_single_level_autograd_function",
    "torch._ops.OpOverload.redispatch",
    "torch.autograd.forward_ad._set_fwd_grad_enabled",
    "torch.autograd.function._SingleLevelFunction",
)
"""Names for derivatives in forward mode; all of them are needed."""

FAST_PATH = (
    "torch._C.DispatchKey",
    "torch._C.DispatchKeySet",
    "torch._C._dispatch_keys",
    "torch._C._dispatch_tls_local_include_set",
    "torch.autograd._profiler_enabled",
)
"""Names for calls without the dispatcher, in addition to those for forward mode; all of them are needed."""

REGISTRATION = "torch.onnx._internal.torchscript_exporter.registration"
"""The module of torch with the symbolics of its exporter for dynamo=False."""

LEGACY_EXPORT = (
    f"{REGISTRATION}.registry.get_function_group",
    f"{REGISTRATION}.OverrideDict.overridden",
    "torch.onnx.symbolic_helper._is_packed_list",
    "torch.onnx.symbolic_helper._maybe_get_const",
    "torch.onnx.symbolic_helper._node_get",
    "torch.onnx.symbolic_helper._unpack_list",
    "torch.onnx.symbolic_helper.parse_args",
    "torch.onnx.symbolic_helper.quantized_args",
    "torch.onnx.utils.register_custom_op_symbolic",
    "torch.onnx.utils.unregister_custom_op_symbolic",
)
"""Names for an export with dynamo=False; all of them are needed."""

FALLBACKS = {
    **dict.fromkeys(FORWARD_MODE, "operators are registered as torch.library does it, and forward mode is refused"),
    **dict.fromkeys(FAST_PATH, "every call goes through the dispatcher, which takes microseconds longer"),
    **dict.fromkeys(LEGACY_EXPORT, "an export with dynamo=False is refused"),
    "torch.nn.functional._check_unpool_output_size": "torch does not check the sizes that TorchScript "
    "traces, so there is no check to disable",
    "torch.onnx._constants.ONNX_MAX_OPSET": "torch rejects opsets that its exporter with dynamo=False does not have",
    "torch.utils._pytree": "torch gets dynamic_shapes unchanged, and verify=True is refused",
}
"""Name -> the behaviour without it."""

ATTRIBUTE_FALLBACKS = {
    "torch.autograd.forward_ad._current_level": "every call of an operator is recorded as if it had a tangent",
    f"{REGISTRATION}._SymbolicFunctionGroup._functions": "an export with dynamo=False is refused",
    f"{REGISTRATION}.SymbolicRegistry._registry": "torch names no operator when it refuses an unpooling afterwards",
    "torch.SymInt.node": "dynamic dimensions count as fixed: a Dim does not name them, verify=True runs no other sizes",
    "torch.fx.experimental.sym_node.SymNode.expr": "likewise",
    "torch.fx.experimental.sym_node.SymNode.shape_env": "no warning if a model takes only some sizes of a range",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.deferred_runtime_asserts": "likewise",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.replace": "likewise",
}
"""Attribute of objects of torch -> the behaviour without it."""


_ATTRIBUTES = {name: name.rpartition(".")[2] for name in ATTRIBUTE_FALLBACKS}


def torch_internal(name: str) -> Any:
    """The object of a name in `FALLBACKS`; None if this torch does not have it."""
    _check(name, FALLBACKS)
    value: Any = torch
    path = "torch"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        try:
            value = getattr(value, part) if hasattr(value, part) else import_module(path)
        except ImportError:
            return None
    return value


def torch_internal_attribute(owner: Any, name: str) -> Any:
    """The attribute of an object by a name in `ATTRIBUTE_FALLBACKS`; None if the object does not have it."""
    attribute = _ATTRIBUTES.get(name)
    if attribute is None:
        _check(name, ATTRIBUTE_FALLBACKS)
    return getattr(owner, attribute or "", None)


def _check(name: str, explained: dict[str, str]) -> None:
    if name not in explained:
        raise LookupError(f"compat: {name} is in no table of this file. Write here what it is for.")
