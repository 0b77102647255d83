"""All networks of the zoo, and how names select some of them."""

from collections.abc import Sequence

from benchmarks.zoo import (
    diffusers_networks,
    image_networks,
    later_networks,
    monai_networks,
    own_networks,
    transformers_networks,
    unfitted_networks,
)
from benchmarks.zoo.network import Network

NETWORKS: tuple[Network, ...] = (
    *own_networks.NETWORKS,
    *monai_networks.NETWORKS,
    *transformers_networks.NETWORKS,
    *image_networks.NETWORKS,
    *diffusers_networks.NETWORKS,
    *later_networks.NETWORKS,
    *unfitted_networks.NETWORKS,
)


def matching(names: Sequence[str]) -> list[Network]:
    """The networks with one of these in their names; without names all.

    Raises:
        ValueError: there is none for one of the names.
    """
    for name in names:
        if not any(name in network.name for network in NETWORKS):
            raise ValueError(f"expected networks, found none for {name}. See benchmarks/zoo/networks.py.")
    return [network for network in NETWORKS if not names or any(name in network.name for name in names)]
