"""The class that ships with a checkpoint says what our model says, by every way that Transformers has to run it."""

import copy
from functools import partial

import pytest
import torch
from decoders import OPTIONS, VOCAB, decoder, draw

from seedbed.hub.families import FAMILIES
from seedbed.hub.transformers_model import to_transformers

transformers = pytest.importorskip("transformers")
shipped = partial(to_transformers, shipped=True)
GREEDY = {"do_sample": False, "pad_token_id": 0, "max_new_tokens": 12}


@pytest.mark.parametrize("option", OPTIONS)
def test_logits_and_losses_are_ours(option):
    ours = decoder(option)
    theirs, ids = shipped(ours), draw(3, 40)
    with torch.no_grad():
        expected = ours(ids)
        found = theirs(input_ids=ids, labels=ids)
        assert torch.equal(theirs(inputs_embeds=theirs.get_input_embeddings()(ids)).logits, found.logits)
        theirs.set_attn_implementation("eager")
        eager = theirs(input_ids=ids, output_attentions=True, output_hidden_states=True)
    assert float((found.logits - expected).abs().max()) <= 1e-5 * float(expected.abs().max())
    loss = torch.nn.functional.cross_entropy(expected[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert found.loss == pytest.approx(float(loss), rel=1e-6)
    torch.testing.assert_close(eager.logits, expected, rtol=0, atol=1e-4)
    assert [weights.shape for weights in eager.attentions] == [(3, 4, 40, 40)] * 2
    torch.testing.assert_close(eager.attentions[0].sum(3), torch.ones(3, 4, 40))
    assert len(eager.hidden_states) == 3


@pytest.mark.parametrize("option", OPTIONS)
def test_gradients_are_ours(option):
    ours, ids = decoder(option), draw(2, 16)
    theirs = shipped(copy.deepcopy(ours))
    ours(ids).logsumexp(2).sum().backward()
    theirs.train()
    theirs.gradient_checkpointing_enable()
    theirs(input_ids=ids, use_cache=False).logits.logsumexp(2).sum().backward()
    found = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        (place,) = FAMILIES["seedbed"].places(name)
        torch.testing.assert_close(found.pop(place).grad, parameter.grad, rtol=1e-4, atol=1e-5)
    assert not found


@pytest.mark.parametrize("option", OPTIONS)
def test_generation_is_the_same_with_and_without_a_cache(option):
    ours = decoder(option)
    theirs, ids = shipped(ours), draw(2, 9)
    expected = ids
    with torch.no_grad():
        for _ in range(GREEDY["max_new_tokens"]):
            expected = torch.cat((expected, ours(expected)[:, -1:].argmax(2)), 1)
    for told in ({}, {"use_cache": False}, {"cache_implementation": "static"}):
        assert torch.equal(theirs.generate(ids, **GREEDY, **told), expected), told
    beams = [theirs.generate(ids, num_beams=3, use_cache=cached, **GREEDY) for cached in (True, False)]
    assert torch.equal(*beams)


def test_it_shares_the_weights():
    ours = decoder()
    theirs = shipped(ours)
    assert theirs.lm_head.weight.data_ptr() == ours.head.weight.data_ptr()
    assert not theirs.training
    tied = shipped(decoder("tied"))
    assert tied.lm_head.weight is tied.model.embed_tokens.weight


def test_rows_that_begin_with_padding_say_what_they_say_alone():
    theirs, ids = shipped(decoder("elementwise gate")), draw(3, 20)
    mask = torch.ones_like(ids)
    for row, padding in enumerate((0, 5, 13)):
        mask[row, :padding] = 0
    generated = theirs.generate(ids, attention_mask=mask, **GREEDY)
    for row, padding in enumerate((0, 5, 13)):
        alone = theirs.generate(ids[row : row + 1, padding:], **GREEDY)
        assert torch.equal(generated[row, padding:], alone[0])


def test_assisted_generation_and_chosen_logits():
    theirs, draft, ids = shipped(decoder()), shipped(decoder("tied")), draw(1, 9)
    assert torch.equal(theirs.generate(ids, assistant_model=draft, **GREEDY), theirs.generate(ids, **GREEDY))
    with torch.no_grad():
        whole = theirs(input_ids=ids).logits
        for kept, places in ((2, [-2, -1]), (torch.tensor([1, 4]), [1, 4])):
            torch.testing.assert_close(theirs(input_ids=ids, logits_to_keep=kept).logits, whole[:, places])
        tuples = theirs(input_ids=ids, return_dict=False, use_cache=False)
    assert torch.equal(tuples[0], whole)
    with pytest.raises(ValueError, match="either"):
        theirs()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("option", ["elementwise gate", "gpt2"])
def test_continuous_batching_generates_the_same(option, attention):
    theirs = shipped(decoder(option))
    theirs.set_attn_implementation(attention)
    prompts = [draw(1, length)[0].tolist() for length in (3, 9, 17, 5, 30)]
    settings = transformers.GenerationConfig(eos_token_id=VOCAB + 1, **GREEDY)
    room = transformers.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=32)
    found = theirs.generate_batch(prompts, generation_config=settings, continuous_batching_config=room)
    expected = [theirs.generate(torch.tensor([prompt]), **GREEDY)[0, len(prompt) :].tolist() for prompt in prompts]
    assert [output.generated_tokens for output in found.values()] == expected


NATIVE = {
    "plain": "LlamaForCausalLM", "grouped": "LlamaForCausalLM", "longer": "LlamaForCausalLM",
    "tied": "LlamaForCausalLM", "qk norm": "Qwen3ForCausalLM", "olmo2": "Olmo2ForCausalLM", "gpt2": "GPT2LMHeadModel",
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_a_class_that_transformers_has_is_taken(option):
    ours, ids = decoder(option), draw(3, 40)
    theirs = to_transformers(ours)
    assert type(theirs).__name__ == NATIVE.get(option, "SeedbedForCausalLM")
    assert {tensor.device.type for tensor in (*theirs.parameters(), *theirs.buffers())} == {"cpu"}
    assert theirs.get_input_embeddings().weight.data_ptr() == ours.embed.weight.data_ptr()
    tied = theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight
    assert tied == (ours.head is None)
    with torch.no_grad():
        torch.testing.assert_close(theirs(input_ids=ids).logits, ours(ids), rtol=0, atol=1e-4)


def test_a_family_is_taken_where_it_computes_the_same():
    kinds = [type(to_transformers(decoder(), family=family)).__name__ for family in ("mistral", "llama", "olmo2")]
    assert kinds == ["MistralForCausalLM", "LlamaForCausalLM", "LlamaForCausalLM"]


class _Replaced(torch.nn.Module):
    """A linear map of an engine: no nn.Linear, and nothing of ours on it."""

    def __init__(self, linear: torch.nn.Linear):
        super().__init__()
        self.matrix, self.shift = linear.weight, linear.bias

    def forward(self, x):
        return torch.nn.functional.linear(x, self.matrix, self.shift)


def _engine(module, query, key, value, attention_mask, scaling=None, attention_instances=None, **_):
    """Attention as vLLM and SGLang have it: one sequence, an instance a layer, tokens by features out."""
    assert attention_mask is None
    out = attention_instances[module.layer_idx](query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).reshape(query.shape[2], -1), None


@pytest.mark.parametrize("option", OPTIONS)
def test_an_engine_replaces_attention_linear_maps_and_embedding(option):
    ours, ids = decoder(option), draw(1, 20)
    body = shipped(ours).model
    transformers.AttentionInterface.register("engine", _engine)
    body.config._attn_implementation = "engine"
    for name, child in list(body.named_modules()):
        if isinstance(child, torch.nn.Linear):
            holder, _, own = name.rpartition(".")
            setattr(body.get_submodule(holder), own, _Replaced(child))
    body.set_input_embeddings(torch.nn.Embedding.from_pretrained(ours.embed.weight))
    called = []

    def instance(layer):
        def attention(*args, **told):
            called.append(layer)
            return torch.nn.functional.scaled_dot_product_attention(*args, **told)

        return attention

    with torch.no_grad():
        states = body(
            input_ids=ids,
            inputs_embeds=None,
            use_cache=False,
            position_ids=torch.arange(20)[None],
            attention_instances={layer: instance(layer) for layer in range(2)},
            return_dict=False,
        )[0]
        torch.testing.assert_close(states @ ours.head_weight.T, ours(ids), rtol=0, atol=1e-4)
    assert called == [0, 1]
