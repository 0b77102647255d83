"""unpool beside PyTorch: export that keeps MaxUnpool. Needs the extra `torch`."""

from importlib.util import find_spec

for _package in ("torch", "onnxscript"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(
            f"unpool.torch: expected the package {_package}, it is not installed. Run: pip install 'unpool[torch]'",
            name=_package,
        )

from unpool.torch.export import translation_table  # noqa: E402 - only after the check above

__all__ = ["translation_table"]
