"""The residual stream of any decoder: what its layers add is found and checked, whatever their architecture."""

import math
from dataclasses import asdict

import pytest
import torch
import transformers
from torch import nn

from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts
from seedbed.measure.evaluating import evaluating
from seedbed.measure.stream import following
from seedbed.measure.stream_sums import StreamSums

V, T = 99, 12
IDS = torch.randint(V, (3, T), generator=torch.Generator().manual_seed(1))
LLAMA = {
    "vocab_size": V, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None,
}  # fmt: skip
GPT2 = {"vocab_size": V, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}

# name, options, which outputs of layer 0 are added, whether both read the stream side by side
FAMILIES = [
    ("Llama", LLAMA, "self_attn", "mlp", False),
    ("Qwen3", LLAMA | {"head_dim": 8}, "self_attn", "mlp", False),
    ("Mixtral", LLAMA | {"num_local_experts": 4}, "self_attn", "mlp", False),
    ("Olmo2", LLAMA, "post_attention_layernorm", "post_feedforward_layernorm", False),
    ("Gemma2", LLAMA | {"head_dim": 8}, "post_attention_layernorm", "post_feedforward_layernorm", False),
    ("Phi", LLAMA | {"qk_layernorm": True}, "self_attn", "mlp", True),
    ("Cohere", LLAMA | {"use_qk_norm": True}, "self_attn", "mlp", True),
    ("GPTNeoX", LLAMA | {"use_parallel_residual": True}, "attention", "mlp", True),
    ("GPTNeoX", LLAMA | {"use_parallel_residual": False}, "attention", "mlp", False),
    ("GPT2", GPT2, "attn", "mlp", False),
    # modules that add the stream themselves: what is added is the output of the map in them
    ("Bloom", {"vocab_size": V, "hidden_size": 16, "n_layer": 2, "n_head": 2}, "self_attention.dense",
     "mlp.dense_4h_to_h", False),
    ("Granite", LLAMA | {"residual_multiplier": 0.22}, "self_attn", "mlp", False),  # times a constant
]  # fmt: skip
NAMES = [f"{name}{'-parallel' if parallel else ''}" for name, *_, parallel in FAMILIES]


def built(name: str, options: dict) -> nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.0 if parameter.ndim > 1 else 1.0, std=0.2)
    return model


def followed(model: nn.Module, ids: torch.Tensor, doc_ids: torch.Tensor | None = None, **inputs) -> StreamSums:
    doc_ids = torch.zeros_like(ids) if doc_ids is None else doc_ids
    with evaluating(model), following(model, parameter_facts(model), doc_ids) as sums:
        model(input_ids=ids, use_cache=False, **inputs)
    return sums


@pytest.mark.parametrize(("name", "options", "attn", "mlp", "parallel"), FAMILIES, ids=NAMES)
def test_what_a_layer_adds_makes_its_output(name, options, attn, mlp, parallel):
    """By hand, from the states that Transformers returns and from hooks on the modules that should be named."""
    model = built(name, options)
    sums = followed(model, IDS)
    assert sums.unread == {}
    assert sums.tokens == {"first": 3, "others": 33}
    layer = next(m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == 2)[0]
    named = {branch: sums.sources[branch]["0"] for branch in ("attn", "mlp")}
    assert named["attn"].endswith(f".0.{attn}")
    assert named["mlp"].endswith(f".0.{mlp}")
    assert named["mlp"].startswith("0.22 × ") == ("residual_multiplier" in options)

    found = {}
    for branch, path in (("attn", attn), ("mlp", mlp)):
        layer.get_submodule(path).register_forward_hook(
            lambda *args, b=branch: found.update({b: args[-1] if isinstance(args[-1], torch.Tensor) else args[-1][0]})
        )
    with torch.no_grad():
        states = model(input_ids=IDS, output_hidden_states=True).hidden_states
    e, h = states[0].double(), states[1].double()
    factor = options.get("residual_multiplier", 1.0)
    a, m = (factor * found[branch].reshape(e.shape).double() for branch in ("attn", "mlp"))
    assert torch.allclose(e + a + m, h, rtol=1e-4, atol=1e-4)

    def mean(values: torch.Tensor) -> float:  # of the tokens after the first
        return float(values[:, 1:].mean())

    size = h.norm(dim=-1)
    before = e if parallel else e + a
    stream, flow = sums.stream["0"], (h - e).norm(dim=-1) / e.norm(dim=-1)
    for measure, expected in (
        ("norm", size), ("variance", h.var(-1, correction=0)), ("largest", h.abs().amax(-1)), ("flow", flow),
        ("massive", h.abs().amax(-1) / h.abs().median(-1).values),
    ):  # fmt: skip
        assert sums.mean(stream, measure, ["others"]) == pytest.approx(mean(expected), rel=1e-4), measure
        middle = expected[:, 1:].double().flatten().kthvalue(17).values  # of 33
        assert sums.median("stream 0", measure, "others") == pytest.approx(float(middle), rel=0.023), measure
        assert stream["first"][measure] / 3 == pytest.approx(float(expected[:, 0].mean()), rel=1e-4), measure
    for branch, value, onto in (("attn", a, e), ("mlp", m, before)):
        own = sums.branches[branch]["0"]
        ratio, cosine = value.norm(dim=-1) / onto.norm(dim=-1), torch.cosine_similarity(value, onto, -1)
        assert sums.mean(own, "ratio", ["others"]) == pytest.approx(mean(ratio), rel=1e-4)
        most = float(ratio[:, 1:].max())
        assert sums.most(f"{branch} 0", "ratio", "others") == pytest.approx(most, rel=0.023)
        assert sums.mean(own, "cosine", ["others"]) == pytest.approx(mean(cosine), rel=1e-4, abs=1e-6)


def test_a_layer_that_no_reading_explains_is_listed():
    """GPT of 2018 norms the sum: the stream is measured, what was added is not."""
    sums = followed(built("OpenAIGPT", GPT2), IDS)
    reason = "stream + attention and MLP is not its output, whichever of its modules is taken"
    assert sums.unread == {"0": reason, "1": reason}
    assert sums.branches == {}
    assert sums.mean(sums.stream["1"], "norm") > 0
    assert {kind["reads"] for kind in sums.kinds.values()} == {"stream"}


def test_layers_without_attention_are_listed():
    sums = followed(built("Mamba", {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}), IDS)
    assert sums.unread["0"] == "it has no attention or MLP that the parameter table knows"


def test_a_norm_with_a_gate_is_listed():
    shape = {
        "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "head_dim": 8, "num_experts": 0, "layer_types": ["linear_attention", "full_attention"],
    }  # fmt: skip
    sums = followed(built("Qwen3Next", LLAMA | shape), IDS)
    reason = "a Qwen3NextRMSNormGated reads 2 tensors: what of them it norms is not known"
    assert sums.unmeasured == {"model.layers.0.linear_attn.norm": reason}
    assert sums.mean(sums.branches["attn"]["1"], "ratio") > 0


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("Qwen3", LLAMA | {"head_dim": 8}, {"input_layernorm": (False, "stream"), "q_norm": (False, "attn")}),
        ("Gemma2", LLAMA | {"head_dim": 8}, {"post_attention_layernorm": (False, "branch")}),
        ("Cohere", LLAMA | {"use_qk_norm": True}, {"input_layernorm": (True, "stream"), "k_norm": (True, "attn")}),
        ("GPT2", GPT2, {"ln_1": (True, "stream"), "ln_f": (True, "stream")}),
    ],
)
def test_norms_by_what_they_do(name, options, expected):
    """RMSNorm and LayerNorm are told apart by running them: Cohere's LayerNorm is not torch's, Gemma's gain is."""
    sums = followed(built(name, options), IDS)
    assert sums.unmeasured == {}
    for norm, (centred, reads) in expected.items():
        kinds = [kind for path, kind in sums.kinds.items() if path.endswith(f".{norm}")]
        assert kinds
        assert all((kind["centred"], kind["reads"]) == (centred, reads) for kind in kinds)
        assert all(kind["eps"] in (1e-5, 1e-6) for kind in kinds)


def test_masking_of_heads_first_and_tokens_first():
    """Phi norms queries as [B, heads, T, K], Qwen3 as [B, T, heads, K]; as many heads as tokens confuse nothing."""
    for name, options in (("Phi", {"qk_layernorm": True}), ("Qwen3", {"head_dim": 8})):
        model = built(name, LLAMA | options)
        seen = {}
        norm = next(m for path, m in model.named_modules() if path.endswith(("q_layernorm", "q_norm")))
        norm.register_forward_pre_hook(lambda _, args, seen=seen: seen.update(x=args[0].double()))
        ids = IDS[:, :2]  # two heads, two tokens
        sums = followed(model, ids)
        x = seen["x"].transpose(1, 2) if name == "Phi" else seen["x"]  # [B, T, heads, K]
        moment = x.var(-1, correction=0) if name == "Phi" else x.square().mean(-1)
        key = next(path for path in sums.norms if path.endswith(("q_layernorm", "q_norm")))
        for group, at in (("first", 0), ("others", 1)):
            assert sums.norms[key][group]["second_moment"] == pytest.approx(float(moment[:, at].mean(-1).sum()))


def test_a_norm_without_an_epsilon_is_listed():
    sums = followed(built("Olmo", LLAMA), IDS)
    assert len(sums.unmeasured) == 5
    assert set(sums.unmeasured.values()) == {"a OlmoLayerNorm without eps, variance_epsilon or epsilon"}
    assert sums.norms == {}


def test_a_branch_that_writes_nothing_has_cosine_zero():
    model = built("Llama", LLAMA)
    with torch.no_grad():
        model.get_parameter("model.layers.0.mlp.down_proj.weight").zero_()
    assert followed(model, IDS).branches["mlp"]["0"]["others"] == {"ratio": 0.0, "cosine": 0.0}


def test_broken_weights_are_no_number():
    model = built("Llama", LLAMA)
    with torch.no_grad():
        model.get_parameter("model.layers.1.mlp.down_proj.weight")[0, 0] = math.nan
    sums = followed(model, IDS)
    assert math.isnan(sums.mean(sums.stream["1"], "norm"))
    assert sums.mean(sums.stream["0"], "norm") > 0


def test_sums_of_batches_add_up():
    model = built("Gemma2", LLAMA | {"head_dim": 8})
    total = StreamSums()
    for row in IDS:
        total.add(StreamSums(**asdict(followed(model, row[None]))))
    assert flat(asdict(total)) == pytest.approx(flat(asdict(followed(model, IDS))), rel=1e-5, abs=1e-9)


def flat(tree: dict, prefix: str = "") -> dict[str, float]:
    found = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = value
    return found


def test_several_stacks_and_no_layers_are_refused():
    encoder = transformers.T5Config(vocab_size=V, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    encoder.num_decoder_layers = 3
    model = transformers.T5ForConditionalGeneration(encoder)
    with pytest.raises(InputError, match="several stacks"), following(model, parameter_facts(model), IDS):
        pass
    linear = nn.Linear(2, 2)
    with pytest.raises(InputError, match="no layers"), following(linear, parameter_facts(linear), IDS):
        pass
