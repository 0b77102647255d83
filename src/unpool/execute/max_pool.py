"""MaxPool between arrays and kernel."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
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
from unpool.kernels.cpu.machine.plan import KernelPlan, KernelStep, Kind, Operand, PlanStep, connect
from unpool.memory import MIN_RECYCLED_BYTES, allocate, check_bytes, is_recycled
from unpool.operators import max_pool
from unpool.operators.max_pool import MaxPoolSpec

INDEX = np.dtype(np.int64)


class PreparedMaxPool:
    """MaxPool for one shape and type of X."""

    def __init__(self, spec: MaxPoolSpec, inputs: InputTypes, options: CallOptions) -> None:
        from unpool.kernels.cpu.max_pool import route
        from unpool.kernels.cpu.max_pool.pool import ElementType, PoolMode, PoolProblem

        self.version = version = spec.version
        (shape, dtype), has_indices = require(inputs[0]), options.outputs == 2
        self._storage = storage = check_type(version, spec.activation, dtype)
        self._call = call = max_pool.call(spec, shape)
        self._y = Output(version, "Y", call.small.in_layout(version), storage.dtype)
        self._indices = Output(version, "Indices", call.small.in_onnx_order(), INDEX) if has_indices else None
        self.outputs = (self._y,) if self._indices is None else (self._y, self._indices)
        check_bytes(self._y.size + (self._indices.size if self._indices else 0), "Y and Indices", version.label)
        self._is_in_place = not version.is_channels_last and not spec.is_column_major
        self._is_plain = spec.activation is None and self._y.is_small and self._is_in_place
        planes = (call.small.batch * call.small.channels, *call.large.spatial)
        lowest = int(np.array(storage.lowest, storage.dtype).view(storage.bits))
        elements = ElementType(np.dtype(storage.bits), storage.infinity, lowest)
        self._problem, recycled = (
            PoolProblem.of(shape if version.is_channels_last else planes, call.axes, elements, has_indices, mode)
            for mode in (
                PoolMode(version.is_channels_last, options.nan_last, options.per_plane, is_recycled)
                for is_recycled in (False, True)
            )
        )
        self._launch_new, self._launch_recycled = launches = [route(each) for each in (self._problem, recycled)]
        self._plans: dict[tuple[bool, bool], KernelPlan] = {}
        self.nbytes = sum(getattr(launch, "nbytes", 0) for launch in launches)  # of tables

    @property
    def kernel(self) -> str:
        """The kernel of the call, such as "tiles" or "separable"; empty where Y is."""
        from unpool.kernels.cpu.max_pool import kernels

        return kernels(self._problem)[0].name if self._problem.results else ""

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """Y, and with `has_indices` the indices."""
        if self._is_plain and out[0] is out[-1] is None:
            return self._run_plain(inputs[0], threads)
        x = require(inputs[0])
        y, buffer = self._y.allocate(out[0], (x,))
        indices, places, is_view = y, buffer, False
        if self._indices is not None:
            is_view = self.version.is_channels_last and out[1] is None and not self._call.spec.is_column_major
            if is_view:  # indices in the order of Y
                places = allocate(self._y.shape, INDEX, self.version.label)
                indices = np.moveaxis(places, -1, 1)
            else:
                indices, places = self._indices.allocate(out[1], (x, y))
        has_recycled = y.nbytes >= MIN_RECYCLED_BYTES and is_recycled(buffer) and is_recycled(places)
        is_final = self._is_in_place or is_view or self._indices is None
        self._plan(has_recycled, is_final).run((contiguous(x, self.version), buffer, places), threads)
        if buffer is not y:
            y[...] = buffer
        if indices is not places and not is_view:
            indices[...] = places
        return (y,) if self._indices is None else (y, indices)

    def _plan(self, has_recycled: bool, is_final: bool) -> KernelPlan:
        plan = self._plans.get((has_recycled, is_final))
        if plan is None:
            x = Operand(Kind.INPUT, 0, self._call.large.in_layout(self.version), self._y.dtype)
            y = Operand(Kind.OUTPUT, 0, self._y.shape, self._y.dtype)
            indices = y if self._indices is None else Operand(Kind.OUTPUT, 1, self._indices.shape, INDEX)
            plan = KernelPlan(self._steps((x, y, indices), has_recycled, is_final), (x, y, indices))
            self._plans[has_recycled, is_final] = plan
        return plan

    def steps(self, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> tuple[PlanStep, ...]:
        """The steps of a plan."""
        operands, is_final = (require(inputs[0]), outputs[0], outputs[-1]), self._is_in_place or self._indices is None
        steps = self._steps(operands, self._y.size >= MIN_RECYCLED_BYTES, is_final)
        return tuple(step.resolve() for step in steps)

    def _steps(
        self, operands: tuple[Operand, Operand, Operand], has_recycled: bool, is_final: bool
    ) -> tuple[KernelStep, ...]:
        """The kernel; a step that reorders the indices, unless they are final; the activation."""
        from unpool.kernels.cpu import indices as recount
        from unpool.kernels.cpu import max_pool as kernels

        call, (x, y, indices) = self._call, operands
        if y.size == 0:
            return ()
        places, after = indices, activation_steps(y, call.spec.activation)
        if not is_final:
            batch, channels = call.large.batch, call.large.channels
            axes: tuple[tuple[int, int], ...] = ((x.size, 1),)
            if call.spec.is_column_major:
                axes = recount.column_major(batch * channels, call.large.spatial)
            outer, lanes = (batch, channels) if self.version.is_channels_last else (1, 1)
            if self.version.is_channels_last:
                places = Operand(Kind.SCRATCH, 1, y.shape, INDEX)
            moved = recount.launch(axes, outer, lanes, indices.size // (outer * lanes))
            after = (KernelStep(moved, (), (places.flat(), indices.flat(is_writable=True))), *after)
        launch, arrays = self._launch_recycled if has_recycled else self._launch_new, (x, y, places)
        return connect(kernels.steps(launch, arrays), after)

    def _run_plain(self, x: Any, threads: int | None) -> tuple[AnyArray, ...]:
        """As `run`, for new outputs, not recycled, that the kernel writes in their final form."""
        if not x.flags.carray:
            x = contiguous(x, self.version)
        y = self._y.new()
        if self._indices is None:
            self._launch_new(x, y, y, threads)
            return (y,)
        indices = self._indices.new()
        self._launch_new(x, y, indices, threads)
        return y, indices
