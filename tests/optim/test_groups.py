import warnings

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.optim.groups import build_optimizers, group_of
from seedbed.optim.muon import Muon

GPT2 = ["model.position=learned", "model.norm=layernorm", "model.bias=true", "model.ffn.kind=gelu", "model.tied=true"]
GATED = ["model.attention.gate=elementwise", "model.attention.qk_norm=head"]


def config(*overrides):
    tiny = ["model.vocab_size=40", "model.d_model=16", "model.n_layers=2", "model.attention.n_heads=2"]
    return Config.load(None, [*tiny, "model.max_seq_len=16", *overrides])


def build(*overrides):
    resolved = config(*overrides)
    model = Decoder(resolved.model)
    initialize_(model, "normal")
    return model, build_optimizers(model, parameter_facts(model), resolved.optim)


def named_groups(optimizers):
    return {
        group["name"]: (optimizer, group) for optimizer in optimizers.optimizers for group in optimizer.param_groups
    }


@pytest.mark.parametrize("name", ["muon", "adamw"])
@pytest.mark.parametrize("shape", [GPT2, GATED], ids=["gpt2 tied", "gated untied"])
def test_each_parameter_has_one_group(shape, name):
    model, optimizers = build(*shape, f"optim.name={name}")
    grouped = [id(p) for _, group in named_groups(optimizers).values() for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    assert sum(row["tensors"] for row in optimizers.rows()) == len(list(model.parameters()))
    assert sum(row["parameters"] for row in optimizers.rows()) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("shape", [GPT2, GATED], ids=["gpt2 tied", "gated untied"])
def test_embedding_and_head_never_reach_muon(shape):
    model, optimizers = build(*shape)
    muon = {id(p) for o in optimizers.optimizers if isinstance(o, Muon) for g in o.param_groups for p in g["params"]}
    matrices = [p for layer in model.layers for p in layer.parameters() if p.ndim == 2]
    assert muon == {id(p) for p in matrices}
    assert id(model.head_weight) not in muon
    assert id(model.embed.weight) not in muon


@pytest.mark.parametrize("shape", [GPT2, GATED], ids=["gpt2 tied", "gated untied"])
def test_tables_reach_muon_where_the_configuration_names_them(shape):
    model, optimizers = build(*shape, "optim.muon.embeddings=muon")
    muon, adamw = ({id(p) for g in o.param_groups for p in g["params"]} for o in optimizers.optimizers)
    tables = {id(p) for name, p in model.named_parameters() if name in ("embed.weight", "pos.weight")}
    assert muon == tables | {id(p) for layer in model.layers for p in layer.parameters() if p.ndim == 2}
    assert (id(model.head_weight) in adamw) == (model.head is not None)
    groups = [(row["group"], row["optimizer"], row["weight_decay"]) for row in optimizers.rows()]
    assert ("embeddings", "Muon", 0.1) in groups
    assert ("norms and biases", "AdamW", 0.0) in groups


def test_rows_without_a_gradient_do_not_move_under_muon():
    """Padding of a vocabulary, and a table's own padding row: exact zeros stay so, other rows only decay."""
    model, optimizers = build("optim.muon.embeddings=muon", "optim.lr=0.1", "optim.weight_decay=0.5")
    table, used = model.embed.weight, torch.tensor([3, 7, 8, 20])
    with torch.no_grad():
        table[38:] = 0
    before = table.detach().clone()
    for step in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        assert table.grad is not None
        table.grad[used] = torch.randn(4, 16, generator=torch.Generator().manual_seed(step))
        optimizers.step()
    still = torch.ones(40, dtype=torch.bool)
    still[used] = False
    torch.testing.assert_close(table[still], before[still] * 0.95**3)
    assert not table[38:].any()
    assert ((table[used] - before[used]).norm(dim=1) > 0.1).all()


@pytest.mark.parametrize("width", [8, 16, 48])
def test_entries_of_a_table_change_by_the_same_at_every_width_under_muon(width):
    """A fifth of the rate (root mean square), as under AdamW, wider or narrower than the vocabulary of 40 (S1)."""
    model, optimizers = build(f"model.d_model={width}", "optim.muon.embeddings=muon", "optim.base_width=16",
                              "optim.lr=0.01", "optim.weight_decay=0")  # fmt: skip
    before = model.embed.weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    optimizers.step()
    moved = (model.embed.weight - before).square().mean().sqrt().item()
    assert moved == pytest.approx(0.2 * 0.01, rel=0.1)


def test_a_matrix_outside_the_blocks_that_a_caller_named_goes_to_adamw():
    class Probe(nn.Module):
        def __init__(self):
            super().__init__()
            self.probe = nn.Linear(4, 3)

    model = Probe()
    optimizers = build_optimizers(model, parameter_facts(model), config().optim)
    assert [row["optimizer"] for row in optimizers.rows()] == ["AdamW", "AdamW"]
    assert optimizers.rows()[0]["group"] == "other matrices"


def test_fused_matrices_carry_the_rows_of_their_blocks():
    model, optimizers = build(*GATED)
    _, group = named_groups(optimizers)["block matrices"]
    rows = dict(zip(group["param_names"], group["rows"], strict=True))
    facts = {fact.name: fact for fact in parameter_facts(model)}
    assert rows["layers.0.attn.o.weight"] is None
    assert rows["layers.0.attn.qkv.weight"] == tuple(b.rows for b in facts["layers.0.attn.qkv.weight"].blocks)
    assert rows["layers.0.attn.qkv.weight"][:3] == ((0, 16), (16, 32), (32, 48))


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_a_zero_gradient_decays_matrices_only(name):
    model, optimizers = build(*GPT2, f"optim.name={name}", "optim.lr=0.1", "optim.weight_decay=0.5")
    for parameter in model.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step()
    for parameter in model.parameters():
        expected = 0.95 if parameter.ndim == 2 else 1.0
        torch.testing.assert_close(parameter.data, torch.full_like(parameter, expected))


def test_the_rate_is_a_factor_of_the_peak_for_every_group():
    model, optimizers = build("optim.lr=0.02")
    assert optimizers.set_rate(0.25) == 0.005
    assert {row["lr"] for row in optimizers.rows()} == {0.005}
    optimizers.set_rate(0.0)
    before = [p.clone() for p in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    optimizers.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_table_says_who_updates_what():
    _, optimizers = build(*GATED)
    lines = str(optimizers).splitlines()
    assert lines[0].split() == ["group", "optimizer", "tensors", "parameters", "lr", "weight", "decay"]
    assert [line[:18].strip() for line in lines[1:]] == ["block matrices", "embeddings", "head", "norms and biases"]
    assert lines[1].split()[2] == "Muon"


@pytest.mark.parametrize(("names", "expected"), [(["muon"], ["Muon", "AdamW"]), (["adamw"], ["AdamW"])])
def test_the_plain_optimizers_are_torch_ones(names, expected):
    _, optimizers = build(f"optim.name={names[0]}")
    assert [type(optimizer).__name__ for optimizer in optimizers.optimizers] == expected
    assert isinstance(optimizers.optimizers[-1], torch.optim.AdamW)


def test_adamw_state_allocated_early_changes_no_step():
    _, optimizers = build("optim.name=adamw", "optim.lr=0.01")
    ours = named_groups(optimizers)["embeddings"][1]["params"][0]
    theirs = nn.Parameter(ours.detach().clone())
    plain = torch.optim.AdamW([theirs], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    for step in range(3):
        ours.grad = torch.randn(ours.shape, generator=torch.Generator().manual_seed(step))
        theirs.grad = ours.grad.clone()
        optimizers.step()
        plain.step()
    assert torch.equal(ours, theirs)


class Pair(nn.Module):
    """Two matrices of one shape; ``first`` decides which is registered, and so stepped, first."""

    def __init__(self, *order):
        super().__init__()
        self.attn = nn.Module()
        for name in order:
            self.attn.add_module(name, nn.Linear(6, 6, bias=False))


def restore(optimizers, saved):
    """As a checkpoint does it: into the tensors, by name."""
    for entry, tensor in optimizers.state_dict().items():
        tensor.copy_(saved[entry])


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_state_follows_the_name_when_parameters_swap_places(name):
    optim = config(f"optim.name={name}").optim
    models = [Pair("q_proj", "k_proj"), Pair("k_proj", "q_proj")]
    optimizers = [build_optimizers(model, parameter_facts(model), optim) for model in models]
    for index, parameter in enumerate(models[0].parameters()):
        parameter.grad = torch.randn(6, 6, generator=torch.Generator().manual_seed(index))
    optimizers[0].step()
    saved = {key: value.clone() for key, value in optimizers[0].state_dict().items()}
    restore(optimizers[1], saved)
    key = {"muon": "momentum", "adamw": "exp_avg"}[name]
    restored = optimizers[1].state_dict()
    assert saved.keys() == restored.keys()
    assert not torch.equal(saved[f"attn.q_proj.weight.{key}"], saved[f"attn.k_proj.weight.{key}"])
    assert all(torch.equal(saved[entry], restored[entry]) for entry in saved)
    # the restored optimizers make the step that the saved ones make
    models[1].load_state_dict(models[0].state_dict())
    for model, optimizer in zip(models, optimizers, strict=True):
        for name, parameter in model.named_parameters():
            parameter.grad = torch.full((6, 6), 0.1) if "q_proj" in name else torch.full((6, 6), -0.2)
        optimizer.step()
    for name, tensor in models[0].state_dict().items():
        assert torch.equal(tensor, models[1].state_dict()[name])


def test_wrapper_prefixes_do_not_reach_the_names_of_the_state():
    model = Decoder(config().model)
    initialize_(model, "normal")
    wrapped = torch.compile(model)
    optimizers = build_optimizers(wrapped, parameter_facts(wrapped), config().optim)
    plain = build_optimizers(model, parameter_facts(model), config().optim)
    assert optimizers.state_dict().keys() == plain.state_dict().keys()
    assert not [name for name in plain.state_dict() if "_orig_mod" in name]


def test_facts_of_another_model_are_refused():
    model = Decoder(config().model)
    facts = parameter_facts(model)
    with pytest.raises(InputError, match=r"the facts are not those of this model \(norm\.weight"):
        build_optimizers(model, [fact for fact in facts if fact.name != "norm.weight"], config().optim)
    with pytest.raises(InputError, match="a tensor twice"):
        build_optimizers(model, [*facts, facts[0]], config().optim)


def test_bf16_parameters_bring_a_loud_warning():
    model = Decoder(config().model).bfloat16()
    count = len(list(model.parameters()))
    with pytest.warns(
        UserWarning, match=rf"^{count} parameter tensors .* are torch\.bfloat16: .*train\.precision=bf16"
    ):
        build_optimizers(model, parameter_facts(model), config().optim)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build()


def test_a_tied_head_is_one_embedding():
    model, optimizers = build(*GPT2)
    groups = named_groups(optimizers)
    assert "head" not in groups
    assert [id(p) for p in groups["embeddings"][1]["params"]] == [id(model.embed.weight), id(model.pos.weight)]
    assert {group_of(fact) for fact in parameter_facts(model) if fact.role == "embed"} == {"embeddings"}


def test_muon_takes_no_matrix_that_is_stored_transposed_or_in_a_stack():
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 20}
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=20))
    mixtral = transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**small, intermediate_size=24, num_key_value_heads=2, num_local_experts=3)
    )
    for model, expected in ((gpt2, set()), (mixtral, {f"model.layers.0.self_attn.{x}_proj.weight" for x in "qkvo"})):
        facts = parameter_facts(model)
        assert {fact.name for fact in facts if group_of(fact) == "block matrices"} == expected
        optimizers = build_optimizers(model, facts, Config.load(None, ["optim.name=muon"]).optim)
        model(torch.arange(8)[None]).logits.square().mean().backward()
        optimizers.step()


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_one_accumulation_step_equals_four_over_twenty_steps(name):
    """Case 34 on one rank, at the level of optimizers: gradients summed in four parts, divided once."""
    results = []
    for parts in (1, 4):
        model, optimizers = build(*GATED, f"optim.name={name}")
        generator = torch.Generator().manual_seed(0)
        for _ in range(20):
            ids = torch.randint(0, 40, (8, 13), generator=generator)
            for piece in ids.split(8 // parts):
                logits = model(piece[:, :-1]).flatten(0, 1)
                (F.cross_entropy(logits, piece[:, 1:].flatten(), reduction="sum") / (8 * 12)).backward()
            optimizers.step()
            optimizers.zero_grad()
        results.append(nn.utils.parameters_to_vector(model.parameters()).detach())
    assert (results[0] - results[1]).abs().max() <= 1e-5
    start, _ = build(*GATED)
    moved = nn.utils.parameters_to_vector(start.parameters()) - results[0]
    assert moved.abs().max() > 1e-2  # the twenty steps did something
