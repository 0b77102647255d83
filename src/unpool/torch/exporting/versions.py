"""Which opsets have the operators of unpool, and with which types."""

from unpool.errors import UnsupportedError
from unpool.operators import contract

FIRST_OPSET = 9
"""The first opset with MaxUnpool."""


def check_opset(where: str, opset: int | None) -> None:
    """Refuse opsets without MaxUnpool.

    Raises:
        UnsupportedError: opset is below 9.
    """
    if opset is not None and opset < FIRST_OPSET:
        raise UnsupportedError(
            f"{where}: opset must be at least {FIRST_OPSET}, the first with MaxUnpool, "
            f"got {opset}. Export with a newer opset_version."
        )


def check_type(operator: str, opset: int, dtype: str) -> None:
    """Refuse types that the operator has only in later opsets, if at all.

    Args:
        operator: one of unpool's.
        opset: of the file.
        dtype: NumPy's name of the type.

    Raises:
        UnsupportedError: the operator's version in this opset has no such type.
    """
    row = contract.row(operator, "", opset)
    if dtype not in row.value_types:
        later = [one.since_version for one in contract.rows_of(operator, "") if dtype in one.value_types]
        where = f"Export with opset_version {later[0]} or later" if later else "Export another type"
        raise UnsupportedError(
            f"export: {operator}-{row.since_version} of opset {opset} takes {', '.join(row.value_types)}, "
            f"got {dtype}. {where}."
        )
