"""initialize_ in other people's code: models of other libraries, loaded parts, laws of one's own."""

import sys
import warnings

import pytest
import torch
from torch import nn

from seedbed import initialize_
from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.init.apply import draw
from seedbed.laws import KEPT, LAWS, Distribution
from seedbed.model import Decoder


def llama(tied: bool = False) -> nn.Module:
    from transformers import AutoModelForCausalLM, LlamaConfig

    shape = {"vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2}
    ids = {"pad_token_id": 4, "bos_token_id": 1, "eos_token_id": 2}
    return AutoModelForCausalLM.from_config(
        LlamaConfig(**shape, **ids, num_attention_heads=3, tie_word_embeddings=tied)
    )


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("tied", [False, True])
def test_from_config_then_initialize(tied):
    first, second = llama(tied), llama(tied)
    report = initialize_(first, "normal", seed=2, std=0.1)
    initialize_(second, "normal", seed=2, std=0.1)
    assert all(torch.equal(tensor, state(second)[name]) for name, tensor in state(first).items())
    assert [row.name for row in report.rows if "embed" in row.name] == ["model.embed_tokens.weight"]
    assert first.model.embed_tokens.weight[4].eq(0).all()  # pyright: ignore
    assert first.lm_head.weight[4].eq(0).all() == tied  # pyright: ignore


def test_exactly_the_missing_entries_are_drawn():  # case 31
    saved, model, whole = state(llama()), llama(), llama()
    del saved["lm_head.weight"], saved["model.layers.1.mlp.up_proj.weight"]
    missing = model.load_state_dict(saved, strict=False).missing_keys
    report = initialize_(model, "normal", seed=4, only=missing, std=0.3)
    initialize_(whole, "normal", seed=4, std=0.3)
    for name, tensor in state(model).items():
        assert torch.equal(tensor, saved[name] if name in saved else state(whole)[name]), name
    assert {row.name for row in report.rows if row.distribution != "kept"} == set(missing)
    row = next(row for row in report.rows if row.name == "model.layers.0.mlp.up_proj.weight")
    assert row.std == pytest.approx(saved[row.name].std(correction=0).item())
    assert "kept" in str(report)


def test_a_tied_tensor_that_was_loaded_under_one_name_is_not_drawn_under_the_other():
    model = llama(tied=True)
    saved = state(model)
    del saved["lm_head.weight"]  # a tied tensor is saved once
    with pytest.warns(UserWarning, match=r"lm_head\.weight stays as it is: it is tied to model\.embed_tokens\.weight"):
        report = initialize_(model, only=model.load_state_dict(saved, strict=False).missing_keys)
    assert {row.distribution for row in report.rows} == {"kept"}
    assert all(torch.equal(tensor, saved[name]) for name, tensor in saved.items())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = initialize_(model, only=["lm_head.weight", "model.embed_tokens.weight"])
    assert [row.name for row in report.rows if row.distribution != "kept"] == ["model.embed_tokens.weight"]
    assert not torch.equal(model.lm_head.weight, saved["model.embed_tokens.weight"])  # pyright: ignore


def test_a_part_that_was_loaded_with_nan_is_refused():
    model = llama()
    before = state(model)
    with torch.no_grad():
        model.model.norm.weight[3] = torch.inf  # pyright: ignore
    with pytest.raises(InputError, match=r"model\.norm\.weight would be kept as it is, but holds NaN or infinity"):
        initialize_(model, only=["lm_head.weight"])
    assert torch.equal(state(model)["lm_head.weight"], before["lm_head.weight"])


def test_names_that_are_not_there_and_numbers_that_are_none_are_refused():
    model = nn.Linear(3, 3)
    with pytest.raises(InputError, match="the model has no parameter head.weight"):
        initialize_(model, only=["weight", "head.weight"])
    initialize_(nn.Sequential(model), only=["_orig_mod.0.weight"])  # names of a compiled model
    model.weight = nn.Parameter(torch.ones(3, 3, dtype=torch.int64), requires_grad=False)
    with pytest.raises(InputError, match="floating-point numbers, unlike weight"):
        initialize_(model)
    assert model.weight.eq(1).all()


def thin(fact, *, factor: float = 0.5) -> Distribution:
    """A law of one's own: a scale below the usual."""
    return Distribution("normal", factor * fact.d_in**-0.5)


def check_thin(law: object) -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16))
    report = initialize_(model, law, seed=3, factor=0.25)  # pyright: ignore
    assert report.plan.options == {"factor": 0.25}
    for index, d_in in ((0, 16), (1, 32)):
        name = f"{index}.weight"
        expected = draw(tuple(model[index].weight.shape), Distribution("normal", 0.25 * d_in**-0.5), 3, name)
        assert torch.equal(model[index].weight, expected)
    assert model[0].bias.eq(0).all()
    before = state(model)
    with pytest.raises(InputError, match="law 'thin' has no option 'factr'; did you mean 'factor'"):
        initialize_(model, law, factr=1.0)  # pyright: ignore
    with pytest.raises(InputError, match="option 'factor' of law 'thin': .*valid number"):
        initialize_(model, law, factor="much")  # pyright: ignore
    with pytest.raises(InputError, match="finite"):
        initialize_(model, law, factor=float("nan"))  # pyright: ignore
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())


def test_a_law_given_as_a_function():
    check_thin(thin)
    with pytest.raises(InputError, match="gives 0.1 for weight; a law returns a Distribution"):
        initialize_(nn.Linear(3, 3), lambda fact: 0.1)  # pyright: ignore


def test_a_law_put_into_the_table(monkeypatch):
    monkeypatch.setitem(LAWS, "thin", thin)
    check_thin("thin")


def test_a_law_of_an_installed_package(monkeypatch, tmp_path):
    from seedbed.laws import _installed

    info = tmp_path / "thinlaw-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thinlaw\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[seedbed.laws]\nthin = thinlaw:thin\nbroken = thinlaw:gone\n")
    (tmp_path / "thinlaw.py").write_text(
        "from seedbed.laws import Distribution\n\n"
        "def thin(fact, *, factor: float = 0.5):\n    return Distribution('normal', factor * fact.d_in**-0.5)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    _installed.cache_clear()
    try:
        check_thin("thin")
        assert Config.load(None, ["init.law=thin", "init.factor=0.25"]).init.options == {"factor": 0.25}
        with pytest.raises(InputError, match=r"law 'broken' of thinlaw does not load \(thinlaw:gone\)"):
            initialize_(nn.Linear(3, 3), "broken")
        with pytest.raises(InputError, match="unknown law 'thinn'; did you mean 'thin'"):
            initialize_(nn.Linear(3, 3), "thinn")
    finally:
        _installed.cache_clear()
        sys.modules.pop("thinlaw", None)


def test_a_law_may_keep_a_block_of_a_fused_matrix():
    def mine(fact) -> Distribution:
        return KEPT if fact.role == "attn.k" else Distribution("constant", value=2.0)

    model = Decoder(Config.load(None, ["model.vocab_size=8", "model.d_model=16", "model.n_layers=1"]).model)
    nn.init.ones_(model.layers[0].attn.qkv.weight)  # pyright: ignore
    initialize_(model, mine)
    qkv = model.layers[0].attn.qkv.weight  # pyright: ignore
    q, k, v = qkv.chunk(3)  # pyright: ignore
    assert (q.unique().tolist(), k.unique().tolist(), v.unique().tolist()) == ([2], [1], [2])


def test_every_parameter_that_no_rule_covers_is_named():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(3, 3)
            self.one, self.two = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))

    model = Bare()
    before = state(model)
    with pytest.raises(InputError, match="no rule covers one, two; say what each is with roles="):
        initialize_(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())
    report = initialize_(model, roles={"one": "linear", "two": "kept"})
    assert {row.name: row.role for row in report.rows} == {
        "map.weight": "linear", "map.bias": "bias", "one": "linear", "two": "kept",
    }  # fmt: skip


def test_an_option_that_a_law_needs_is_asked_for():
    with pytest.raises(InputError, match="law 'reuse' needs option 'checkpoint'"):
        initialize_(nn.Linear(3, 3), "reuse")


@pytest.mark.parametrize("name", ["magnitude+spectrum", "gamma"])
def test_a_law_of_ours_is_the_same_by_name_and_as_a_function(name):
    first, second = llama(), llama()
    assert initialize_(first, name).plan.title == initialize_(second, LAWS[name]).plan.title
    assert all(torch.equal(tensor, state(second)[key]) for key, tensor in state(first).items())


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True])
def test_a_seed_is_a_whole_number(seed):
    model = nn.Linear(2, 2)
    before = state(model)
    with pytest.raises(InputError, match="seed is a whole number from 0"):
        initialize_(model, seed=seed)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())


def test_a_gamma_for_a_role_that_is_not_there_is_told():
    with pytest.warns(UserWarning, match=r"init\.by_role: the model has no moe\.router, attn$"):
        initialize_(nn.Linear(2, 2), by_role={"moe.router": 0.5, "attn": 1.0, "linear": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        initialize_(llama(), by_role={"mlp": 0.75, "attn.q": 0.5})


def test_what_a_law_does_wrong_is_told_before_anything_is_drawn():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    before = state(model)

    def second_fails(fact, scale=1.0):
        return Distribution("normal" if fact.name.startswith("0") else "gaussian", scale)  # pyright: ignore

    with pytest.raises(InputError, match=r"law 'second_fails' fails on 1\.weight: 'gaussian' is no kind"):
        initialize_(model, second_fails)
    with pytest.raises(
        InputError, match=r"has no option 'scale'; options are keyword-only: def law\(fact, \*, option\)"
    ):
        initialize_(model, second_fails, scale=0.5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("foo",), "takes a module and a law, not str"),
        ((nn.Linear(2, 2), None), "takes a module and a law"),
        ((nn.Linear(2, 2), "gamma", 0, None, "weight"), r"only is a list of names; write only=\['weight'\]"),
    ],
)
def test_arguments_of_other_types_are_refused_in_one_line(arguments, message):
    with pytest.raises(InputError, match=message):
        initialize_(*arguments)


@pytest.mark.parametrize(
    ("dtype", "gamma"), [(torch.float16, 2.5), (torch.float16, -2.0), (torch.bfloat16, 2.5), (torch.float32, 2.5)]
)
def test_a_scale_that_the_parameters_type_cannot_hold_is_refused(dtype, gamma):
    model = nn.Linear(4096, 8).to(dtype)
    before = state(model)
    if dtype == torch.float16:
        with pytest.raises(InputError, match="which torch.float16 cannot hold, to weight; nothing was drawn"):
            initialize_(model, gamma=gamma)
        assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())
    else:
        initialize_(model, gamma=gamma)
        assert 0 < model.weight.std() < 1e-8


@pytest.mark.parametrize(
    "given", [Distribution("constant", value=float("nan")), Distribution("spectrum", 0.1, decay=-1e5)]
)
def test_a_law_that_gives_no_numbers_is_refused(given):
    with pytest.raises(InputError, match="which make no numbers, for weight"):
        initialize_(nn.Linear(3, 3), lambda fact: given)
