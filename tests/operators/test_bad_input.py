"""Bad input gets one error of the tree: the operator, what was expected and what came; nothing is written."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unpool
from unpool.operators import contract, resolve

X = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
LINE = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
I = np.zeros((1, 1, 8, 8), np.int64)  # noqa: E741 - the standard's name
W = np.ones((1, 1, 3, 3), np.float32)
HUGE = 10**15


def pool(**given: Any) -> Any:
    return unpool.max_pool(given.pop("x", X), **{"kernel_shape": [2, 2], **given})


def scatter(**given: Any) -> Any:
    inputs = [given.pop("x", X), given.pop("indices", I), given.pop("output_shape", None)]
    return unpool.max_unpool(*inputs, **{"kernel_shape": [2, 2], **given})


def grow(**given: Any) -> Any:
    inputs = [given.pop("x", X), given.pop("w", W), given.pop("b", None)]
    return unpool.conv_transpose(*inputs, **given)


CALLS = {"MaxPool": pool, "MaxUnpool": scatter, "ConvTranspose": grow}


def shape64(*sizes: int) -> np.ndarray:
    return np.array(sizes, np.int64)


LENGTHS: list[tuple[str, dict[str, Any], str]] = [
    ("MaxPool", {"kernel_shape": [2]}, r"kernel_shape needs 2 values .*1x1x8x8.*, got 1"),
    ("MaxPool", {"kernel_shape": [2, 2, 2]}, r"kernel_shape needs 2 values .*1x1x8x8.*, got 3"),
    ("MaxPool", {"strides": [2]}, r"strides needs 2 values \(2 spatial axes\), got 1: \[2\]"),
    ("MaxPool", {"dilations": [1, 1, 1]}, r"dilations needs 2 values .*, got 3"),
    ("MaxPool", {"pads": [1, 1, 1]}, r"pads needs 4 values \(2 spatial axes\), got 3: .*all begins, then all ends"),
    ("MaxPool", {"pads": []}, r"pads .*at least one value, got an empty list"),
    ("MaxUnpool", {"kernel_shape": [2]}, r"kernel_shape needs 2 values .*, got 1"),
    ("MaxUnpool", {"strides": [2, 2, 2]}, r"strides needs 2 values .*, got 3"),
    ("MaxUnpool", {"pads": [0]}, r"pads needs 4 values .*, got 1"),
    ("MaxUnpool", {"output_shape": shape64(9, 9)}, r"output_shape needs 4 values, .*, got \[9, 9\]"),
    ("ConvTranspose", {"kernel_shape": [3]}, r"kernel_shape needs .*, got .*\[3\]"),
    ("ConvTranspose", {"strides": [2]}, r"strides needs 2 values .*, got 1"),
    ("ConvTranspose", {"dilations": [2]}, r"dilations needs 2 values .*, got 1"),
    ("ConvTranspose", {"pads": [1, 1]}, r"pads needs 4 values .*, got 2"),
    ("ConvTranspose", {"output_padding": [0]}, r"output_padding needs 2 values .*, got 1"),
    ("ConvTranspose", {"output_shape": [9]}, r"output_shape needs 2 .*, got \[9\]"),
    ("ConvTranspose", {"b": np.ones(2, np.float32)}, r"B needs shape 1\b.*, got 2"),
]

RANGES: list[tuple[str, dict[str, Any], str]] = [
    ("MaxPool", {"kernel_shape": [0, 2]}, r"kernel_shape needs values .*1.*, got \[0, 2\]"),
    ("MaxPool", {"strides": [2, -1]}, r"strides needs values .*1.*, got \[2, -1\]"),
    ("MaxPool", {"dilations": [0, 1]}, r"dilations needs values .*1.*, got \[0, 1\]"),
    ("MaxPool", {"pads": [0, 0, -1, 0]}, r"pads needs values .*0.*, got \[0, 0, -1, 0\]"),
    ("MaxPool", {"ceil_mode": 2}, r"ceil_mode is 0 or 1, got 2"),
    ("MaxPool", {"storage_order": -1}, r"storage_order is 0 or 1, got -1"),
    ("MaxPool", {"kernel_shape": [20, 2]}, r"spatial axis 0 .*window of 20, got 8 elements .*size -11"),
    ("MaxUnpool", {"kernel_shape": [-2, 2]}, r"kernel_shape needs values .*1.*, got \[-2, 2\]"),
    ("MaxUnpool", {"strides": [0, 1]}, r"strides needs values .*1.*, got \[0, 1\]"),
    ("MaxUnpool", {"pads": [-1, 0, 0, 0]}, r"pads needs values .*0.*, got"),
    (
        "MaxUnpool",
        {"pads": [9, 0, 9, 0]},
        r"kernel_shape, strides and pads need an output size .*, got \[-9, 9\]",
    ),
    (
        "MaxUnpool",
        {"output_shape": shape64(1, 1, -9, 9)},
        r"output_shape needs values of 0 or more, got \[1, 1, -9, 9\]",
    ),
    (
        "MaxUnpool",
        {"output_shape": shape64(1, 2, 9, 9)},
        r"output_shape needs N and C of X, 1 and 1, got \[1, 2, 9, 9\]",
    ),
    ("ConvTranspose", {"strides": [0, 1]}, r"strides needs values .*1.*, got \[0, 1\]"),
    ("ConvTranspose", {"dilations": [1, 0]}, r"dilations needs values .*1.*, got \[1, 0\]"),
    ("ConvTranspose", {"pads": [0, -1, 0, 0]}, r"pads needs values .*0.*, got"),
    ("ConvTranspose", {"pads": [9, 0, 9, 0]}, r"spatial axis 0 needs an output size of 0 or more, got -8"),
    ("ConvTranspose", {"output_padding": [-1, 0]}, r"output_padding needs values .*0.*, got \[-1, 0\]"),
    ("ConvTranspose", {"output_padding": [1, 0]}, r"output_padding needs values below .*, got 1"),
    ("ConvTranspose", {"output_shape": [-1, 9]}, r"output_shape needs sizes of 0 or more, got \[-1, 9\]"),
    ("ConvTranspose", {"group": 0}, r"group needs .*1 or more, got 0"),
    ("ConvTranspose", {"group": 3}, r"group needs to divide 1 channels, got 3"),
]

WORDS: list[tuple[str, dict[str, Any], str]] = [
    ("MaxPool", {"auto_pad": "SAME"}, r"auto_pad is one of NOTSET, .*VALID; got 'SAME'"),
    ("ConvTranspose", {"auto_pad": "valid"}, r"auto_pad is one of NOTSET, .*VALID; got 'valid'"),
    ("MaxPool", {"auto_pad": "VALID", "pads": [1, 1, 1, 1]}, r"pads and auto_pad exclude each other, got .*VALID"),
    ("ConvTranspose", {"auto_pad": "SAME_UPPER", "pads": [1, 0, 0, 0]}, r"pads and auto_pad exclude each other, got"),
    ("MaxUnpool", {"index_space": "both"}, r"index_space is one of auto, output, inferred; got 'both'"),
    *((name, {"compat": "torch"}, r"compat is one of spec, ort; got 'torch'") for name in CALLS),
    *((name, {"layout": "NWHC"}, r"layout is one of NCHW, NHWC; got 'NWHC'") for name in CALLS),
    *((name, {"opset": "22"}, r"opset is an int .*got '22'") for name in CALLS),
    *((name, {"activation": "Gelu"}, r"activation is one of Relu, .*; got 'Gelu'") for name in CALLS),
    *((name, {"activation": "Clip"}, r"Clip takes activation_params \[min, max\], got \[\]") for name in CALLS),
    *((name, {"activation_params": [1.0]}, r"activation_params \[1.0\] need an activation") for name in CALLS),
    *((name, {"strides": "22"}, r"strides expects a list of integers, got '22'") for name in CALLS),
    *((name, {"strides": {2}}, r"strides expects a list of integers, got \{2\}") for name in CALLS),
    *((name, {"strides": 2.0}, r"strides expects a list of integers, got 2.0") for name in CALLS),
    *((name, {"strides": True}, r"strides expects a list of integers, got True") for name in CALLS),
    *((name, {"strides": 0}, r"strides needs values from 1 .*, got \[0, 0\]") for name in CALLS),
    *(
        (name, {word: []}, r"layout, compat and index_space are strings, got .*\[\]")
        for name in CALLS
        for word in ("layout", "compat")
    ),
    ("MaxUnpool", {"index_space": np.zeros(2)}, r"layout, compat and index_space are strings, got .*array"),
    ("MaxPool", {"activation": "LeakyRelu", "activation_params": [10**400]}, r"activation_params expects numbers that"),
    ("MaxPool", {"return_indices": np.zeros(2)}, r"return_indices is True or False, got array"),
    *((name, {"strides": [1.5, 2]}, r"strides expects integers, got 1.5") for name in CALLS),
    *((name, {"strides": [True, 2]}, r"strides expects integers, got True") for name in CALLS),
    ("ConvTranspose", {"group": 1.0}, r"group expects integers, got 1.0"),
    ("MaxPool", {"auto_pad": 3}, r"auto_pad expects a string, got 3"),
]

TENSORS: list[tuple[str, dict[str, Any], str]] = [
    *((name, {"x": X[0, 0]}, r"X needs rank 3 or more, .*, got rank 2: 8x8") for name in CALLS),
    ("MaxPool", {"x": X.astype(np.int32)}, r"X:? expect.*float32.*int8.*got int32"),
    ("MaxUnpool", {"x": X.astype(np.int32)}, r"X:? expect(?!.*\bint8).*float32.*got int32"),
    ("ConvTranspose", {"x": X.astype(np.int32)}, r"X:? expect(?!.*\bint8).*float32.*got int32"),
    ("MaxUnpool", {"x": X.astype(np.int8)}, r"X expects one of .*float32.*got int8"),
    ("MaxUnpool", {"indices": I.astype(np.int32)}, r"I expects int64, got '.i4'"),
    ("MaxUnpool", {"indices": I[..., :7]}, r"I needs the .* shape of X, 1x1x8x8, got 1x1x8x7"),
    ("MaxUnpool", {"output_shape": shape64(1, 1, 9, 9).astype(np.int32)}, r"output_shape expects int64, got '.i4'"),
    ("MaxUnpool", {"output_shape": shape64(1, 1, 9, 9)[None]}, r"output_shape needs rank 1, got shape 1x4"),
    ("MaxUnpool", {"indices": I - 1}, r"indices need values from 0 to 80, got -1 at \[0, 0, 0, 0\]"),
    ("MaxUnpool", {"indices": I + 81}, r"indices need values from 0 to 80, got 81 at \[0, 0, 0, 0\]"),
    ("MaxUnpool", {"output_shape": shape64(1, 1, 0, 9)}, r"indices need .*, got 0 at"),
    ("ConvTranspose", {"w": W.astype(np.float64)}, r"X and W need one type, got float32 and float64"),
    ("ConvTranspose", {"b": np.ones(1)}, r"X and B need one type, got float32 and float64"),
    ("ConvTranspose", {"w": W[0]}, r"W needs rank 4 .*1x1x8x8.*, got 1x3x3"),
    ("ConvTranspose", {"w": np.ones((2, 1, 3, 3), np.float32)}, r"W needs 1 input channels .*, got 2x1x3x3"),
    ("ConvTranspose", {"w": W[..., :0]}, r"kernel_shape needs values .*1.*, got \[3, 0\]"),
    ("ConvTranspose", {"b": np.ones((1, 1), np.float32)}, r"B needs shape 1\b.*, got 1x1"),
]

EVERY = LENGTHS + RANGES + WORDS + TENSORS


def message(operator: str, given: dict[str, Any]) -> str:
    """The text of the error that a call raises; it must be of our tree."""
    with pytest.raises(unpool.UnpoolError) as caught:
        CALLS[operator](**given)
    return str(caught.value)


@pytest.mark.parametrize(("operator", "given", "said"), EVERY)
def test_says_what_was_expected_and_what_came(operator: str, given: dict[str, Any], said: str) -> None:
    """Without an opset the message starts with the operator, then says the attribute or input, and both sides."""
    assert re.match(rf"{operator}: {said}", message(operator, given)), message(operator, given)


@pytest.mark.sample(5)
@pytest.mark.parametrize(("operator", "given", "said"), LENGTHS + RANGES)
def test_names_the_version(operator: str, given: dict[str, Any], said: str) -> None:
    """With an opset the message carries the version that it selects."""
    version = {"MaxPool": 12, "MaxUnpool": 11, "ConvTranspose": 11}[operator]
    text = message(operator, {**given, "opset": 13})
    assert re.match(rf"{operator}-{version}: {said}", text), text


VERSIONS: list[tuple[str, dict[str, Any], type, str]] = [
    ("MaxPool", {"opset": 7, "storage_order": 1}, unpool.UnsupportedError, r"MaxPool-1: .*storage_order.*MaxPool-8"),
    ("MaxPool", {"opset": 9, "ceil_mode": 1}, unpool.UnsupportedError, r"MaxPool-8: .*ceil_mode.*MaxPool-10"),
    ("MaxPool", {"opset": 9, "dilations": [1, 1]}, unpool.UnsupportedError, r"MaxPool-8: .*dilations.*MaxPool-10"),
    ("MaxPool", {"opset": 7, "return_indices": True}, unpool.UnpoolError, r"MaxPool-1: .*1.* outputs?, got 2"),
    ("MaxPool", {"opset": 0}, unpool.UnsupportedError, r"MaxPool: exists from opset 1 .*got opset 0"),
    ("MaxUnpool", {"opset": 8}, unpool.UnsupportedError, r"MaxUnpool: exists from opset 9 .*got opset 8"),
    ("ConvTranspose", {"opset": -1}, unpool.UnsupportedError, r"ConvTranspose: exists from opset 1 .*got opset -1"),
    (
        "MaxPool",
        {"opset": 11, "x": X.astype(np.int8)},
        unpool.UnsupportedError,
        r"MaxPool-11: X expects .*; got int8, which MaxPool-12 accepts",
    ),
    *(
        (
            name,
            {"opset": 21, "x": X.astype("bfloat16")},
            unpool.UnsupportedError,
            rf"{name}-\d+: X expects .*; got bfloat16, which {name}-22 accepts",
        )
        for name in CALLS
    ),
    *(
        (name, {"opset": 22, "activation": "Relu"}, unpool.UnsupportedError, rf"{name}-22: .*activation.*\(com\.ms")
        for name in CALLS
    ),
]


@pytest.mark.parametrize(("operator", "given", "kind", "said"), VERSIONS)
def test_other_versions_are_named(operator: str, given: dict[str, Any], kind: type, said: str) -> None:
    """What another version accepts is unsupported, not invalid, and the message names that version."""
    with pytest.raises(kind) as caught:
        CALLS[operator](**given)
    assert re.match(said, str(caught.value)), str(caught.value)


def test_nhwc_names_its_domain() -> None:
    """The label of a channels-last version says the domain."""
    text = message("MaxPool", {"layout": "NHWC", "opset": 22, "kernel_shape": [2, 2], "x": X.astype("bfloat16")})
    assert text.startswith("MaxPool-12 (com.ms.internal.nhwc): X expects one of ")


@pytest.mark.parametrize("operator", contract.OPERATORS)
def test_unknown_attributes(operator: str) -> None:
    """A node's unknown attribute is named beside the known ones; a function's is Python's own TypeError."""
    with pytest.raises(unpool.UnpoolError) as caught:
        resolve.spec(operator, {"kernel_shape": [2], "kernal": [2]}, opset=22)
    assert re.match(rf"{operator}-22: expected the attributes .*kernel_shape.*; got .*kernal", str(caught.value))
    with pytest.raises(TypeError, match="kernal"):
        CALLS[operator](kernal=[2])


@pytest.mark.parametrize("operator", ["MaxPool", "MaxUnpool"])
def test_missing_kernel_shape(operator: str) -> None:
    """kernel_shape is missing in every version of the pools."""
    for version in contract.VERSIONS:
        if version.operator == operator:
            with pytest.raises(unpool.UnpoolError, match=rf"^{re.escape(version.label)}: .*kernel_shape is missing"):
                resolve.spec(operator, {}, domain=version.domain, opset=version.since_version)


@pytest.mark.parametrize(
    ("name", "value", "first", "before"),
    [("storage_order", 0, 8, 7), ("ceil_mode", 0, 10, 9), ("dilations", [1], 10, 9)],
)
def test_a_node_may_not_carry_an_attribute_of_a_later_version(name: str, value: Any, first: int, before: int) -> None:
    """Written out in a node, even the default value needs the version that has the attribute."""
    given = {"kernel_shape": [2], name: value}
    assert resolve.spec("MaxPool", given, opset=first).version.since_version == first
    with pytest.raises(
        unpool.UnsupportedError, match=rf"^MaxPool-\d: expected .*got {name}, which MaxPool-{first} has"
    ):
        resolve.spec("MaxPool", given, opset=before)


def test_ill_typed_attributes_of_a_node() -> None:
    """Attribute values of a node are checked by type, and bytes are strings."""
    assert resolve.spec("MaxPool", {"kernel_shape": [2], "auto_pad": b"VALID"}, opset=12).version.since_version == 12
    for given, said in (
        ({"kernel_shape": 2}, "list of integers"),
        ({"kernel_shape": [2.0]}, "integers"),
        ({"kernel_shape": [2], "auto_pad": 1}, "string"),
        ({"kernel_shape": [2], "ceil_mode": [1]}, "integers"),
        ({"kernel_shape": [2], "ceil_mode": "1"}, "integers"),
    ):
        with pytest.raises(unpool.UnpoolError, match=rf"^MaxPool-12: \w+ expects a? ?{said}, got "):
            resolve.spec("MaxPool", given, opset=12)


def test_unknown_operator_and_domain() -> None:
    """Other operators and domains are refused by name."""
    with pytest.raises(unpool.UnsupportedError, match=r"^AveragePool: expected one of MaxPool"):
        resolve.spec("AveragePool", {"kernel_shape": [2]}, opset=22)
    with pytest.raises(unpool.UnsupportedError, match=r"^MaxPool: .*got domain 'com\.microsoft'"):
        resolve.spec("MaxPool", {"kernel_shape": [2]}, domain="com.microsoft", opset=1)


def into_pool(out: Any) -> Any:
    return unpool.max_pool(LINE, kernel_shape=[9], out=out)


def into_unpool(out: Any) -> Any:
    wrong = np.array([[[0, 1, 2, 3, 99]]])
    return unpool.max_unpool(LINE, wrong, kernel_shape=[1], out=out)


def into_unpool_inferred(out: Any) -> Any:
    wrong = np.array([[[0, 1, 2, 3, -1]]])
    return unpool.max_unpool(LINE, wrong, shape64(1, 1, 5), kernel_shape=[1], index_space="inferred", out=out)


def into_conv_transpose(out: Any) -> Any:
    return unpool.conv_transpose(LINE, np.ones((1, 1, 1)), out=out)


@pytest.mark.parametrize("call", [into_pool, into_unpool, into_unpool_inferred, into_conv_transpose])
def test_out_is_untouched_after_an_error(call: Callable[[Any], Any]) -> None:
    """A refused call writes nothing, not even the part before the wrong index."""
    out = np.full((1, 1, 5), 7, np.float32)
    with pytest.raises(unpool.UnpoolError):
        call(out)
    assert np.all(out == 7)


def test_wrong_index_deep_inside_a_large_tensor() -> None:
    """The position of a wrong index is right when several threads look for it; the first one is named."""
    x = np.ones((2, 8, 101, 103), np.float32)
    indices = np.zeros(x.shape, np.int64)
    indices[1, 7, 100, 50] = -5
    indices[1, 3, 20, 7] = 2**40
    out = np.full((2, 8, 101, 103), 7, np.float32)
    with pytest.raises(unpool.IndicesError, match=r"got 1099511627776 at \[1, 3, 20, 7\]"):
        unpool.max_unpool(x, indices, kernel_shape=[1, 1], out=out)
    assert np.all(out == 7)


def test_errors_are_also_the_built_in_ones() -> None:
    """A caller catches what it would catch anyway."""
    with pytest.raises(ValueError, match="MaxPool"):
        pool(strides=[0, 0])
    with pytest.raises(IndexError, match="MaxUnpool"):
        scatter(indices=I - 1)
    with pytest.raises(NotImplementedError, match="MaxUnpool"):
        scatter(opset=8)


MISSING = {
    "MaxPool x": (lambda: unpool.max_pool(None, kernel_shape=[2, 2]), "MaxPool: X is required, got None"),
    "MaxUnpool x": (lambda: unpool.max_unpool(None, I, kernel_shape=[2, 2]), "MaxUnpool: X is required"),
    "MaxUnpool i": (lambda: unpool.max_unpool(X, None, kernel_shape=[2, 2]), "MaxUnpool: I is required"),
    "ConvTranspose w": (lambda: unpool.conv_transpose(X, None), "ConvTranspose: W is required"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_input_is_named(name: str) -> None:
    """None where an array is required is an error with the name of the input, and without a count."""
    call, message = MISSING[name]
    with pytest.raises(unpool.UnpoolError, match=re.escape(message)):
        call()


def test_too_many_inputs_are_counted() -> None:
    """More inputs than the operator has are refused with those that it has."""
    with pytest.raises(unpool.UnpoolError, match=re.escape("MaxPool-12: takes 1 input at most (X), got 2.")):
        contract.version_at("MaxPool", "", 17).check_inputs([X, X])


@pytest.mark.parametrize("mask", [X > 5, np.ma.nomask], ids=["some", "none"])
@pytest.mark.parametrize("operator", CALLS)
def test_masked_arrays_are_refused(operator: str, mask: Any) -> None:
    """A mask would be lost, so arrays with one are refused, a second time too, and each input by its name."""
    masked = np.ma.masked_array(X, mask)
    for _ in range(2):
        with pytest.raises(unpool.UnpoolError, match=r"X: expected an array without a mask, .*filled\(value\)"):
            CALLS[operator](x=masked)
    CALLS[operator](x=masked.data)
    with pytest.raises(unpool.UnpoolError, match=r"MaxUnpool: I: expected an array without a mask"):
        scatter(indices=np.ma.masked_array(I))
