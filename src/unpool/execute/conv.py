"""Conv of stride 1, computed as a ConvTranspose with its windows flipped."""

from collections.abc import Sequence

from unpool.dtypes import AnyArray
from unpool.execute.arrays import CallOptions, InputTypes, OptionalArrays, require
from unpool.execute.conv_transpose import PreparedConvTranspose
from unpool.kernels.cpu.machine.plan import Operand, PlanStep
from unpool.operators import conv
from unpool.operators.conv import ConvSpec, flip_window


def prepare_conv(spec: ConvSpec, inputs: InputTypes, options: CallOptions) -> "PreparedConv | PreparedConvTranspose":
    """A prepared Conv; a prepared ConvTranspose if the weights are flipped already."""
    x, w, *b = inputs
    w_shape, dtype = require(w)
    w_shape = spec.w_shape or w_shape
    transposed = conv.transposed(spec, require(x)[0], w_shape)
    weights = conv.transposed_shape(spec, w_shape), dtype
    prepared = PreparedConvTranspose(transposed, (x, weights, *b), options)
    return PreparedConv(prepared, spec.group) if spec.w_shape is None else prepared


class PreparedConv:
    """Conv for one set of shapes; each call may pass other weights."""

    def __init__(self, transposed: PreparedConvTranspose, group: int) -> None:
        self._transposed, self._group = transposed, group
        self.version, self.outputs, self.nbytes = transposed.version, transposed.outputs, transposed.nbytes
        self.kernel = transposed.kernel

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """Y."""
        x, w, *others = inputs
        return self._transposed.run([x, flip_window(require(w), self._group), *others], out, threads)

    def steps(self, *_: Sequence[Operand | None]) -> tuple[PlanStep, ...] | None:
        """None: a plan has constant weights, which come flipped."""
        return None
