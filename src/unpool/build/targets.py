"""Systems and processors that libraries are built for."""

import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A system and a kind of processor."""

    name: str  # as the linker knows it
    triple: str  # as LLVM knows it
    system: str  # as `platform.system` has it
    machine: str  # as `platform.machine` has it
    suffix: str  # of libraries
    tag: str  # of wheels
    processors: dict[str, str]  # by level, LLVM's name of the processor

    @property
    def link_options(self) -> tuple[str, ...]:
        """Options of the linker for a library that calls its own functions, and that is the same when built again."""
        return _LINK_OPTIONS.get(self.system, ())

    def file(self, level: str) -> str:
        """The file name of the library for a level."""
        return f"unpool_{level.replace('-', '_')}{self.suffix}"


_LINK_OPTIONS = {
    "Linux": ("-Wl,-z,defs", "-Wl,-Bsymbolic"),  # on other systems, both are the default
    "Windows": ("-Wl,-Brepro",),  # a digest in place of the time
    "Darwin": ("-Wl,-install_name,@rpath/unpool.dylib",),  # in place of the folder of this build
}

_X86 = {level: level for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}
_ARM, _APPLE = {"aarch64": "generic"}, {"aarch64": "apple-m1"}
_MACOS = "apple-macosx11.0.0"

TARGETS = {
    target.name: target
    for target in (
        Target(
            "x86_64-linux-gnu.2.17", "x86_64-unknown-linux-gnu", "Linux", "x86_64", ".so", "manylinux_2_17_x86_64", _X86
        ),
        Target(
            "aarch64-linux-gnu.2.17", "aarch64-unknown-linux-gnu", "Linux", "aarch64", ".so", "manylinux_2_17_aarch64",
            _ARM,
        ),
        Target("x86_64-windows-gnu", "x86_64-w64-windows-gnu", "Windows", "AMD64", ".dll", "win_amd64", _X86),
        Target("x86_64-macos", f"x86_64-{_MACOS}", "Darwin", "x86_64", ".dylib", "macosx_11_0_x86_64", _X86),
        Target("aarch64-macos", f"arm64-{_MACOS}", "Darwin", "arm64", ".dylib", "macosx_11_0_arm64", _APPLE),
    )
}  # fmt: skip
"""Targets by name."""


def host_target() -> Target | None:
    """The target that is this machine; None if there is none."""
    here = platform.system(), platform.machine()
    return next((target for target in TARGETS.values() if (target.system, target.machine) == here), None)
