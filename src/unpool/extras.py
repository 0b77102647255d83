"""Extras: their packages, how to install them, and the error for a missing package, which `require` raises."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

from unpool.errors import MissingExtraError

SOURCE = "."
"""pip's name of unpool: "." inside a clone of the repository, as it is on no index. A release there sets "unpool"."""

EXTRAS: Mapping[str, tuple[str, Sequence[str]]] = {
    "jit": ("kernels that are not shipped as machine code", ("numba",)),
    "run": ("whole models and the command line", ("onnx", "onnxruntime", "typer", "rich", "PIL", "tifffile", "jinja2")),
    "demo": ("unpool demo", ("skimage",)),
    "torch": ("operators for torch and unpool export", ("torch", "onnxscript")),
    "dask": ("arrays larger than memory, clusters", ("dask", "distributed", "zarr", "numcodecs", "bokeh")),
    "formats": ("compressed TIFF, NIfTI, Zarr", ("imagecodecs", "nibabel", "zarr", "numcodecs")),
    "gpu": ("operators on NVIDIA GPUs", ("torch", "triton")),
    "openvino": ("operators in OpenVINO, sessions with tune=True, checks of unpool lower", ("openvino",)),
}
"""Extra -> its purpose, and the modules that it brings."""

_PACKAGES = {"PIL": "pillow", "skimage": "scikit-image"}  # module -> its package, if pip has another name for it


def install_line(*extras: str) -> str:
    """The command that installs extras."""
    return f"pip install '{SOURCE}[{','.join(extras)}]'"


def install_advice(*extras: str) -> str:
    """The end of a message: the command that installs extras, without a full stop.

    >>> install_advice("formats")
    "In a clone of unpool, run: pip install '.[formats]'"
    """
    return f"{'In a clone of unpool, run' if SOURCE == '.' else 'Run'}: {install_line(*extras)}"


def missing_modules(names: Iterable[str]) -> list[str]:
    """Names of the modules that cannot be imported here, in the order given; none is imported.

    >>> missing_modules(["sys", "a_module_that_does_not_exist"])
    ['a_module_that_does_not_exist']
    """
    return [name for name in names if find_spec(name) is None]


def missing_extra(where: str, extra: str, modules: Sequence[str]) -> MissingExtraError:
    """The error for missing modules of an extra; `where` begins its message: a file, an option or a function.

    >>> print(missing_extra("unpool demo", "demo", ["skimage"]))
    unpool demo: scikit-image is not installed. In a clone of unpool, run: pip install '.[demo]'
    """
    names = [_PACKAGES.get(module, module) for module in modules]
    fact = f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not installed"
    return MissingExtraError(f"{where}: {fact}. {install_advice(extra)}", name=modules[0])


def require(where: str, extra: str, *modules: str) -> None:
    """Raise a MissingExtraError if a module cannot be imported; none is imported."""
    missing = missing_modules(modules)
    if missing:
        raise missing_extra(where, extra, missing)


def extra_of(module: str) -> str | None:
    """The first extra with a module, or None."""
    return next((extra for extra, (_, modules) in EXTRAS.items() if module in modules), None)
