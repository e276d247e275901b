"""Attribute-name patterns: the one table that says what a parameter is, and nothing else knows names.

Each entry is (pattern, role), or (pattern, roles) for a matrix whose rows are several maps one after the other; the
first pattern that is found in a path wins. Names that end a path are those of the Transformers library, timm,
torchvision, PyTorch's own modules, and of the models that people write by hand. ``facts/roles.py`` says which of the
three lists a parameter is looked up in, by the type of its module.
"""

import re
from functools import cache

Roles = str | tuple[str, ...]

QKV = ("attn.q", "attn.k", "attn.v")
GATE_UP = ("mlp.gate", "mlp.up")
WRITES_RESIDUAL = {"attn.o", "mlp.down"}

# The module that an attention or a feed-forward network is, at the end of a path, with the dot that follows.
_ATTN = r"(?i:(^|\.)\w*(attn|attention)\w*\.((self|attention|fn|\d+)\.)?)"
_MLP = r"(?i:(^|\.)(\w*(mlp|ffn|feed_?forward|densereludense|experts?|moe)\w*|ff)\.((experts\.)?\d+\.|net\.|fn\.)?)"
_INNER = rf"({_MLP}|(^|\.)\d+\.(net\.)?)"  # a feed-forward network, or the block itself that holds its maps

# Weights of linear maps, convolutions and routers, by the path of the module.
MAPS: tuple[tuple[str, Roles], ...] = (
    (r"(^|\.)(to_)?patch\w*(\.(proj|projection|conv\w*|linear\d))?$", "patch"),
    (r"(^|\.)(conv_proj|(encoder|visual)\.conv1)$", "patch"),
    (_ATTN + r"(q|q_proj|query|query_proj|projection_query|[wW]q|q_lin|to_q|q_attn)$", "attn.q"),
    (_ATTN + r"(k|k_proj|key|key_proj|projection_key|[wW]k|k_lin|to_k)$", "attn.k"),
    (_ATTN + r"(v|v_proj|value|value_proj|projection_value|[wW]v|v_lin|to_v)$", "attn.v"),
    (r"(^|\.)crossattention\.c_attn$", ("attn.k", "attn.v")),
    (_ATTN + r"(c_attn|qkv|qkv_proj|Wqkv)$", QKV),
    (r"(^|\.)(to_)?qkv$", QKV),
    (r"(^|\.)to_kv$", ("attn.k", "attn.v")),
    (_ATTN + r"(query_key_value|in_proj_qkvz?)$", "attn.qkv"),  # heads in turn: q, k and v of one, then of the next
    (_ATTN + r"(q_a_proj|wq_a)$", "attn.q_down"),
    (_ATTN + r"(q_b_proj|wq_b)$", "attn.q_up"),
    (_ATTN + r"(kv_a_proj_with_mqa|wkv_a)$", "attn.kv_down"),
    (_ATTN + r"(kv_b_proj|wkv_b)$", "attn.kv_up"),
    (_ATTN + r"(gate|gate_proj|g_proj|output_gate|in_proj_ba)$", "attn.gate"),
    (_ATTN + r"output\.dense$", "attn.o"),
    (r"(^|\.)to_out(\.linear1)?$", "attn.o"),
    (_ATTN + r"(o|o_proj|out_proj|proj|projection|c_proj|dense|[wW]o|out_lin)$", "attn.o"),
    (r"(^|\.)(shared_expert_gate|router(\.\w+)?|gate\.wg)$", "moe.router"),
    (r"(^|\.)text_model\.head$", "linear"),  # SigLIP: a projection of the pooled text, not of logits
    (r"(^|\.)((\w+_)?heads?(\.(head|fc|decoder|linear1))?|head_dist|\w*classifier(\.(out_proj|linear1))?)$", "head"),
    (r"(^|\.)(proj_out|score|qa_outputs|embed_out|vocab_projector|decoder_pred)$", "head"),
    (r"^((cls\.|predictions\.)*decoder|output|fc)$", "head"),
    (_MLP + r"(gate|gate_proj|w1|wi_0)$", "mlp.gate"),
    (_MLP + r"(up|up_proj|w3|wi_1)$", "mlp.up"),
    (_MLP + r"(down|down_proj|w2|[wW]o)$", "mlp.down"),
    (_MLP + r"(gate_up_proj|w12)$", GATE_UP),
    (_INNER + r"(fc1|linear1|lin1|dense1|fc_in|pwconv1)$", "mlp.up"),
    (_INNER + r"(fc2|linear2|lin2|dense2|fc_out|pwconv2)$", "mlp.down"),
    (_MLP + r"(c_fc|dense_h_to_4h|[wW]i|intermediate_dense|input_linear)$", "mlp.up"),
    (_MLP + r"(c_proj|dense_4h_to_h|output_dense|output_linear)$", "mlp.down"),
    (r"(^|\.)(intermediate(_query)?\.dense|\d+\.ffn)$", "mlp.up"),
    (r"(^|\.)(\d+\.output(_query)?\.dense|\d+\.ffn_output)$", "mlp.down"),
)

# Lookup tables by the path of the module, and bare parameters by their name.
TABLES: tuple[tuple[str, Roles], ...] = (
    (r"(^|\.)(relative_attention_bias|\w*relative_position_bias_table|rel_pos_[hw]|attention_biases)$", "pos.bias"),
    (r"(^|\.)\w*quer(y|ies)(_position)?(_tokens?|_embed\w*)?$", "token"),
    (r"(^|\.)\w*(cls|class|mask|dist|distillation|reg|register|storage|prompt)_?tokens?$", "token"),
    (r"(^|\.)(class_embedding|masked_spec_embed|probe|\w*latents?|bias_[kv]|registers)$", "token"),
    (r"(^|\.)(pos|wpe|embed_positions|rel_embeddings|(row|column)_embeddings)$", "pos"),
    (r"(^|\.)\w*pos(itions?|itional)?_(emb|embed|embeds|embedding|embeddings|encoding|encodings)$", "pos"),
    (
        r"(^|\.)\w*(type|segment|lang|language)_(emb|embed|embedding|embeddings)(_\d+)?$",
        "pos",
    ),  # added as positions are
)

# Other parameters of modules that hold them bare, by their full name; and what keeps the value it was built with.
PARAMETERS: tuple[tuple[str, Roles], ...] = (
    (r"(^|\.)(logit_scale|logit_bias|A_log|dt_bias|sinks|act_fn\.alpha_[pn]|correct_output_scale)$", "kept"),
    (r"(^|\.)((mixer|mamba)\.D|dt_proj\.bias)$", "kept"),
    (r"(^|\.)(layer_?scale\w*(\.\w+)?|ls\d?\.gamma|(lambda|gamma)_?[12])$", "kept"),
    (r"(^|\.)in_proj_weight$", QKV),
    (r"(^|\.)q_proj_weight$", "attn.q"),
    (r"(^|\.)k_proj_weight$", "attn.k"),
    (r"(^|\.)v_proj_weight$", "attn.v"),
    (r"(^|\.)experts\.gate_up_proj$", GATE_UP),
    (r"(^|\.)experts\.(gate_proj|w1)$", "mlp.gate"),
    (r"(^|\.)experts\.(up_proj|w3)$", "mlp.up"),
    (r"(^|\.)experts\.(down_proj|w2)$", "mlp.down"),
    (r"(^|\.)mm_input_projection_weight$", "linear"),
    (r"(^|\.)((in|\w+)_proj_bias|[qkv]_bias|e_score_correction_bias|expert_bias)$", "bias"),
)

# Maps that are neither attention nor feed-forward and end on the residual stream all the same: of state-space models.
RESIDUAL = re.compile(r"(^|\.)(mixer|mamba)\.out_proj$")

# Attentions whose fused matrix has q, k and v of one head (or shard), then of the next, though its name tells nothing.
INTERLEAVED = ("CodeGenAttention", "MiniMaxLightningAttention")

# Parameters that multiply from the right, x @ W, and so are stored as (d_in, d_out).
TRANSPOSED = re.compile(r"(^|\.)mm_input_projection_weight$")

# A block of a stack, at the beginning of a parameter's name: the first list of blocks or stages on the way to it, and
# the list in one of those, of a stage's blocks or a block's parts.
BLOCK = re.compile(
    r"(?P<stack>(?:.*?\.)??(?:\w*(?:layers?|blocks?)|h|stages|self_attends))\.(?:encoder_layer_)?(?P<index>\d+)"
    r"(?:\.(?:blocks|layers)\.(?P<inner>\d+))?\."
)

_WRAPPERS = re.compile(r"(^|\.)(_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.)")


def canonical(name: str) -> str:
    """A parameter's name without the prefixes that compiling, sharding and checkpoint wrappers add."""
    return _WRAPPERS.sub("", name).lstrip(".")


@cache
def _found(patterns: tuple[tuple[str, Roles], ...], path: str) -> Roles | None:
    return next((roles for pattern, roles in patterns if re.search(pattern, path)), None)


def look_up(patterns: tuple[tuple[str, Roles], ...], path: str) -> Roles | None:
    """What the first of ``patterns`` that is found in ``path`` tells, or None; layers and experts are all alike."""
    return _found(patterns, re.sub(r"(?<=\.)\d+(?=\.)", "0", path))


def writes_residual(role: str, path: str) -> bool:
    """Whether the output of the map at ``path`` is added to the residual stream as it is."""
    return role in WRITES_RESIDUAL or (role == "linear" and RESIDUAL.search(path) is not None)
