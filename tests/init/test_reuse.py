"""reuse: everything but the token embeddings is copied from a checkpoint, and nothing else is touched (S2)."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tiny import TINY, config, quiet, weights
from torch import nn

from seedbed import initialize_
from seedbed.api import fit
from seedbed.cli import main
from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.init import InitReport, apply_plan
from seedbed.laws import COPIED, LAWS, Distribution
from seedbed.model import Decoder


def gpt2(vocab: int = 40, width: int = 24, base: bool = False, seed: int = 0) -> nn.Module:
    """Conv1D, learned positions, biases, a tied head; its norms and biases are no ones and zeros."""
    from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

    config = GPT2Config(
        vocab_size=vocab, n_embd=width, n_layer=2, n_head=3, n_positions=16, bos_token_id=1, eos_token_id=2
    )
    torch.manual_seed(seed)
    model = (GPT2Model if base else GPT2LMHeadModel)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def llama(tied: bool, vocab: int = 40) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 3}
    ids = {"pad_token_id": 4, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab, **shape, **ids, tie_word_embeddings=tied))


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(("saved_base", "base"), [(False, False), (True, False), (False, True)])
def test_exactly_the_token_embeddings_are_drawn_anew(saved_base, base, tmp_path):
    saved = gpt2(vocab=50, base=saved_base)
    saved.save_pretrained(tmp_path, max_shard_size="20KB")  # pyright: ignore
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    model = gpt2(base=base, seed=1)
    report = initialize_(model, "reuse", seed=3, checkpoint=str(tmp_path), std=0.5)
    prefix = "" if base else "transformer."
    expected = {name.removeprefix("transformer."): tensor for name, tensor in state(saved).items()}
    for name, tensor in state(model).items():
        if name == f"{prefix}wte.weight":
            assert tensor.std().item() == pytest.approx(0.5, rel=0.1)
            assert tensor.shape == (40, 24)
        else:
            assert torch.equal(tensor, expected[name.removeprefix("transformer.")]), name
    drawn = [row.parameter for row in report.plan.rows if row.distribution != COPIED]
    assert drawn == [f"{prefix}wte.weight"]
    assert set(report.plan.sources) == {file.name for file in tmp_path.glob("*.safetensors")}
    row = next(row for row in report.rows if row.name == f"{prefix}wpe.weight")
    assert (row.distribution, row.std) == ("copied", pytest.approx(expected["wpe.weight"].std().item(), rel=0.01))
    assert f"960 drawn, {sum(t.numel() for t in state(model).values()) - 960:,} copied" in str(report)
    assert "model-00001-of" in str(report)


@pytest.mark.parametrize("tied", [True, False])
def test_an_untied_head_is_copied_a_tied_one_is_the_embeddings(tied, tmp_path):
    saved, model = llama(tied), llama(tied)
    initialize_(saved, "normal", seed=9)
    saved.save_pretrained(tmp_path)  # pyright: ignore
    initialize_(model, "reuse", checkpoint=str(tmp_path / "model.safetensors"))
    same = [name for name, tensor in state(model).items() if torch.equal(tensor, state(saved)[name])]
    assert set(state(model)) - set(same) == {"model.embed_tokens.weight"}
    assert (model.lm_head.weight is model.model.embed_tokens.weight) is tied  # pyright: ignore
    assert model.model.embed_tokens.weight[4].eq(0).all()  # padding  # pyright: ignore


def test_all_that_does_not_fit_is_named_and_nothing_written(tmp_path):
    saved = state(gpt2(width=24))
    del saved["transformer.h.1.ln_2.bias"], saved["transformer.wpe.weight"]
    saved["transformer.h.0.attn.c_proj.weight"] = torch.zeros(24, 27)
    save_file(saved, tmp_path / "model.safetensors")
    model = gpt2(seed=1)
    before = state(model)
    with pytest.raises(InputError) as error:
        initialize_(model, "reuse", checkpoint=str(tmp_path))
    for told in (
        "h.1.ln_2.bias is missing",
        "wpe.weight is missing",
        "c_proj.weight has shape [24, 27] instead of [24, 24]",
    ):
        assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())


def test_an_untied_head_of_another_vocabulary_is_refused(tmp_path):
    llama(tied=False, vocab=50).save_pretrained(tmp_path)  # pyright: ignore
    with pytest.raises(InputError, match=r"lm_head\.weight has shape \[50, 24\] instead of \[40, 24\]"):
        initialize_(llama(tied=False), "reuse", checkpoint=str(tmp_path))


def test_reuse_as_a_function_copies_all_too(tmp_path):
    saved, model = gpt2(), gpt2(seed=1)
    saved.save_pretrained(tmp_path)
    initialize_(model, LAWS["reuse"], checkpoint=str(tmp_path))
    assert torch.equal(state(model)["transformer.ln_f.weight"], state(saved)["transformer.ln_f.weight"])


def test_layers_that_are_left_over_are_another_architecture(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    model, before = gpt2(), state(gpt2())
    GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=24, n_layer=3, n_head=3, n_positions=16)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"the model has no place for transformer\.h\.2\..* of its layers"):
        initialize_(model, "reuse", checkpoint=str(tmp_path))
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())


def test_a_head_that_is_left_over_is_told(tmp_path):
    from transformers import LlamaModel

    saved = llama(tied=False)
    saved.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="not used, the model has no place for it: lm_head.weight"):
        initialize_(LlamaModel(saved.config), "reuse", checkpoint=str(tmp_path))


@pytest.mark.parametrize("spoil", [lambda x: x.fill_(torch.nan), lambda x: x.int()])
def test_what_is_not_finite_or_no_fraction_is_not_copied(spoil, tmp_path):
    model, saved = gpt2(), state(gpt2(seed=3))
    before = state(model)
    name = "transformer.h.1.mlp.c_fc.weight"
    save_file({**saved, name: spoil(saved[name])}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=f"{name} holds NaN, infinity or whole numbers"):
        initialize_(model, "reuse", checkpoint=str(tmp_path))
    assert all(torch.equal(tensor, before[key]) for key, tensor in state(model).items())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "give the folder of a whole checkpoint"),
        ({"pytorch_model.bin": b""}, "pytorch_model.bin is a pickle"),
        ({"model.safetensors": b"1234"}, "damaged"),
        ({"model.safetensors.index.json": b"{}"}, "damaged"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "part.safetensors"}}'}, "part.safetensors"),
    ],
)
def test_what_is_no_checkpoint_is_refused(files, message, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        initialize_(gpt2(), "reuse", checkpoint=str(tmp_path))


def test_a_receipt_replays_from_the_same_weights_alone(tmp_path):
    saved = gpt2()
    saved.save_pretrained(tmp_path)  # pyright: ignore
    model, again = gpt2(seed=1), gpt2(seed=2)
    (tmp_path / "receipt.json").write_text(
        json.dumps(initialize_(model, "reuse", seed=3, checkpoint=str(tmp_path)).dump())
    )
    receipt = InitReport.load(tmp_path / "receipt.json")
    assert apply_plan(again, receipt.plan, receipt.seed) == receipt
    assert all(torch.equal(tensor, state(model)[name]) for name, tensor in state(again).items())
    saved.transformer.wpe.weight.data += 1  # pyright: ignore
    saved.save_pretrained(tmp_path)  # pyright: ignore
    before = state(again)
    with pytest.raises(InputError, match="holds other weights"):
        apply_plan(again, receipt.plan, receipt.seed)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(again).items())


def test_a_law_that_copies_says_whence():
    def mine(fact) -> Distribution:
        return COPIED if fact.role == "pos" else Distribution("normal", 0.02)

    with pytest.raises(InputError, match=r"law 'mine' copies transformer\.wpe\.weight, but has no option checkpoint"):
        initialize_(gpt2(), mine)


def test_a_run_is_reused_by_another_run(tiny_store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("seedbed.api.write_page", lambda *args, **kwargs: None)  # figures take their time
    donor, heir, wrong = (tmp_path / name for name in ("donor", "heir", "wrong"))
    short = ["model.attention.gate=headwise", "train.steps=2", "train.checkpoint_every=1"]
    fit(config(tiny_store, donor, *short), quiet)
    reuse = ["init.law=reuse", f"init.checkpoint={donor}"]
    fit(config(tiny_store, heir, *short, *reuse), quiet)
    receipt = InitReport.load(heir / "receipt.json")
    model = Decoder(Config.load(str(heir / "config.yaml")).model)
    apply_plan(model, receipt.plan, receipt.seed)
    newest = weights(donor, 2)
    assert [name for name, tensor in state(model).items() if not torch.equal(tensor, newest[name])] == ["embed.weight"]

    options = [*TINY, *short, *reuse, f"data.store={tiny_store}", f"run.dir={wrong}", "model.n_layers=3"]
    (tmp_path / "empty.yaml").write_text("{}")
    monkeypatch.setattr("sys.argv", ["seedbed", "train", str(tmp_path / "empty.yaml"), *options])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "layers.2.attn.qkv.weight is missing" in capsys.readouterr().err
    assert not any(file.is_file() and file.name != ".lock" for file in wrong.rglob("*"))
    (donor / "checkpoints" / "step_00000002" / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"step_00000002: model\.safetensors has 0 bytes instead of .*name another"):
        apply_plan(model, receipt.plan, receipt.seed)
