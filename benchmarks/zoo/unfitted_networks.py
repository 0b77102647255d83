"""Networks of ten libraries to which nothing in unpool was fitted, but the rule for Einsum to Demucs."""

from typing import TYPE_CHECKING, Any

from benchmarks.zoo.network import TRACED, Input, Network, image

if TYPE_CHECKING:
    import torch


def nnunet(axes: int) -> Any:
    """The plain U-Net of nnU-Net."""
    from dynamic_network_architectures.architectures.unet import PlainConvUNet
    from torch import nn

    conv, norm = (nn.Conv2d, nn.InstanceNorm2d) if axes == 2 else (nn.Conv3d, nn.InstanceNorm3d)
    return PlainConvUNet(
        1, 4, (16, 32, 64, 128), conv, 3, (1, 2, 2, 2), 2, 3, 2, conv_bias=True, norm_op=norm,
        norm_op_kwargs={"affine": True}, nonlin=nn.LeakyReLU,
    )  # fmt: skip


def unet3d() -> Any:
    """U-Net over volumes, with PRelu."""
    from unet import UNet3D

    return UNet3D(
        in_channels=1, out_classes=2, num_encoding_blocks=3, out_channels_first_layer=8, normalization="batch",
        upsampling_type="conv", padding=1, activation="PReLU",
    )  # fmt: skip


def hyperprior_decoder() -> Any:
    """The decoder of an image codec, with generalized divisive normalization."""
    from compressai.models import ScaleHyperprior

    return ScaleHyperprior(64, 96).g_s


def demucs() -> Any:
    """Demucs, which separates the sources of music, without its LSTM."""
    from demucs.demucs import Demucs

    return Demucs(
        ["vocals", "other"], audio_channels=2, channels=32, depth=4, lstm_layers=0, dconv_attn=0, dconv_lstm=0,
        resample=False, normalize=False,
    )  # fmt: skip


def conv_tasnet() -> Any:
    """Conv-TasNet, which separates speakers."""
    from asteroid.models import ConvTasNet

    return ConvTasNet(2, n_filters=128, n_blocks=4, n_repeats=2, bn_chan=64, hid_chan=128)


def fbcnn() -> Any:
    """FBCNN, which removes the blocks of JPEG."""
    from spandrel.architectures.FBCNN import FBCNN

    return FBCNN(nb=1)


def instanseg() -> Any:
    """The U-Net of InstanSeg, which finds cells."""
    from instanseg.utils.models.InstanSeg_UNet import InstanSeg_UNet

    return InstanSeg_UNet(in_channels=3, out_channels=5, layers=[128, 64, 32])


def x_ray_autoencoder() -> "torch.nn.Module":
    """ResNet-50 and its mirror image; the output is the picture."""
    from torch import nn
    from torchxrayvision.autoencoders import ResNetAE50

    class Picture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = ResNetAE50()
            self.network.weights = None  # its representation shows them

        def forward(self, x: "torch.Tensor") -> Any:
            return self.network(x)["out"]

    return Picture()


def yolo() -> Any:
    """YOLO11 with masks."""
    from ultralytics.nn.tasks import SegmentationModel

    model = SegmentationModel("yolo11n-seg.yaml", verbose=False)
    model.model[-1].export, model.model[-1].format = True, "onnx"
    return model


def drunet() -> Any:
    """DRUNet, which removes noise of a given strength."""
    from deepinv.models import DRUNet

    return DRUNet(in_channels=3, out_channels=3, pretrained=None, nb=1)


NETWORKS = (
    Network("nnunet_plain2d", lambda: nnunet(2), image(1, 1, 192, 192)),
    Network("nnunet_plain3d", lambda: nnunet(3), image(1, 1, 48, 48, 48)),
    Network("unet_prelu3d", unet3d, image(1, 1, 48, 48, 48), exporter=TRACED),
    Network("compressai_hyperprior_decoder", hyperprior_decoder, image(1, 96, 16, 20)),
    Network("demucs_waveform", demucs, image(1, 2, 8192)),
    Network("asteroid_conv_tasnet", conv_tasnet, image(1, 1, 8000), exporter=TRACED),
    Network("spandrel_fbcnn", fbcnn, image(1, 3, 128, 128)),
    Network("instanseg_unet", instanseg, image(1, 3, 256, 256)),
    Network("xrv_autoencoder", x_ray_autoencoder, image(1, 1, 224, 224)),
    Network("ultralytics_yolo11_seg", yolo, image(1, 3, 320, 320)),
    Network("deepinv_drunet", drunet, (*image(1, 3, 128, 128), Input("sigma", (1,)))),
)
