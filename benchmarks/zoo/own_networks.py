"""Networks with MaxUnpool from benchmarks/architectures.py, which no library of the zoo has.

Each one is exported twice: as unpool.torch.export writes it, with MaxUnpool, under a name that ends with _mu, and as
torch.onnx.export does, with ScatterND.
"""

from typing import TYPE_CHECKING, Any

from benchmarks.architectures import Architecture, Blocks, deconvnet, enet, segnet
from benchmarks.zoo.network import ROUNDING, UNPOOL, Network, image

if TYPE_CHECKING:
    import torch

VOLUME: Blocks = ((16,), (32, 32), (64, 64), (64, 64))
SOUND: Blocks = ((32, 32), (64, 64), (128, 128), (128, 128))
NARROW: Blocks = ((32,), (64,), (64,))


def own(name: str, build: Architecture, shape: tuple[int, ...], *, classes: bool = False, **options: Any) -> Network:
    """A network with weights that keep values near 1."""

    def build_module() -> "torch.nn.Module":
        from benchmarks.zoo.architecture_module import ArchitectureModule

        return ArchitectureModule(build, shape, classes=classes)

    return Network(name, build_module, image(*shape), has_initial_weights=True, share=ROUNDING, **options)


def twice(name: str, *arguments: Any, **options: Any) -> tuple[Network, Network]:
    """A network by both exporters."""
    return own(name, *arguments, **options), own(f"{name}_mu", *arguments, exporter=UNPOOL, **options)


NETWORKS = (
    *twice("own_segnet", segnet(), (1, 3, 160, 224)),
    *twice("own_segnet1d", segnet(SOUND), (4, 12, 1000)),
    *twice("own_segnet3d", segnet(VOLUME), (1, 1, 48, 64, 64)),
    *twice("own_segnet_dyn_argmax", segnet(NARROW), (1, 3, 120, 160), classes=True, dynamic=(2, 3)),
    *twice("own_enet", enet, (1, 3, 512, 512)),
    *twice("own_deconvnet", deconvnet, (1, 3, 224, 224)),
)
