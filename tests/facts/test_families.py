"""Foreign families as a whole: every parameter has a rule, every draw arrives, and the model runs."""

import pytest
import torch
from torch import Tensor, nn
from zoo import FAMILIES

from seedbed.facts.fact import MATRIX_ROLES, ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.init import initialize_

# What must be among the roles of a family beside the usual ones: parameter (or block) -> role.
SPECIAL = {
    "gemma3_text": {"model.layers.1.self_attn.q_norm.weight": "norm.offset", "model.norm.weight": "norm.offset"},
    "gemma3": {
        "model.multi_modal_projector.mm_soft_emb_norm.weight": "norm.offset",
        "model.multi_modal_projector.mm_input_projection_weight": "linear",
        "model.vision_tower.post_layernorm.weight": "norm",
        "model.vision_tower.head.probe": "token",
        "model.vision_tower.head.attention.q.weight": "attn.q",
    },
    "olmo2": {"model.layers.0.post_feedforward_layernorm.weight": "norm"},
    "deepseek_v3": {
        "model.layers.0.self_attn.q_a_proj.weight": "attn.q_down",
        "model.layers.0.self_attn.q_b_proj.weight": "attn.q_up",
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight": "attn.kv_down",
        "model.layers.0.self_attn.kv_b_proj.weight": "attn.kv_up",
        "model.layers.0.mlp.gate_proj.weight": "mlp.gate",
        "model.layers.1.mlp.gate.weight": "moe.router",
        "model.layers.1.mlp.shared_experts.down_proj.weight": "mlp.down",
        "model.layers.1.mlp.experts.3.down.weight": "mlp.down",
    },
    "qwen3_next": {
        "model.layers.0.linear_attn.A_log": "kept",
        "model.layers.0.linear_attn.dt_bias": "kept",
        "model.layers.0.linear_attn.conv1d.weight": "conv",
        "model.layers.0.linear_attn.in_proj_qkvz.weight": "attn.qkv",
        "model.layers.0.linear_attn.in_proj_ba.weight": "attn.gate",
        "model.layers.0.linear_attn.norm.weight": "norm",  # takes a gate too, and is a plain gain
        "model.layers.0.input_layernorm.weight": "norm.offset",
        "model.layers.0.mlp.shared_expert_gate.weight": "moe.router",
        "model.layers.3.self_attn.k_norm.weight": "norm.offset",
    },
    "modernbert": {
        "model.layers.1.attn.k.weight": "attn.k",
        "model.layers.1.attn.Wo.weight": "attn.o",
        "model.layers.1.mlp.gate.weight": "mlp.gate",
        "model.layers.1.mlp.Wo.weight": "mlp.down",
        "head.dense.weight": "linear",
        "decoder.bias": "bias",
    },
    "whisper": {
        "model.encoder.conv1.weight": "patch",
        "model.encoder.embed_positions.weight": "kept",  # a table of sines
        "model.decoder.embed_positions.weight": "pos",
        "model.decoder.layers.2.encoder_attn.out_proj.weight": "attn.o",
        "model.decoder.layers.2.fc2.weight": "mlp.down",
    },
    "deit": {"deit.embeddings.distillation_token": "token", "distillation_classifier.weight": "head"},
    "swin": {
        "swin.encoder.layers.1.blocks.1.attention.relative_position_bias.relative_position_bias_table": "pos.bias",
        "swin.encoder.layers.0.downsample.reduction.weight": "linear",
    },
    "dinov2_registers": {
        "dinov2_with_registers.embeddings.register_tokens": "token",
        "dinov2_with_registers.embeddings.mask_token": "token",
        "dinov2_with_registers.encoder.layer.1.layer_scale2.lambda1": "kept",
    },
    "vit_mae": {
        "vit.embeddings.position_embeddings": "kept",
        "decoder.decoder_pos_embed": "kept",
        "decoder.mask_token": "token",
        "decoder.decoder_pred.weight": "head",
    },
    "clip": {
        "logit_scale": "kept",
        "vision_model.embeddings.class_embedding": "token",
        "vision_model.embeddings.position_embedding.weight": "pos",
        "visual_projection.weight": "linear",
    },
    "siglip": {"logit_bias": "kept", "vision_model.head.probe": "token", "text_model.head.weight": "linear"},
    "perceiver": {
        "perceiver.embeddings.latents": "token",
        "perceiver.decoder.output_position_encodings.position_embeddings": "pos",
        "perceiver.encoder.self_attends.1.attention.self.value.weight": "attn.v",
        "perceiver.encoder.self_attends.1.mlp.dense2.weight": "mlp.down",
    },
    "detr": {
        "model.query_position_embeddings.weight": "token",
        "class_labels_classifier.weight": "head",
        "bbox_predictor.layers.2.weight": "linear",
    },
    "blip2": {
        "query_tokens": "token",
        "vision_model.encoder.layers.0.self_attn.v.weight": "attn.v",
        "vision_model.encoder.layers.0.self_attn.projection.weight": "attn.o",
        "qformer.encoder.layer.0.crossattention.output.dense.weight": "attn.o",
        "qformer.encoder.layer.1.output_query.dense.weight": "mlp.down",
    },
    "bert": {
        "bert.embeddings.word_embeddings.weight": "embed",
        "bert.embeddings.token_type_embeddings.weight": "pos",
        "bert.encoder.layer.1.attention.output.dense.weight": "attn.o",
        "bert.encoder.layer.1.intermediate.dense.weight": "mlp.up",
        "bert.encoder.layer.1.output.dense.weight": "mlp.down",
        "cls.predictions.bias": "bias",
    },
    "phi3": {"model.layers.0.self_attn.v.weight": "attn.v", "model.layers.0.mlp.up.weight": "mlp.up"},
    "gpt_neox": {
        "gpt_neox.layers.0.attention.query_key_value.weight": "attn.qkv",
        "gpt_neox.layers.0.mlp.dense_4h_to_h.weight": "mlp.down",
    },
    "switch": {
        "encoder.block.1.layer.1.mlp.router.classifier.weight": "moe.router",
        "encoder.block.1.layer.1.mlp.experts.expert_0.wo.weight": "mlp.down",
    },
    "longcat": {
        "model.layers.0.mlp.router.classifier.weight": "moe.router",
        "model.layers.0.self_attn.1.q_b_proj.weight": "attn.q_up",
        "model.layers.0.self_attn.1.o_proj.weight": "attn.o",
    },
    "cvt": {
        f"cvt.encoder.stages.2.layers.1.attention.attention.projection_{name}.weight": f"attn.{name[0]}"
        for name in ("query", "key", "value")
    },
    "ctrl": {f"transformer.h.1.multi_head_attention.W{name}.weight": f"attn.{name}" for name in "qkv"},
    "codegen": {"transformer.h.0.attn.qkv_proj.weight": "attn.qkv", "transformer.h.0.attn.out_proj.weight": "attn.o"},
    "gpt_bigcode": {"transformer.h.0.attn.k.weight": "attn.k", "transformer.wpe.weight": "pos"},
    "gpt_bigcode_mha": {"transformer.h.0.attn.c_attn.weight": "attn.qkv"},  # heads in turn
    "mamba": {"backbone.layers.1.mixer.out_proj.weight": "linear", "backbone.layers.1.mixer.A_log": "kept"},
    "falcon_h1": {
        **{f"model.layers.1.mamba.{name}": "kept" for name in ("A_log", "D", "dt_bias")},
        "model.layers.0.mamba.out_proj.weight": "linear",
        "model.layers.0.self_attn.q_proj.weight": "attn.q",
        "model.layers.0.feed_forward.down_proj.weight": "mlp.down",
    },
    "nemotron_h": {
        "model.layers.0.mixer.out_proj.weight": "linear",
        "model.layers.1.mixer.gate.weight": "moe.router",
        "model.layers.1.mixer.experts.3.up.weight": "mlp.up",
        "model.layers.1.mixer.shared_experts.down_proj.weight": "mlp.down",
        "model.layers.2.mixer.q_proj.weight": "attn.q",
        "model.layers.2.mixer.o_proj.weight": "attn.o",
    },
    "qwen3_moe": {"model.layers.0.mlp.gate.weight": "moe.router"},
    "granite_moe": {
        "model.layers.1.shared_mlp.gate.weight": "mlp.gate",
        "model.layers.1.shared_mlp.output_linear.weight": "mlp.down",
        "model.layers.1.block_sparse_moe.router.weight": "moe.router",
    },
    "hunyuan_moe": {"model.layers.0.mlp.gate.wg.weight": "moe.router"},
    "glm4": {"model.layers.0.mlp.up.weight": "mlp.up"},
    "starcoder2": {"model.layers.1.mlp.c_proj.weight": "mlp.down"},
    "gpt_oss": {"model.layers.0.self_attn.sinks": "kept", "model.layers.0.mlp.experts.down_proj_bias": "bias"},
}


def parts_of(model: nn.Module) -> dict[str, ParameterFact]:
    return {part.name: part for fact in parameter_facts(model) for part in fact.parts()}


def sentinel(model: nn.Module) -> None:
    """NaN in all that is not kept."""
    kept = {fact.name for fact in parameter_facts(model) if fact.role == "kept"}
    for name, parameter in model.named_parameters():
        if name not in kept:
            nn.init.constant_(parameter, torch.nan)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_parameter_is_drawn_or_kept_and_the_model_runs(family):
    build, inputs = FAMILIES[family]
    with torch.device("meta"):
        planned = parameter_facts(build())
    model = build().eval()
    facts = parameter_facts(model)
    assert facts == planned
    assert [fact.name for fact in facts] == [name for name, _ in model.named_parameters()]
    parameters = dict(model.named_parameters())
    for fact in facts:
        assert fact.stored_shape == tuple(parameters[fact.name].shape), fact.name
        # no map of a block is a mere linear one, but of state-space mixers, and what writes to the stream ends there
        mixers = ("backbone", "mixer", "mamba")
        if fact.layer is not None and fact.is_matrix and not any(part in fact.name for part in mixers):
            assert fact.role != "linear", fact.name
        for part in fact.parts():
            mixed = part.name.endswith(("mixer.out_proj.weight", "mamba.out_proj.weight"))
            assert part.writes_residual == (mixed or part.role in ("attn.o", "mlp.down"))
            assert part.maps == (0 if not part.role.startswith(("attn.", "mlp.")) else part.maps)
            assert part.maps in (0, 2, 3)
    told = {part.name: part.role for part in parts_of(model).values()}
    assert {name: told.get(name) for name in SPECIAL.get(family, {})} == SPECIAL.get(family, {})

    kept = {fact.name: parameters[fact.name].clone() for fact in facts if fact.role == "kept"}
    sentinel(model)
    report = initialize_(model, "gamma", gamma=0.5, seed=1)
    assert {row.parameter for row in report.plan.rows} == set(parameters)
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
    for name, before in kept.items():
        assert torch.equal(parameters[name], before), name
    for part, row in zip((part for fact in facts for part in fact.parts()), report.rows, strict=True):
        if part.role in MATRIX_ROLES and part.zero_row is None:
            n = torch.Size(part.shape).numel()
            assert row.std == pytest.approx(part.d_in**-0.5, rel=4.5 / (2 * n) ** 0.5), part
    with torch.no_grad():
        output = model(**inputs())
    tensors = [value for value in output.values() if isinstance(value, Tensor)]
    assert tensors
    assert all(value.isfinite().all() for value in tensors)


@pytest.mark.parametrize(
    ("family", "stacks"),
    [
        ("t5", {"encoder.block": 2, "decoder.block": 3}),
        ("whisper", {"model.encoder.layers": 2, "model.decoder.layers": 3}),
        (
            "blip2",
            {
                "vision_model.encoder.layers": 1,
                "qformer.encoder.layer": 2,
                "language_model.model.decoder.layers": 3,
            },
        ),
        ("detr", {"model.encoder.layers": 2, "model.decoder.layers": 2, "model.backbone.model.encoder.stages": 4}),
    ],
)
def test_layers_are_counted_in_each_stack(family, stacks):
    with torch.device("meta"):
        facts = parameter_facts(FAMILIES[family][0]())
    for fact in facts:
        stack = next((stack for stack in stacks if fact.name.startswith(f"{stack}.")), None)
        if stack is None:
            assert (fact.layer, fact.n_layers) == (None, max(stacks.values())), fact.name
        else:
            assert fact.layer == int(fact.name[len(stack) + 1 :].partition(".")[0]), fact.name
            assert fact.n_layers == stacks[stack], fact.name


def test_stages_are_counted_through():
    facts = {fact.name: fact for fact in parameter_facts(FAMILIES["swin"][0]())}
    layers = {
        name.split(".attention")[0]: (fact.layer, fact.n_layers)
        for name, fact in facts.items()
        if name.endswith("q_proj.weight")
    }
    assert layers == {
        "swin.encoder.layers.0.blocks.0": (0, 3),
        "swin.encoder.layers.1.blocks.0": (1, 3),
        "swin.encoder.layers.1.blocks.1": (2, 3),
    }
    assert facts["swin.encoder.layers.0.downsample.reduction.weight"].layer is None


def test_stages_at_the_top_are_counted_through():
    for facts in (parameter_facts(FAMILIES[name][0]()) for name in ("segformer", "cvt")):
        depth = {"stages": 7, "cvt": 6}[facts[0].name.partition(".")[0]]
        assert {fact.n_layers for fact in facts} == {depth}
        assert sorted({fact.layer for fact in facts} - {None}) == list(range(depth))


def test_maps_in_series_of_gated_networks():
    fused = {"phi3": "mlp", "modernbert": "mlp", "t5_gated": "DenseReluDense", "qwen3_next": "mlp", "gpt_oss": "mlp"}
    for family, network in fused.items():
        with torch.device("meta"):
            parts = parts_of(FAMILIES[family][0]())
        inside = [part for name, part in parts.items() if f".{network}." in name and part.role.startswith("mlp.")]
        assert {part.maps for part in inside} == {3}, family
        assert {part.role for part in inside} >= {"mlp.up", "mlp.down"}
    plain = parts_of(FAMILIES["bert"][0]())
    assert {part.maps for part in plain.values() if part.role.startswith("mlp.")} == {2}


def test_grouped_queries_in_a_fused_matrix_have_their_own_rows():
    parts = parts_of(FAMILIES["phi3"][0]())
    rows = [parts[f"model.layers.0.self_attn.{name}.weight"].rows for name in "qkv"]
    assert rows == [(0, 32), (32, 48), (48, 64)]


def test_experts_that_are_stored_input_first():
    parts = parts_of(FAMILIES["llama4"][0]())
    gate = parts["model.layers.0.feed_forward.experts.1.gate.weight"]
    down = parts["model.layers.0.feed_forward.experts.1.down.weight"]
    assert (gate.shape, gate.rows, gate.expert, gate.transposed) == ((48, 32), (0, 48), 1, True)
    assert (down.shape, down.d_in, down.transposed) == ((32, 48), 48, True)
    # gate and up in turns: one matrix, of which a gate is still known
    up = parts_of(FAMILIES["gpt_oss"][0]())["model.layers.0.mlp.experts.1.up.weight"]
    assert (up.role, up.shape, up.rows, up.transposed, up.maps) == ("mlp.up", (96, 32), None, True, 3)


def test_the_padding_row_stays_zero():  # case 32
    model = FAMILIES["bert"][0]()
    initialize_(model, "gamma", gamma=0.5)
    table = model.get_parameter("bert.embeddings.word_embeddings.weight")
    assert not table[0].any()
    assert table[1:].any(dim=1).all()
