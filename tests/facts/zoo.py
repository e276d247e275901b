"""Small random models of foreign families, each with an input; nothing is downloaded."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

LLAMA = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
BERT = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
VIT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16,
    "patch_size": 8,
}  # fmt: skip
BART = {
    "vocab_size": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
T5 = {
    "vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
DINO = {key: value for key, value in VIT.items() if key != "intermediate_size"}

IDS = torch.arange(3, 11)[None]  # [1, T]


def ids() -> dict[str, Tensor]:
    return {"input_ids": IDS}


def both() -> dict[str, Tensor]:
    return {"input_ids": IDS, "decoder_input_ids": IDS}


def pixels(side: int = 16) -> dict[str, Tensor]:
    return {"pixel_values": torch.linspace(-1, 1, 3 * side * side).reshape(1, 3, side, side)}


def gpt2() -> nn.Module:
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=48))


def llama() -> nn.Module:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA))


def qwen3() -> nn.Module:
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(**LLAMA, head_dim=8))


def mixtral() -> nn.Module:
    return hf.MixtralForCausalLM(hf.MixtralConfig(**LLAMA, num_local_experts=2))


def t5() -> nn.Module:
    return hf.T5ForConditionalGeneration(hf.T5Config(**T5))


def t5_gated() -> nn.Module:
    config = hf.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    return hf.T5ForConditionalGeneration(config)


def vit() -> nn.Module:
    return hf.ViTForImageClassification(hf.ViTConfig(**VIT, num_labels=5))


def _gemma3_text() -> Any:
    return hf.Gemma3TextConfig(**{**LLAMA, "pad_token_id": 0}, head_dim=8)


def gemma3() -> nn.Module:
    return hf.Gemma3ForConditionalGeneration(
        hf.Gemma3Config(text_config=_gemma3_text(), vision_config=hf.SiglipVisionConfig(**VIT), mm_tokens_per_image=4)
    )


def deepseek() -> nn.Module:
    return hf.DeepseekV3ForCausalLM(
        hf.DeepseekV3Config(
            **{**LLAMA, "num_key_value_heads": 4}, moe_intermediate_size=24, n_routed_experts=4, n_group=2,
            topk_group=1, num_experts_per_tok=2, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=24,
            qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
        )
    )  # fmt: skip


def qwen3_next() -> nn.Module:
    return hf.Qwen3NextForCausalLM(
        hf.Qwen3NextConfig(
            **{**LLAMA, "num_hidden_layers": 4}, head_dim=8, linear_num_value_heads=4, linear_num_key_heads=2,
            linear_key_head_dim=8, linear_value_head_dim=8, num_experts=4, num_experts_per_tok=2,
            moe_intermediate_size=24, shared_expert_intermediate_size=24,
        )
    )  # fmt: skip


def falcon_h1() -> nn.Module:
    config = hf.FalconH1Config(
        **LLAMA, head_dim=8, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=4, mamba_chunk_size=8
    )
    return hf.FalconH1ForCausalLM(config)


def modernbert() -> nn.Module:
    return hf.ModernBertForMaskedLM(hf.ModernBertConfig(**BERT, cls_token_id=1, sep_token_id=2))


def whisper() -> nn.Module:
    config = hf.WhisperConfig(**BART, num_mel_bins=8, max_source_positions=16, max_target_positions=16)
    return hf.WhisperForConditionalGeneration(config)


def swin() -> nn.Module:
    return hf.SwinForImageClassification(
        hf.SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=4)
    )


def mae() -> nn.Module:
    return hf.ViTMAEForPreTraining(
        hf.ViTMAEConfig(
            **VIT, decoder_hidden_size=16, decoder_intermediate_size=24, decoder_num_hidden_layers=1,
            decoder_num_attention_heads=4,
        )
    )  # fmt: skip


def clip() -> nn.Module:
    return hf.CLIPModel(hf.CLIPConfig(text_config=BERT, vision_config=VIT, projection_dim=24))


def siglip() -> nn.Module:
    return hf.SiglipModel(hf.SiglipConfig(text_config=BERT, vision_config=VIT))


def perceiver() -> nn.Module:
    return hf.PerceiverForMaskedLM(
        hf.PerceiverConfig(
            vocab_size=64, d_model=32, d_latents=24, num_latents=6, num_self_attends_per_block=2,
            num_self_attention_heads=4, num_cross_attention_heads=4, qk_channels=16, v_channels=24,
            max_position_embeddings=8,
        )
    )  # fmt: skip


def detr() -> nn.Module:
    backbone = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 16], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    return hf.DetrForObjectDetection(
        hf.DetrConfig(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=32,
            encoder_layers=2, decoder_layers=2, encoder_ffn_dim=48, decoder_ffn_dim=48, encoder_attention_heads=4,
            decoder_attention_heads=4, num_queries=5, num_labels=3,
        )
    )  # fmt: skip


def _opt(**other: Any) -> dict[str, Any]:
    return {
        "vocab_size": 64, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "max_position_embeddings": 32, "word_embed_proj_dim": 32, "pad_token_id": 1, **other,
    }  # fmt: skip


def blip2() -> nn.Module:
    return hf.Blip2ForConditionalGeneration(
        hf.Blip2Config(
            vision_config={**VIT, "num_hidden_layers": 1},
            qformer_config={**BERT, "encoder_hidden_size": 32},
            text_config=_opt(model_type="opt"),
            num_query_tokens=4,
            image_token_index=63,
        )
    )


def gpt_oss() -> nn.Module:
    return hf.GptOssForCausalLM(hf.GptOssConfig(**LLAMA, num_local_experts=4, head_dim=8))


def llama4() -> nn.Module:
    config = hf.Llama4TextConfig(**LLAMA, intermediate_size_mlp=48, num_local_experts=4, head_dim=8)
    return hf.Llama4ForCausalLM(config)


def segformer() -> nn.Module:
    return hf.SegformerModel(
        hf.SegformerConfig(depths=[2, 3, 1, 1], hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 2, 2, 2])
    )


def switch() -> nn.Module:
    return hf.SwitchTransformersForConditionalGeneration(
        hf.SwitchTransformersConfig(
            **T5, num_experts=2, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, pad_token_id=0
        )
    )


def longcat() -> nn.Module:
    return hf.LongcatFlashForCausalLM(
        hf.LongcatFlashConfig(
            vocab_size=64, hidden_size=32, ffn_hidden_size=48, expert_ffn_hidden_size=24, num_layers=2,
            num_attention_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
            v_head_dim=8, head_dim=8, n_routed_experts=4, zero_expert_num=2, moe_topk=2,
        )
    )  # fmt: skip


def cvt() -> nn.Module:
    return hf.CvtForImageClassification(hf.CvtConfig(embed_dim=[8, 16, 16], num_heads=[1, 2, 2], depth=[1, 2, 3]))


def nemotron_h() -> nn.Module:
    """Every block has a ``mixer``, of four kinds in turn."""
    return hf.NemotronHForCausalLM(
        hf.NemotronHConfig(
            **{key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}, head_dim=8,
            layers_block_type=["mamba", "moe", "attention"], n_routed_experts=4, num_experts_per_tok=2,
            moe_intermediate_size=24, moe_shared_expert_intermediate_size=24, mamba_num_heads=4, mamba_head_dim=8,
            ssm_state_size=4, n_groups=2, chunk_size=8,
        )
    )  # fmt: skip


def granite_moe() -> nn.Module:
    config = hf.GraniteMoeSharedConfig(**LLAMA, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=24)
    return hf.GraniteMoeSharedForCausalLM(config)


def qwen3_moe() -> nn.Module:
    config = hf.Qwen3MoeConfig(**LLAMA, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
    return hf.Qwen3MoeForCausalLM(config)


def hunyuan_moe() -> nn.Module:
    return hf.HunYuanMoEV1ForCausalLM(hf.HunYuanMoEV1Config(**LLAMA, head_dim=8, num_experts=4, moe_topk=2))


GPT = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}
MAMBA = {"vocab_size": 64, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2}


EXACT: dict[str, Callable[[], nn.Module]] = {
    "gpt2": gpt2, "llama": llama, "qwen3": qwen3, "mixtral": mixtral, "t5": t5, "vit": vit,
}  # fmt: skip

# name -> (model, input)
FAMILIES: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]]]] = {
    "gpt2": (gpt2, ids),
    "llama": (llama, ids),
    "qwen3": (qwen3, ids),
    "mixtral": (mixtral, ids),
    "t5": (t5, both),
    "t5_gated": (t5_gated, both),
    "vit": (vit, pixels),
    "gemma3_text": (lambda: hf.Gemma3ForCausalLM(_gemma3_text()), ids),
    "gemma3": (gemma3, ids),
    "olmo2": (lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(**LLAMA)), ids),
    "deepseek_v3": (deepseek, ids),
    "qwen3_next": (qwen3_next, ids),
    "modernbert": (modernbert, ids),
    "whisper": (whisper, lambda: {"input_features": torch.linspace(-1, 1, 256)[None].reshape(1, 8, 32),
                                  "decoder_input_ids": IDS}),
    "deit": (lambda: hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**VIT)), pixels),
    "swin": (swin, lambda: pixels(32)),
    "dinov2_registers": (
        lambda: hf.Dinov2WithRegistersForImageClassification(hf.Dinov2WithRegistersConfig(**DINO)), pixels,
    ),
    "dinov2_swiglu": (lambda: hf.Dinov2Model(hf.Dinov2Config(**DINO, use_swiglu_ffn=True)), pixels),
    "vit_mae": (mae, pixels),
    "clip": (clip, lambda: {**ids(), **pixels()}),
    "siglip": (siglip, lambda: {**ids(), **pixels()}),
    "perceiver": (perceiver, lambda: {"inputs": IDS}),
    "detr": (detr, lambda: pixels(64)),
    "blip2": (blip2, lambda: {"input_ids": torch.tensor([[63, 63, 63, 63, 5, 6]]), **pixels()}),
    "bert": (lambda: hf.BertForMaskedLM(hf.BertConfig(**BERT)), ids),
    "phi3": (lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**LLAMA)), ids),
    "gpt_neox": (lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**BERT)), ids),
    "opt": (lambda: hf.OPTForCausalLM(hf.OPTConfig(**_opt(word_embed_proj_dim=24))), ids),
    "falcon": (
        lambda: hf.FalconForCausalLM(
            hf.FalconConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
        ),
        ids,
    ),
    "gpt_oss": (gpt_oss, ids),
    "llama4": (llama4, ids),
    "segformer": (segformer, lambda: pixels(64)),
    "switch": (switch, both),
    "longcat": (longcat, ids),
    "cvt": (cvt, lambda: pixels(64)),
    "ctrl": (lambda: hf.CTRLLMHeadModel(hf.CTRLConfig(**GPT, dff=48)), ids),
    "codegen": (lambda: hf.CodeGenForCausalLM(hf.CodeGenConfig(**GPT, **ENDS, rotary_dim=4)), ids),
    "gpt_bigcode": (lambda: hf.GPTBigCodeForCausalLM(hf.GPTBigCodeConfig(**GPT, **ENDS)), ids),
    "gpt_bigcode_mha": (
        lambda: hf.GPTBigCodeForCausalLM(hf.GPTBigCodeConfig(**GPT, **ENDS, multi_query=False)), ids,
    ),
    "mamba": (lambda: hf.MambaForCausalLM(hf.MambaConfig(**MAMBA)), ids),
    "falcon_h1": (falcon_h1, ids),
    "nemotron_h": (nemotron_h, ids),
    "qwen3_moe": (qwen3_moe, ids),
    "granite_moe": (granite_moe, ids),
    "hunyuan_moe": (hunyuan_moe, ids),
    "glm4": (lambda: hf.Glm4ForCausalLM(hf.Glm4Config(**{**LLAMA, "pad_token_id": 0}, head_dim=8)), ids),
    "starcoder2": (lambda: hf.Starcoder2ForCausalLM(hf.Starcoder2Config(**LLAMA)), ids),
    "mamba2": (lambda: hf.Mamba2ForCausalLM(hf.Mamba2Config(**MAMBA, num_heads=4, head_dim=16, n_groups=2)), ids),
}  # fmt: skip
