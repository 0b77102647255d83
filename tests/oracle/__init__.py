"""The contract of the three operators in executable form: plain loops, nothing imported from unpool.

Each function takes ONNX attribute names, `version` (the since_version of a row; None: the newest meaning with
every type) and `layout`. What the contract refuses raises `Refused`.
"""

from tests.oracle.conv_transpose import conv_transpose
from tests.oracle.max_pool import max_pool
from tests.oracle.max_unpool import max_unpool
from tests.oracle.rows import Refused, row_version

__all__ = ["Refused", "conv_transpose", "max_pool", "max_unpool", "row_version"]
