"""The encoder–decoder networks of the field, small, with seeded random weights, and their export to ONNX."""

import warnings
from itertools import pairwise

import torch
from torch import nn

from unpool.torch import translation_table


def convolutions(rank, *channels):
    """3-wide convolutions between the given channel counts, each with BatchNorm and ReLU; the size stays."""
    conv, norm = (nn.Conv2d, nn.BatchNorm2d) if rank == 2 else (nn.Conv3d, nn.BatchNorm3d)
    layers = []
    for narrow, wide in pairwise(channels):
        layers += [conv(narrow, wide, 3, padding=1, bias=False), norm(wide), nn.ReLU()]
    return nn.Sequential(*layers)


class Levels(nn.Module):
    """Three pools and their unpoolings; without output_size they take multiples of 8, and one row or column more."""

    has_size = True

    def forward(self, x):
        found = []
        for _ in range(3):
            size = x.shape[-2:] if self.has_size else None
            x, indices = nn.functional.max_pool2d(x, 2, return_indices=True)
            found.append((indices, size))
        for indices, size in reversed(found):
            x = nn.functional.max_unpool2d(x * 2, indices, 2, output_size=size)
        return x


class Unsized(Levels):
    has_size = False


class SegNet(nn.Module):
    """Three levels; the decoder uses the encoder's indices, its last stage is a transposed convolution."""

    levels = 3

    def __init__(self):
        super().__init__()
        self.encoders = nn.ModuleList([convolutions(2, 3, 4), convolutions(2, 4, 6), convolutions(2, 6, 8)])
        self.decoders = nn.ModuleList([convolutions(2, 8, 6), convolutions(2, 6, 4)])
        self.last = nn.Sequential(nn.ConvTranspose2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Conv2d(4, 5, 1)
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x):
        stack = []
        for encoder in self.encoders:
            x = encoder(x)
            size = x.shape[2:]
            x, indices = self.pool(x)
            stack.append((indices, size))
        for decoder, (indices, size) in zip([*self.decoders, self.last], reversed(stack), strict=True):
            x = decoder(self.unpool(x, indices, output_size=size))
        return self.head(x)


class Bottleneck(nn.Module):
    """ENet's residual block at one size: 1×1, a middle convolution, 1×1, added to the input."""

    def __init__(self, channels, *middle):
        super().__init__()
        narrow = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(channels, narrow, 1, bias=False), nn.BatchNorm2d(narrow), nn.PReLU(),
            *middle, nn.BatchNorm2d(narrow), nn.PReLU(),
            nn.Conv2d(narrow, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.activation = nn.PReLU()

    def forward(self, x):
        return self.activation(x + self.branch(x))


class Downsampling(nn.Module):
    """ENet's block to half the size: a pool that keeps its indices beside a strided branch."""

    def __init__(self, channels, wide):
        super().__init__()
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.branch = nn.Sequential(
            nn.Conv2d(channels, channels, 2, 2, bias=False), nn.BatchNorm2d(channels), nn.PReLU(),
            nn.Conv2d(channels, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide),
        )  # fmt: skip
        self.extra = wide - channels
        self.activation = nn.PReLU()

    def forward(self, x):
        main, indices = self.pool(x)
        main = nn.functional.pad(main, (0, 0, 0, 0, 0, self.extra))
        return self.activation(main + self.branch(x)), indices


class Upsampling(nn.Module):
    """ENet's block to double size: MaxUnpool on the main branch beside a transposed convolution."""

    def __init__(self, wide, channels):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))
        self.unpool = nn.MaxUnpool2d(2)
        self.narrow = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.grow = nn.ConvTranspose2d(channels, channels, 2, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.activation = nn.ReLU()

    def forward(self, x, indices, size):
        main = self.unpool(self.main(x), indices, output_size=size)
        return self.activation(main + self.norm(self.grow(self.narrow(x), output_size=size)))


class ENet(nn.Module):
    """ENet in small: regular, dilated and asymmetric bottlenecks between two poolings and two unpoolings."""

    levels = 2

    def __init__(self):
        super().__init__()
        self.start = nn.Conv2d(3, 5, 3, stride=2, padding=1)
        self.start_pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList([Downsampling(8, 12), Downsampling(12, 16)])
        self.middle = nn.ModuleList(
            [
                Bottleneck(12, nn.Conv2d(6, 6, 3, padding=1)),
                nn.Sequential(
                    Bottleneck(16, nn.Conv2d(8, 8, 3, padding=2, dilation=2)),
                    Bottleneck(16, nn.Conv2d(8, 8, (5, 1), padding=(2, 0)), nn.Conv2d(8, 8, (1, 5), padding=(0, 2))),
                ),
            ]
        )
        self.up = nn.ModuleList([Upsampling(16, 12), Upsampling(12, 8)])
        self.last = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        x = torch.cat([self.start(x), self.start_pool(x)], dim=1)
        stack = []
        for down, middle in zip(self.down, self.middle, strict=True):
            size = x.shape[2:]
            x, indices = down(x)
            x = middle(x)
            stack.append((indices, size))
        for up, (indices, size) in zip(self.up, reversed(stack), strict=True):
            x = up(x, indices, size)
        return self.last(x)


class UNet(nn.Module):
    """Two levels with skip connections; a transposed convolution of window and stride 2 grows each level."""

    def __init__(self, rank):
        super().__init__()
        grow = nn.ConvTranspose2d if rank == 2 else nn.ConvTranspose3d
        self.pool = nn.MaxPool2d(2) if rank == 2 else nn.MaxPool3d(2)
        self.down = nn.ModuleList([convolutions(rank, 1, 4, 4), convolutions(rank, 4, 6)])
        self.middle = convolutions(rank, 6, 8)
        self.grow = nn.ModuleList([grow(8, 6, 2, stride=2), grow(6, 4, 2, stride=2)])
        self.up = nn.ModuleList([convolutions(rank, 12, 6), convolutions(rank, 8, 4)])
        self.head = (nn.Conv2d if rank == 2 else nn.Conv3d)(4, 2, 1)

    def forward(self, x):
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for grow, up, skip in zip(self.grow, self.up, reversed(skips), strict=True):
            x = up(torch.cat([skip, grow(x)], dim=1))
        return self.head(x)


class FCN(nn.Module):
    """FCN-8-like: scores at an eighth of the size, grown by a bilinear transposed convolution per class."""

    def __init__(self, classes=3):
        super().__init__()
        self.features = nn.Sequential(
            convolutions(2, 3, 4), nn.MaxPool2d(2), convolutions(2, 4, 6), nn.MaxPool2d(2),
            convolutions(2, 6, 8), nn.MaxPool2d(2),
        )  # fmt: skip
        self.score = nn.Conv2d(8, classes, 1)
        self.grow = nn.ConvTranspose2d(classes, classes, 16, stride=8, padding=4, groups=classes, bias=False)

    def forward(self, x):
        return self.grow(self.score(self.features(x)))

    def set_bilinear(self):
        """Weights with which the transposed convolution is bilinear interpolation."""
        taps = 1 - (torch.arange(16) - 7.5).abs() / 8
        self.grow.weight.data = (taps[:, None] * taps).expand_as(self.grow.weight).clone()


class Generator(nn.Module):
    """DCGAN's generator: noise of size 1×1 grown to an image by transposed convolutions alone."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(10, 12, 4, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
            nn.ConvTranspose2d(12, 6, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
            nn.ConvTranspose2d(6, 3, 4, stride=2, padding=1, bias=False), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


CONVOLUTIONS = (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)

BUILDERS = {
    "SegNet": (SegNet, (2, 3, 23, 29)),
    "ENet": (ENet, (1, 3, 28, 36)),
    "U-Net 2-D": (lambda: UNet(2), (1, 1, 20, 24)),
    "U-Net 3-D": (lambda: UNet(3), (1, 1, 8, 12, 4)),
    "FCN": (FCN, (1, 3, 24, 32)),
    "DCGAN": (Generator, (2, 10, 1, 1)),
}
"""name -> how it is built, and the shape of its input. SegNet and ENet meet odd sizes on the way."""


def build(name, dtype=torch.float32):
    """The network in evaluation mode with seeded weights and BatchNorm statistics, and an input for it."""
    torch.manual_seed(20)
    builder, shape = BUILDERS[name]
    network = builder()
    for module in network.modules():
        if isinstance(module, CONVOLUTIONS):
            nn.init.kaiming_normal_(module.weight)
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    if isinstance(network, FCN):
        network.set_bilinear()
    return network.to(dtype).eval(), torch.randn(shape, dtype=dtype)


def export(network, example, *, opset=None, dynamic_shapes=None, is_translated=True):
    """The network as an ONNX model, written with the translation table of unpool, or as torch writes it.

    torch warns about its own internals on the way; that is not what these tests watch.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network,
            (example,),
            dynamo=True,
            verbose=False,
            opset_version=opset,
            input_names=["x"],
            output_names=["y"],
            dynamic_shapes=dynamic_shapes,
            custom_translation_table=translation_table(opset) if is_translated else None,
        )
    return program.model_proto
