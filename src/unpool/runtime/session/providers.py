"""The providers of a session, from what onnxruntime's own constructor takes; those that are not there are warned of."""

from collections.abc import Iterator, Sequence
from typing import Any

from unpool.errors import UnpoolError, suggest_name, warn_caller
from unpool.extras import install_advice
from unpool.runtime.errors import also
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.cuda_choice import what_is_missing
from unpool.runtime.runners.openvino_device import is_installed, require_properties
from unpool.runtime.runners.ort_copies import TINY
from unpool.runtime.runners.ort_options import CPU, CUDA, OPENVINO, OURS, Provider, Providers
from unpool.runtime.runners.ort_piece import short

_HINTS = {
    OPENVINO: f" {install_advice('openvino')}.",
    "OpenVINOExecutionProvider": f" For the package openvino, ask for {OPENVINO!r}.",
}


def get_available_providers() -> list[str]:
    """The providers that a session may be asked for: ours, those of this build of onnxruntime, and OpenVINO at the end.

    So a session that is given this list is none of OpenVINO's: that gets pieces only where it stands first.
    """
    return [OURS, *onnxruntime.get_available_providers(), *([OPENVINO] if is_installed() else [])]


def get_all_providers() -> list[str]:
    """The providers that there could be: ours, OpenVINO, and all that onnxruntime knows."""
    return [OURS, OPENVINO, *onnxruntime.get_all_providers()]


def providers_of(
    asked: Sequence[Provider] | None, asked_options: Sequence[dict[str, Any]] | None, *, falls_back: bool = True
) -> Providers:
    """The providers of the pieces, in the order asked for; the CPU is the last one unless it was asked for.

    OpenVINO is among them only where it stands first: what is asked before it takes every piece. CUDA is left out,
    behind a warning, where onnxruntime has it and cannot start it.

    Args:
        asked: names, or pairs of a name and options.
        asked_options: one dict per name.
        falls_back: whether a name that nobody knows is left out, behind its warning.

    Raises:
        UnpoolError: what was asked for makes no sense; or nobody knows a name, then also a RuntimeError; or CUDA
            refuses its options or its device, then also what onnxruntime raises.
    """
    available, known = get_available_providers(), get_all_providers()
    found: dict[str, dict[str, Any]] = {}
    for name, options in _pairs(asked or (), asked_options):
        if name in found:
            warn_caller(f"InferenceSession: Duplicate provider {name!r}: the first one counts.")
        elif name in available:
            found[name] = {str(key): str(value) for key, value in options.items()}
        else:
            hint = _HINTS.get(name, "")
            warn_caller(
                f"InferenceSession: provider {name!r} is not available, and left out. "
                f"Available: {', '.join(available)}.{hint}"
            )
            if name not in known and not falls_back:
                raise also(UnpoolError, RuntimeError)(
                    f"InferenceSession: Unknown Provider Type: {name}, expected one out of {', '.join(known)}. "
                    f"{suggest_name(name, known)}"
                )
    found.pop(OURS, None)
    found.setdefault(CPU, {})
    if next(iter(found)) == OPENVINO:
        require_properties(found[OPENVINO])
    else:
        found.pop(OPENVINO, None)
    providers = Providers(tuple(found), tuple(found.values()))
    if providers.cuda is not None and not _starts(providers):
        warn_caller(
            f"InferenceSession: onnxruntime cannot start {CUDA}, and says why in its log; it is left out. "
            "The CPU runs the model."
        )
        del found[CUDA]
        return Providers(tuple(found), tuple(found.values()))
    missing = "" if providers.cuda is None else what_is_missing()
    if missing:
        warn_caller(
            f"InferenceSession: nodes of unpool run on the CPU, and values are copied to them and back: {missing}"
        )
    return providers


def _starts(providers: Providers) -> bool:
    """Whether a session of onnxruntime has CUDA in fact, by one that does nothing."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            TINY, options, list(providers.names), list(providers.options), enable_fallback=0
        )
    except Exception as error:
        raise also(UnpoolError, type(error))(
            f"{CUDA}: expected options and a device that it takes, got its refusal: {short(error)}. "
            f"Change provider_options, or leave {CUDA} out."
        ) from error
    return CUDA in session.get_providers()


def _pairs(asked: Sequence[Provider], options: Sequence[dict[str, Any]] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every name with its options."""
    if not isinstance(asked, Sequence) or isinstance(asked, str):
        raise _refusal("a list in providers", asked)
    if options is None:
        for one in asked:
            pair = (one, {}) if isinstance(one, str) else one
            if not _is_pair(pair):
                raise _refusal("names, or pairs of a name and a dict, in providers", one)
            yield pair
        return
    if not isinstance(options, Sequence) or len(options) != len(asked):
        raise UnpoolError(
            f"InferenceSession: expected one dict in provider_options per provider ({len(asked)}), "
            f"got {len(options) if isinstance(options, Sequence) else options!r}. Give as many."
        )
    for name, own in zip(asked, options, strict=True):
        if not _is_pair((name, own)):
            raise _refusal("names in providers and dicts in provider_options", (name, own))
        yield str(name), own


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], dict)


def _refusal(expected: str, got: object) -> UnpoolError:
    return UnpoolError(
        f"InferenceSession: expected {expected}, got {got!r}. "
        "Pass names such as providers=['CPUExecutionProvider'], or pairs of a name and a dict of options."
    )
