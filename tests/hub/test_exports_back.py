"""An export of our own class comes back: as a run, and opened as it lies there, without running its code."""

import json
import shutil

import pytest
import torch

pytest.importorskip("transformers")

from decoders import OPTIONS, decoder, draw
from exports import ROWS, padded_run
from safetensors.torch import load_file, save_file
from tiny import config, quiet, same, weights

from seedbed.api import fit, generate, load
from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.hub.checkpoints import open_checkpoint
from seedbed.hub.exporting import export
from seedbed.hub.importing import import_checkpoint
from seedbed.hub.models import open_model
from seedbed.hub.transformers_model import to_transformers
from seedbed.model import Decoder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return padded_run(tmp_path_factory.mktemp("padded"))


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """Its code, if it were run, would end the tests."""
    out = tmp_path_factory.mktemp("exports") / "export"
    export(run, out, quiet)
    for file in out.glob("*.py"):
        file.write_text("raise SystemExit('the code of a checkpoint was run')\n")
    return out


@pytest.fixture
def folder(exported, tmp_path):
    """A copy that a test may harm."""
    return shutil.copytree(exported, tmp_path / "export")


def same_tokens(one, other):
    """The file is another one: it puts the begin of text before a text."""
    text = "the seed bed \u4e2d\n 12"
    assert (one.start, one.encode(text)) == (other.start, other.encode(text))
    assert (one.special_tokens, one.chat_template) == (other.special_tokens, other.chat_template)


def rewrite(folder, edit):
    """Write `config.json` again, as ``edit`` leaves it."""
    told = json.loads((folder / "config.json").read_text())
    edit(told)
    (folder / "config.json").write_text(json.dumps(told))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_out_and_back_and_out_again(dtype, run, tmp_path):
    export(run, tmp_path / "one", quiet, dtype=dtype, shard_size="30KB")
    found = import_checkpoint(tmp_path / "one", tmp_path / "run", quiet)
    assert (found.family, found.notes) == ("seedbed", [])
    assert len(found.parity) == 8 and all(case.agrees for case in found.parity)
    trained = weights(run, 2) if dtype == "float32" else {n: t.bfloat16() for n, t in weights(run, 2).items()}
    assert same(weights(tmp_path / "run", 0), trained)
    back = load(tmp_path / "run")
    assert back.config.model == load(run).config.model
    same_tokens(back.tokenizer, load(run).tokenizer)
    export(tmp_path / "run", tmp_path / "two", quiet, shard_size="30KB")
    for name in ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors.index.json"):
        assert json.loads((tmp_path / "one" / name).read_text()) == json.loads((tmp_path / "two" / name).read_text())
    files = sorted((tmp_path / "one").glob("*.safetensors"))
    assert len(files) > 1
    assert all(same(load_file(file), load_file(tmp_path / "two" / file.name)) for file in files)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_architecture_comes_back(option, run, tmp_path):
    ours = decoder(option, vocab=ROWS)
    model = to_transformers(ours, shipped=True)
    model.save_pretrained(tmp_path)
    load(run).tokenizer.save(tmp_path)
    opened, listed = open_model(tmp_path).module, open_checkpoint(tmp_path)
    assert isinstance(opened, Decoder)
    assert (
        opened.config == Config.model_validate({"model": ours.config}).model
    )  # with the multipliers that a run states
    assert same(dict(opened.named_parameters()), dict(ours.named_parameters()))
    assert {fact.name for fact in listed.facts} == dict(ours.named_parameters()).keys()
    assert all(torch.equal(listed.read(name), parameter) for name, parameter in ours.named_parameters())


def test_a_native_model_in_our_class_stays_in_it(run, tmp_path):
    store = run.parent / "store"
    fit(config(store, tmp_path / "llama", "train.steps=2", "train.eval_every=-1"), quiet, page=False)
    assert export(tmp_path / "llama", tmp_path / "native", quiet).architecture == "LlamaForCausalLM"
    export(tmp_path / "llama", tmp_path / "one", quiet, shipped=True)
    import_checkpoint(tmp_path / "one", tmp_path / "run", quiet)
    assert export(tmp_path / "run", tmp_path / "two", quiet).shipped
    assert (tmp_path / "one" / "config.json").read_text() == (tmp_path / "two" / "config.json").read_text()


def test_it_opens_as_it_lies_there(run, exported):
    ours, back, ids = open_model(run), open_model(exported), draw(2, 16, vocab=ROWS)
    packed = torch.tensor([[0] * 7 + [1] * 9, [-1] * 4 + [0] * 12])
    assert torch.equal(back.losses(ids, packed), ours.losses(ids, packed))
    assert back.configuration == ours.configuration
    assert back.max_length == ours.max_length
    same_tokens(back.tokenizer, ours.tokenizer)
    (said,), (expected,) = generate(back, ["the seed"]), generate(ours, ["the seed"])
    assert (said.ids, said.text) == (expected.ids, expected.text)
    one, other = open_checkpoint(run), open_checkpoint(exported)
    assert (one.facts, one.configuration) == (other.facts, other.configuration)
    assert all(torch.equal(one.read(fact.name), other.read(fact.name)) for fact in one.facts)


def test_training_begins_with_the_run_that_it_becomes(run, exported, tmp_path):
    told = config(run.parent / "store", tmp_path / "new", f"train.init_from={exported}", "train.steps=2")
    with pytest.raises(InputError, match="is a Hugging Face checkpoint; make a run of it with `seedbed import"):
        fit(told, quiet)


def test_a_vocabulary_that_was_resized_since(run, folder, tmp_path):
    model = to_transformers(load(run).model, shipped=True)
    model.resize_token_embeddings(ROWS + 7)
    model.save_pretrained(folder)
    found = import_checkpoint(folder, tmp_path / "run", quiet)
    assert found.family == "seedbed"
    assert load(tmp_path / "run").config.model.vocab_size == ROWS + 7
    assert torch.equal(weights(tmp_path / "run", 0)["head.weight"], model.lm_head.weight)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda c: c.pop("architecture"), "config.json: has no architecture"),
        (lambda c: c.update(architecture=[1]), "config.json: has no architecture"),
        (lambda c: c["architecture"].pop("norm_eps"), "architecture does not say norm_eps; take the file"),
        (lambda c: c["architecture"]["ffn"].update(d_ff=None), "architecture does not say ffn.d_ff"),
        (lambda c: c["architecture"].update(vocab_size=None), "architecture does not say vocab_size"),
        (lambda c: c["architecture"].update(experts=4), "architecture: experts: unknown key"),
        (lambda c: c["architecture"].update(attention=3), "architecture: attention: "),
        (lambda c: c["architecture"].update(d_model=48), "hidden_size=32, but architecture has d_model=48"),
        (lambda c: c.update(num_hidden_layers=1), "num_hidden_layers=1, but architecture has n_layers=2"),
        (lambda c: c.update(logit_cap=30), "logit_cap=30 is not known of seedbed"),
        (lambda c: c.update(vocab_size=ROWS + 1), f"({ROWS}, 32) instead of ({ROWS + 1}, 32)"),
    ],
)
def test_a_configuration_that_is_damaged(edit, told, folder, tmp_path):
    rewrite(folder, edit)
    refused(folder, tmp_path / "run", told)


def test_tensors_that_do_not_fit(folder, tmp_path):
    norm, file = "model.layers.1.attn_norm.weight", folder / "model.safetensors"
    whole = load_file(file)
    save_file({name: tensor for name, tensor in whole.items() if name != norm}, file, metadata={"format": "pt"})
    refused(folder, tmp_path / "run", "missing: model.layers.1.attn_norm.weight")
    save_file(whole | {"model.layers.2.attn_norm.weight": whole[norm].clone()}, file, metadata={"format": "pt"})
    refused(folder, tmp_path / "run", "without a place in the model: model.layers.2.attn_norm.weight")
    file.write_bytes(file.read_bytes()[:1000])
    refused(folder, tmp_path / "run", "model.safetensors")


def refused(folder, run, told):
    """Whatever opens the folder ends in one line with ``told`` in it."""
    for read in (open_model, open_checkpoint, lambda path: import_checkpoint(path, run, quiet)):
        with pytest.raises(InputError) as error:
            read(folder)
        assert told in str(error.value)
        assert "\n" not in str(error.value)
    assert not run.exists()
