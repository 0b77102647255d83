"""A SegNet of three levels: pools keep their indices, the decoder puts every maximum back where it was."""

from itertools import pairwise

import torch
from torch import Tensor, nn

WIDTHS = (16, 32, 48)
CLASSES = ("background", "coin")
MEAN, DEVIATION = 97.0, 54.0


def convolutions(*channels: int, dilation: int = 1) -> nn.Sequential:
    """3×3 convolutions between the given channel counts, each with BatchNorm and ReLU; the size stays."""
    layers: list[nn.Module] = []
    for narrow, wide in pairwise(channels):
        layers.append(nn.Conv2d(narrow, wide, 3, padding=dilation, dilation=dilation, bias=False))
        layers += [nn.BatchNorm2d(wide), nn.ReLU()]
    return nn.Sequential(*layers)


class SegNet(nn.Module):
    """Grey image (N, 1, H, W), values 0..255, to logits (N, 2, H, W). H and W may be odd at every level."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = WIDTHS
        self.encoders = nn.ModuleList(
            [
                convolutions(1, first, first),
                convolutions(first, second, second),
                convolutions(second, third, third),
            ]
        )
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)
        self.middle = convolutions(third, third, dilation=2)
        last = nn.Sequential(
            nn.ConvTranspose2d(first, first, 3, padding=1, bias=False), nn.BatchNorm2d(first), nn.ReLU()
        )
        self.decoders = nn.ModuleList([convolutions(third, second), convolutions(second, first), last])
        self.head = nn.Conv2d(first, len(CLASSES), 1)

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the two CLASSES at every pixel."""
        x = (image - MEAN) / DEVIATION
        levels: list[tuple[Tensor, torch.Size]] = []
        for encoder in self.encoders:
            x = encoder(x)
            size = x.shape[2:]
            x, indices = self.pool(x)
            levels.append((indices, size))
        x = self.middle(x)
        for decoder, (indices, size) in zip(self.decoders, reversed(levels), strict=True):
            x = decoder(self.unpool(x, indices, output_size=size))
        return self.head(x)
