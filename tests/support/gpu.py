"""The kernels in Triton in tests: on a GPU where there is one, otherwise interpreted, on tensors of the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import torch

import unpool
from tests.cases.record import Case
from tests.support.runners import FUNCTIONS, Outputs, as_tuple, keywords
from unpool import arrays

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def routed() -> Iterator[None]:
    """Tensors of DEVICE go to the kernels in Triton."""
    before = set(arrays.GPU_DEVICE_TYPES)
    arrays.GPU_DEVICE_TYPES.add(DEVICE)
    try:
        yield
    finally:
        arrays.GPU_DEVICE_TYPES.clear()
        arrays.GPU_DEVICE_TYPES.update(before)


def tensor(x: np.ndarray | None) -> Any:
    if x is None or not hasattr(torch, x.dtype.name) or not x.dtype.isnative:
        return x
    bits = x.view(np.int16) if x.dtype == ml_dtypes.bfloat16 else x
    held = torch.from_numpy(np.array(bits))
    return (held.view(torch.bfloat16) if bits is not x else held).to(DEVICE)


def array(x: torch.Tensor) -> np.ndarray:
    x = x.cpu()
    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def run_gpu(case: Case) -> Outputs:
    """The public function on tensors, indices checked at once."""
    function = getattr(unpool, FUNCTIONS[case.operator])
    named = dict(keywords(case), opset=case.opset)
    x, *others = case.inputs
    if case.operator == "MaxUnpool":
        named["check"] = "now"
        inputs = [tensor(x), *map(tensor, others[:1]), *others[1:]]
    else:
        inputs = list(map(tensor, case.inputs))
    with routed():
        return tuple(map(array, as_tuple(function(*inputs, **named))))
