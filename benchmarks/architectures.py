"""Networks as they are published, at their real widths: each takes layers and gives the name of its output.

Only "U-Net" and "3-D U-Net" are narrower than in their papers, as those that run on CPUs often are.
"""

from collections.abc import Callable
from typing import TypeAlias

from benchmarks.layers import Layers

Blocks: TypeAlias = tuple[tuple[int, ...], ...]
"""Of every level, the channels of its convolutions."""

VGG_16: Blocks = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
CLASSES = 12
VOC_CLASSES = 21
LEAKY = "LeakyRelu"


def segnet(blocks: Blocks = VGG_16) -> "Architecture":
    """SegNet: blocks of convolutions down, mirrored up, MaxUnpool at the indices of each MaxPool."""

    def build(layers: Layers, spatial: tuple[int, ...]) -> str:
        value, places = _down(layers, spatial, blocks)
        value = _up(layers, value, places, blocks, lambda value, channels: layers.conv(value, channels, 3))
        return layers.conv(value, CLASSES, 1, after="")

    return build


Places: TypeAlias = list[tuple[str, tuple[int, ...]]]
"""Of every pool, its indices and the size of its input."""


def _down(layers: Layers, spatial: tuple[int, ...], blocks: Blocks = VGG_16) -> tuple[str, Places]:
    """The convolutions of each block, and a pool with indices after it."""
    value, places = "x", []
    for block in blocks:
        for channels in block:
            value = layers.conv(value, channels, 3)
        value, indices = layers.pool_with_indices(value)
        places.append((indices, spatial))
        spatial = tuple(size // 2 for size in spatial)
    return value, places


def _up(layers: Layers, value: str, places: Places, blocks: Blocks, layer: Callable[[str, int], str]) -> str:
    """The same backwards, with unpools, and layers that are given a value and how many channels to make."""
    narrower = (blocks[0][0], *(block[-1] for block in blocks[:-1]))
    for block, last, (indices, size) in zip(blocks[::-1], narrower[::-1], places[::-1], strict=True):
        value = layers.unpool(value, indices, size)
        for channels in (*block[1:], last):
            value = layer(value, channels)
    return value


def enet(layers: Layers, spatial: tuple[int, ...]) -> str:
    """Like ENet: two pools with indices, dilated and asymmetric bottlenecks at an eighth of the size, two unpools."""
    value = layers.concat(layers.conv("x", 13, 3, stride=2), layers.pool("x"))
    places = []
    spatial = tuple(size // 2 for size in spatial)
    for channels, dilations in ((64, (1, 1, 1, 1)), (128, (1, 2, 0, 4, 1, 8, 0, 16) * 2)):
        pooled, indices = layers.pool_with_indices(value)
        places.append((indices, spatial, layers.channels(value)))
        spatial = tuple(size // 2 for size in spatial)
        narrow = layers.conv(layers.conv(value, channels // 4, 2, stride=2), channels // 4, 3)
        value = layers.add(layers.conv(pooled, channels, 1, after=""), layers.conv(narrow, channels, 1, after=""))
        for dilation in dilations:
            value = _bottleneck(layers, value, dilation)
    for indices, size, channels in reversed(places):
        main = layers.unpool(layers.conv(value, channels, 1, after=""), indices, size)
        grown = layers.grow(layers.conv(value, channels, 1), channels, 3, 2, 1, after="")
        value = _bottleneck(layers, layers.add(main, grown), 1)
    return layers.grow(value, CLASSES, 2, 2, 0, after="")


def _bottleneck(layers: Layers, value: str, dilation: int) -> str:
    """A quarter of the channels and back; dilation 0 stands for a window of 5 by 1 and one of 1 by 5."""
    channels = layers.channels(value)
    narrow = layers.conv(value, channels // 4, 1)
    if dilation:
        narrow = layers.conv(narrow, channels // 4, 3, dilation=dilation)
    else:
        narrow = layers.conv(layers.conv(narrow, channels // 4, (5, 1)), channels // 4, (1, 5))
    return layers.add(value, layers.conv(narrow, channels, 1, after=""))


def deconvnet(layers: Layers, spatial: tuple[int, ...]) -> str:
    """DeconvNet for 224 by 224: VGG-16 with its fully connected layers, and the same backwards, by ConvTranspose."""
    value, places = _down(layers, spatial)
    value = layers.conv(layers.conv(value, 4096, 7, pad=0), 4096, 1)
    value = layers.grow(value, 512, 7, 1, 0)
    value = _up(layers, value, places, VGG_16, lambda value, channels: layers.grow(value, channels, 3, 1, 1))
    return layers.conv(value, VOC_CLASSES, 1, after="")


def fcn_8s(layers: Layers, _: tuple[int, ...]) -> str:
    """FCN-8s, its input padded at the start: VGG-16, scores at 1/8, 1/16 and 1/32 of the size, grown and added."""
    value, pooled = "x", []
    for block in VGG_16:
        for channels in block:
            value = layers.conv(value, channels, 3)
        value = layers.pool(value)
        pooled.append(value)
    value = layers.conv(layers.conv(value, 4096, 7), 4096, 1)
    scores = layers.conv(value, VOC_CLASSES, 1, after="")
    for skip in (pooled[3], pooled[2]):
        grown = layers.grow(scores, VOC_CLASSES, 4, 2, 1, after="")
        scores = layers.sum(grown, layers.conv(skip, VOC_CLASSES, 1, after=""))
    return layers.grow(scores, VOC_CLASSES, 16, 8, 4, after="")


def u_net(*widths: int) -> "Architecture":
    """U-Net over any axes with so many channels in its levels: two windows of 3 in each, windows of 2 that grow."""

    def build(layers: Layers, _: tuple[int, ...]) -> str:
        value, skips = "x", []
        for channels in widths[:-1]:
            value = layers.conv(layers.conv(value, channels, 3), channels, 3)
            skips.append(value)
            value = layers.pool(value)
        value = layers.conv(layers.conv(value, widths[-1], 3), widths[-1], 3)
        for channels, skip in zip(widths[-2::-1], reversed(skips), strict=True):
            value = layers.concat(skip, layers.grow(value, channels, 2, 2, 0))
            value = layers.conv(layers.conv(value, channels, 3), channels, 3)
        return layers.conv(value, 2, 1, after="")

    return build


def unet_3d(layers: Layers, _: tuple[int, ...]) -> str:
    """3-D U-Net of the paper: 32 to 512 channels, twice as many in the second convolution of a level."""
    value, skips = "x", []
    for channels in (32, 64, 128):
        value = layers.conv(layers.conv(value, channels, 3), 2 * channels, 3)
        skips.append(value)
        value = layers.pool(value)
    value = layers.conv(layers.conv(value, 256, 3), 512, 3)
    for channels, skip in zip((256, 128, 64), reversed(skips), strict=True):
        value = layers.concat(skip, layers.grow(value, 2 * channels, 2, 2, 0))
        value = layers.conv(layers.conv(value, channels, 3), channels, 3)
    return layers.conv(value, 3, 1, after="")


def dcgan(widest: int) -> "Architecture":
    """DCGAN's generator: noise to 64 by 64 by transposed convolutions alone, so many channels after the first."""

    def build(layers: Layers, _: tuple[int, ...]) -> str:
        value = layers.grow("x", widest, 4, 1, 0)
        for channels in (widest // 2, widest // 4, widest // 8):
            value = layers.grow(value, channels, 4, 2, 1)
        return layers.grow(value, 3, 4, 2, 1, after="Tanh")

    return build


def pix2pix(layers: Layers, _: tuple[int, ...]) -> str:
    """pix2pix's generator for 256 by 256: eight steps down by windows of 4, eight up, with skips."""
    value, skips = "x", []
    for channels in (64, 128, 256, 512, 512, 512, 512, 512):
        value = layers.conv(value, channels, 4, stride=2, pad=1, after=LEAKY)
        skips.append(value)
    value = layers.grow(skips.pop(), 512, 4, 2, 1)
    for channels in (512, 512, 512, 256, 128, 64):
        value = layers.grow(layers.concat(value, skips.pop()), channels, 4, 2, 1)
    return layers.grow(layers.concat(value, skips.pop()), 3, 4, 2, 1, after="Tanh")


def cyclegan(layers: Layers, _: tuple[int, ...]) -> str:
    """CycleGAN's generator with six residual blocks; every layer is normalised over the image."""

    def normal(value: str) -> str:
        return layers.after("Relu", layers.normalise(value))

    value = normal(layers.conv("x", 64, 7, after=""))
    for channels in (128, 256):
        value = normal(layers.conv(value, channels, 3, stride=2, after=""))
    for _block in range(6):
        inner = normal(layers.conv(value, 256, 3, after=""))
        value = layers.add(value, layers.normalise(layers.conv(inner, 256, 3, after="")))
    for channels in (128, 64):
        value = normal(layers.grow(value, channels, 3, 2, 1, after=""))
    return layers.conv(value, 3, 7, after="Tanh")


def vocoder(layers: Layers, _: tuple[int, ...]) -> str:
    """HiFi-GAN's third generator: a spectrum to sound, 256 samples per column; blocks of dilated windows."""
    value = layers.conv("x", 256, 7, after=LEAKY)
    for channels, (stride, window) in zip((128, 64, 32), ((8, 16), (8, 16), (4, 8)), strict=True):
        value = layers.grow(value, channels, window, stride, (window - stride) // 2, after="")
        for size in (3, 5, 7):
            inner = layers.conv(layers.after(LEAKY, value), channels, size, dilation=1, after=LEAKY)
            value = layers.add(value, layers.conv(inner, channels, size, dilation=2, after=""))
    return layers.conv(value, 1, 7, after="Tanh")


Architecture = Callable[[Layers, tuple[int, ...]], str]

NETWORKS: dict[str, Architecture] = {
    "SegNet": segnet(),
    "ENet": enet,
    "DeconvNet": deconvnet,
    "FCN-8s": fcn_8s,
    "3-D U-Net": u_net(16, 32, 64, 128),
    "3-D U-Net of the paper": unet_3d,
    "DCGAN generator": dcgan(512),
    "DCGAN generator, 8 images": dcgan(512),
    "DCGAN generator of the paper": dcgan(1024),
    "U-Net": u_net(16, 32, 64, 128, 256),
    "U-Net of the paper": u_net(64, 128, 256, 512, 1024),
    "pix2pix": pix2pix,
    "CycleGAN": cyclegan,
    "vocoder": vocoder,
}
