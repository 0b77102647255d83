"""Providers of a session: selected from the arguments of onnxruntime's constructor, with the GPU memory of CUDA."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from unpool.errors import UnpoolError, UnsupportedError, suggest_name, warn_caller
from unpool.extras import install_advice
from unpool.runtime.backends.openvino_backend import is_installed, require_properties
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.backends.ort_options import CPU, CUDA, OPENVINO, TINY_MODEL, UNPOOL, Provider, Providers
from unpool.runtime.errors import error_class
from unpool.runtime.requirements import onnxruntime

if TYPE_CHECKING:
    from unpool.runtime.backends.cuda import CudaMemory


_HINTS = {
    OPENVINO: f" {install_advice('openvino')}.",
    "OpenVINOExecutionProvider": f" For the package openvino, ask for {OPENVINO!r}.",
}


def get_available_providers() -> list[str]:
    """The available providers: unpool's, those of this build of onnxruntime, and OpenVINO at the end.

    Passing this list does not select OpenVINO, which must come first to get partitions.
    """
    return [UNPOOL, *onnxruntime.get_available_providers(), *([OPENVINO] if is_installed() else [])]


def get_all_providers() -> list[str]:
    """All known providers: unpool's, OpenVINO, and all that onnxruntime knows."""
    return [UNPOOL, OPENVINO, *onnxruntime.get_all_providers()]


def select_providers(
    names: Sequence[Provider] | None, provider_options: Sequence[dict[str, Any]] | None, *, falls_back: bool
) -> Providers | None:
    """The providers of partitions, in the caller's order; the CPU is the last one unless the caller names it.

    1. Without names it is None: options alone have no effect, as in onnxruntime.
    2. OpenVINO is kept only in the first place, because a provider before it takes every partition.
    3. CUDA is left out, with a warning, where onnxruntime has it and cannot start it.
    4. An unknown name is left out, with a warning, if `falls_back`; else it is an error, also a RuntimeError.
    """
    if names is None:
        if isinstance(provider_options, Sequence) and any(provider_options):
            warn_caller("InferenceSession: provider_options have no effect without providers. Name the providers.")
        return None
    available, known = get_available_providers(), get_all_providers()
    selected: dict[str, dict[str, Any]] = {}
    for name, options in _pairs(names, provider_options):
        if name in selected:
            warn_caller(f"InferenceSession: Duplicate provider {name!r}: the first one counts.")
        elif name in available:
            selected[name] = {str(key): str(value) for key, value in options.items()}
        else:
            hint = _HINTS.get(name, "")
            warn_caller(
                f"InferenceSession: provider {name!r} is not available, and left out. "
                f"Available: {', '.join(available)}.{hint}"
            )
            if name not in known and not falls_back:
                raise error_class(UnpoolError, RuntimeError)(
                    f"InferenceSession: Unknown Provider Type: {name}, expected one out of {', '.join(known)}. "
                    f"{suggest_name(name, known)}"
                )
    selected.pop(UNPOOL, None)
    selected.setdefault(CPU, {})
    if next(iter(selected)) == OPENVINO:
        require_properties(selected[OPENVINO])
    else:
        selected.pop(OPENVINO, None)
    providers = Providers(tuple(selected), tuple(selected.values()))
    if providers.cuda is None or _can_start_cuda(providers):
        return providers
    del selected[CUDA]
    return Providers(tuple(selected), tuple(selected.values()))


def _can_start_cuda(providers: Providers) -> bool:
    """True if a session of onnxruntime really has CUDA, tried with a tiny model; warns if nodes run on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    arguments = TINY_MODEL, options, list(providers.names), list(providers.options)
    try:
        session = onnxruntime.InferenceSession(*arguments, enable_fallback=0)
    except Exception as error:
        raise error_class(UnpoolError, type(error))(
            f"{CUDA} refuses its options or its device: {ort_message(error)}. "
            f"Change provider_options, or leave {CUDA} out."
        ) from error
    if CUDA not in session.get_providers():
        warn_caller(
            f"InferenceSession: onnxruntime cannot start {CUDA}, and writes the reason to its log; it is left out. "
            "The CPU runs the model."
        )
        return False
    missing = missing_requirement()
    if missing:
        text = "InferenceSession: nodes of unpool run on the CPU, and values are copied to them and back"
        warn_caller(f"{text}: {missing}")
    return True


def _pairs(
    providers: Sequence[Provider], options: Sequence[dict[str, Any]] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(providers, Sequence) or isinstance(providers, str):
        raise _type_error("a list in providers", providers)
    if options is None:
        pairs = [(provider, {}) if isinstance(provider, str) else provider for provider in providers]
        expected = "names, or pairs of a name and a dict, in providers"
    elif isinstance(options, Sequence) and len(options) == len(providers):
        pairs = list(zip(providers, options, strict=True))  # type: ignore[arg-type]  # checked below
        expected = "names in providers and dicts in provider_options"
    else:
        raise UnpoolError(
            f"InferenceSession: expected one dict in provider_options per provider ({len(providers)}), "
            f"got {len(options) if isinstance(options, Sequence) else options!r}. Give a dict for each provider."
        )
    for pair in pairs:
        is_pair = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], dict)
        if not is_pair:
            raise _type_error(expected, pair)
        yield pair


def _type_error(expected: str, got: object) -> UnpoolError:
    return UnpoolError(
        f"InferenceSession: expected {expected}, got {got!r}. "
        "Pass names such as providers=['CPUExecutionProvider'], or pairs of a name and a dict of options."
    )


def cuda_memory(providers: Providers) -> "CudaMemory | None":
    """The GPU memory in which values stay; None where partitions run on the CPU, or unpool cannot use the GPU."""
    options = providers.cuda
    if options is None or missing_requirement():
        return None
    if options.get("enable_cuda_graph", "0").lower() in ("1", "true"):
        raise UnsupportedError(
            f"{CUDA}: enable_cuda_graph is unsupported, because partitions get memory at other addresses in every run. "
            "Remove the option."
        )
    device, stream = int(options.get("device_id", 0)), int(options.get("user_compute_stream", 0))
    return _memory()(device, stream or None)


def missing_requirement() -> str:
    """The first thing that unpool lacks to run on a GPU, and the way out; "" if it lacks nothing."""
    try:
        import_module("unpool.execute.gpu")
    except ModuleNotFoundError as error:
        return str(error)
    if _memory().is_available():
        return ""
    return "torch finds no GPU here. Install a build of torch with CUDA: https://pytorch.org/get-started"


def _memory() -> "type[CudaMemory]":
    return import_module("unpool.runtime.backends.cuda").CudaMemory  # type: ignore[no-any-return]
