"""What attributes, inputs and outputs are, in one line each, and what the standard's text changed between versions.

Source: ONNX's operator schemas. A test holds names, defaults and the list of changed texts against those of onnx.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """A text of the standard that is another one from a version on.

    Attributes:
        operator: whose text.
        version: the first with the new text.
        subject: the attribute, or "summary" for the text about the operator itself.
        before: what the older text says, in short.
        after: what the newer one says.
        results: "same" where unpool reads both texts in the same way, "others" where a call may have other results, and
            "refused" where a call that was accepted may be refused.
    """

    operator: str
    version: int
    subject: str
    before: str
    after: str
    results: str = "same"


OUTPUTS = {"MaxPool": ("Y", "Indices"), "MaxUnpool": ("output",), "ConvTranspose": ("Y",)}
INT64 = frozenset({"I", "Indices", "output_shape"})
IN_LAYOUT = frozenset({"X", "Y", "output"})
"""Values that are channels-last in the channels-last domain."""

ABOUT_VALUES = {
    "X": "(N, C, D1..Dk)",
    "Y": "(N, C, d1..dk)",
    "Indices": "where each element of Y is in X, padding not counted",
    "I": "(N, C, D1..Dk), where its elements go",
    "output_shape": "(N, C, D1..Dk) of the output; settles a size that the window leaves open",
    "output": "(N, C, D1..Dk); zeros between",
    "W": "(C, M / group, k1..kk)",
    "B": "(M), added to every cell",
}
DEFAULTS = {
    "auto_pad": "NOTSET",
    "ceil_mode": "0",
    "dilations": "1 per axis",
    "group": "1",
    "kernel_shape": "the window of W",
    "output_padding": "0 per axis",
    "output_shape": "computed",
    "pads": "0 at each end",
    "storage_order": "0",
    "strides": "1 per axis",
    "activation": "none",
    "activation_params": "none",
}
ABOUT = {
    "auto_pad": "NOTSET takes pads, VALID none; SAME_* compute them, UPPER with an odd cell at the end",
    "ceil_mode": "1 rounds the number of windows up; none of them begins in the padding at the end",
    "dilations": "elements from one tap of the window to the next",
    "group": "into how many groups the channels of X are divided",
    "kernel_shape": "taps of the window",
    "output_padding": "elements added at the end of the output",
    "output_shape": "size of the output; the pads follow from it",
    "pads": "elements of padding: all begins, then all ends",
    "storage_order": "how Indices count: 0 with the last axis fastest, 1 with the first",
    "strides": "elements from one window to the next",
    "activation": "Relu, LeakyRelu, Tanh, Sigmoid, Clip, HardSigmoid or HardSwish, behind the operator",
    "activation_params": "what the activation takes",
}

_OPEN = "default not stated"
_ONE = "1 along each axis"
_SAME_BEFORE = "SAME: the output has the size of the input"
WORDINGS = (
    Wording("MaxPool", 10, "summary", "size from kernel_shape, rounded down", "from the reach, maybe rounded up"),
    Wording("MaxPool", 11, "dilations", _OPEN, _ONE),
    Wording("MaxPool", 11, "strides", _OPEN, _ONE),
    Wording("MaxPool", 12, "auto_pad", _SAME_BEFORE, "SAME: ceil(size / stride), shared out over both ends"),
    Wording("MaxPool", 12, "storage_order", "order of the tensor", "order of the numbers in Indices, and no more"),
    Wording("MaxPool", 12, "summary", "auto_pad has one formula", "it has one for each ceil_mode, of the same size"),
    Wording(
        "MaxPool", 22, "summary", "ceil_mode says nothing of the padding", "no window begins in the padding at the end"
    ),
    Wording("MaxUnpool", 11, "strides", _OPEN, _ONE),
    Wording("ConvTranspose", 11, "auto_pad", _SAME_BEFORE, "SAME: size * stride, shared out over both ends"),
    Wording("ConvTranspose", 11, "dilations", _OPEN, _ONE),
    Wording(
        "ConvTranspose",
        11,
        "output_padding",
        "zeros on one side, as many as one likes",
        "cells at the end, fewer than stride or dilation",
        "refused",
    ),
    Wording("ConvTranspose", 11, "output_shape", "it does not say which axes", "the spatial axes, without N and C"),
    Wording("ConvTranspose", 11, "strides", _OPEN, _ONE),
    Wording(
        "ConvTranspose",
        11,
        "summary",
        "output_shape: SAME_UPPER cuts an odd cell at the begin",
        "at the end; all else at the begin, not the end",
        "others",
    ),
)
