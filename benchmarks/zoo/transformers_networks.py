"""Networks of transformers, from configurations of smaller ones of their kind."""

from typing import TYPE_CHECKING, Any

from benchmarks.zoo.network import ROUNDING, TRACED, Input, Network, image

if TYPE_CHECKING:
    import torch

SMALL = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}
TINY = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
"""Widths of vision transformers."""

NECK = {"neck_hidden_sizes": [48, 96, 192, 384], "fusion_hidden_size": 64}
"""Of DPT, for a small transformer."""


def adapted(model: "torch.nn.Module", *outputs: str, names: tuple[str, ...] = ("pixel_values",)) -> "torch.nn.Module":
    """A model that is called by the names of its arguments, and some of its outputs."""
    from benchmarks.zoo.adapter import Adapter

    def select(result: Any) -> Any:
        chosen = tuple(getattr(result, output) for output in outputs)
        return chosen[0] if len(chosen) == 1 else chosen

    return Adapter(model, select, names)


def dpt_labels() -> "torch.nn.Module":
    """DPT that gives the label of every pixel."""
    import transformers

    from benchmarks.zoo.adapter import Adapter

    config = transformers.DPTConfig(
        **TINY, **NECK, image_size=128, num_labels=12, backbone_out_indices=[0, 1, 2, 3], use_auxiliary_head=False
    )
    model = transformers.DPTForSemanticSegmentation(config)
    return Adapter(model, lambda result: result.logits.argmax(1), ("pixel_values",))


def dpt() -> "torch.nn.Module":
    """DPT that estimates depths."""
    import transformers

    config = transformers.DPTConfig(**SMALL, **NECK, image_size=256)
    return adapted(transformers.DPTForDepthEstimation(config), "predicted_depth")


def depth_anything() -> "torch.nn.Module":
    """Depth Anything, the small one."""
    import transformers

    backbone = transformers.Dinov2Config(
        **{**SMALL, "intermediate_size": None, "mlp_ratio": 4}, image_size=196, patch_size=14,
        out_features=["stage3", "stage6", "stage9", "stage12"], apply_layernorm=True, reshape_hidden_states=False,
    )  # fmt: skip
    config = transformers.DepthAnythingConfig(backbone_config=backbone)
    return adapted(transformers.DepthAnythingForDepthEstimation(config), "predicted_depth")


def zoedepth() -> "torch.nn.Module":
    """ZoeDepth on a small BEiT."""
    import transformers

    backbone = transformers.BeitConfig(
        **SMALL, image_size=256, out_features=["stage3", "stage6", "stage9", "stage12"], reshape_hidden_states=False,
        use_relative_position_bias=True,
    )  # fmt: skip
    config = transformers.ZoeDepthConfig(backbone_config=backbone, neck_hidden_sizes=[48, 96, 192, 384])
    return adapted(transformers.ZoeDepthForDepthEstimation(config), "predicted_depth")


def depth_pro() -> "torch.nn.Module":
    """Depth Pro with small encoders and patches of 96."""
    import transformers

    encoder = {"model_type": "dinov2", **SMALL, "mlp_ratio": 4, "image_size": 96, "patch_size": 8}
    del encoder["intermediate_size"]
    config = transformers.DepthProConfig(
        patch_size=96, fusion_hidden_size=64, intermediate_feature_dims=[64, 64], intermediate_hook_ids=[11, 5],
        scaled_images_feature_dims=[256, 256, 128], image_model_config=encoder, patch_model_config=encoder,
        fov_model_config=encoder,
    )  # fmt: skip
    return adapted(transformers.DepthProForDepthEstimation(config), "predicted_depth")


def sam(side: int) -> Any:
    """SAM with a small encoder of images."""
    import transformers

    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "mlp_dim": 768, "image_size": side,
            "global_attn_indexes": [2, 5], "window_size": 14,
        },
        prompt_encoder_config={"image_size": side, "image_embedding_size": side // 16},
    )  # fmt: skip
    return transformers.SamModel(config)


def sam_full() -> "torch.nn.Module":
    """An image and points to masks."""
    return adapted(sam(512), "pred_masks", "iou_scores", names=("pixel_values", "input_points"))


def sam_decoder() -> "torch.nn.Module":
    """The embedding of an image and points to masks."""
    return adapted(sam(512), "pred_masks", "iou_scores", names=("image_embeddings", "input_points"))


def clipseg() -> "torch.nn.Module":
    """CLIPSeg, conditioned by an embedding, with the transposed convolutions of its refined version."""
    import transformers

    vision = {**SMALL, "image_size": 224, "patch_size": 16}
    text = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 256}
    config = transformers.CLIPSegConfig(
        vision_config=vision, text_config=text, projection_dim=128, use_complex_transposed_convolution=True
    )
    names = ("pixel_values", "conditional_embeddings")
    return adapted(transformers.CLIPSegForImageSegmentation(config), "logits", names=names)


def rtdetr_backbone() -> "torch.nn.Module":
    """RT-DETR's ResNet-50."""
    import transformers

    config = transformers.RTDetrResNetConfig(out_features=["stage2", "stage3", "stage4"])
    return adapted(transformers.RTDetrResNetBackbone(config), "feature_maps")


def eomt() -> "torch.nn.Module":
    """EoMT on a small vision transformer."""
    import transformers

    config = transformers.EomtConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=256, num_queries=50, num_labels=20,
        num_blocks=2,
    )  # fmt: skip
    model = transformers.EomtForUniversalSegmentation(config)
    return adapted(model, "masks_queries_logits", "class_queries_logits")


def beit_segmentation() -> "torch.nn.Module":
    """BEiT with UPerNet's head."""
    import transformers

    config = transformers.BeitConfig(
        **SMALL, image_size=224, num_labels=12, add_fpn=True, use_auxiliary_head=False, use_relative_position_bias=True,
        out_indices=[3, 5, 7, 11],
    )  # fmt: skip
    return adapted(transformers.BeitForSemanticSegmentation(config), "logits")


def superpoint() -> "torch.nn.Module":
    """SuperPoint, up to the scores of all pixels, after suppressing those that are no maximum."""
    import transformers

    from benchmarks.zoo.adapter import Adapter

    model = transformers.SuperPointForKeypointDetection(transformers.SuperPointConfig())
    decoder = model.keypoint_decoder
    return Adapter(model.encoder, lambda result: decoder._get_pixel_scores(result[0]))


def vitpose() -> "torch.nn.Module":
    """ViTPose with its classic decoder."""
    import transformers

    backbone = transformers.VitPoseBackboneConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=6, out_indices=[6]
    )
    config = transformers.VitPoseConfig(backbone_config=backbone, use_simple_decoder=False, num_labels=17)
    return adapted(transformers.VitPoseForPoseEstimation(config), "heatmaps")


def dac_decoder() -> Any:
    """The decoder of the Descript audio codec."""
    import transformers

    config = transformers.DacConfig(encoder_hidden_size=32, hidden_size=512, decoder_hidden_size=512)
    return transformers.DacModel(config).decoder


def encodec_decoder() -> Any:
    """EnCodec's decoder."""
    import transformers

    return transformers.EncodecModel(transformers.EncodecConfig()).decoder


def mimi_decoder() -> "torch.nn.Module":
    """Mimi's decoder."""
    import transformers

    sizes = {"hidden_size": 256, "num_filters": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = transformers.MimiDecoderConfig(
        **sizes, num_key_value_heads=4, head_dim=64, intermediate_size=1024, upsample_groups=256
    )
    return adapted(transformers.MimiDecoderModel(config), "audio_values", names=("latents",))


def hifigan(prefix: str) -> Any:
    """HiFi-GAN as SpeechT5 and FastSpeech 2 use it: a spectrum to sound."""
    import transformers

    config = getattr(transformers, f"{prefix}HifiGanConfig")(upsample_initial_channel=256)
    return getattr(transformers, f"{prefix}HifiGan")(config)


def vits_hifigan() -> Any:
    """The decoder of VITS."""
    import transformers
    from transformers.models.vits.modeling_vits import VitsHifiGan

    return VitsHifiGan(transformers.VitsConfig(upsample_initial_channel=256))


def vits() -> "torch.nn.Module":
    """VITS without noise: the same sound in every run."""
    import transformers

    config = transformers.VitsConfig(
        hidden_size=96, flow_size=96, ffn_dim=256, num_hidden_layers=3, upsample_initial_channel=128
    )
    model = transformers.VitsModel(config)
    model.noise_scale = model.noise_scale_duration = 0.0
    return adapted(model, "waveform", names=("input_ids",))


def univnet() -> "torch.nn.Module":
    """UnivNet: a spectrum and noise to sound, by convolutions whose weights it predicts."""
    import transformers

    names = ("input_features", "noise_sequence")
    return adapted(transformers.UnivNetModel(transformers.UnivNetConfig()), "waveforms", names=names)


def data2vec() -> "torch.nn.Module":
    """Data2Vec with UPerNet's head."""
    import transformers

    config = transformers.Data2VecVisionConfig(
        **SMALL, image_size=224, num_labels=12, use_auxiliary_head=False, out_indices=[3, 5, 7, 11]
    )
    return adapted(transformers.Data2VecVisionForSemanticSegmentation(config), "logits")


def segformer() -> "torch.nn.Module":
    """SegFormer-B0."""
    import transformers

    return adapted(transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig()), "logits")


def bert() -> "torch.nn.Module":
    """A small BERT."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    return adapted(transformers.BertModel(config), "last_hidden_state", names=("input_ids",))


NETWORKS = (
    Network("hf_dpt_seg_int64", dpt_labels, image(1, 3, 128, 128), share=ROUNDING),
    Network("hf_dpt", dpt, image(1, 3, 256, 256)),
    Network("hf_depthanything", depth_anything, image(1, 3, 196, 196)),
    Network("hf_zoedepth", zoedepth, image(1, 3, 256, 256)),
    Network("hf_depthpro", depth_pro, image(1, 3, 384, 384)),
    Network("hf_sam_decoder", sam_decoder, (Input("embeddings", (1, 256, 32, 32)), Input("points", (1, 4, 2, 2)))),
    Network("hf_sam_full", sam_full, (Input("image", (1, 3, 512, 512)), Input("points", (1, 1, 2, 2)))),
    Network("hf_clipseg", clipseg, (Input("image", (1, 3, 224, 224)), Input("condition", (1, 128)))),
    Network("hf_rtdetr_backbone", rtdetr_backbone, image(1, 3, 256, 256)),
    Network("hf_eomt", eomt, image(1, 3, 256, 256), exporter=TRACED, share=ROUNDING),
    Network("hf_beit_seg", beit_segmentation, image(1, 3, 224, 224)),
    Network("hf_superpoint", superpoint, image(1, 1, 240, 320)),
    Network("hf_vitpose", vitpose, image(1, 3, 256, 192)),
    Network("hf_dac_decoder", dac_decoder, image(1, 512, 24), has_initial_weights=True),
    Network("hf_encodec", encodec_decoder, image(1, 128, 75), exporter=TRACED),
    Network("hf_mimi_decoder", mimi_decoder, image(1, 256, 12)),
    Network(
        "hf_speecht5_hifigan_dyn", lambda: hifigan("SpeechT5"), image(1, 48, 80, name="spectrogram"), dynamic=(1,),
        exporter=TRACED,
    ),
    Network("hf_fastspeech2_hifigan", lambda: hifigan("FastSpeech2Conformer"), image(1, 32, 80, name="spectrogram")),
    Network("hf_vits_hifigan", vits_hifigan, image(1, 192, 48, name="spectrogram")),
    Network("hf_vits_full", vits, (Input("input_ids", (1, 12), high=38),), exporter=TRACED),
    Network(
        "hf_univnet", univnet, (Input("spectrogram", (1, 32, 100)), Input("noise", (1, 32, 64))),
        has_initial_weights=True,
    ),
    Network("hf_data2vec_seg", data2vec, image(1, 3, 224, 224)),
    Network("hf_segformer", segformer, image(1, 3, 256, 256)),
    Network("hf_bert", bert, (Input("input_ids", (1, 64), high=1000),)),
)  # fmt: skip
