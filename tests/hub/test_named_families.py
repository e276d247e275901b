"""Configurations and weights of five families, there and back; what the decoder does not express is refused."""

import contextlib

import pytest
import torch

pytest.importorskip("transformers")

import transformers
from foreign import FAMILIES as BUILT
from foreign import GROUPED, SMALL, VOCAB, build

from seedbed.config import Config, ModelConfig
from seedbed.errors import InputError
from seedbed.hub.families import FAMILIES, to_ours
from seedbed.hub.family_configs import our_config, their_config
from seedbed.hub.native import to_native
from seedbed.hub.parity import parity, require_parity
from seedbed.model import Decoder

NAMES = ["gpt2", "llama", "qwen3", "olmo2", "mistral", "lfm3"]
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
ROPE = {
    "vocab_size": VOCAB, "d_model": 16, "n_layers": 2, "max_seq_len": 64, "norm_eps": 1e-6,
    "attention": {"n_heads": 4, "n_kv_heads": 2, "head_dim": 4}, "ffn": {"d_ff": 24},
}  # fmt: skip
GPT2 = {
    "vocab_size": VOCAB, "d_model": 16, "n_layers": 2, "max_seq_len": 64, "norm": "layernorm", "norm_eps": 1e-5,
    "position": "learned", "bias": True, "tied": True, "attention": {"n_heads": 4}, "ffn": {"kind": "gelu"},
}  # fmt: skip
# family, and the model that it is, as its configuration should be read
MODELS = {
    "gpt2": ("gpt2", GPT2),
    "gpt2, untied, wide": ("gpt2", {**GPT2, "tied": False, "ffn": {"kind": "gelu", "d_ff": 40}}),
    "llama": ("llama", ROPE),
    "llama, tied": ("llama", {**ROPE, "tied": True}),
    "llama with biases": ("llama", {**ROPE, "bias": True}),
    "llama, wide heads": ("llama", {**ROPE, "attention": {"n_heads": 2, "n_kv_heads": 1, "head_dim": 6}}),
    "llama 3": ("llama", {**ROPE, "rope_theta": 5e5, "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_seq_len": 16}}),
    "qwen3": ("qwen3", {**ROPE, "attention": {"n_heads": 4, "head_dim": 6, "qk_norm": "head"}, "rope_theta": 1e6}),
    "olmo2": ("olmo2", {**ROPE, "norm_placement": "post", "attention": {**ROPE["attention"], "qk_norm": "whole"}}),
    "lfm3": ("lfm3", {**ROPE, "attention": {**ROPE["attention"], "qk_norm": "head", "gate": "headwise"}}),
    "odd width": ("mistral", {**ROPE, "d_model": 18}),
}  # fmt: skip


def of_theirs(theirs) -> Decoder:
    """Our model with the weights of theirs."""
    family = FAMILIES[theirs.config.model_type]
    ours = Decoder(our_config(theirs.config, "config.json").model).to(theirs.dtype)
    state = dict(theirs.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter.copy_(to_ours(family, ours, name, state.__getitem__))
    return ours


@pytest.mark.parametrize(("family", "options"), MODELS.values(), ids=MODELS)
def test_configurations_there_and_back(family, options):
    model = Config.model_validate({"model": options}).model
    theirs, reason = their_config(model)
    assert theirs is not None, reason
    assert theirs.model_type == family
    assert theirs.architectures == [FAMILIES[family].architecture]
    assert (theirs.bos_token_id, theirs.eos_token_id) == (None, None)
    read = type(theirs).from_dict(theirs.to_dict())
    assert our_config(read, "config.json") == our_config(theirs, "config.json")
    assert our_config(read, "config.json").model == model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("family", NAMES)
def test_weights_there_and_back_are_the_same_bits(family, tied, dtype):
    theirs = build(family, tie_word_embeddings=tied).to(dtype)
    for number, parameter in enumerate(theirs.parameters()):
        parameter.data += number * 1e-3  # norms and biases are all alike otherwise
    ours = of_theirs(theirs)
    assert all(parameter.isfinite().all() for parameter in ours.parameters())
    back, state = to_native(ours, family), dict(theirs.named_parameters())
    assert back.keys() == state.keys()
    for name, tensor in back.items():
        assert tensor.dtype == dtype
        assert tensor.is_contiguous()
        assert torch.equal(tensor, state[name]), name


def test_where_the_blocks_lie():
    gpt2, llama = build("gpt2"), build("llama")
    ours = of_theirs(gpt2).layers[1]
    attention, mlp = gpt2.transformer.h[1].attn, gpt2.transformer.h[1].mlp
    assert torch.equal(ours.attn.qkv.weight, attention.c_attn.weight.T)
    assert torch.equal(ours.mlp.down.weight, mlp.c_proj.weight.T)
    ours = of_theirs(llama).layers[0]
    attention, mlp = llama.model.layers[0].self_attn, llama.model.layers[0].mlp
    assert torch.equal(ours.attn.qkv.weight[16:24], attention.k_proj.weight)
    assert torch.equal(ours.mlp.gate_up.weight[24:], mlp.up_proj.weight)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((name, {}) for name in NAMES),
        ("llama", {"rope_parameters": LLAMA3}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
        ("qwen3", {"head_dim": 6, "num_key_value_heads": 1}),
        ("mistral", {"sliding_window": None}),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
        ("gpt2", {"n_inner": 20, "activation_function": "gelu_pytorch_tanh", "tie_word_embeddings": False}),
    ],
)
def test_they_say_the_same(family, options):
    theirs = build(family, **options)
    for name, parameter in theirs.named_parameters():
        if name.endswith("bias"):  # zero when drawn
            torch.nn.init.normal_(parameter)
    require_parity(parity(of_theirs(theirs), theirs, VOCAB), family)


REFUSED = [
    ("llama", {"attention_bias": True}, "mlp_bias=False is not expressed; attention_bias and mlp_bias go together"),
    ("qwen3", {"attention_bias": True}, "attention_bias=True"),
    ("olmo2", {"attention_bias": True}, "attention_bias=True"),
    ("llama", {"hidden_act": "gelu"}, "hidden_act='gelu' is not expressed; known is 'silu' or 'swish'"),
    ("gpt2", {"activation_function": "gelu"}, "activation_function='gelu'"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights=False"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
    ("gpt2", {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn=True"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True"),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}, "rope_type='linear'"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "rope_type='dynamic'"),
    ("olmo2", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5"),
    ("llama", {"rope_parameters": {"rope_theta": 1e4, "twist": 1}}, "twist=1 is not known of rope_type='default'"),
    ("llama", {"rope_interleaved": True}, "rope_interleaved=True"),
    ("llama", {"is_causal": False}, "is_causal=False"),
    ("llama", {"final_logit_softcapping": 30.0}, r"final_logit_softcapping=30.0 is not known of llama"),
    ("mistral", {"layer_types": ["chunked_attention", "full_attention"]}, "layer_types"),
    ("qwen3", {"residual_multiplier": 0.5, "z": 1}, "residual_multiplier=0.5, z=1 is not known of qwen3"),
    ("lfm3", {"use_sandwich_norm": True}, "use_sandwich_norm=True"),
    ("lfm3", {"use_attention_gate": False}, "use_attention_gate=False"),
    ("lfm3", {"layer_types": ["conv", "sliding_attention"]}, "layers of kind conv, sliding_attention"),
    ("llama", {"rms_norm_eps": 0.0}, "model.norm_eps"),
    ("gemma2", {}, "model_type 'gemma2' is no family that is imported; those are gpt2, lfm3, llama"),
]


@pytest.mark.parametrize(("family", "options", "told"), REFUSED)
def test_what_the_decoder_does_not_express(family, options, told):
    name, known = BUILT[family]
    config = getattr(transformers, name)(**{**known, **options})
    with pytest.raises(InputError, match=r"^folder/config\.json: ") as error:
        our_config(config, "folder/config.json")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_no_field_is_passed_over():
    """Each field of each family's class, changed: read, refused, or known to change no logit."""
    from seedbed.hub import family_configs

    neutral = family_configs._NEUTRAL | set(family_configs._DROPOUTS)
    neutral |= {"model_type", "use_sliding_window", "max_window_layers"}  # the class makes layer_types of the two
    of_other_layers = {"conv_bias", "conv_L_cache", "sliding_window"}  # than LFM3 has where it is imported
    for family in NAMES:
        name, known = BUILT[family]
        usual = getattr(transformers, name)(**{**known, "sliding_window": None} if family == "mistral" else known)
        before = our_config(usual, "x").model
        for field, value in usual.to_dict().items():
            changed = {bool: lambda v: not v, int: lambda v: 3 * v, float: lambda v: v / 2, str: lambda v: f"{v}x"}
            if field in (neutral | of_other_layers if family == "lfm3" else neutral) or type(value) not in changed:
                continue
            other = type(usual).from_dict(usual.to_dict())
            setattr(other, field, changed[type(value)](value))
            with contextlib.suppress(InputError):
                assert our_config(other, "x").model != before, f"{family}: {field}"


def test_fields_of_no_value_and_of_other_programs_change_nothing():
    plain = transformers.LlamaConfig(**GROUPED)
    noted = transformers.LlamaConfig(**GROUPED, rope_scaling=None, is_llama_config=True, rope_interleaved=False,
                                     clip_qkv=None, **{"transformers.js_config": {"dtype": "q4"}})  # fmt: skip
    assert our_config(noted, "x") == our_config(plain, "x")


def test_what_a_person_should_know():
    assert our_config(transformers.LlamaConfig(**GROUPED), "x").notes == []
    found = our_config(transformers.MistralConfig(**GROUPED, sliding_window=8, attention_dropout=0.1), "x")
    assert found.model.max_seq_len == 8
    assert found.notes == [
        "attention_dropout=0.1: it was trained with dropout, the decoder has none",
        "attention slides over 8 tokens of 64: max_seq_len=8, where it is full",
    ]
    assert our_config(transformers.MistralConfig(**GROUPED, sliding_window=64), "x").notes == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attention": {"n_heads": 4, "gate": "headwise"}}, "attention.gate=headwise: LFM3 alone has it"),
        ({"attention": {"n_heads": 4, "gate": "elementwise", "qk_norm": "head"}}, "attention.gate=elementwise"),
        ({"output_multiplier": 0.5}, "output_multiplier=0.5"),
        ({"attention": {"n_heads": 4, "scale": 0.4}}, "attention.scale=0.4"),
        ({"norm": "layernorm"}, "rope, layernorm, swiglu, pre, qk_norm=none, bias=false"),
        ({"ffn": {"kind": "gelu"}}, "rope, rmsnorm, gelu"),
        ({"norm_placement": "post"}, "rope, rmsnorm, swiglu, post, qk_norm=none"),
        ({"attention": {"n_heads": 4, "qk_norm": "whole"}}, "pre, qk_norm=whole"),
        ({"attention": {"n_heads": 4, "qk_norm": "head"}, "bias": True}, "qk_norm=head, bias=true"),
        ({"d_model": 18, "bias": True}, "Llama's heads divide d_model"),
        ({**GPT2, "bias": False}, "GPT-2 has biases"),
        ({**GPT2, "attention": {"n_heads": 4, "n_kv_heads": 2}}, "GPT-2 has biases"),
    ],
)
def test_no_native_class(options, reason):
    found, told = their_config(ModelConfig.model_validate({**ROPE, **options}))
    assert found is None
    assert told.startswith(reason) or reason in told


def test_a_family_that_is_asked_for():
    model = ModelConfig.model_validate(ROPE)
    found, _ = their_config(model, "mistral")
    assert found is not None
    assert (found.model_type, found.sliding_window) == ("mistral", None)
    assert their_config(model, "qwen3") == (None, "qwen3 computes something else; this is llama or mistral")


def test_the_builder_and_the_tests_mean_the_same_sizes():
    assert (SMALL["hidden_size"], GROUPED["num_key_value_heads"]) == (ROPE["d_model"], 2)
