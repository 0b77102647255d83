"""Networks that were chosen after the others had been measured; `tables.LATER_TEXT` names those that changed a rule."""

from typing import TYPE_CHECKING

from benchmarks.zoo.image_networks import PHOTOGRAPH, smp, timm, tv
from benchmarks.zoo.monai_networks import LEVELS, STRIDES, net
from benchmarks.zoo.network import Network, image
from benchmarks.zoo.transformers_networks import SMALL, adapted

if TYPE_CHECKING:
    import torch


def autoencoder() -> "torch.nn.Module":
    """A variational autoencoder, whose first output is the image."""
    from benchmarks.zoo.adapter import Adapter

    module = net(
        "VarAutoEncoder", spatial_dims=2, in_shape=(1, 128, 128), out_channels=1, latent_size=64, channels=LEVELS[:4],
        strides=STRIDES,
    )  # fmt: skip
    return Adapter(module, lambda outputs: outputs[0])


def data2vec() -> "torch.nn.Module":
    """Data2Vec with UPerNet's head."""
    import transformers

    config = transformers.Data2VecVisionConfig(
        **SMALL, image_size=224, num_labels=12, use_auxiliary_head=False, out_indices=[3, 5, 7, 11]
    )
    return adapted(transformers.Data2VecVisionForSemanticSegmentation(config), "logits")


NETWORKS = (
    Network("monai_varautoencoder2d", autoencoder, image(4, 1, 128, 128)),
    Network(
        "monai_unetr2d",
        lambda: net(
            "UNETR", in_channels=3, out_channels=2, img_size=(192, 192), feature_size=16, hidden_size=384,
            mlp_dim=1536, num_heads=6, spatial_dims=2,
        ),
        image(1, 3, 192, 192),
    ),
    Network(
        "monai_dynunet2d",
        lambda: net(
            "DynUNet", spatial_dims=2, in_channels=3, out_channels=2, kernel_size=[3] * 5, strides=[1, 2, 2, 2, 2],
            upsample_kernel_size=[2, 2, 2, 2], filters=[32, 64, 128, 256, 320],
        ),
        image(1, 3, 224, 288),
    ),
    Network(
        "monai_resnet18_3d",
        lambda: net(
            "ResNet", block="basic", layers=[2, 2, 2, 2], block_inplanes=[64, 128, 256, 512], spatial_dims=3,
            n_input_channels=1, num_classes=2,
        ),
        image(1, 1, 64, 64, 64),
    ),
    Network("smp_linknet_mobilenet", lambda: smp("Linknet", "mobilenet_v2"), image(1, 3, 288, 256)),
    Network("smp_unet_densenet121", lambda: smp("Unet", "densenet121"), image(1, 3, 224, 224)),
    Network("smp_manet_resnet18", lambda: smp("MAnet", "resnet18"), image(1, 3, 256, 256)),
    Network("timm_resnest26d", lambda: timm("resnest26d"), PHOTOGRAPH),
    Network("timm_inception_v4", lambda: timm("inception_v4"), image(1, 3, 299, 299)),
    Network("tv_vgg16", lambda: tv("vgg16"), PHOTOGRAPH),
    Network("tv_shufflenet_v2", lambda: tv("shufflenet_v2_x1_0"), PHOTOGRAPH),
    Network("hf_data2vec_seg", data2vec, image(1, 3, 224, 224)),
)  # fmt: skip
