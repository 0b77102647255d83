"""Networks of torchvision, timm and segmentation_models_pytorch."""

from typing import TYPE_CHECKING, Any

from benchmarks.zoo.network import TRACED, Network, image

if TYPE_CHECKING:
    import torch


def tv(name: str, **options: Any) -> "torch.nn.Module":
    """A model of torchvision with random weights."""
    from torchvision import models

    module: torch.nn.Module = models.get_model(name, weights=None, **options)
    return module


def tv_segmentation(name: str) -> "torch.nn.Module":
    """A segmentation model of torchvision, with its main output alone."""
    from benchmarks.zoo.adapter import Adapter

    return Adapter(tv(name, weights_backbone=None), lambda outputs: outputs["out"])


def mask_head() -> "torch.nn.Module":
    """The mask head of Mask R-CNN."""
    from torch import nn
    from torchvision.models.detection import mask_rcnn

    return nn.Sequential(
        mask_rcnn.MaskRCNNHeads(256, (256, 256, 256, 256), 1), mask_rcnn.MaskRCNNPredictor(256, 256, 91)
    )


def keypoint_head() -> "torch.nn.Module":
    """The keypoint head of Keypoint R-CNN."""
    from torch import nn
    from torchvision.models.detection import keypoint_rcnn

    return nn.Sequential(keypoint_rcnn.KeypointRCNNHeads(256, (512,) * 8), keypoint_rcnn.KeypointRCNNPredictor(512, 17))


def timm(name: str) -> "torch.nn.Module":
    """A model of timm with random weights."""
    from timm import create_model

    module: torch.nn.Module = create_model(name, pretrained=False)
    return module


def smp(name: str, encoder: str, **options: Any) -> "torch.nn.Module":
    """A segmentation model with a random encoder."""
    import segmentation_models_pytorch as models

    module: torch.nn.Module = getattr(models, name)(encoder, encoder_weights=None, classes=2, **options)
    return module


PHOTOGRAPH = image(1, 3, 224, 224)

NETWORKS = (
    Network("tv_googlenet", lambda: tv("googlenet", aux_logits=False, init_weights=False), PHOTOGRAPH),
    Network(
        "tv_inception_v3", lambda: tv("inception_v3", aux_logits=False, init_weights=False), image(1, 3, 299, 299)
    ),
    Network("tv_squeezenet", lambda: tv("squeezenet1_1"), PHOTOGRAPH),
    Network("tv_mask_head", mask_head, image(20, 256, 14, 14)),
    Network("tv_keypoint_head", keypoint_head, image(3, 256, 14, 14)),
    Network("tv_resnet50", lambda: tv("resnet50"), PHOTOGRAPH),
    Network("tv_mobilenet_v3", lambda: tv("mobilenet_v3_large"), PHOTOGRAPH),
    Network("tv_lraspp", lambda: tv_segmentation("lraspp_mobilenet_v3_large"), image(1, 3, 256, 256)),
    Network("tv_fcn_resnet50", lambda: tv_segmentation("fcn_resnet50"), image(1, 3, 192, 192)),
    Network("timm_dla34", lambda: timm("dla34"), PHOTOGRAPH),
    Network("timm_vovnet", lambda: timm("ese_vovnet19b_slim"), PHOTOGRAPH),
    Network("timm_convnext_atto", lambda: timm("convnext_atto"), PHOTOGRAPH),
    Network("timm_vit_tiny", lambda: timm("vit_tiny_patch16_224"), PHOTOGRAPH),
    Network("smp_unet_resnet34", lambda: smp("Unet", "resnet34"), image(1, 3, 256, 256)),
    Network("smp_unet_vgg16bn", lambda: smp("Unet", "vgg16_bn"), image(1, 3, 192, 192)),
    Network("smp_linknet_vgg11", lambda: smp("Linknet", "vgg11"), image(1, 3, 256, 256)),
    Network(
        "smp_linknet_resnet18_dyn", lambda: smp("Linknet", "resnet18"), image(1, 3, 256, 320), dynamic=(2, 3),
        exporter=TRACED,
    ),
    Network("smp_deeplabv3plus_resnet18", lambda: smp("DeepLabV3Plus", "resnet18"), image(1, 3, 256, 256)),
    Network("smp_linknet_mobilenet", lambda: smp("Linknet", "mobilenet_v2"), image(1, 3, 288, 256)),
    Network("smp_unet_densenet121", lambda: smp("Unet", "densenet121"), image(1, 3, 224, 224)),
    Network("smp_manet_resnet18", lambda: smp("MAnet", "resnet18"), image(1, 3, 256, 256)),
    Network("timm_resnest26d", lambda: timm("resnest26d"), PHOTOGRAPH),
    Network("timm_inception_v4", lambda: timm("inception_v4"), image(1, 3, 299, 299)),
    Network("tv_vgg16", lambda: tv("vgg16"), PHOTOGRAPH),
    Network("tv_shufflenet_v2", lambda: tv("shufflenet_v2_x1_0"), PHOTOGRAPH),
)  # fmt: skip
