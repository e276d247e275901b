"""The decoder: attention paths agree, documents do not leak, caches continue exactly, sizes are exact."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from seedbed.config import Config
from seedbed.init import initialize_
from seedbed.model import Decoder, KVCache
from seedbed.model import decoder as decoder_module
from seedbed.model.attention import Segment, attend, document_mask, segments
from seedbed.model.rope import rotate, rotations

GATED = ["model.attention.gate=elementwise"]
GPT2 = [
    "model.position=learned", "model.norm=layernorm", "model.norm_eps=1e-5", "model.bias=true", "model.ffn.kind=gelu",
    "model.tied=true",
]  # fmt: skip
LLAMA = ["model.attention.n_kv_heads=2", "model.norm_eps=1e-5"]
QWEN = ["model.attention.qk_norm=head", "model.attention.gate=headwise", "model.attention.head_dim=8"]
SHAPES = {"gated": GATED, "gpt2": GPT2, "llama": LLAMA, "qwen": QWEN}


def make(name: str, *overrides: str) -> Decoder:
    base = ["model.vocab_size=64", "model.d_model=32", "model.n_layers=2", "model.max_seq_len=48"]
    model = Decoder(Config.load(None, [*base, *SHAPES[name], *overrides]).model)
    initialize_(model, "gamma", gamma=0.5, seed=1)
    return model.double()


def ids(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(64, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SHAPES)
def test_no_token_sees_the_future(name):
    model, a = make(name), ids(2, 20)
    b = a.clone()
    b[:, 12:] = (b[:, 12:] + 1) % 64
    x, y = model(a), model(b)
    assert torch.equal(x[:, :12], y[:, :12])
    assert not torch.allclose(x[:, 12:], y[:, 12:])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("path", ["slices", "mask"])
def test_packed_equals_unpacked(name, path, monkeypatch):  # case 17
    if path == "mask":
        monkeypatch.setattr(decoder_module, "segments", document_mask)
    model = make(name)
    packed = ids(3, 24)
    doc_ids = torch.tensor([[0] * 7 + [1] * 17, [0] * 24, [3] * 7 + [1] * 16 + [9]])
    logits = model(packed, doc_ids)
    for row, spans in enumerate([[(0, 7), (7, 24)], [(0, 24)], [(0, 7), (7, 23), (23, 24)]]):
        for start, stop in spans:
            alone = model(packed[row : row + 1, start:stop])
            torch.testing.assert_close(logits[row, start:stop], alone[0], rtol=1e-9, atol=1e-11)
    edited = packed.clone()
    edited[0, :7] = (edited[0, :7] + 5) % 64
    assert torch.equal(model(edited, doc_ids)[0, 7:], logits[0, 7:])


@pytest.mark.parametrize("name", SHAPES)
def test_the_cache_continues_exactly(name):
    model, text = make(name), ids(2, 20)
    cache = KVCache(model.config, 2, 24, dtype=torch.float64)
    pieces = [model(text[:, a:b], cache=cache) for a, b in ((0, 9), (9, 10), (10, 20))]
    torch.testing.assert_close(torch.cat(pieces, 1), model(text), rtol=1e-9, atol=1e-11)
    with pytest.raises(ValueError, match="holds 24 tokens"):
        model(text[:, :5], cache=cache)


def test_too_long_a_sequence_is_refused():
    with pytest.raises(ValueError, match="max_seq_len=48"):
        make("gated")(ids(1, 49))


def test_documents_with_a_filled_cache_are_refused():
    model = make("gated")
    cache = KVCache(model.config, 1, 24, dtype=torch.float64)
    model(ids(1, 4), cache=cache)
    with pytest.raises(ValueError, match="doc_ids"):
        model(ids(1, 4), torch.zeros(1, 4, dtype=torch.int64), cache)


def test_segments_join_rows_with_the_same_span():
    doc_ids = torch.tensor([[5, 5, 2], [1, 1, 0], [4, 4, 4]])
    found = {(s.start, s.stop): s.rows.tolist() for s in segments(doc_ids) or []}
    assert found == {(0, 2): [0, 1], (2, 3): [0, 1], (0, 3): [2]}
    assert segments(torch.zeros(2, 3)) is None


@given(st.lists(st.lists(st.integers(-1, 2), min_size=7, max_size=7), min_size=1, max_size=3))
def test_mask_and_segments_show_the_same_also_where_an_id_comes_again(rows):
    doc_ids = torch.tensor(rows)
    shown = torch.zeros(len(rows), 7, 7, dtype=torch.bool)
    for part in segments(doc_ids) or [Segment(torch.arange(len(rows)), 0, 7)]:
        span = slice(part.start, part.stop)
        shown[part.rows, span, span] = True
    assert torch.equal(document_mask(doc_ids)[:, 0], shown.tril())


def test_attention_against_the_formula():
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, h, 6, 4, generator=g, dtype=torch.float64) for h in (4, 2, 2))
    doc_ids = torch.tensor([[0, 0, 1, 1, 1, 2], [0] * 6])
    expected = torch.zeros_like(q)
    for b in range(2):
        for h in range(4):
            for t in range(6):
                seen = [s for s in range(t + 1) if doc_ids[b, s] == doc_ids[b, t]]
                scores = torch.stack([q[b, h, t] @ k[b, h // 2, s] for s in seen]) / 2
                expected[b, h, t] = sum(w * v[b, h // 2, s] for w, s in zip(scores.softmax(0), seen, strict=True))
    for visible in (segments(doc_ids), document_mask(doc_ids)):
        torch.testing.assert_close(attend(q, k, v, visible), expected)


def test_the_gate_multiplies_heads_before_the_output_projection():
    model, text = make("gated"), ids(1, 8)
    gate = model.layers[0].attn.qkv.weight
    with torch.no_grad():
        gate[96:] = 0  # sigmoid(0) = 1/2 for all heads
    plain = make("gated", "model.attention.gate=none")
    plain.layers[0].attn.qkv.weight.data.copy_(gate[:96])
    x = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rotation = rotations(torch.arange(8)[None], 8, 1e4)
    gated, ungated = (m.layers[0].attn(x, rotation, None, None) for m in (model, plain))
    torch.testing.assert_close(gated, ungated / 2)
    assert model(text).shape == (1, 8, 64)


def test_qk_norm_makes_attention_blind_to_the_scale_of_queries():
    model = make("qwen", "model.norm_eps=1e-12")
    x = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rotation = rotations(torch.arange(8)[None], 8, 1e4)
    before = model.layers[0].attn(x, rotation, None, None)
    with torch.no_grad():
        model.layers[0].attn.qkv.weight[:64] *= 100  # queries and keys
    torch.testing.assert_close(model.layers[0].attn(x, rotation, None, None), before)


def test_angles_are_exact_far_out():  # case 27
    theta, width = 5e5, 64
    cos, sin = rotations(torch.tensor([[8000]]), width, theta)
    for pair in range(width // 2):
        angle = 8000 * theta ** (-2 * pair / width)
        # fp32: the position 8000 keeps its own last place, 2^-11, times the exponent's relative error
        assert cos[0, 0, 0, pair].item() == pytest.approx(math.cos(angle), abs=2e-3)
        assert sin[0, 0, 0, pair].item() == pytest.approx(math.sin(angle), abs=2e-3)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(rotations(torch.tensor([[8000]]), width, theta)[0], cos)


def test_rotation_depends_on_the_distance_alone():
    g = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 1, 16, generator=g) for _ in range(2))

    def score(a: int, b: int) -> float:
        turn = [rotations(torch.tensor([[p]]), 16, 1e4) for p in (a, b)]
        return (rotate(q, *turn[0]) * rotate(k, *turn[1])).sum().item()

    assert score(7, 3) == pytest.approx(score(107, 103), abs=1e-4)
    assert abs(score(7, 3) - score(7, 6)) > 1e-2


def test_attention_is_one_replaceable_function():
    calls = []

    def spy(q, k, v, visible):
        calls.append(q.shape)
        return attend(q, k, v, visible)

    config = make("llama").config
    model = Decoder(config, attend=spy)
    initialize_(model)
    model(ids(1, 5))
    assert calls == [torch.Size([1, 4, 5, 8])] * 2


def parameters(recipe: str) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Decoder(Config.load(f"recipes/{recipe}.yaml").model).parameters())


def test_sizes_of_the_seeds_are_exact():
    d, f, v, n = 1536, 6912, 100_000, 24
    s1 = 2 * v * d + n * (2 * d * d + 2 * d * 256 + 3 * d * f + 2 * d) + d
    assert parameters("astrai-1.2b") == s1 == 1_203_807_744
    d = 1024
    gpt2 = 50257 * d + 1024 * d + n * (4 * d * d + 4 * d + 8 * d * d + 5 * d + 4 * d) + 2 * d
    assert parameters("gpt2-medium") == gpt2 == 354_823_168


@pytest.mark.parametrize(
    ("name", "layers", "width"),
    [("dense-12x768", 12, 768), ("dense-24x1024", 24, 1024), ("dense-24x1536", 24, 1536), ("dense-24x2048", 24, 2048)],
)
def test_the_dense_models_of_s0(name, layers, width):
    config = Config.load(f"recipes/{name}.yaml")
    assert (config.model.n_layers, config.model.d_model) == (layers, width)
    assert (config.model.norm_eps, config.model.attention.gate) == (1e-12, "elementwise")
    assert (config.init.law, config.init.options["gamma"], config.optim.name) == ("gamma", 1.0, "adamw")
    d_ff = config.model.ffn.d_ff
    assert d_ff
    per_layer = 5 * width**2 + 3 * width * d_ff + 2 * width  # q, k, v, gate, o
    assert parameters(name) == 2 * 100_000 * width + layers * per_layer + width


@pytest.mark.parametrize("tied", [False, True])
def test_llama_of_transformers_with_the_same_weights_gives_the_same_logits(tied):
    from transformers import LlamaConfig, LlamaForCausalLM

    ours = make("llama", f"model.tied={'true' if tied else 'false'}").float()
    c = ours.config
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=c.ffn.d_ff, max_position_embeddings=48, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        )
    )  # fmt: skip
    state = {"model.embed_tokens.weight": ours.embed.weight, "model.norm.weight": ours.norm.weight}
    state["lm_head.weight"] = ours.head_weight
    for i, layer in enumerate(ours.layers):
        q, k, v = layer.attn.qkv.weight.split((32, 16, 16))
        gate, up = layer.mlp.gate_up.weight.chunk(2)
        names = {
            "self_attn.q_proj": q, "self_attn.k_proj": k, "self_attn.v_proj": v,
            "self_attn.o_proj": layer.attn.o.weight, "mlp.gate_proj": gate, "mlp.up_proj": up,
            "mlp.down_proj": layer.mlp.down.weight, "input_layernorm": layer.attn_norm.weight,
            "post_attention_layernorm": layer.mlp_norm.weight,
        }  # fmt: skip
        state |= {f"model.layers.{i}.{name}.weight": value for name, value in names.items()}
    theirs.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(ours(ids(2, 30)), theirs(ids(2, 30)).logits, rtol=1e-4, atol=1e-5)


def test_gpt2_of_transformers_with_the_same_weights_gives_the_same_logits():
    from transformers import GPT2Config, GPT2LMHeadModel

    ours = make("gpt2").float()
    for name, parameter in ours.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.1)
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=64, n_positions=48, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
        )
    )
    state = {"transformer.wte.weight": ours.embed.weight, "transformer.wpe.weight": ours.pos.weight}
    state |= {"lm_head.weight": ours.embed.weight}
    state |= {f"transformer.ln_f.{k}": v for k, v in ours.norm.state_dict().items()}
    for i, layer in enumerate(ours.layers):
        pairs = {
            "ln_1": layer.attn_norm, "attn.c_attn": layer.attn.qkv, "attn.c_proj": layer.attn.o, "ln_2": layer.mlp_norm,
            "mlp.c_fc": layer.mlp.up, "mlp.c_proj": layer.mlp.down,
        }  # fmt: skip
        for name, module in pairs.items():
            weight = module.weight.T if isinstance(module, nn.Linear) else module.weight  # Conv1D is (in, out)
            state |= {f"transformer.h.{i}.{name}.weight": weight, f"transformer.h.{i}.{name}.bias": module.bias}
    theirs.load_state_dict(state)
    theirs.eval()
    with torch.no_grad():
        torch.testing.assert_close(ours(ids(2, 30)), theirs(ids(2, 30)).logits, rtol=1e-4, atol=1e-5)
