"""OpenVINO's extensions: how nodes of an ONNX model become nodes of OpenVINO's or of unpool's."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from openvino import opset14  # after unpool.openvino.package, which imports the package without telemetry
from openvino.frontend.onnx import ConversionExtension

from unpool.openvino.operators import Computation, OpenVinoNode
from unpool.operators import resolve
from unpool.operators.contract import OPERATORS, newest
from unpool.operators.conv_transpose import ConvTransposeSpec, axis_rules
from unpool.operators.max_pool import MaxPoolSpec

MOST_AXES = 5
"""The largest rank of an array whose transposed convolution OpenVINO computes."""

Outputs: TypeAlias = list[Any]


def extensions(
    *, exact: bool = False, compat: str = "spec", index_space: str = "auto", threads: int | None = None
) -> list[Any]:
    """Extensions that make OpenVINO compute MaxPool, MaxUnpool and ConvTranspose as the ONNX standard defines them.

    unpool computes MaxUnpool, the Indices of MaxPool, and nodes for which OpenVINO differs from the standard: a MaxPool
    with `ceil_mode`, `dilations` or `auto_pad`, and a ConvTranspose with `output_shape`, `dilations` or `auto_pad`.
    OpenVINO computes all others.

    OpenVINO does not tell extensions the opset of a model, so nodes follow the rules of the newest opset. For
    ConvTranspose, these rules hold since opset 11. OpenVINO's CPU device has only indices below 2**31.

    Args:
        exact: True computes every MaxPool and ConvTranspose by unpool, also if OpenVINO differs only for NaN.
        compat: "spec" follows the standard's text, "ort" onnxruntime where the two differ.
        index_space: the tensor that MaxUnpool's indices refer to, as in `unpool.max_unpool`.
        threads: maximum number of threads of unpool's operators; None for all cores.

    Returns:
        The argument of `openvino.Core.add_extension`.

    Raises:
        MissingExtraError: the package openvino is not installed.

    >>> import numpy as np
    >>> import openvino
    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink_and_grow (float[1, 1, 4] x) => (float[1, 1, 4] z) {
    ...         y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
    ...         z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
    ...     }''')
    >>> core = openvino.Core()
    >>> core.add_extension(extensions())
    >>> compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU")
    >>> compiled({"x": np.float32([[[1, 3, 4, 2]]])})[0].tolist()
    [[[0.0, 3.0, 4.0, 0.0]]]
    """
    rules: dict[str, Callable[[Any, Sequence[Any]], Outputs | None]]
    rules = {"MaxPool": _max_pool, "ConvTranspose": _conv_transpose}

    def converter(operator: str) -> Callable[[Any], Outputs]:
        rule = rules.get(operator)

        def convert(node: Any) -> Outputs:
            inputs = [node.get_input(number) for number in range(node.get_input_size())]
            spec = resolve.spec(operator, _attributes(node, operator), compat=compat, index_space=index_space)
            computed = OpenVinoNode(inputs, Computation(spec, threads)).outputs()
            outputs = None if exact or rule is None else rule(spec, inputs)
            return list(computed) if outputs is None else [*outputs, *computed[1:]]

        return convert

    return [ConversionExtension(operator, converter(operator)) for operator in OPERATORS]


def _attributes(node: Any, operator: str) -> Mapping[str, Any]:
    """The attributes of a node that are set."""
    names = newest(operator, channels_last=False).attributes
    return {name: node.get_attribute(name) for name in names if node.has_attribute(name)}


def _max_pool(spec: MaxPoolSpec, inputs: Sequence[Any]) -> Outputs | None:
    """OpenVINO's node for the values of a pool that it computes by the standard; None for other pools."""
    shape = inputs[0].get_partial_shape()
    if shape.rank.is_dynamic or len(shape) > MOST_AXES or spec.ceil or spec.padding != "NOTSET" or spec.activation:
        return None
    if any(size.is_static and size.get_length() == 0 for size in shape):
        return None
    for size, window, pair in zip(list(shape)[2:], spec.windows, spec.pads, strict=False):
        is_too_small = size.is_static and size.get_length() + sum(pair) < window.size
        if window.dilation > 1 or max(pair) >= window.size or is_too_small:
            return None
    sizes, strides = [each.size for each in spec.windows], [each.stride for each in spec.windows]
    begins, ends = (list(pads) for pads in zip(*spec.pads, strict=True))
    return [opset14.max_pool(inputs[0], strides, [1] * len(sizes), begins, ends, sizes).output(0)]


def _conv_transpose(spec: ConvTransposeSpec, inputs: Sequence[Any]) -> Outputs | None:
    """OpenVINO's node for a transposed convolution that it computes by the standard; None for other ones."""
    x, w, *b = inputs
    shape = w.get_partial_shape()
    is_constant = w.get_node().get_type_name() == "Constant"
    is_plain = spec.padding == "NOTSET" and not spec.output_shape and not spec.activation
    if not is_plain or not is_constant or len(shape) > MOST_AXES:
        return None
    sizes = tuple(shape.to_shape())
    rules = axis_rules(spec, sizes[2:])
    if any(rule.window.dilation > 1 or min(rule.pads) < 0 for rule in rules):
        return None
    begins, ends = (list(pads) for pads in zip(*(rule.pads for rule in rules), strict=True))
    given: dict[str, Any] = {
        "strides": [rule.window.stride for rule in rules],
        "pads_begin": begins,
        "pads_end": ends,
        "dilations": [1] * len(rules),
        "output_padding": [rule.extra for rule in rules],
    }
    if spec.group == 1:
        y = opset14.convolution_backprop_data(x, w, **given)
    else:
        grouped = np.array([spec.group, sizes[0] // spec.group, *sizes[1:]], np.int64)
        y = opset14.group_convolution_backprop_data(x, opset14.reshape(w, grouped, special_zero=False), **given)
    for bias in b:
        by_channel = opset14.reshape(bias, np.array([1, -1, *[1] * len(rules)], np.int64), special_zero=False)
        y = opset14.add(y, by_channel)
    return [y.output(0)]
