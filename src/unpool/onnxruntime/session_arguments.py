"""The arguments of a session but the model, and the options that onnxruntime gets for them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from unpool.onnxruntime.options import (
    CPU,
    DATA_FOLDER,
    DISABLED_OPTIMIZERS,
    clone,
    config_entry,
    has_providers,
    set_config_entry,
    spin_entries,
)
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.register import is_registered, register
from unpool.operators.semantics import Semantics

_BLIND = "WeightBiasQuantization"
"""An optimizer of onnxruntime that takes a ConvTranspose of any domain for its own, and adds nodes in that domain."""


class SessionArguments(NamedTuple):
    """What a session is made with."""

    options: onnxruntime.SessionOptions | None
    semantics: Semantics
    threads: int | None
    disabled: frozenset[str]  # names of passes, and of onnxruntime's optimizers
    has_other_provider: bool = False  # than that of the CPU

    @property
    def optimizes(self) -> bool:
        """True unless the options or another provider leave the model as it is."""
        levels = onnxruntime.GraphOptimizationLevel
        level = levels.ORT_ENABLE_ALL if self.options is None else self.options.graph_optimization_level
        return level not in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_BASIC) and not self.has_other_provider

    @property
    def writes_model(self) -> bool:
        """True if onnxruntime writes its model to a file."""
        return self.options is not None and bool(self.options.optimized_model_filepath)

    @property
    def has_own_nodes(self) -> bool:
        """True if the model may have nodes of unpool's domain.

        A file that onnxruntime writes keeps the names of the standard, so that it runs without the library, and options
        that are registered already may have the library for these names.
        """
        return self.options is None or not (self.writes_model or is_registered(self.options))

    @property
    def has_additions(self) -> bool:
        """True if a copy of the options would lack something: operator libraries or added providers."""
        return self.options is not None and (is_registered(self.options) or has_providers(self.options))

    def session_options(self, *, spins_briefly: bool = True, is_copied: bool) -> onnxruntime.SessionOptions:
        """The caller's options, or a copy of them, with threads, and with the time for which they spin."""
        if self.options is None:
            options = onnxruntime.SessionOptions()
        else:
            options = clone(self.options) if is_copied else self.options
        if self.threads is not None:
            options.intra_op_num_threads = self.threads
        for key, value in spin_entries(options).items() if spins_briefly else ():
            set_config_entry(options, key, value)
        return options

    def registered(
        self,
        opset: int | None,
        *,
        spins_briefly: bool = True,
        is_copied: bool,
        folder: str | None = None,
        domains: str = "all",
    ) -> onnxruntime.SessionOptions:
        """Such options with the library, for the opset of a model, and with the folder of its data files."""
        options = self.session_options(spins_briefly=spins_briefly, is_copied=is_copied)
        if folder is not None:
            set_config_entry(options, DATA_FOLDER, folder)
        if not is_registered(options):
            compat, index_space, exact = self.semantics.compat, self.semantics.index_space, self.semantics.exact
            register(options, exact=exact, compat=compat, index_space=index_space, opset=opset, domains=domains)
        if domains == "unpool" and config_entry(options, DISABLED_OPTIMIZERS) is None:
            set_config_entry(options, DISABLED_OPTIMIZERS, _BLIND)
        return options


def is_other_provider(options: onnxruntime.SessionOptions | None, providers: Sequence[Any] | None) -> bool:
    """True if a session with these has another provider than that of the CPU."""
    names = [each[0] if isinstance(each, tuple) and each else each for each in providers or ()]
    others = set(onnxruntime.get_available_providers()) - {CPU}
    return (options is not None and has_providers(options)) or any(name in names for name in others)
