"""MaxUnpool between arrays and kernels."""

from collections.abc import Sequence

import numpy as np

from unpool import indices as flat_indices
from unpool.dtypes import AnyArray
from unpool.errors import IndicesError
from unpool.execute.arrays import (
    CallOptions,
    InputTypes,
    OptionalArrays,
    Output,
    activation_steps,
    check_type,
    contiguous,
    require,
)
from unpool.geometry import Axis, element_count
from unpool.kernels.cpu.machine.plan import (
    DONE,
    OUT_OF_RANGE,
    Condition,
    End,
    KernelPlan,
    KernelStep,
    Kind,
    Operand,
    PlanStep,
    connect,
)
from unpool.memory import MIN_RECYCLED_BYTES, RuntimeOutput, is_recycled
from unpool.operators import max_unpool
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.tensors import index_type


class PreparedMaxUnpool:
    """MaxUnpool for one set of shapes, one type of X and one value of `output_shape`."""

    def __init__(self, spec: MaxUnpoolSpec, inputs: InputTypes, options: CallOptions) -> None:
        from unpool.kernels.cpu.max_unpool import route

        self.version = spec.version
        (shape, dtype), (indices, index_dtype) = require(inputs[0]), require(inputs[1])
        self._storage = check_type(spec.version, spec.activation, dtype)
        index_type(spec.version.label, "I", index_dtype)
        self._call = call = max_unpool.call(spec, shape, indices, options.output_shape)
        self._y = Output(spec.version, "output", call.large.in_layout(spec.version), self._storage.dtype)
        self.outputs = (self._y,)
        self._planes = call.small.batch * call.small.channels
        kind = {"channels_last": spec.version.is_channels_last, "counts_in_y": call.index_space != "inferred"}
        self._stream_new, self._stream_recycled = launches = [
            route(call.axes, self._planes, self._storage.dtype.itemsize, **kind, is_recycled=recycled)
            for recycled in (False, True)
        ]
        self._is_plain = self._stream_new is not None and self._y.is_small and spec.activation is None
        self._plans: dict[tuple[bool, bool], KernelPlan] = {}
        self.nbytes = sum(getattr(launch, "nbytes", 0) for launch in launches)  # of tables

    @property
    def kernel(self) -> str:
        """The kernel that runs first: "windows", or "scatter", which also takes over if an index leaves its window."""
        return "scatter" if self._stream_new is None else "windows"

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """The output. New memory is written at once, the caller's only after all indices were checked."""
        x, indices = require(inputs[0]), require(inputs[1])
        elements, positions = contiguous(x, self.version), contiguous(indices, self.version)
        if self._is_plain and out[0] is None:  # the first step alone takes less time than a plan
            y = self._y.new()
            if all(require(self._stream_new)(elements, positions, y, threads)):
                return (y,)
        y, buffer = self._y.allocate(out[0], (x, indices))
        is_new = buffer is not out[0] or type(buffer) is RuntimeOutput
        plan = self._plan(is_new, buffer.nbytes >= MIN_RECYCLED_BYTES and is_recycled(buffer))
        end = plan.run((elements, positions, buffer), threads)
        if end is not None:
            raise self._error(end, positions)
        if buffer is not y:
            y[...] = buffer
        return (y,)

    def _plan(self, is_new: bool, has_recycled: bool) -> KernelPlan:
        plan = self._plans.get((is_new, has_recycled))
        if plan is None:
            call = self._call
            x = Operand(Kind.INPUT, 0, call.small.in_layout(self.version), self._y.dtype)
            indices = Operand(Kind.INPUT, 1, call.small.in_onnx_order(), np.dtype(np.int64))
            y = Operand(Kind.OUTPUT, 0, self._y.shape, self._y.dtype)
            plan = KernelPlan(self._steps((x, indices, y), is_new, has_recycled), (x, indices, y))
            self._plans[is_new, has_recycled] = plan
        return plan

    def _error(self, end: End, positions: AnyArray) -> IndicesError:
        if end.code == OUT_OF_RANGE:
            return flat_indices.out_of_range(positions, end.position, end.step.limit, self.version.label)
        return IndicesError(
            f"{self.version.label}: indices were changed during the call. Pass a copy, or do not write to them until "
            "the call returns."
        )

    def steps(self, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> tuple[PlanStep, ...]:
        """The steps of a plan."""
        operands = require(inputs[0]), require(inputs[1]), outputs[0]
        steps = self._steps(operands, True, self._y.size >= MIN_RECYCLED_BYTES)
        return tuple(step.resolve() for step in steps)

    def _steps(
        self, operands: tuple[Operand, Operand, Operand], is_new: bool, has_recycled: bool
    ) -> tuple[KernelStep, ...]:
        """New memory is streamed first, and the fallback checks and scatters; the caller's memory is checked first."""
        from unpool.kernels.cpu.max_unpool import scatter

        call, planes, bits, (x, indices, y) = self._call, self._planes, self._storage.bits, operands
        stream: tuple[KernelStep, ...] = ()
        launch = self._stream_recycled if has_recycled else self._stream_new
        if launch is not None:
            stream = (KernelStep(launch, operands, (), Condition.ALL_TRUE, (DONE, 1)),)
        channels = call.small.channels if self.version.is_channels_last else 1
        views, after = (x.view(bits), indices, y.view(bits)), () if is_new else stream
        steps = scatter.steps(views, channels, planes, (indices, y.size), after)
        if call.index_space != "output" and x.size * y.size:
            others = self._rebased_steps(views, channels)
            if call.index_space == "inferred":
                steps = others
            else:
                inferred = [
                    Axis(size, axis.small, axis.window, axis.begin)
                    for size, axis in zip(call.inferred, call.axes, strict=True)
                ]
                guess = (
                    scatter.window_check(indices, call.axes, planes, (2, 1)),
                    scatter.window_check(indices, inferred, planes, (1 + len(steps), 1)),
                )
                steps = (*guess, *steps, *others)
        steps = (*stream, *steps) if is_new else steps
        return connect(steps, activation_steps(y, call.spec.activation))

    def _rebased_steps(self, operands: tuple[Operand, Operand, Operand], channels: int) -> tuple[KernelStep, ...]:
        """The steps for indices that count in the inferred shape."""
        from unpool.kernels.cpu import indices as recount
        from unpool.kernels.cpu.max_unpool import scatter

        call, planes, (x, indices, y) = self._call, self._planes, operands
        moved = Operand(Kind.SCRATCH, 0, indices.shape, indices.dtype)
        launch = recount.launch(recount.rebased(planes, call.inferred, call.large.spatial), 1, 1, indices.size)
        limit = element_count((planes, *call.inferred), self.version.label)
        first = KernelStep(launch, (), (indices.flat(), moved.flat(is_writable=True)))
        return (first, *scatter.steps((x, moved, y), channels, planes, (indices, limit)))
