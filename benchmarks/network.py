"""Whole networks as ONNX files with random weights: ours through the session, peers on the same file."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import unpool
from benchmarks.case import Case
from benchmarks.layers import Layers
from benchmarks.one_node import Arrays

VGG_16: tuple[tuple[int, ...], ...] = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
CLASSES = 12


def arrays(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The network's input."""
    return {"x": rng.standard_normal(case.shape, np.float32)}


def model(case: Case, given: Arrays) -> onnx.ModelProto:
    """The network, with the same weights every time."""
    layers = Layers(given["x"].shape)
    spatial = given["x"].shape[2:]
    return layers.model(NETWORKS[case.name](layers, spatial))


def by_unpool(case: Case, given: Arrays, threads: int) -> Callable[[], Any]:
    """A run of our session."""
    session = unpool.InferenceSession(model(case, given).SerializeToString(), threads=threads)
    return lambda: session.run(None, dict(given))


def segnet(layers: Layers, spatial: tuple[int, ...]) -> str:
    """SegNet: VGG-16's convolutions down, mirrored up, MaxUnpool at the indices of each MaxPool."""
    value, places = "x", []
    for block in VGG_16:
        for channels in block:
            value = layers.conv(value, channels, 3)
        value, indices = layers.pool_with_indices(value)
        places.append((indices, spatial))
        spatial = tuple(size // 2 for size in spatial)
    narrower = (64, 64, 128, 256, 512)
    for block, last, (indices, size) in zip(VGG_16[::-1], narrower[::-1], places[::-1], strict=True):
        value = layers.unpool(value, indices, size)
        for channels in (*block[1:], last):
            value = layers.conv(value, channels, 3)
    return layers.conv(value, CLASSES, 1, after="")


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


def unet(layers: Layers, _: tuple[int, ...]) -> str:
    """U-Net with three levels and 16 channels at the top; transposed convolutions of window 2 grow."""
    value, skips = "x", []
    for channels in (16, 32, 64):
        value = layers.conv(layers.conv(value, channels, 3), channels, 3)
        skips.append(value)
        value = layers.pool(value)
    value = layers.conv(layers.conv(value, 128, 3), 128, 3)
    for channels, skip in zip((64, 32, 16), reversed(skips), strict=True):
        value = layers.concat(skip, layers.grow(value, channels, 2, 2, 0))
        value = layers.conv(layers.conv(value, channels, 3), channels, 3)
    return layers.conv(value, 2, 1, after="")


def dcgan(layers: Layers, _: tuple[int, ...]) -> str:
    """DCGAN's generator: noise to 64 by 64 by transposed convolutions alone."""
    value = layers.grow("x", 512, 4, 1, 0)
    for channels in (256, 128, 64):
        value = layers.grow(value, channels, 4, 2, 1)
    return layers.grow(value, 3, 4, 2, 1, after="Tanh")


NETWORKS = {"SegNet": segnet, "ENet": enet, "3-D U-Net": unet, "DCGAN generator": dcgan}
