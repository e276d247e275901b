"""Names that tell a role, beyond those of the families that are built in the other tests."""

import pytest

from seedbed.facts.patterns import GATE_UP, MAPS, PARAMETERS, QKV, TABLES, look_up

MAP_PATHS = {
    "layers.3.attention.wq": "attn.q", "layers.3.attention.wo": "attn.o",
    "layers.3.feed_forward.w1": "mlp.gate", "layers.3.feed_forward.w3": "mlp.up",
    "layers.3.feed_forward.w2": "mlp.down",
    "layers.3.attn.wkv_a": "attn.kv_down", "layers.3.ffn.shared_experts.w2": "mlp.down",
    "layers.3.block_sparse_moe.gate": "mlp.gate",  # a router, where there are experts beside it
    "layers.3.block_sparse_moe.experts.7.w2": "mlp.down", "layers.3.moe.router.gate": "moe.router",
    "layers.3.mlp.router.classifier": "moe.router", "layers.3.self_attn.1.o_proj": "attn.o",
    "h.3.multi_head_attention.Wk": "attn.k", "layers.0.attention.attention.projection_value": "attn.v",
    "transformer.layers.0.0.to_qkv": QKV, "transformer.layers.0.0.to_out.linear1": "attn.o",
    "transformer.layers.0.1.net.linear2": "mlp.down", "decoder.layers.0.0.to_kv": ("attn.k", "attn.v"),
    "transformer.h.0.crossattention.c_attn": ("attn.k", "attn.v"), "transformer.h.0.crossattention.q_attn": "attn.q",
    "encoder.layer.0.attention.attention.value": "attn.v", "blocks.0.mlp.w12": GATE_UP,
    "blocks.0.cross_attn.proj": "attn.o",
    "output": "head", "fc": "head", "score": "head", "classifier.out_proj": "head", "mlp_head.linear1": "head",
    "lm_head.decoder": "head", "head.fc": "head", "encoder.conv1": "patch", "visual.conv1": "patch",
    "embeddings.patch_embeddings.projection": "patch", "to_patch_embedding.linear1": "patch",
}  # fmt: skip

# Nothing to say: these are plain linear maps.
PLAIN = (
    "fc1", "linear1", "proj", "pooler.dense", "layers.0.attention_pool.extra", "lm_head.dense", "layers.0.reduction",
    "gate", "up_proj", "output.dense", "encoder.output", "decoder.embed", "query", "text_projection",
)  # fmt: skip

TABLE_NAMES = {
    "pos_embed": "pos", "encoder.pos_embedding": "pos", "positional_embedding": "pos",
    "embeddings.position_embedding": "pos",
    "query_embed": "token", "dist_token": "token", "storage_tokens": "token", "head.latent": "token",
    "blocks.3.attn.rel_pos_h": "pos.bias", "attn.relative_position_bias_table": "pos.bias",
    "token_type_embeddings": "pos", "token_type_embeddings_2": "pos", "segment_emb": "pos", "lang_embeddings": "pos",
    "positions_embed": "pos", "model.embed_tokens": None, "tok_embeddings": None, "token_embedding": None,
    "codebook": None, "scale": None, "tokens": None,
}  # fmt: skip

PARAMETER_NAMES = {
    "logit_scale": "kept", "blocks.0.ls1.gamma": "kept", "layers.0.gamma_1": "kept", "layers.0.mixer.D": "kept",
    "layers.0.moe.experts.w2": "mlp.down", "layers.0.mlp.experts.down_proj_bias": "bias",
    "layers.0.mlp.gate.e_score_correction_bias": "bias", "blocks.0.attn.q_bias": "bias",
    "layers.0.norm.gamma": None, "layers.0.D": None, "layers.0.experts.w2.weight": None,
}  # fmt: skip


@pytest.mark.parametrize(("path", "role"), {**MAP_PATHS, **dict.fromkeys(PLAIN)}.items())
def test_maps(path, role):
    assert look_up(MAPS, path) == role


@pytest.mark.parametrize(("name", "role"), TABLE_NAMES.items())
def test_tables(name, role):
    assert look_up(TABLES, name) == role


@pytest.mark.parametrize(("name", "role"), PARAMETER_NAMES.items())
def test_parameters(name, role):
    assert look_up(PARAMETERS, name) == role
