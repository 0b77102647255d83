"""A piece of the graph that OpenVINO runs.

It is compiled for one combination of input shapes after the other. OpenVINO would also compile it for open sizes, but
checks sizes that do not fit together only where it knows them when it compiles; else it reads and writes beyond arrays.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.runtime.errors import also
from unpool.runtime.graph import shapes
from unpool.runtime.plan.openvino_fit import UnfitError
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.openvino_compiled import CompiledPiece
from unpool.runtime.runners.openvino_device import core, said
from unpool.runtime.runners.ort_piece import OrtPiece
from unpool.runtime.runners.stopping import stop_if_told

MOST_SHAPES = 8
"""Combinations of shapes that a piece is compiled for, the first that come: each takes time, and memory for weights."""

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
_LOG = logging.getLogger("unpool")


class OpenVinoPiece:
    """A loaded piece: arrays in, arrays out, without copies.

    Args:
        model: of the piece, weights inside.
        where: what errors call it.
        properties: what OpenVINO is told.
        spare: makes the same piece for onnxruntime, for inputs of other shapes than OpenVINO gets.

    Raises:
        UnfitError: OpenVINO does not take it.
    """

    def __init__(
        self, model: onnx.ModelProto, where: str, properties: Mapping[str, str], spare: Callable[[bytes], OrtPiece]
    ) -> None:
        self._where, self._properties = where, properties
        self._names = [one.name for one in model.graph.input], [one.name for one in model.graph.output]
        content = bytes(model.SerializeToString())
        try:
            read = core().read_model(content)
            ports = [read.input(name) for name in self._names[0]]
            self.output_types = {name: _type(read.output(name)) for name in self._names[1]}
        except Exception as error:
            raise UnfitError(said(error)) from error
        self._model, self._content, self._make_spare = read, content, spare
        self._compiled: dict[Shapes, CompiledPiece | None] = {}
        self._spare: OrtPiece | None = None
        self._lock = threading.Lock()
        if all(port.partial_shape.is_static for port in ports):
            self._compile(tuple(tuple(port.shape) for port in ports))
            self._model, self._content = None, b""  # other shapes are no inputs of it

    def run(
        self,
        values: Sequence[Any],
        run_options: onnxruntime.RunOptions | None,
        targets: Sequence[AnyArray | None] | None = None,
    ) -> list[AnyArray]:
        """Outputs in the order of the piece.

        Args:
            values: its inputs.
            run_options: of the caller; OpenVINO looks at none of them, so a run stops in front of a piece only.
            targets: for every output, where to write it; those of another shape or type than it has are left.

        Raises:
            UnpoolError: OpenVINO could not run the piece on these values; or the run was told to stop before.
        """
        if run_options is not None:
            stop_if_told(run_options)
        found = self._for(tuple([value.shape for value in values]))
        if found is None:
            return self._on_onnxruntime().run(values, run_options, targets)
        try:
            return found.run(values, targets)
        except UnpoolError:
            raise
        except Exception as error:
            raise also(UnpoolError, "Fail")(
                f"{self._where}: OpenVINO cannot run it on these inputs: {said(error)}. Correct the inputs."
            ) from error

    def _for(self, key: Shapes) -> CompiledPiece | None:
        """The piece, compiled for inputs of these shapes; None if onnxruntime is to run them."""
        if key in self._compiled:
            return self._compiled[key]
        with self._lock:
            if key not in self._compiled and len(self._compiled) < MOST_SHAPES:
                try:
                    self._compile(key)
                except UnfitError as error:
                    self._compiled[key] = None
                    _LOG.info("%s runs on onnxruntime for inputs of %s: %s", self._where, key, error)
            return self._compiled.get(key)

    def _compile(self, key: Shapes) -> None:
        """Compile it for inputs of these shapes.

        Raises:
            UnfitError: these do not fit together, or do not tell all sizes; or there is nothing in them.
        """
        if any(0 in shape for shape in key):
            raise UnfitError("an input is empty")
        try:
            model = self._model.clone()
            model.reshape(dict(zip(self._names[0], map(list, key), strict=True)))
        except Exception as error:
            raise UnfitError(said(error)) from error
        if model.is_dynamic():
            raise UnfitError("sizes depend on values")
        if any(_source(result) == "Parameter" for result in model.get_results()):
            raise UnfitError("an output is an input as it is, which it would not write")
        self._compiled[key] = CompiledPiece(model, self._names, self._properties, self._where)

    def _on_onnxruntime(self) -> OrtPiece:
        with self._lock:
            if self._spare is None:
                self._spare = self._make_spare(self._content)
            return self._spare


def _source(result: Any) -> str:
    """The type of the node that makes an output."""
    return str(result.input_value(0).get_node().get_type_name())


def _type(port: Any) -> onnx.TypeProto:
    """The type of a port, with its sizes left open."""
    return shapes.tensor_type(helper.np_dtype_to_tensor_dtype(np.dtype(port.element_type.to_dtype())), None)
