"""The packages that a GPU needs, and the error where one is not installed."""

from unpool.extras import require

require("unpool on a GPU", "gpu", "torch", "triton")
