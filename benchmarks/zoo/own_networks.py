"""Networks with MaxUnpool from benchmarks/architectures.py, which no library of the zoo has.

Each one is exported twice: as unpool.torch.export writes it, with MaxUnpool, under a name that ends with _mu, and as
torch.onnx.export does, with ScatterND.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarks.architectures import Architecture, Blocks, deconvnet, enet, segnet
from benchmarks.zoo.network import TORCH, UNPOOL, Network, image

if TYPE_CHECKING:
    import torch

VOLUME: Blocks = ((16,), (32, 32), (64, 64), (64, 64))
SOUND: Blocks = ((32, 32), (64, 64), (128, 128), (128, 128))
THIRD: Blocks = ((32,), (64,), (64,))

SHAPES: dict[str, tuple[Architecture, tuple[int, ...]]] = {
    "own_segnet": (segnet(), (1, 3, 160, 224)),
    "own_segnet1d": (segnet(SOUND), (4, 12, 1000)),
    "own_segnet3d": (segnet(VOLUME), (1, 1, 48, 64, 64)),
    "own_enet": (enet, (1, 3, 512, 512)),
    "own_deconvnet": (deconvnet, (1, 3, 224, 224)),
}
LABELS = (1, 3, 120, 160)


def module(build: Architecture, shape: Sequence[int], *, classes: bool = False) -> "torch.nn.Module":
    """The architecture as a module of torch."""
    from benchmarks.zoo.architecture_module import ArchitectureModule

    return ArchitectureModule(build, shape, classes=classes)


def twice() -> Iterator[Network]:
    """Every network of SHAPES, by both exporters."""
    for name, (build, shape) in SHAPES.items():
        for suffix, exporter in (("", TORCH), ("_mu", UNPOOL)):
            yield Network(f"{name}{suffix}", lambda b=build, s=shape: module(b, s), image(*shape), exporter=exporter)  # type: ignore[misc]


NETWORKS = (
    *twice(),
    Network(
        "own_segnet_dyn_argmax", lambda: module(segnet(THIRD), LABELS, classes=True), image(*LABELS), dynamic=(2, 3),
    ),
    Network(
        "own_segnet_dyn_argmax_mu", lambda: module(segnet(THIRD), LABELS, classes=True), image(*LABELS),
        dynamic=(2, 3), exporter=UNPOOL,
    ),
)  # fmt: skip
