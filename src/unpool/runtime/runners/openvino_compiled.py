"""A piece that OpenVINO has compiled for inputs of certain shapes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
from unpool.memory import allocate
from unpool.runtime.plan.openvino_fit import UnfitError
from unpool.runtime.runners.openvino_device import DEVICE, core, package, said
from unpool.runtime.runners.ort_values import array_at


class CompiledPiece:
    """Arrays in, arrays out, without copies.

    A request of OpenVINO serves one run at a time. Runs at the same time get requests of their own, which are kept.

    Args:
        model: OpenVINO's, all of its shapes known.
        names: of its inputs and of its outputs, in the order of the piece.
        properties: what OpenVINO is told.
        where: what errors call the piece.

    Raises:
        UnfitError: OpenVINO does not compile it.
    """

    def __init__(
        self, model: Any, names: tuple[Sequence[str], Sequence[str]], properties: Mapping[str, str], where: str
    ) -> None:
        try:
            self._compiled = core().compile_model(model, DEVICE, dict(properties))
            self._inputs = [self._compiled.input(name) for name in names[0]]
            self._outputs = [_Output(self._compiled.output(name), where) for name in names[1]]
            self._idle = [self._compiled.create_infer_request()]
        except Exception as error:
            raise UnfitError(said(error)) from error

    def run(self, values: Sequence[AnyArray], targets: Sequence[AnyArray | None] | None) -> list[AnyArray]:
        """Outputs in order, in their targets where these have their shape and type."""
        given = targets if targets is not None else [None] * len(self._outputs)
        made = [one.array(target) for one, target in zip(self._outputs, given, strict=True)]
        with self._request() as request:
            for port, value in zip(self._inputs, values, strict=True):
                request.set_tensor(port, _tensor(value))
            for one, array in zip(self._outputs, made, strict=True):
                request.set_tensor(one.port, _tensor(array))
            request.infer()
        return made

    @contextmanager
    def _request(self) -> Iterator[Any]:
        """A request that nobody else uses meanwhile."""
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        yield request
        self._idle.append(request)  # not behind an error: then it goes


class _Output:
    """An output of a compiled piece."""

    def __init__(self, port: Any, where: str) -> None:
        self.port = port
        self._shape, self._dtype = tuple(port.shape), np.dtype(port.element_type.to_dtype())
        self._where = where

    def array(self, target: AnyArray | None) -> AnyArray:
        """The array to write it to: OpenVINO would write to one of another shape without a word."""
        if target is not None and (target.shape, target.dtype) == (self._shape, self._dtype) and _is_plain(target):
            return target
        return allocate(self._shape, self._dtype, self._where)


def _is_plain(array: AnyArray) -> bool:
    return bool(array.flags.c_contiguous and array.flags.writeable)


def _tensor(value: AnyArray) -> Any:
    """The array as a tensor on the same memory.

    OpenVINO takes no array that may not be written, though it only reads its inputs: it gets another view of it.
    """
    array = np.asarray(value, order="C")
    if not array.flags.writeable:
        array = array_at(array.ctypes.data, array.shape, array.dtype, array)
    return package().Tensor(array, shared_memory=True)
