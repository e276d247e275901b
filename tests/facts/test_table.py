"""The parameter table: every parameter once, with the role, widths and blocks that everything else reads."""

import time
from itertools import pairwise

import pytest
import torch
from torch import nn

from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.facts.table import canonical, parameter_facts
from seedbed.init import make_plan
from seedbed.model import Decoder


def decoder(*overrides: str) -> Decoder:
    return Decoder(Config.load(None, ["model.vocab_size=96", "model.d_model=32", "model.n_layers=2", *overrides]).model)


def parts(model: nn.Module) -> dict:
    return {part.name: part for fact in parameter_facts(model) for part in fact.parts()}


def test_roles_widths_and_blocks_of_the_gated_decoder():
    table = parts(decoder("model.attention.gate=elementwise", "model.attention.n_kv_heads=2"))
    q, k, down = table["layers.1.attn.q.weight"], table["layers.1.attn.k.weight"], table["layers.1.mlp.down.weight"]
    assert (q.role, q.shape, q.d_in, q.layer, q.n_layers, q.rows) == ("attn.q", (32, 32), 32, 1, 2, (0, 32))
    assert (k.role, k.shape, k.rows) == ("attn.k", (16, 32), (32, 48))
    assert (down.role, down.shape, down.d_in, down.d_out) == ("mlp.down", (32, 128), 128, 32)
    assert table["embed.weight"].d_in == 32  # the model width, not the vocabulary
    assert (table["head.weight"].role, table["head.weight"].d_in) == ("head", 32)
    assert {name for name, part in table.items() if part.writes_residual} == {
        f"layers.{i}.{matrix}.weight" for i in (0, 1) for matrix in ("attn.o", "mlp.down")
    }
    assert table["layers.0.attn.gate.weight"].role == "attn.gate"


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["model.bias=true", "model.norm=layernorm", "model.position=learned", "model.ffn.kind=gelu", "model.tied=true"],
        ["model.attention.gate=headwise", "model.attention.qk_norm=head"],
    ],
)
def test_each_parameter_is_covered_exactly_once(overrides):
    model = decoder(*overrides)
    facts = parameter_facts(model)
    assert [fact.name for fact in facts] == [name for name, _ in model.named_parameters()]
    assert all(fact.shape == tuple(p.shape) for fact, p in zip(facts, model.parameters(), strict=True))
    for fact in facts:
        if fact.blocks:
            edges = [0, *(block.rows[1] for block in fact.blocks if block.rows)]
            assert [block.rows for block in fact.blocks] == list(pairwise(edges))
            assert edges[-1] == fact.shape[0]


def test_a_tied_head_is_one_fact():
    facts = parameter_facts(decoder("model.tied=true"))
    assert "head.weight" not in {fact.name for fact in facts}

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(8, 4)
            self.lm_head = nn.Linear(4, 8, bias=False)
            self.lm_head.weight = self.embed.weight

    (fact,) = parameter_facts(Tied())
    assert (fact.name, fact.role, fact.tied) == ("embed.weight", "embed", ("lm_head.weight",))


def test_an_uncovered_parameter_is_an_error_that_names_it_and_can_be_told():
    class Strange(nn.Module):
        def __init__(self):
            super().__init__()
            self.codebook = nn.Parameter(torch.zeros(4, 8))
            self.scale = nn.Parameter(torch.zeros(3))

    with pytest.raises(InputError, match=r"codebook, scale"):
        parameter_facts(Strange())
    facts = parameter_facts(Strange(), roles={"codebook": "token", "scale": "norm"})
    assert [(fact.role, fact.d_in) for fact in facts] == [("token", 8), ("norm", 1)]
    with pytest.raises(InputError, match="unknown role 'position'"):
        parameter_facts(Strange(), roles={"codebook": "position"})


def test_what_is_told_comes_before_the_table():
    model = decoder("model.bias=true")
    facts = {
        fact.name: fact for fact in parameter_facts(model, {r"down\.weight": "linear", r"\.qkv\.weight": "attn.qkv"})
    }
    down, qkv = facts["layers.0.mlp.down.weight"], facts["layers.0.attn.qkv.weight"]
    assert (down.role, down.writes_residual, down.maps) == ("linear", False, 0)
    assert (qkv.role, qkv.blocks, qkv.shape) == ("attn.qkv", (), (96, 32))
    facts = {fact.name: fact for fact in parameter_facts(model, {r"^norm\.weight": "token", r"qkv\.bias": "kept"})}
    assert (facts["norm.weight"].role, facts["norm.weight"].d_in) == ("token", 32)
    assert facts["layers.0.attn.qkv.bias"].role == "kept"
    with pytest.raises(InputError, match=r"roles: norm\.weight has shape \(32,\) and cannot be 'attn.o'"):
        parameter_facts(model, {r"^norm\.weight": "attn.o"})


def test_a_wrong_pattern_and_an_empty_parameter_are_refused():
    with pytest.raises(InputError, match=r"roles: '\(' is no regular expression"):
        parameter_facts(nn.Linear(4, 4), roles={"(": "head"})
    for layer in (nn.Linear(0, 4), nn.Linear(4, 0), nn.Embedding(0, 4)):
        with pytest.raises(InputError, match=r"weight: has no elements, its shape is \("):
            parameter_facts(layer)


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("lm_hed", "; meant: lm_head.weight, lm_head.bias"),
        (r"attn\.qvk\.weight", r"; meant: layers.0.attn.qkv.weight"),
        ("old_name", "; meant: embed.weight"),  # tied: the first name counts
        ("zzz", "; names are those of the state dict"),
    ],
)
def test_a_pattern_that_says_nothing_is_refused(pattern, hint):
    block = nn.ModuleDict({"attn": nn.ModuleDict({"qkv": nn.Linear(4, 12, bias=False)})})
    model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "layers": nn.ModuleList([block]), "lm_head": nn.Linear(4, 8)})
    model["old_name"] = nn.Linear(4, 8, bias=False)
    model["old_name"].weight = model["embed"].weight
    with pytest.raises(InputError) as error:
        parameter_facts(model, roles={"lm_head": "kept", pattern: "kept"})
    assert str(error.value) == f"roles: '{pattern}' is found in no parameter's name{hint}"


@pytest.mark.parametrize("roles", [["lm_head"], [], "head", {3: "head"}])
def test_roles_are_a_mapping(roles):
    with pytest.raises(InputError, match=r"^roles: takes \{regular expression: role\}, not "):
        parameter_facts(nn.Linear(4, 4), roles=roles)


def test_what_is_no_module_is_refused():
    for other in ("foo", None, nn.Linear, nn.Linear(2, 2).state_dict()):
        with pytest.raises(InputError, match=r"^parameter_facts: takes a module, not "):
            parameter_facts(other)


def test_two_modules_of_one_canonical_name_are_refused():
    class Colliding(nn.Module):
        def __init__(self, proj: nn.Module, first: str, second: str):
            super().__init__()
            for name in (first, second):
                self.add_module(name, proj if name == "proj" else nn.ModuleDict({"proj": nn.Linear(2, 2)}))

    for order in (("proj", "module"), ("module", "proj")):
        for proj in (nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))):
            with pytest.raises(InputError, match=r"^Colliding: (module\.)?proj and (module\.)?proj have one name once"):
                parameter_facts(Colliding(proj, *order))

    class Hiding(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.module = nn.Linear(2, 2)

    with pytest.raises(InputError, match=r"^Hiding: the model itself and module have one name once"):
        parameter_facts(Hiding())


def test_names_lose_the_prefixes_of_wrappers():
    assert canonical("_orig_mod.layers.0.attn.qkv.weight") == "layers.0.attn.qkv.weight"
    assert canonical("module._orig_mod.layers.0._checkpoint_wrapped_module.attn.o.weight") == "layers.0.attn.o.weight"
    assert canonical("my_module.weight") == "my_module.weight"


def test_a_compiled_model_has_the_same_table():
    model = decoder()
    assert parameter_facts(torch.compile(model)) == parameter_facts(model)


def test_meta_and_real_models_have_one_table():
    with torch.device("meta"):
        on_meta = decoder()
    assert parameter_facts(on_meta) == parameter_facts(decoder())


def test_planning_a_large_model_on_meta_takes_less_than_a_second():
    shape = ["model.vocab_size=100000", "model.d_model=1536", "model.n_layers=24", "model.attention.n_heads=24"]
    shape += ["model.attention.n_kv_heads=4", "model.ffn.d_ff=6912"]
    config = Config.load(None, shape)
    with torch.device("meta"):
        model = Decoder(config.model)
    assert sum(parameter.numel() for parameter in model.parameters()) > 1.2e9
    start = time.perf_counter()
    make_plan(parameter_facts(model), config.init)
    assert time.perf_counter() - start < 1


def test_an_attribute_blocks_of_another_meaning_is_passed_over():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.in_proj_weight = nn.Parameter(torch.zeros(12, 4))
            self.blocks = nn.ModuleList([nn.Linear(4, 4)])

    roles = [part.role for fact in parameter_facts(Odd()) for part in fact.parts()]
    assert roles == ["attn.q", "attn.k", "attn.v", "linear", "bias"]
