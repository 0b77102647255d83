"""Every case that is measured, named after a network that makes the call, with its goals."""

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from benchmarks.case import FRESH, POOLED, Call, Case, Goal, Training

Goals = dict[str, Goal]


def _goals(must: float, stretch: float | None = None, fresh: float | None = None) -> Goals:
    goals = {POOLED: Goal(must, stretch)}
    return goals if fresh is None else {**goals, FRESH: Goal(fresh)}


def _pool(name: str, shape: tuple[int, ...], window: tuple[int, int, int], goals: Goals) -> Call:
    """A max pool with indices; `window` is size, stride and pad."""
    size, stride, pad = window
    return Call(
        suite="max_pool", operator="max_pool", name=name, shape=shape,
        window=size, stride=stride, pad=pad, indices=True, goals=goals,
    )  # fmt: skip


_STEM_8 = _pool("ResNet stem, 8 images", (8, 64, 112, 112), (3, 2, 1), _goals(14, 20))
_STEM_1 = _pool("ResNet stem, 1 image", (1, 64, 112, 112), (3, 2, 1), _goals(25, 33))
_VGG = _pool("VGG-16 pool 1, 8 images", (8, 64, 224, 224), (2, 2, 0), _goals(10, 13, fresh=6))
_UNET = _pool("U-Net pool 1", (1, 64, 512, 512), (2, 2, 0), _goals(10, 13, fresh=6))
_INCEPTION = _pool("Inception pool, 8 images", (8, 256, 14, 14), (3, 1, 1), _goals(30, 45))
_SPP_5 = _pool("YOLO SPP 5, 8 images", (8, 64, 56, 56), (5, 1, 2), _goals(30, 75))
_SPP_13 = _pool("YOLO SPP 13", (1, 32, 256, 256), (13, 1, 6), _goals(50, 110))


def _values(call: Call, goals: Goals) -> Call:
    return replace(call, indices=False, name=f"{call.name}, values only", goals=goals)


def _half(call: Call, dtype: str) -> Call:
    return replace(call, dtype=dtype, goals={POOLED: Goal(25, limit_share=0.85)})


def _last(call: Call, goals: Goals) -> Call:
    return replace(call, layout="NHWC", name=f"{call.name}, NHWC", goals=goals)


MAX_POOL = (
    _VGG,
    _UNET,
    _STEM_8,
    _STEM_1,
    _INCEPTION,
    _SPP_5,
    _SPP_13,
    _values(_VGG, _goals(1.8, 2.5)),
    _values(_UNET, _goals(1.8, 2.5)),
    _values(_STEM_8, _goals(1.8, 2.5)),
    _values(_STEM_1, _goals(1.4, 2)),
    _values(_INCEPTION, _goals(1.4, 2)),
    _values(_SPP_5, _goals(3, 4)),
    _values(_SPP_13, _goals(6, 8)),
    _pool("3-D U-Net pool 1", (1, 16, 64, 64, 64), (2, 2, 0), _goals(8, 15)),
    _pool("M5 audio pool, 16 clips", (16, 64, 8192), (4, 4, 0), _goals(8, 15)),
    replace(_pool("DRN dilated pool, 8 images", (8, 64, 56, 56), (3, 1, 1), _goals(8, 15)), dilation=2),
    replace(_VGG, dtype="uint8", goals=_goals(8, 15)),
    *(_half(call, dtype) for call in (_STEM_8, _VGG) for dtype in ("float16", "bfloat16")),
    replace(_values(_VGG, {}), dtype="float16"),
    _last(_STEM_8, _goals(1.1, 1.4)),
    _last(_VGG, _goals(4, 4.5)),
    _pool("tiny call", (1, 3, 8, 8), (2, 2, 0), {FRESH: Goal(1, 2, against="torch")}),
)


def _unpool(name: str, shape: tuple[int, ...], goals: Goals) -> Call:
    return Call(suite="max_unpool", operator="max_unpool", name=name, shape=shape, window=2, stride=2, goals=goals)


MAX_UNPOOL = (
    _unpool("SegNet last unpool, 8 images", (8, 64, 224, 224), {POOLED: Goal(3.2, 3.6), FRESH: Goal(1.4, 1.7)}),
    _unpool("SegNet last unpool, 1 image", (1, 64, 512, 512), {POOLED: Goal(3.2, 3.6), FRESH: Goal(1.4, 1.7)}),
    _unpool("SegNet second unpool, 8 images", (8, 64, 112, 112), {}),
    _unpool("ENet unpool", (1, 64, 32, 32), _goals(1.2, 1.4)),
)


def _grow(
    name: str, shape: tuple[int, ...], channels: int, window: tuple[int, int, int], goals: Goals, group: int = 1
) -> Call:
    """A transposed convolution; `window` is size, stride and pad."""
    size, stride, pad = window
    return Call(
        suite="conv_transpose", operator="conv_transpose", name=name, shape=shape,
        window=size, stride=stride, pad=pad, channels=channels, group=group, goals=goals,
    )  # fmt: skip


_UP_UNET = _grow("U-Net up 256", (1, 256, 56, 56), 128, (2, 2, 0), _goals(1, 1.12))
_UP_DCGAN = _grow("DCGAN up 128, 8 images", (8, 128, 32, 32), 64, (4, 2, 1), _goals(1.65, 2))

CONV_TRANSPOSE = (
    _grow("pix2pix up 512", (1, 512, 28, 28), 256, (4, 2, 1), _goals(1.25, 1.5)),
    _grow("pix2pix up 256", (1, 256, 64, 64), 128, (4, 2, 1), _goals(1.65, 2)),
    _grow("pix2pix up 64", (1, 64, 128, 128), 32, (4, 2, 1), _goals(2.3, 3)),
    _UP_DCGAN,
    _UP_UNET,
    _grow("U-Net up 1024", (1, 1024, 16, 16), 512, (2, 2, 0), _goals(1, 1.12)),
    _grow("CycleGAN up, 8 images", (8, 128, 32, 32), 64, (3, 2, 1), _goals(1, 1.4)),
    _grow("DeconvNet 64, 8 images", (8, 64, 32, 32), 64, (3, 1, 1), _goals(0.95, 1.5)),
    _grow("DeconvNet 256", (1, 256, 56, 56), 256, (3, 1, 1), _goals(1, 1.5)),
    _grow("DCGAN up 1024", (1, 1024, 8, 8), 512, (4, 2, 1), _goals(0.95, 1)),
    _grow("FCN-8s up, 21 classes", (1, 21, 64, 64), 21, (16, 8, 4), _goals(2.2, 4)),
    _grow("CenterNet up, depthwise", (1, 64, 128, 128), 64, (4, 2, 1), _goals(5, 6), 64),
    _grow("depthwise up, 8 images", (8, 128, 32, 32), 128, (3, 2, 1), _goals(2.2, 2.5), 128),
    _grow("grouped up", (1, 128, 64, 64), 128, (4, 2, 1), _goals(1.3, 2), 4),
    _grow("GAN head, 1 image", (1, 512, 1, 1), 256, (4, 1, 0), _goals(1.2, 1.5)),
    _grow("GAN head, 16 images", (16, 512, 1, 1), 256, (4, 1, 0), _goals(1.5, 2)),
    _grow("HiFi-GAN vocoder up", (1, 512, 4096), 256, (16, 8, 4), _goals(1.2, 2)),
    _grow("iSTFT", (1, 1026, 400), 1, (1024, 256, 0), _goals(1.2, 3)),
    _grow("3-D U-Net up", (1, 64, 32, 32, 32), 32, (2, 2, 0), _goals(1, 1.2)),
    _grow("3-D GAN up", (1, 64, 32, 32, 32), 32, (4, 2, 1), _goals(1.2, 2)),
)


def _trained(call: Call, must: float | None = None) -> Training:
    return Training(
        suite="training", operator="training", name=call.name, shape=call.shape, call=call, peers=("torch",),
        goals={} if must is None else _goals(must),
    )  # fmt: skip


_OTHERS_TRAINED = (
    "pix2pix up 512",
    "pix2pix up 256",
    "U-Net up 1024",
    "CycleGAN up, 8 images",
    "DeconvNet 64, 8 images",
    "DeconvNet 256",
    "DCGAN up 1024",
    "FCN-8s up, 21 classes",
    "CenterNet up, depthwise",
    "GAN head, 16 images",
    "iSTFT",
)

TRAINING = (
    _trained(_STEM_8, 3),
    _trained(_VGG, 3),
    _trained(_pool("3-D U-Net pool 1", (1, 16, 64, 64, 64), (2, 2, 0), {})),
    _trained(_pool("SegNet pool 3, 1 image", (1, 256, 56, 56), (2, 2, 0), {})),
    _trained(_pool("SegNet pool 5, 1 image", (1, 512, 14, 14), (2, 2, 0), {})),
    _trained(_pool("tiny call", (1, 3, 8, 8), (2, 2, 0), {}), 0.8),
    _trained(MAX_UNPOOL[0]),
    _trained(MAX_UNPOOL[2]),
    _trained(MAX_UNPOOL[3]),
    _trained(_UP_DCGAN, 1.1),
    _trained(_UP_UNET, 1.1),
    *(_trained(call, 1.1) for call in CONV_TRANSPOSE if call.name in _OTHERS_TRAINED),
    _trained(_grow("tiny growth", (1, 4, 4, 4), 4, (2, 2, 0), {}), 0.8),
)

NETWORKS = tuple(
    Case(
        suite="network",
        operator="network",
        name=name,
        shape=shape,
        goals={POOLED: Goal(1, 1.3, "onnxruntime")},
        peers=("onnxruntime", "openvino"),
    )
    for name, shape in (
        ("SegNet", (1, 3, 360, 480)),
        ("ENet", (1, 3, 360, 480)),
        ("3-D U-Net", (1, 1, 64, 64, 64)),
        ("DCGAN generator", (1, 100, 1, 1)),
    )
)


def _steady(name: str, shape: tuple[int, ...]) -> Case:
    return Case(suite="steady", operator="network", name=name, shape=shape, peers=("onnxruntime", "openvino"))


PUBLISHED = (
    _steady("SegNet", (1, 3, 360, 480)),
    _steady("ENet", (1, 3, 360, 480)),
    _steady("DeconvNet", (1, 3, 224, 224)),
    _steady("FCN-8s", (1, 3, 256, 256)),
    _steady("U-Net of the paper", (1, 1, 192, 192)),
    _steady("3-D U-Net of the paper", (1, 1, 16, 32, 32)),
    _steady("pix2pix", (1, 3, 256, 256)),
    _steady("DCGAN generator", (1, 100, 1, 1)),
)
"""The kinds of networks that unpool is for, at the widths of their papers, but DCGAN's generator at those of PyTorch's
example, half as wide; volumes and U-Net's image are smaller."""

FURTHER = (
    _steady("SegNet", (1, 3, 96, 128)),
    _steady("U-Net", (1, 1, 256, 256)),
    _steady("3-D U-Net", (1, 1, 32, 64, 64)),
    _steady("CycleGAN", (1, 3, 128, 128)),
    _steady("DCGAN generator, 8 images", (8, 100, 1, 1)),
    _steady("DCGAN generator of the paper", (1, 100, 1, 1)),
    _steady("vocoder", (1, 80, 64)),
)
"""Narrower and wider ones, smaller images, a batch, a normalisation behind every layer, sound."""

STEADY = (*PUBLISHED, *FURTHER)
"""Networks that are run many times, which shows how steady they are."""

SIZES = tuple(
    replace(_pool(f"size {size}", (1, 64, size, size), (3, 2, 1), {}), suite="max_pool_sizes", peers=("onnxruntime",))
    for size in (14, 28, 56, 112, 224, 448, 896)
)
WINDOWS = tuple(
    replace(
        _pool(f"window {size}", (1, 32, 256, 256), (size, 1, size // 2), {}),
        suite="max_pool_windows",
        peers=("onnxruntime",),
    )
    for size in (3, 5, 9, 17, 33)
)
CHANNELS = tuple(
    replace(
        _grow(f"{channels} channels, size {size}", (1, channels, size, size), channels // 2, (window, 2, pad), {}),
        suite=f"conv_transpose_k{window}",
        peers=("torch",),
    )
    for window, pad in ((2, 0), (4, 1))
    for channels in (16, 64, 256, 1024)
    for size in (8, 32, 64)
)

CASES: tuple[Case, ...] = (*MAX_POOL, *MAX_UNPOOL, *CONV_TRANSPOSE, *TRAINING, *NETWORKS, *SIZES, *WINDOWS, *CHANNELS)
SUITES = tuple(dict.fromkeys(case.suite for case in CASES))


def matching(patterns: Iterable[str]) -> tuple[Case, ...]:
    """Cases whose path fits one of the patterns, in their order; a suite's name alone stands for all of it.

    >>> [case.name for case in matching(["max_unpool/ENet*"])]
    ['ENet unpool']
    """
    wanted = [pattern if "/" in pattern else f"{pattern}/*" for pattern in patterns]
    return tuple(case for case in CASES if any(fnmatchcase(case.path, pattern) for pattern in wanted))
