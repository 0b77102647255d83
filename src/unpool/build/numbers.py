"""The numbers by which compiled planners name kernels. `unpool/kernels/cpu/planner/blob.py` defines them."""

from unpool.kernels.cpu.axes import ELEMENTS
from unpool.kernels.cpu.planner import blob

_FAMILIES = {
    "max_pool.tiles._make_kernel": blob.TILES, "max_pool.rolling._make_kernel": blob.ROLLING,
    "max_pool.separable._make_kernel": blob.SEPARABLE, "max_pool.direct._make_kernel": blob.DIRECT,
    "max_pool.doubling._make_kernel": blob.DOUBLING, "indices.recount": blob.RECOUNT,
    "max_unpool.windows._make_kernel": blob.STREAM, "max_unpool.scatter.clear": blob.CLEAR,
    "max_unpool.scatter._check_planes": blob.CHECK, "max_unpool.scatter._in_windows": blob.IN_WINDOWS,
    "max_unpool.scatter.scatter_planes": blob.SCATTER, "planner.max_pool.plan_max_pool": blob.PLAN_MAX_POOL,
    "planner.max_unpool.plan_max_unpool": blob.PLAN_MAX_UNPOOL,
    "planner.conv_transpose.plan_conv_transpose": blob.PLAN_CONV_TRANSPOSE,
    "conv_transpose.algorithm._finite_check": blob.CHECK_FINITE, "convert._make_kernel": blob.CONVERT,
    "copy_rows.copy_rows": blob.COPY_ROWS, "conv_transpose.rows.conv_transpose_rows": blob.ROWS,
    "conv_transpose.phases._make_kernel": blob.PHASES, "conv_transpose.phases_pack._make_kernel": blob.PACK_PHASES,
    "conv_transpose.gemm_1x1.multiply_maps": blob.GEMM_OF_MAPS,
    "conv_transpose.gemm_1x1._make_kernel_of_one": blob.GEMM_OF_ONE,
    "conv_transpose.gemm_1x1._make_kernel": blob.GEMM, "conv_transpose.direct._make_kernel": blob.FEW_CHANNELS,
}  # fmt: skip
_TYPED = (blob.ROWS, blob.COPY_ROWS, blob.GEMM_OF_MAPS)  # whose names do not say the type of elements
_PACKAGE = "unpool.kernels.cpu."
_CONSTANTS = {
    **{name: number for number, name in enumerate(ELEMENTS)}, "int32": 0, "int64": 1, "True": 1, "False": 0,
    "uint16": 5,
}  # fmt: skip
_SIZES = {"int16": 2, "int32": 4, "int64": 8}
_MOST_CONSTANTS = 5


def number_of(name: str, types: str) -> int | None:
    """The number of a kernel, from its name with its constants, and the types of its arguments; None if it has none.

    >>> number_of("unpool.kernels.cpu.max_unpool.windows._make_kernel(4)", "int, int") == blob.STREAM | 4 << 8
    True
    """
    path, _, rest = name.removeprefix(_PACKAGE).partition("(")
    family = _FAMILIES.get(path)
    if family is None:
        return None
    texts = rest.rstrip(")").split(", ") if rest else []
    constants = [_CONSTANTS.get(text, -1) for text in texts]
    constants = [int(text) if known < 0 else known for known, text in zip(constants, texts, strict=True)]
    if family == blob.SCATTER:  # whose name does not say the size of elements
        constants = [_SIZES[types.partition("[")[0]]]
    if family in _TYPED:
        constants = [_CONSTANTS[types.partition("[")[0]]]
    constants += [0] * (_MOST_CONSTANTS - len(constants))
    number: int = blob.kernel_number(family, *constants)
    return number
