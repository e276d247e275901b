"""Attention weights of running models against the ones that Transformers' eager attention shows."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from seedbed.config.model import ModelConfig
from seedbed.measure import attention
from seedbed.measure.attention import PLACES, AttentionSums, NotExplainedError
from seedbed.measure.evaluating import evaluating
from seedbed.measure.watch import watching
from seedbed.model.attention import document_starts
from seedbed.model.decoder import Decoder

T = 24
SMALL: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "head_dim": 4, "num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
MLA: dict[str, Any] = {
    **SMALL, "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4, "v_head_dim": 6, "first_k_dense_replace": 2,
}  # fmt: skip
LEARNED_SINKS: dict[str, Any] = {
    **SMALL, "sliding_window": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
CONFIGS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: transformers.GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=4, n_positions=64),
    "llama": lambda: transformers.LlamaConfig(**SMALL),
    "qwen3": lambda: transformers.Qwen3Config(**SMALL),
    "olmo2": lambda: transformers.Olmo2Config(**SMALL),
    "gemma2": lambda: transformers.Gemma2Config(**SMALL, sliding_window=8, attn_logit_softcapping=0.5),
    "gpt_oss": lambda: transformers.GptOssConfig(**LEARNED_SINKS),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(**MLA),
}


def foreign(name: str, implementation: str | None = None) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), attn_implementation=implementation)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.5)  # peaked attention
            elif key.endswith("sinks"):
                parameter.normal_()
    return model.eval()


def ours() -> Any:
    size = {"vocab_size": 60, "d_model": 16, "n_layers": 2, "max_seq_len": 4096}
    model = Decoder(ModelConfig.model_validate({**size, "attention": {"n_heads": 4, "n_kv_heads": 2}}))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model.eval()


def texts(*lengths: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(2, 60, (length,), generator=generator) for length in lengths]


def watched(module, ids: Tensor, doc_ids: Tensor) -> dict[int, AttentionSums]:
    with evaluating(module), watching(module, doc_ids) as layers:
        if isinstance(module, Decoder):
            module(ids, doc_ids)
        else:  # by positions Transformers tells documents of one row apart
            positions = torch.arange(ids.shape[1]) - document_starts(doc_ids)
            module(input_ids=ids, position_ids=positions, use_cache=False)
    return layers


@pytest.mark.parametrize("name", CONFIGS)
def test_sums_are_those_of_the_weights_that_eager_attention_shows(name, monkeypatch):
    monkeypatch.setattr(attention, "BLOCK", 2 * 4 * T * 5)  # blocks of 5 queries
    ids = torch.stack(texts(T, T))
    layers = watched(foreign(name), ids, torch.zeros_like(ids))
    with torch.no_grad():
        shown = foreign(name, "eager")(ids, output_attentions=True, use_cache=False).attentions
    assert sorted(layers) == [0, 1]
    for layer, weights in enumerate(shown):
        sums, weights = layers[layer], weights.double()  # [B, H, T, T]
        total = weights.sum(-1)
        scaled = weights / total[..., None]
        entropy = -(scaled * scaled.clamp_min(1e-300).log()).sum(-1)
        seen = (weights > 0).any(1).sum(-1)  # [B, T]
        assert_near(sums.sink, weights[:, :, 1:, 0].sum(-1))
        assert_near(sums.entropy, entropy[:, :, 1:].sum(-1))
        assert_near(sums.elsewhere, (1 - total)[:, :, 1:].sum(-1))
        assert_near(sums.places, weights[:, :, PLACES:, :PLACES].sum(2))
        assert_near(sums.uniform_entropy, seen[:, 1:].log().sum(-1))
        assert_near(sums.uniform_sink, ((weights[:, 0, :, 0] > 0) / seen)[:, 1:].sum(-1))
        assert sums.queries.tolist() == [T - 1] * 2
        assert sums.late.tolist() == [T - PLACES] * 2
    assert (layers[0].elsewhere.abs().max() > 0.1) == (name == "gpt_oss")


def assert_near(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    """Equal to the tolerance for each query of a row."""
    assert float((ours - theirs).abs().max()) <= tolerance * T


@pytest.mark.parametrize("module", ["ours", *sorted(CONFIGS.keys() - {"gpt_oss"})])
def test_case_50_packed_padded_left_and_right_and_one_by_one(module):
    module = ours() if module == "ours" else foreign(module)
    parts = texts(7, 8, 5)
    one, two, three = (watched(module, part[None], torch.zeros(1, len(part), dtype=torch.int64)) for part in parts)
    pad = torch.zeros(3, dtype=torch.int64)
    packed = torch.cat([*parts, pad])[None]
    packed_docs = torch.tensor([[4] * 7 + [9] * 8 + [5] * 5 + [-1] * 3])
    left = torch.stack([torch.cat((pad[:1], parts[0])), parts[1], torch.cat((pad, parts[2]))])
    left_docs = torch.tensor([[-1] + [0] * 7, [0] * 8, [-1] * 3 + [0] * 5])
    right = torch.stack([torch.cat((parts[0], pad[:1])), parts[1], torch.cat((parts[2], pad))])
    right_docs = left_docs.flip(1)
    together = [watched(module, *batch) for batch in ((packed, packed_docs), (left, left_docs), (right, right_docs))]
    for layer in range(2):
        alone = [x[layer] for x in (one, two, three)]
        for field in ("queries", "sink", "entropy", "elsewhere", "uniform_sink", "uniform_entropy"):
            wanted = torch.cat([getattr(sums, field) for sums in alone])  # [3, H]
            for batch in together:
                found = getattr(batch[layer], field)
                assert found.sum(0).tolist() == pytest.approx(wanted.sum(0).tolist(), abs=17e-6)  # 17 queries
                if len(found) == 3:
                    assert torch.allclose(found.double(), wanted.double(), atol=1e-6 * 4)


class Largest(TorchDispatchMode):
    """Numbers of the largest tensor that an operation made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [x for x in tree_flatten(out)[0] if isinstance(x, Tensor) and x.untyped_storage().nbytes() > 0]
        self.numbers = max([self.numbers, *(x.untyped_storage().nbytes() // x.element_size() for x in made)])
        return out


@pytest.mark.parametrize("module", ["ours", "llama", "gemma2"])
def test_memory_is_linear_in_the_length(module, monkeypatch):
    monkeypatch.setattr(attention, "BLOCK", 2**15)
    model = ours() if module == "ours" else foreign(module)
    if module == "gemma2":
        model.config.sliding_window = 4096  # else Transformers itself makes a mask, of no head, T x T
    largest = {}
    for length in (512, 1024):
        ids = torch.ones(1, length, dtype=torch.int64)
        with Largest() as mode:
            watched(model, ids, torch.zeros_like(ids))
        largest[length] = mode.numbers
    assert largest[1024] <= 2 * largest[512]
    assert largest[1024] < 1024 * 1024 / 4  # of one head, T x T would be four times as much


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_transformers_model_is_left_as_it_was_even_after_an_error(implementation):
    model = foreign("llama", implementation)
    ids = torch.ones(1, 8, dtype=torch.int64)
    with evaluating(model):
        before = model(ids).logits
        with watching(model, torch.zeros_like(ids)):
            inside = model(ids).logits
        with pytest.raises(IndexError), watching(model, torch.zeros_like(ids)):
            model(ids + 999)
        assert model.config._attn_implementation == implementation
        assert torch.equal(model(ids).logits, before)
    assert torch.allclose(inside, before, atol=1e-5)


def test_models_outside_the_interface_are_refused_by_name():
    model = transformers.BloomForCausalLM(transformers.BloomConfig(vocab_size=60, hidden_size=16, n_layer=1, n_head=2))
    with pytest.raises(NotExplainedError, match="BloomForCausalLM does not attend through"), watching(model, zeros()):
        pass


def test_output_that_the_weights_do_not_explain_is_refused(monkeypatch):
    def other(*args, **kwargs):
        out, _ = transformers.AttentionInterface()["sdpa"](*args, **kwargs)
        return out * 1.1, None

    transformers.AttentionInterface.register("seedbed_test_other", other)
    transformers.AttentionMaskInterface.register("seedbed_test_other", transformers.AttentionMaskInterface()["sdpa"])
    model = foreign("llama", "seedbed_test_other")
    with pytest.raises(NotExplainedError, match="layer 0: attention is not the softmax that was recomputed"):
        watched(model, zeros(), zeros())
    assert model.config._attn_implementation == "seedbed_test_other"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_explain_outputs_to_the_precision_of_the_model(dtype):
    ids = torch.stack(texts(T))
    assert len(watched(ours().to(dtype), ids, torch.zeros_like(ids))) == 2


def test_a_softmax_scale_that_is_a_little_off_is_refused():
    model, ids = ours(), torch.stack(texts(T))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)  # softer than ours are: 3 % of the scale change outputs by less than 2 %
    model.layers[0].attn.attend = lambda q, *rest, own=model.layers[0].attn.attend: own(1.03 * q, *rest)
    with pytest.raises(NotExplainedError, match="layer 0: attention is not the softmax"):
        watched(model, ids, torch.zeros_like(ids))


def test_a_softmax_scale_of_transformers_that_is_a_little_off_is_refused():
    def other(*args, scaling, **kwargs):
        return transformers.AttentionInterface()["sdpa"](*args, scaling=1.03 * scaling, **kwargs)

    transformers.AttentionInterface.register("seedbed_test_scaled", other)
    transformers.AttentionMaskInterface.register("seedbed_test_scaled", transformers.AttentionMaskInterface()["sdpa"])
    ids = torch.stack(texts(T))
    with pytest.raises(NotExplainedError, match="layer 0: attention is not the softmax"):
        watched(foreign("llama", "seedbed_test_scaled"), ids, torch.zeros_like(ids))


def test_output_that_is_not_finite_is_refused():
    model = ours()
    with torch.no_grad():
        model.layers[1].attn.qkv.weight.fill_(math.nan)
    with pytest.raises(NotExplainedError, match="layer 1: the output of attention is not finite"):
        watched(model, zeros(), zeros())


def test_a_number_that_a_kernel_makes_of_nan_is_refused():
    model = foreign("llama")
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight[0, 0] = math.nan
    with pytest.raises(NotExplainedError, match="layer 0: the output of attention is not finite"):
        watched(model, zeros(), zeros())


def test_attention_to_another_document_is_refused():
    ids, doc_ids = torch.ones(1, 4, dtype=torch.int64), torch.tensor([[0, 0, 1, 1]])
    model = foreign("llama")
    with pytest.raises(NotExplainedError, match="outside the query's document"), watching(model, doc_ids):
        model(ids)
    with pytest.raises(NotExplainedError, match="outside the query's document"):
        watched(foreign("gpt_oss"), ids, doc_ids)  # Transformers' code of it takes no documents from positions


def zeros() -> Tensor:
    return torch.zeros(1, 6, dtype=torch.int64)
