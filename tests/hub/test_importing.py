"""Checkpoints of Transformers that become runs; whatever is wrong leaves nothing behind."""

import json
import shutil

import pytest
import torch

pytest.importorskip("transformers")

from foreign import VOCAB, build, mark_beginnings, save_gguf, save_pickles
from safetensors.torch import load_file, save_file
from stores import Text, make_store
from tiny import config, quiet, sentences

from seedbed.api import fit, load
from seedbed.config import Config
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError
from seedbed.files.safetensors import Tensors
from seedbed.hub import importing
from seedbed.hub.checkpoints import open_checkpoint
from seedbed.hub.importing import import_checkpoint
from seedbed.hub.models import open_model
from seedbed.hub.native import to_native

NAMES = ["gpt2", "llama", "qwen3", "olmo2", "mistral", "lfm3"]
STEP = "checkpoints/step_00000000"


@pytest.fixture
def source(foreign_folder, tmp_path):
    """A copy of a family's checkpoint that a test may harm."""

    def copied(family="llama"):
        return shutil.copytree(foreign_folder(family), tmp_path / f"the {family}")

    return copied


def state_of(folder):
    return load_file(folder / "model.safetensors")


def change(folder, edit):
    """Write the weights in ``folder`` again, as ``edit`` leaves them."""
    state = state_of(folder)
    edit(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("family", NAMES)
def test_a_run_that_says_the_same(family, foreign_folder, tmp_path):
    folder, run = foreign_folder(family), tmp_path / "run"
    found = import_checkpoint(folder, run, quiet)
    assert (found.family, found.source, found.run) == (family, str(folder), str(run))
    assert found.dtypes == {"F32": found.parameters}
    assert all(case.agrees for case in found.parity)
    theirs, ours = open_model(folder), open_model(run)
    ids = torch.arange(16).view(2, 8)  # as many tokens as the smallest window
    assert torch.allclose(ours.losses(ids), theirs.losses(ids), atol=1e-4)
    assert ours.tokenizer.hash == theirs.tokenizer.hash
    assert ours.tokenizer.start == theirs.tokenizer.start
    back, state = to_native(load(run).model, family), dict(build(family).named_parameters())
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)
    assert {fact.name for fact in open_checkpoint(run).facts} == dict(load(run).model.named_parameters()).keys()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_a_run_keeps_the_types_of_the_files(dtype, source, tmp_path):
    folder = source()
    build("llama", scale=4.0).to(dtype).save_pretrained(folder)
    found = import_checkpoint(folder, tmp_path / "run", quiet)
    kept, state = Tensors([tmp_path / "run" / STEP / "model.safetensors"]), state_of(folder)
    spelled = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}[dtype]
    assert {kept.dtype(name) for name in kept} == {spelled} == set(found.dtypes)
    assert torch.equal(kept["layers.1.attn.qkv.weight"][16:24], state["model.layers.1.self_attn.k_proj.weight"])
    assert load(tmp_path / "run").model.embed.weight.dtype == torch.float32


def test_what_a_run_holds(source, tmp_path):
    folder, run = source("gpt2"), tmp_path / "run"
    (folder / "LICENSE").write_text("do as you like")
    (folder / "README.md").write_text("a card")
    import_checkpoint(folder, run, quiet)
    assert {file.name for file in run.iterdir()} == {"config.yaml", "receipt.json", "checkpoints", "source"}
    assert {file.name for file in (run / "source").iterdir()} == {
        "LICENSE", "README.md", "config.json", "generation_config.json",
    }  # fmt: skip
    receipt = json.loads((run / "receipt.json").read_text())
    assert receipt == json.loads((run / STEP / "receipt.json").read_text())
    told = receipt["imported"]
    assert (told["source"], told["family"], told["architecture"]) == (str(folder), "gpt2", "GPT2LMHeadModel")
    assert set(told["files"]) == {"config.json", "model.safetensors"}
    assert len(told["parity"]) >= 6
    assert told["notes"] == ["attn_pdrop=0.1, embd_pdrop=0.1, resid_pdrop=0.1: it was trained with dropout, the "
                             "decoder has none"]  # fmt: skip
    (embed, *_) = receipt["rows"]
    assert embed["std"] == pytest.approx(state_of(folder)["transformer.wte.weight"].std(correction=0).item())


def test_a_tied_head_that_was_saved_and_one_that_differs(source, tmp_path):
    folder = source("qwen3")  # tied
    table = state_of(folder)["model.embed_tokens.weight"]
    change(folder, lambda state: state.update({"lm_head.weight": table.clone()}))
    import_checkpoint(folder, tmp_path / "run", quiet)
    change(folder, lambda state: state.update({"lm_head.weight": table + 1}))
    refused(folder, tmp_path / "other", "the decoder has no place for lm_head.weight")


def test_ends_that_a_run_does_not_have_are_told(source, tmp_path):
    folder = source()
    end = load_tokenizer(folder).eos_id
    file = folder / "generation_config.json"
    file.write_text(json.dumps({"eos_token_id": [end, 7, 5]}))
    found = import_checkpoint(folder, tmp_path / "run", quiet)
    assert found.notes == [f"it also ends what it writes at token 5, 7; a run does at token {end}"]
    file.write_text(json.dumps({"eos_token_id": end}))
    assert import_checkpoint(folder, tmp_path / "other", quiet).notes == []


def test_files_of_other_kinds(foreign_tokenizer_folder, source, tmp_path):
    model, folder = build("llama"), source()
    save_pickles(model, tmp_path / "pickles", shards=2)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    save_gguf(model, foreign_tokenizer_folder, tmp_path / "one.gguf")
    import_checkpoint(folder, tmp_path / "run", quiet)
    one = load(tmp_path / "run").model.state_dict()
    for name in ("pickles", "shards", "one.gguf"):
        if name != "one.gguf":
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(foreign_tokenizer_folder / file, tmp_path / name / file)
        import_checkpoint(tmp_path / name, tmp_path / f"run of {name}", quiet)
        other = load(tmp_path / f"run of {name}").model.state_dict()
        assert all(torch.equal(one[key], other[key]) for key in one), name
    assert json.loads((tmp_path / "run of one.gguf" / "receipt.json").read_text())["imported"]["card"] == {
        "general.architecture": "llama"
    }


@pytest.mark.parametrize("begins", [False, True])
def test_texts_begin_as_before(begins, source, tmp_path):
    folder = source()
    if begins:
        mark_beginnings(folder)
    import_checkpoint(folder, tmp_path / "run", quiet)
    tokenizer = load_tokenizer(tmp_path / "run" / STEP / "tokenizer")
    assert tokenizer.bos_id == 0
    assert tokenizer.start == open_model(folder).tokenizer.start == ([0] if begins else [])


def test_training_goes_on_from_an_import_as_a_new_run(source, tmp_path):
    run = tmp_path / "imported"
    import_checkpoint(source(), run, quiet)
    texts = [Text(str(i), text) for i, text in enumerate(sentences(60, seed=0))]
    make_store(texts, load_tokenizer(run / STEP / "tokenizer"), tmp_path / "store", seq_len=32)
    told = ["train.steps=2", "train.device=cpu", "train.compile=false", "train.eval_sequences=2", "optim.lr=1e-3"]
    told += [f"data.store={tmp_path / 'store'}", "train.batch_size=2", "train.micro_batch_size=2"]
    with pytest.raises(InputError, match=r"was imported, there is no training to go on with.*train\.init_from="):
        fit(Config.load(str(run / "config.yaml"), told), quiet)
    assert not (run / ".lock").exists()
    more = [f"train.init_from={run}", f"run.dir={tmp_path / 'tuned'}"]
    trained = fit(Config.load(str(run / "config.yaml"), [*told, *more]), quiet, page=False)
    assert trained.summary.steps == 2
    again = fit(config(tmp_path / "store", tmp_path / "reused", *told, "init.law=reuse", f"init.checkpoint={run}",
                       *model_overrides(run)), quiet, page=False)  # fmt: skip
    assert again.summary.steps == 2


def model_overrides(run):
    model = Config.load(str(run / "config.yaml")).model
    names = ("d_model", "n_layers", "max_seq_len", "norm_eps", "tied", "vocab_size")
    attention = [f"model.attention.{name}={getattr(model.attention, name)}" for name in ("n_heads", "n_kv_heads")]
    return [*(f"model.{name}={getattr(model, name)}" for name in names), *attention, f"model.ffn.d_ff={model.ffn.d_ff}"]


def refused(folder, run, told):
    """The import ends in one line with ``told`` in it, and leaves nothing."""
    before = set(run.parent.rglob("*"))
    with pytest.raises(InputError) as error:
        import_checkpoint(folder, run, quiet)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert set(run.parent.rglob("*")) == before


def test_tensors_that_do_not_fit(source, tmp_path):
    folder, run, norm = source(), tmp_path / "run", "model.layers.1.input_layernorm.weight"
    whole = state_of(folder)
    change(folder, lambda state: state.pop(norm))
    refused(folder, run, f"missing: {norm}")
    change(folder, lambda state: state.update({norm: whole[norm], "model.layers.2.mlp.up_proj.weight": torch.ones(2)}))
    refused(folder, run, "without a place in the model: model.layers.2.mlp.up_proj.weight")
    del whole["lm_head.weight"]  # a body that was saved alone
    save_file(whole, folder / "model.safetensors")
    refused(folder, run, "missing: lm_head.weight")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (torch.ones(5, 16), "model.layers.0.mlp.up_proj.weight (5, 16) instead of (24, 16)"),
        (torch.full((24, 16), torch.nan), "holds NaN or infinity; not imported"),
        (torch.ones(24, 16, dtype=torch.int8), "are F32 and I8"),
        (torch.ones(24, 16, dtype=torch.bfloat16), "are BF16 and F32; one type of F64, F32, BF16, F16 is read"),
    ],
)
def test_a_tensor_that_is_wrong(value, told, source, tmp_path):
    folder = source()
    change(folder, lambda state: state.update({"model.layers.0.mlp.up_proj.weight": value}))
    refused(folder, tmp_path / "run", told)


def test_a_tokenizer_that_does_not_match(source, tmp_path):
    folder = source()
    build("llama", vocab_size=VOCAB - 20).save_pretrained(folder)
    refused(folder, tmp_path / "run", f"gives ids up to {VOCAB - 1}, the model has an embedding of {VOCAB - 20} rows")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    refused(folder, tmp_path / "run", "has no tokenizer")


def test_a_configuration_that_does_not_match(source, tmp_path):
    folder = source()
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"attention_bias": True}))
    refused(folder, tmp_path / "run", "config.json: mlp_bias=False is not expressed")
    (folder / "config.json").write_text(json.dumps(content | {"architectures": ["LlamaForSequenceClassification"]}))
    import_checkpoint(folder, tmp_path / "another head is named", quiet)  # the tensors are those of a language model


def test_models_that_disagree(source, tmp_path, monkeypatch):
    folder, right = source(), importing.to_ours

    def swapped(family, model, parameter, read):
        tensor = right(family, model, parameter, read)
        return tensor.flip(0) if parameter == "layers.1.attn.qkv.weight" else tensor

    monkeypatch.setattr(importing, "to_ours", swapped)
    refused(folder, tmp_path / "run", "its logits and ours differ by ")


def test_an_interrupt_leaves_nothing(source, tmp_path):
    folder = source()

    def interrupt(message):
        if message.startswith("comparing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_checkpoint(folder, tmp_path / "run", interrupt)
    assert [file.name for file in tmp_path.iterdir()] == [folder.name]


def test_places_that_are_taken(source, tmp_path):
    folder = source()
    (tmp_path / "empty").mkdir()
    import_checkpoint(folder, tmp_path / "empty", quiet)
    refused(folder, tmp_path / "empty", "exists already; choose another name")
    refused(tmp_path / "empty", tmp_path / "run", "is a run or a checkpoint of one; it needs no import")
    refused(folder, folder / "config.json", "exists already")
    refused(tmp_path / "nowhere", tmp_path / "run", "no such folder")
