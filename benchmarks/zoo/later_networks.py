"""Networks that were chosen after the work on the others was done; nothing was changed for them."""

from typing import TYPE_CHECKING, Any

from benchmarks.zoo.image_networks import PHOTOGRAPH, smp, timm, tv_segmentation
from benchmarks.zoo.monai_networks import LEVELS, STRIDES, net
from benchmarks.zoo.network import Network, image
from benchmarks.zoo.transformers_networks import adapted

if TYPE_CHECKING:
    import torch


def glpn() -> "torch.nn.Module":
    """GLPN, which estimates depths."""
    import transformers

    config = transformers.GLPNConfig(hidden_sizes=[32, 64, 160, 256], depths=[2, 2, 2, 2])
    return adapted(transformers.GLPNForDepthEstimation(config), "predicted_depth")


def tiny_decoder() -> Any:
    """The decoder of the tiny autoencoder of Stable Diffusion."""
    import diffusers

    return diffusers.AutoencoderTiny().decoder


NETWORKS = (
    Network(
        "monai_attunet3d",
        lambda: net(
            "AttentionUnet", spatial_dims=3, in_channels=1, out_channels=2, channels=LEVELS, strides=STRIDES,
        ),
        image(1, 1, 64, 64, 64),
    ),
    Network(
        "monai_autoencoder3d",
        lambda: net(
            "AutoEncoder", spatial_dims=3, in_channels=1, out_channels=1, channels=LEVELS[:3], strides=STRIDES[:3],
            num_res_units=2,
        ),
        image(1, 1, 64, 64, 64),
    ),
    Network(
        "monai_segresnet2d",
        lambda: net("SegResNet", spatial_dims=2, init_filters=16, in_channels=3, out_channels=2),
        PHOTOGRAPH,
    ),
    Network(
        "monai_efficientnet",
        lambda: net("EfficientNetBN", model_name="efficientnet-b0", pretrained=False, num_classes=2),
        PHOTOGRAPH,
    ),
    Network("smp_fpn_resnet34", lambda: smp("FPN", "resnet34"), image(1, 3, 256, 256)),
    Network("smp_unetpp_mobilenet", lambda: smp("UnetPlusPlus", "mobilenet_v2"), PHOTOGRAPH),
    Network("smp_linknet_efficientnet", lambda: smp("Linknet", "efficientnet-b0"), image(1, 3, 256, 256)),
    Network("timm_regnety_004", lambda: timm("regnety_004"), PHOTOGRAPH),
    Network("timm_hrnet_w18_small", lambda: timm("hrnet_w18_small"), PHOTOGRAPH),
    Network("tv_deeplabv3_mobilenet", lambda: tv_segmentation("deeplabv3_mobilenet_v3_large"), image(1, 3, 256, 256)),
    Network("hf_glpn", glpn, image(1, 3, 256, 256)),
    Network("diff_tiny_decoder", tiny_decoder, image(1, 4, 32, 32)),
)  # fmt: skip
