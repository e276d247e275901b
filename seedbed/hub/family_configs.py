"""Configurations of Transformers' families and ours, translated both ways; what one cannot say is refused.

Every field of theirs is read, known to change nothing that a model computes, or an error: none is passed over.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seedbed.config.load import from_tree
from seedbed.config.model import ModelConfig
from seedbed.errors import InputError
from seedbed.hub.exported import SEEDBED, model_section
from seedbed.hub.families import FAMILIES

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

Fields = dict[str, Any]

# What changes no logit: ids and names of tokens, how weights were drawn, other heads, what calls return, and what
# other programs noted. Transformers no longer reads pretraining_tp and n_ctx.
_NEUTRAL = {
    "_attn_implementation_autoset", "_commit_hash", "_model_name_or_path", "_name_or_path", "architectures",
    "auto_map", "bos_token_id", "chunk_size_feed_forward", "dtype", "eos_token_id", "finetuning_task", "id2label",
    "initializer_range", "is_llama_config", "label2id", "n_ctx", "output_attentions", "output_hidden_states",
    "output_past", "pad_token_id", "prefix", "pretraining_tp", "problem_type", "return_dict", "sep_token_id",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "task_specific_params", "tie_last_hidden_states", "torch_dtype", "transformers.js_config", "transformers_version",
    "unk_token_id", "unsloth_fixed", "unsloth_version", "use_cache",
}  # fmt: skip
# Read by Transformers, and the decoder has one value of each.
_FIXED: Fields = {
    "add_cross_attention": False,
    "is_causal": True,
    "is_decoder": True,
    "is_encoder_decoder": False,
    "reorder_and_upcast_attn": False,
    "rope_interleaved": False,
    "scale_attn_by_inverse_layer_idx": False,
}
_DROPOUTS = ("attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop")
_SILU, _GELU = ("silu", "swish"), ("gelu_new", "gelu_pytorch_tanh")
_LLAMA = ("rope", "rmsnorm", "swiglu", "pre")
_ROPES = {"default": set(), "llama3": {"factor", "low_freq_factor", "high_freq_factor"}}


@dataclass(frozen=True)
class Translated:
    """A configuration of ours that computes what theirs does, and what a person should know about it."""

    model: ModelConfig
    notes: list[str]


def known_families() -> str:
    """Their names, for people."""
    return ", ".join(sorted(FAMILIES))


def our_config(theirs: "PreTrainedConfig", where: object) -> Translated:
    """The decoder that computes what a model of Transformers with this configuration does.

    Raises InputError, naming the file ``where``, for a family that is not known, a field that is not, and a value that
    the decoder does not express.
    """
    fields = theirs.to_dict()
    kind = fields.pop("model_type")
    if kind not in FAMILIES:
        raise InputError(f"{where}: model_type {kind!r} is no family that is imported; those are {known_families()}")
    fields = {name: value for name, value in fields.items() if name not in _NEUTRAL}
    notes = _dropouts(fields)
    for name, value in _FIXED.items():
        _only(fields, name, (value, None), where)
    if kind == "lfm3":
        _as_llama(fields, where)
    if kind == SEEDBED:
        model = model_section(fields)
    else:
        model = _gpt2(fields, where) if kind == "gpt2" else _llama(fields, kind, notes, where)
    if left := [f"{name}={value!r}" for name, value in fields.items() if value is not None]:
        raise InputError(
            f"{where}: {', '.join(left[:4])} is not known of {kind}; remove it there if it changes nothing that the "
            "model computes"
        )
    return Translated(from_tree({"model": model}, str(where)).model, notes)


def their_config(model: ModelConfig, family: str | None = None) -> tuple["PreTrainedConfig | None", str]:
    """The configuration of a native class of Transformers that computes what ``model`` does, without ids of tokens; or
    None, and why there is none. ``family`` asks for one of several that do (Mistral's is Llama's too)."""
    import transformers

    reason, fits = _families(model)
    fits = [kind for kind in fits if hasattr(transformers, FAMILIES[kind].architecture)]
    reason = reason or "this release of Transformers has no class that computes it"
    kind = family or next(iter(fits), None)
    if kind not in fits:
        return None, f"{family} computes something else; this is {' or '.join(fits)}" if fits else reason
    attention, ffn = model.attention, model.ffn
    told: Fields = {"vocab_size": model.vocab_size, "tie_word_embeddings": model.tied}
    told |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    told["architectures"] = [FAMILIES[kind].architecture]
    if kind == "gpt2":
        told |= {"n_embd": model.d_model, "n_layer": model.n_layers, "n_head": attention.n_heads}
        told |= {"n_positions": model.max_seq_len, "n_inner": ffn.d_ff, "layer_norm_epsilon": model.norm_eps}
        told |= dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
        return transformers.GPT2Config(**told), ""
    told |= {"hidden_size": model.d_model, "intermediate_size": ffn.d_ff, "num_hidden_layers": model.n_layers}
    told |= {"num_attention_heads": attention.n_heads, "num_key_value_heads": attention.n_kv_heads}
    told |= {"head_dim": attention.head_dim, "rms_norm_eps": model.norm_eps}
    told |= {"max_position_embeddings": model.max_seq_len, "rope_parameters": _rope_parameters(model)}
    if kind == "llama":
        told |= {"attention_bias": model.bias, "mlp_bias": model.bias}
    if kind == "mistral":
        told["sliding_window"] = None
    if kind == "lfm3":
        told |= {"norm_eps": told.pop("rms_norm_eps"), "layer_types": ["full_attention"] * model.n_layers}
        told |= {"rope_parameters": {"full_attention": told["rope_parameters"]}, "use_sandwich_norm": False}
    names = {"llama": "Llama", "mistral": "Mistral", "olmo2": "Olmo2", "qwen3": "Qwen3", "lfm3": "Lfm3"}
    return getattr(transformers, f"{names[kind]}Config")(**told), ""


def _families(model: ModelConfig) -> tuple[str, list[str]]:
    """Families that compute what ``model`` does, the usual one first, or why there is none."""
    a = model.attention
    assert a.head_dim
    if model.output_multiplier not in (None, 1):
        return f"output_multiplier={model.output_multiplier:g}: no native class of these families scales logits", []
    if a.scale not in (None, a.head_dim**-0.5):
        return f"attention.scale={a.scale:g}: native classes of these families have head_dim^-1/2", []
    shape = (model.position, model.norm, model.ffn.kind, model.norm_placement)
    whole = a.n_heads * a.head_dim == model.d_model
    if a.gate != "none":
        if a.gate == "headwise" and shape == _LLAMA and a.qk_norm == "head" and not model.bias:
            return "", ["lfm3"]
        return f"attention.gate={a.gate}: LFM3 alone has it, headwise, with qk_norm=head and no biases", []
    if shape == ("learned", "layernorm", "gelu", "pre"):
        if model.bias and a.qk_norm == "none" and a.n_kv_heads == a.n_heads and whole:
            return "", ["gpt2"]
        return "GPT-2 has biases, as many heads of keys as of queries, heads of d_model together, and no qk_norm", []
    if shape == ("rope", "rmsnorm", "swiglu", "post") and a.qk_norm == "whole" and not model.bias:
        return "", ["olmo2"]
    if shape == _LLAMA and a.qk_norm == "head" and not model.bias:
        return "", ["qwen3"]
    if shape == _LLAMA and a.qk_norm == "none":
        # Llama's configuration wants a width that the heads divide
        found = ["llama"] * (model.d_model % a.n_heads == 0) + ["mistral"] * (not model.bias)
        return ("" if found else "Llama's heads divide d_model, and Mistral has no biases"), found
    told = ", ".join(shape) + f", qk_norm={a.qk_norm}, bias={str(model.bias).lower()}"
    return f"{told}: no native class of these families has them together", []


def _gpt2(fields: Fields, where: object) -> Fields:
    _only(fields, "activation_function", _GELU, where)
    _only(fields, "scale_attn_weights", (True,), where)
    model: Fields = {"norm": "layernorm", "position": "learned", "bias": True}
    model |= {"vocab_size": fields.pop("vocab_size"), "tied": fields.pop("tie_word_embeddings")}
    model |= {"d_model": fields.pop("n_embd"), "n_layers": fields.pop("n_layer")}
    model |= {"max_seq_len": fields.pop("n_positions"), "norm_eps": fields.pop("layer_norm_epsilon")}
    model["attention"] = {"n_heads": fields.pop("n_head")}
    model["ffn"] = {"kind": "gelu", "d_ff": fields.pop("n_inner")}
    return model


def _llama(fields: Fields, kind: str, notes: list[str], where: object) -> Fields:
    _only(fields, "hidden_act", _SILU, where)
    bias = fields.pop("attention_bias", False)
    _only(fields, "mlp_bias", (bias,) if kind == "llama" else (None,), where, "attention_bias and mlp_bias go together")
    if bias and kind != "llama":
        raise InputError(
            f"{where}: attention_bias={bias!r} without biases in the feed-forward network is not expressed"
        )
    model: Fields = {"norm": "rmsnorm", "position": "rope", "bias": bias}
    model |= {"vocab_size": fields.pop("vocab_size"), "tied": fields.pop("tie_word_embeddings")}
    model |= {"d_model": fields.pop("hidden_size"), "n_layers": fields.pop("num_hidden_layers")}
    model["norm_eps"] = fields.pop("rms_norm_eps")
    longest = fields.pop("max_position_embeddings")
    if (window := _window(fields)) is not None and window < longest:
        notes.append(f"attention slides over {window} tokens of {longest}: max_seq_len={window}, where it is full")
        longest = window
    model["max_seq_len"] = longest
    model |= _rope(fields.pop("rope_parameters"), where)
    qk_norm = {"qwen3": "head", "lfm3": "head", "olmo2": "whole"}.get(kind, "none")
    model["norm_placement"] = "post" if kind == "olmo2" else "pre"
    model["attention"] = {
        "n_heads": fields.pop("num_attention_heads"),
        "n_kv_heads": fields.pop("num_key_value_heads"),
        "head_dim": fields.pop("head_dim", None),
        "qk_norm": qk_norm,
        "gate": "headwise" if kind == "lfm3" else "none",
    }
    model["ffn"] = {"kind": "swiglu", "d_ff": fields.pop("intermediate_size")}
    return model


def _as_llama(fields: Fields, where: object) -> None:
    """Rename the fields of LFM3, in place, where all its layers are attention to all earlier tokens."""
    _only(fields, "use_sandwich_norm", (False,), where)
    _only(fields, "use_attention_gate", (True,), where)
    if other := set(fields.pop("layer_types")) - {"full_attention"}:
        raise InputError(f"{where}: layers of kind {', '.join(sorted(other))} are not expressed; full_attention is")
    for name in ("conv_bias", "conv_L_cache", "sliding_window"):  # of those kinds
        fields.pop(name)
    fields["rms_norm_eps"] = fields.pop("norm_eps")
    fields["rope_parameters"] = fields["rope_parameters"]["full_attention"]


def _window(fields: Fields) -> int | None:
    """Tokens that attention sees, where a layer has a window; up to so many it is full attention."""
    window, layers = fields.pop("sliding_window", None), fields.get("layer_types")
    fields.pop("max_window_layers", None)  # says which layers slide, as layer_types does in full
    slides = fields.pop("use_sliding_window", True)
    if layers is not None and set(layers) <= {"full_attention", "sliding_attention"}:
        slides = "sliding_attention" in fields.pop("layer_types")
    return window if slides else None


def _rope(rope: Fields, where: object) -> Fields:
    rope = dict(rope)
    kind, theta = rope.pop("rope_type"), rope.pop("rope_theta")
    rope.pop("type", None)  # its name in older configurations
    _only(rope, "partial_rotary_factor", (1, None), where)
    if kind not in _ROPES:
        raise InputError(f"{where}: rope_type={kind!r} is not expressed; known are {', '.join(_ROPES)}")
    found: Fields = {"rope_theta": float(theta)}
    if kind == "llama3":
        scaling = {name: float(rope.pop(name)) for name in sorted(_ROPES[kind])}
        found["rope_scaling"] = scaling | {"original_max_seq_len": rope.pop("original_max_position_embeddings")}
    if left := [f"{name}={value!r}" for name, value in rope.items() if value is not None]:
        raise InputError(f"{where}: {', '.join(left)} is not known of rope_type={kind!r}; remove it there")
    return found


def _rope_parameters(model: ModelConfig) -> Fields:
    rope: Fields = {"rope_type": "default", "rope_theta": model.rope_theta}
    if (scaling := model.rope_scaling) is not None:
        rope |= {name: getattr(scaling, name) for name in _ROPES["llama3"]}
        rope |= {"rope_type": "llama3", "original_max_position_embeddings": scaling.original_max_seq_len}
    return rope


def _only(fields: Fields, name: str, values: tuple[Any, ...], where: object, told: str = "") -> None:
    """Take a field out of which the decoder expresses these ``values``; where it is not there it has the first."""
    value = fields.pop(name, values[0])
    if value not in values:
        known = " or ".join(repr(one) for one in values if one is not None)
        raise InputError(f"{where}: {name}={value!r} is not expressed; {told or f'known is {known}'}")


def _dropouts(fields: Fields) -> list[str]:
    """Take them out: they are for training, and the decoder has none."""
    found = {name: fields.pop(name) for name in _DROPOUTS if name in fields}
    told = ", ".join(f"{name}={value}" for name, value in found.items() if value)
    return [f"{told}: it was trained with dropout, the decoder has none"] if told else []
