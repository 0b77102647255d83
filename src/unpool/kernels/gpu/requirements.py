"""The packages that a GPU needs, and what to do when they are not there."""

try:
    import torch  # noqa: F401
    import triton  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"unpool on a GPU: needs the packages torch and triton, {error.name} is not installed. "
        "Run: pip install 'unpool[gpu]'",
        name=error.name,
    ) from error
