"""Networks of diffusers."""

from typing import TYPE_CHECKING, Any

from benchmarks.zoo.network import Input, Network, image

if TYPE_CHECKING:
    import torch


def unet_1d() -> "torch.nn.Module":
    """A U-Net over time that planning uses, with residual blocks and transposed convolutions."""
    import diffusers

    return _sample(
        diffusers.UNet1DModel(
            sample_size=4096, in_channels=2, out_channels=2, block_out_channels=(32, 64, 128, 256),
            down_block_types=("DownResnetBlock1D",) * 4, up_block_types=("UpResnetBlock1D",) * 3,
            mid_block_type="MidResTemporalBlock1D", out_block_type="OutConv1DBlock", act_fn="mish",
            time_embedding_type="positional", use_timestep_embedding=True, extra_in_channels=0, layers_per_block=1,
            flip_sin_to_cos=False, freq_shift=1.0,
        )
    )  # fmt: skip


def unet_2d() -> "torch.nn.Module":
    """The U-Net of DDPM, small."""
    import diffusers

    return _sample(
        diffusers.UNet2DModel(
            sample_size=64, block_out_channels=(32, 64, 128), layers_per_block=1,
            down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
        )
    )  # fmt: skip


def oobleck_decoder() -> Any:
    """The decoder of Stable Audio's autoencoder."""
    import diffusers

    model = diffusers.AutoencoderOobleck(decoder_channels=32, encoder_hidden_size=32)
    return model.decoder


def paella_vq() -> "torch.nn.Module":
    """The decoder of Würstchen's VQGAN."""
    from diffusers.pipelines.deprecated.wuerstchen.modeling_paella_vq_model import PaellaVQModel
    from torch import nn

    model = PaellaVQModel(embed_dim=192)
    return nn.Sequential(model.up_blocks, model.out_block)


def kl_decoder() -> Any:
    """The decoder of Stable Diffusion's autoencoder, narrower."""
    import diffusers

    model = diffusers.AutoencoderKL(
        block_out_channels=(32, 64, 128), layers_per_block=1, latent_channels=4, norm_num_groups=16,
        down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
    )  # fmt: skip
    return model.decoder


def _sample(model: "torch.nn.Module") -> "torch.nn.Module":
    """A U-Net of two inputs, of whose outputs the sample is wanted."""
    from benchmarks.zoo.adapter import Adapter

    return Adapter(model, lambda output: output.sample, ("sample", "timestep"))


NETWORKS = (
    Network("diff_unet1d", unet_1d, (Input("sample", (1, 2, 4096)), Input("timestep", (1,), high=1000))),
    Network("diff_unet2d", unet_2d, (Input("sample", (1, 3, 64, 64)), Input("timestep", (1,), high=1000))),
    Network("diff_oobleck_decoder", oobleck_decoder, image(1, 64, 16)),
    Network("diff_paella_vq", paella_vq, image(1, 4, 64, 64)),
    Network("diff_kl_decoder", kl_decoder, image(1, 4, 32, 32)),
)
