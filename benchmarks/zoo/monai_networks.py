"""Networks of MONAI."""

from typing import TYPE_CHECKING, Any

from benchmarks.zoo.network import ROUNDING, TRACED, UNPOOL, Network, image

if TYPE_CHECKING:
    import torch


def net(name: str, **options: Any) -> "torch.nn.Module":
    """A class of monai.networks.nets."""
    from monai.networks import nets

    module: torch.nn.Module = getattr(nets, name)(**options)
    return module


def unet(rank: int, **options: Any) -> "torch.nn.Module":
    """A U-Net with strided convolutions down and transposed ones up."""
    return net("UNet", spatial_dims=rank, out_channels=2, **options)


def unet_plus_plus() -> "torch.nn.Module":
    """U-Net++, of whose outputs the first is the result."""
    from benchmarks.zoo.adapter import Adapter

    return Adapter(net("BasicUNetPlusPlus", spatial_dims=2, in_channels=1, out_channels=2), lambda outputs: outputs[0])


def var_autoencoder() -> "torch.nn.Module":
    """A variational autoencoder, whose first output is the image."""
    from benchmarks.zoo.adapter import Adapter

    module = net(
        "VarAutoEncoder", spatial_dims=2, in_shape=(1, 128, 128), out_channels=1, latent_size=64, channels=LEVELS[:4],
        strides=STRIDES,
    )  # fmt: skip
    return Adapter(module, lambda outputs: outputs[0])


def quicknat() -> "torch.nn.Module":
    """QuickNAT: pools with indices, and unpools."""
    return net("Quicknat", num_classes=5, num_channels=1, num_filters=32)


LEVELS = (16, 32, 64, 128, 256)
STRIDES = (2, 2, 2, 2)

NETWORKS = (
    Network(
        "monai_generator",
        lambda: net(
            "Generator", latent_shape=(64,), start_shape=(128, 4, 4), channels=[128, 64, 32, 1], strides=[2, 2, 2, 2],
            num_res_units=1,
        ),
        image(4, 64),
    ),
    Network("monai_unetpp2d", unet_plus_plus, image(1, 1, 160, 160)),
    Network(
        "monai_unet1d",
        lambda: unet(1, in_channels=12, channels=(32, 64, 128, 256), strides=(2, 2, 2), num_res_units=2),
        image(8, 12, 1024),
    ),
    Network(
        "monai_unet2d",
        lambda: unet(2, in_channels=1, channels=LEVELS, strides=STRIDES, num_res_units=2),
        image(1, 1, 384, 384),
    ),
    Network(
        "monai_unet3d",
        lambda: unet(3, in_channels=1, channels=LEVELS, strides=STRIDES, num_res_units=2),
        image(1, 1, 96, 96, 96),
    ),
    Network(
        "monai_basicunet2d_dyn",
        lambda: net("BasicUNet", spatial_dims=2, in_channels=3, out_channels=2),
        image(1, 3, 256, 256),
        dynamic=(2, 3),
        exporter=TRACED,
    ),
    Network(
        "monai_basicunet3d",
        lambda: net("BasicUNet", spatial_dims=3, in_channels=1, out_channels=2),
        image(1, 1, 64, 64, 64),
    ),
    Network("monai_quicknat", quicknat, image(1, 1, 128, 128), share=ROUNDING),
    Network("monai_quicknat_mu", quicknat, image(1, 1, 128, 128), exporter=UNPOOL, share=ROUNDING),
    Network(
        "monai_flexunet",
        lambda: net(
            "FlexibleUNet", in_channels=3, out_channels=2, backbone="efficientnet-b0", pretrained=False,
            upsample="deconv",
        ),
        image(1, 3, 256, 256),
    ),
    Network(
        "monai_autoencoder2d",
        lambda: net("AutoEncoder", spatial_dims=2, in_channels=1, out_channels=1, channels=LEVELS[:4], strides=STRIDES),
        image(1, 1, 384, 384),
    ),
    Network(
        "monai_attunet2d",
        lambda: net(
            "AttentionUnet", spatial_dims=2, in_channels=1, out_channels=2, channels=(16, 32, 64, 128),
            strides=(2, 2, 2),
        ),
        image(1, 1, 256, 256),
    ),
    Network(
        "monai_swinunetr3d",
        lambda: net("SwinUNETR", in_channels=1, out_channels=2, feature_size=12, spatial_dims=3),
        image(1, 1, 64, 64, 64),
    ),
    Network(
        "monai_mednext3d",
        lambda: net(
            "MedNeXt", spatial_dims=3, init_filters=16, in_channels=1, out_channels=2, use_residual_connection=True
        ),
        image(1, 1, 48, 48, 48),
    ),
    Network(
        "monai_segresnet3d",
        lambda: net(
            "SegResNet", spatial_dims=3, init_filters=16, in_channels=1, out_channels=2, upsample_mode="deconv"
        ),
        image(1, 1, 64, 64, 64),
    ),
    Network(
        "monai_unetr3d",
        lambda: net(
            "UNETR", in_channels=1, out_channels=2, img_size=(64, 64, 64), feature_size=16, hidden_size=384,
            mlp_dim=1536, num_heads=6,
        ),
        image(1, 1, 64, 64, 64),
    ),
    Network(
        "monai_dynunet3d",
        lambda: net(
            "DynUNet", spatial_dims=3, in_channels=1, out_channels=2, kernel_size=[3] * 5, strides=[1, 2, 2, 2, 2],
            upsample_kernel_size=[2, 2, 2, 2], filters=[16, 32, 64, 128, 256],
        ),
        image(1, 1, 64, 64, 64),
    ),
    Network(
        "monai_localnet3d",
        lambda: net(
            "LocalNet", spatial_dims=3, in_channels=1, out_channels=3, num_channel_initial=16,
            extract_levels=(0, 1, 2, 3), out_activation=None,
        ),
        image(1, 1, 64, 64, 64),
    ),
    Network("monai_vnet3d", lambda: net("VNet", in_channels=1, out_channels=2), image(1, 1, 32, 32, 32)),
    Network(
        "monai_highresnet3d",
        lambda: net("HighResNet", spatial_dims=3, in_channels=1, out_channels=2),
        image(1, 1, 32, 32, 32),
    ),
    Network(
        "monai_densenet121",
        lambda: net("DenseNet121", spatial_dims=2, in_channels=1, out_channels=2),
        image(1, 1, 224, 224),
    ),
    Network("monai_varautoencoder2d", var_autoencoder, image(4, 1, 128, 128)),
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
)  # fmt: skip
