"""Bad input gets one error of the tree: the operator, what was expected and what came; nothing is written."""

import re
from collections.abc import Callable
from pathlib import Path
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


def rows(section: str) -> list[Any]:
    """The rows of a section of bad_input.txt, one per operator: its name, arguments, and what the error is."""
    text = Path(__file__).with_name("bad_input.txt").read_text(encoding="utf-8")
    lines = text.partition(f"## {section}\n")[2].partition("\n##")[0].splitlines()
    return [
        (name, eval(f"dict({given})"), *(each.replace("NAME", name) for each in said))
        for operator, given, *said in (line.split(" | ") for line in lines)
        for name in (CALLS if operator == "*" else (operator,))
    ]


VALUES = rows("values")
EVERY = VALUES + rows("words") + rows("tensors")


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
@pytest.mark.parametrize(("operator", "given", "said"), VALUES)
def test_names_the_version(operator: str, given: dict[str, Any], said: str) -> None:
    """With an opset the message carries the version that it selects."""
    version = {"MaxPool": 12, "MaxUnpool": 11, "ConvTranspose": 11}[operator]
    text = message(operator, {**given, "opset": 13})
    assert re.match(rf"{operator}-{version}: {said}", text), text


@pytest.mark.parametrize(("operator", "given", "kind", "said"), rows("versions"))
def test_other_versions_are_named(operator: str, given: dict[str, Any], kind: str, said: str) -> None:
    """What another version accepts is unsupported, not invalid, and the message names that version."""
    with pytest.raises(getattr(unpool, kind)) as caught:
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
