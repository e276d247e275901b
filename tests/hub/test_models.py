"""Scores of a model do not depend on batch, padding or packing, and are those of a plain cross-entropy."""

import json
import shutil
import types
from pathlib import Path

import pytest
import torch
from foreign import FAMILIES, GROUPED, LENGTH, SMALL, VOCAB, build, save_gguf, save_pickles
from safetensors.torch import load_file, save_file
from tiny import config
from torch import Tensor
from torch.nn import functional as F

from seedbed.api import fit
from seedbed.data.store import Store
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError
from seedbed.hub import models
from seedbed.hub.causal import body_of
from seedbed.hub.checkpoints import fingerprint
from seedbed.hub.models import LanguageModel, common_length, open_model, reads

transformers = pytest.importorskip("transformers")
LENGTHS = (20, 5, 13, 1, 9, 2, 13, 17)


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=4", "optim.lr=0.02"), lambda _: None)
    return folder


@pytest.fixture
def opened(request, run, foreign_folder) -> LanguageModel:
    return open_model(run if request.param == "ours" else foreign_folder(request.param))


def documents(size: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(2, size, (length,), generator=generator) for length in LENGTHS]


def directly(model: LanguageModel, document: Tensor) -> tuple[Tensor, Tensor]:
    """Losses and ranks of one document by itself, by the class's own logits; the first token's are 0."""
    with torch.no_grad():
        found = model.module(document[None])
    logits = found.logits[0] if hasattr(found, "logits") else found[0]  # [T, V]
    losses = F.cross_entropy(logits[:-1].float(), document[1:], reduction="none")
    ranks = (logits[:-1] > logits[:-1].gather(1, document[1:, None])).sum(1)
    return F.pad(losses, (1, 0)), F.pad(ranks, (1, 0))


def rows(texts: list[Tensor], left: bool) -> tuple[Tensor, Tensor]:
    """One document a row, padding on one side."""
    longest = max(map(len, texts))
    ids, doc_ids = torch.zeros(len(texts), longest, dtype=torch.int64), torch.full((len(texts), longest), -1)
    for row, text in enumerate(texts):
        place = slice(longest - len(text), longest) if left else slice(len(text))
        ids[row, place], doc_ids[row, place] = text, 3
    return ids, doc_ids


@pytest.mark.parametrize("opened", ["ours", *FAMILIES], indirect=True)
def test_scores_are_those_of_each_document_alone(opened):
    texts = [text[: opened.max_length] for text in documents(opened.tokenizer.vocab_size)]
    alone = [directly(opened, text) for text in texts]
    close = {"rtol": 1e-5, "atol": 2e-5}
    for left in (False, True):
        ids, doc_ids = rows(texts, left)
        losses, ranks = opened.scores(ids, doc_ids, ranks=True)
        assert ranks is not None
        for row, (text, (loss, rank)) in enumerate(zip(texts, alone, strict=True)):
            real = doc_ids[row] >= 0
            assert torch.allclose(losses[row][real], loss, **close)
            assert torch.equal(ranks[row][real], rank)
            assert not losses[row][~real].any() and not ranks[row][~real].any()
            one = opened.losses(ids[[row]], doc_ids[[row]])[0]  # batch 1 is batch 8
            assert torch.allclose(one, losses[row], **close)
            assert torch.allclose(opened.losses(text[None])[0], loss, **close)
    some, lost = texts[1:5], torch.zeros(3, dtype=torch.int64)  # 5, 13, 1 and 9 tokens
    packed = torch.cat([*some[:2], lost, *some[2:]])
    doc_ids = torch.tensor([4] * 5 + [1] * 13 + [-1] * 3 + [0] + [7] * 9)
    losses = opened.losses(packed[None], doc_ids[None])[0]
    of = [loss for loss, _ in alone[1:5]]
    wanted = torch.cat([*of[:2], torch.zeros(3), *of[2:]])
    assert torch.allclose(losses, wanted, **close)


@pytest.mark.parametrize("opened", ["ours", "gpt2"], indirect=True)
def test_ranks_are_among_the_tokens_of_the_vocabulary(opened, monkeypatch):
    text = torch.arange(12) * 5
    whole = opened.scores(text[None], ranks=True)[1]
    with torch.no_grad():
        found = opened.module(text[None])
    logits = found.logits[0] if hasattr(found, "logits") else found[0]  # [T, V]
    monkeypatch.setattr(opened.tokenizer, "vocab_size", 60)  # as where the embedding is padded
    ranks = opened.scores(text[None], ranks=True)[1]
    own = logits[:-1].gather(1, text[1:, None])
    assert ranks[0, 1:].tolist() == (logits[:-1, :60] > own).sum(1).tolist() != whole[0, 1:].tolist()


@pytest.mark.parametrize("opened", ["ours", "gpt2"], indirect=True)
def test_rows_longer_than_it_reads_are_refused(opened):
    ids = torch.ones(1, opened.max_length + 1, dtype=torch.int64)
    assert opened.losses(ids[:, :-1]).shape == (1, opened.max_length)
    told = rf"rows of {opened.max_length + 1} tokens; {opened.name} reads at most {opened.max_length} "
    with pytest.raises(ValueError, match=told):
        opened.losses(ids)


@pytest.mark.parametrize("opened", ["ours", "gpt2", "gemma2", "cohere", "mixtral"], indirect=True)
def test_few_logits_are_held_at_once(opened, monkeypatch):
    ids, doc_ids = rows(documents(opened.tokenizer.vocab_size), left=False)
    before = opened.scores(ids, doc_ids, ranks=True)
    rows_at_once: list[int] = []
    head = opened.module.get_output_embeddings() if hasattr(opened.module, "get_output_embeddings") else None
    if head is not None:
        assert opened._has_plain_end
        head.register_forward_hook(lambda _, __, logits: rows_at_once.append(logits.numel() // logits.shape[-1]))
    monkeypatch.setattr(models, "LOGITS", 7 * VOCAB)
    after = opened.scores(ids, doc_ids, ranks=True)
    assert all(torch.allclose(a.float(), b.float(), atol=2e-5) for a, b in zip(before, after, strict=True))
    assert all(count <= 7 for count in rows_at_once) and (head is None or rows_at_once)


def test_a_class_that_mixes_places_behind_its_body_gives_all_logits(foreign_folder):
    opened = open_model(foreign_folder("llama"))
    opened.module.lm_head.register_forward_hook(lambda _, __, logits: logits.cumsum(1))
    assert not opened._has_plain_end
    ids = documents(VOCAB)[0][None]
    assert torch.allclose(opened.losses(ids)[0], directly(opened, ids[0])[0], atol=1e-3)


def test_what_places_do_behind_the_body_is_seen_beside_large_logits(foreign_folder):
    opened = open_model(foreign_folder("llama"))
    places = torch.arange(3)[:, None] * torch.eye(1, VOCAB)  # the first token gains from place to place
    opened.module.lm_head.register_forward_hook(lambda _, __, logits: logits + 1e5 + places[: logits.shape[1]])
    assert not opened._has_plain_end


def test_a_tokenizer_of_control_tokens_alone_gives_their_ids(run):
    tokenizer = load_tokenizer(next((run / "checkpoints").iterdir()) / "tokenizer")
    assert models._largest_id(tokenizer) > 3
    tokenizer._tokens = {}
    tokenizer.special_tokens = {}
    tokenizer.bos_id, tokenizer.start = None, []
    assert models._largest_id(tokenizer) == tokenizer.eos_id


@pytest.fixture
def states(opened) -> list[Tensor]:
    """What the last layer gives, each time that it runs."""
    found: list[Tensor] = []
    layer = next(m for m in opened.module.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 2)[-1]
    layer.register_forward_hook(lambda _, __, out: found.append(out[0] if isinstance(out, tuple) else out))
    return found


@pytest.mark.parametrize("opened", ["ours"], indirect=True)
def test_reading_packed_rows_has_the_states_of_each_document(opened, states):
    texts = documents(opened.tokenizer.vocab_size)[1:5]
    lengths = list(map(len, texts))
    doc_ids = torch.tensor([-1, -1, *(i for i, n in enumerate(lengths) for _ in range(n)), -1])
    ids = torch.cat([torch.tensor([0, 0]), *texts, torch.tensor([0])])
    opened.read(ids[None], doc_ids[None])
    for text in texts:
        opened.read(text[None])
    whole, *alone = states
    assert torch.allclose(whole[0, 2:-1], torch.cat([state[0] for state in alone]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("opened", FAMILIES, indirect=True)
def test_a_transformers_model_reads_one_document_a_row_and_no_others(opened, states):
    """Some of their classes let documents of one row see each other, whatever positions they are given."""
    texts = documents(opened.tokenizer.vocab_size)[1:4]
    ids, doc_ids = rows(texts, left=False)
    opened.read(ids, doc_ids)
    for text in texts:
        opened.read(text[None])
    together, *alone = states
    for row, state in zip(together, alone, strict=True):
        assert torch.allclose(row[: state.shape[1]], state[0], rtol=1e-4, atol=1e-4)
    for refused in (rows(texts, left=True), (ids[:1, :4], torch.tensor([[0, 0, 1, 1]]))):
        with pytest.raises(InputError, match="not known to keep documents of one row apart; give it one document a"):
            opened.read(*refused)


def test_a_module_at_hand(tiny_store, foreign_tokenizer_folder):
    tokenizer = load_tokenizer(foreign_tokenizer_folder)
    opened = LanguageModel("mine", build("llama"), tokenizer, LENGTH)
    ids = documents(VOCAB)[0][None]
    assert torch.allclose(opened.losses(ids)[0], directly(opened, ids[0])[0], atol=2e-5)
    assert (opened.files, opened.device.type, len(opened.facts)) == ((), "cpu", 21)
    assert opened.module.training is False
    assert Store(tiny_store).tokenizer().vocab_size <= VOCAB


def test_a_run_and_other_formats_open_alike(run, foreign_folder, foreign_tokenizer_folder, tmp_path):
    ours = open_model(run)
    assert (ours.name, ours.max_length, reads(run)) == ("run", 32, 32)
    assert list(fingerprint(ours)) == ["model.safetensors"]
    folder = foreign_folder("llama")
    pickles = save_pickles(build("llama"), tmp_path / "bin")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, pickles / name)
    shutil.copytree(folder, tmp_path / "lone")
    lone = (tmp_path / "lone" / "model.safetensors").rename(tmp_path / "lone" / "x.safetensors")
    gguf = save_gguf(build("llama"), foreign_tokenizer_folder, tmp_path / "tiny.gguf")
    wanted = open_model(folder)
    ids = torch.tensor([wanted.tokenizer.encode("the small seed grows under a blue stone")])
    for path in (pickles, lone, lone.parent, gguf):
        opened = open_model(path)
        assert torch.equal(opened.losses(ids), wanted.losses(ids)), path
        assert opened.tokenizer.encode("the small seed grows under a blue stone") == ids[0].tolist()
        assert opened.tokenizer.eos_id == wanted.tokenizer.eos_id == 1
        assert opened.max_length == LENGTH == reads(path)


def test_one_length_for_all(run, foreign_folder):
    paths = [foreign_folder("llama"), run]
    assert LENGTH != 32
    assert [common_length(paths, None, default) for default in (8, 1024)] == [8, min(LENGTH, 32)]
    assert common_length(paths, 7, 512) == 7
    with pytest.raises(InputError, match=f"--length {LENGTH + 33}: .* reads at most {LENGTH} tokens"):
        common_length(paths, LENGTH + 33, 512)


def test_what_predicts_no_next_token_is_refused(tmp_path, foreign_tokenizer_folder):
    two = transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=VOCAB, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4)
    )
    encoder = transformers.BertForMaskedLM(transformers.BertConfig(**SMALL))
    vision = transformers.ViTModel(
        transformers.ViTConfig(
            image_size=8, patch_size=4, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4
        )
    )
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(5)
    for name, model, message in (
        ("t5", two, "an encoder with a decoder"),
        ("bert", encoder, r"BertLMHeadModel sees later tokens too"),
        ("vit", vision, "ViTModel does not predict the next token"),
    ):
        folder = tmp_path / name
        model.save_pretrained(folder)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(foreign_tokenizer_folder / file, folder / file)
        with pytest.raises(InputError, match=f"{name}: {message}.*; give a causal"):
            open_model(folder)
    text = transformers.Gemma3TextConfig(**GROUPED, sliding_window=8)
    transformers.Gemma3Config(text_config=text.to_dict(), vision_config={}).save_pretrained(tmp_path / "vit")
    with pytest.raises(InputError, match="vit: reads more than text"):
        open_model(tmp_path / "vit")


def test_weights_that_are_missing_or_too_many(foreign_folder, tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(foreign_folder("llama"), folder)
    build("llama").model.save_pretrained(folder)  # the body alone
    with pytest.raises(InputError, match=r"not all weights of LlamaForCausalLM are there: missing: lm_head\.weight"):
        open_model(folder)
    build("llama", num_hidden_layers=3).save_pretrained(tmp_path / "three")
    shutil.copy(tmp_path / "three" / "model.safetensors", folder / "model.safetensors")
    shutil.copy(foreign_folder("llama") / "config.json", folder / "config.json")
    with pytest.warns(UserWarning, match=r"LlamaForCausalLM does not use model\.layers\.2\."):
        open_model(folder)


def test_weights_in_int8_are_refused(foreign_folder, tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(foreign_folder("llama"), folder)
    state = load_file(folder / "model.safetensors")
    state["lm_head.weight"] = state["lm_head.weight"].to(torch.int8)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"x: not floating point: lm_head\.weight; give the checkpoint that was not"):
        open_model(folder)


def test_the_terminal_stays_quiet(foreign_folder, monkeypatch, capfd):
    """Mamba tells of libraries that it lacks when it first runs in a process; here it always does."""

    def forward(*_, **__):
        transformers.utils.logging.get_logger("transformers.mamba").warning("is not installed")
        return types.SimpleNamespace(logits=torch.zeros(2, 2, VOCAB))

    monkeypatch.setattr(transformers.MambaForCausalLM, "forward", forward)
    open_model(foreign_folder("mamba"))
    assert capfd.readouterr().err == ""


def test_ids_must_fit_the_embedding(foreign_folder, tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(foreign_folder("llama"), folder)
    build("llama", vocab_size=300).save_pretrained(folder)
    with pytest.raises(InputError, match="its tokenizer gives ids up to 319, the model has an embedding of 300 rows"):
        open_model(folder)


def test_the_end_of_text_must_have_a_row(foreign_folder, tmp_path):
    """A control token that was added behind the last row may be of no use, the end of text is not."""
    folder = shutil.copytree(foreign_folder("llama"), tmp_path / "x")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "id": VOCAB, "content": "<|more|>"})
    (folder / "tokenizer.json").write_text(json.dumps(content))
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["padded_vocab_size"]
    file.write_text(json.dumps(settings))
    model = open_model(folder)
    assert model.tokenizer.vocab_size == VOCAB + 1 and model.known.shape == (VOCAB,)
    file.write_text(json.dumps(settings | {"eos_token": "<|more|>"}))
    with pytest.raises(InputError, match=f"its tokenizer gives ids up to {VOCAB}, the model has an embedding of"):
        open_model(folder)


def test_a_model_without_a_tokenizer(tmp_path):
    build("llama").save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"has no tokenizer, .*; copy tokenizer\.json"):
        open_model(tmp_path)


def test_the_end_is_the_one_that_the_model_names(foreign_folder, tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(foreign_folder("gpt2"), folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    ended = settings.pop("eos_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    opened = open_model(folder)
    assert (opened.tokenizer.eos_token, opened.tokenizer.eos_id) == (ended, 1)
    place = opened.tokenizer.folder
    assert place != folder and place.is_dir()
    del opened
    assert not place.exists()
    model = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(model | {"eos_token_id": None}))
    with pytest.raises(InputError, match='neither tokenizer nor model names the token .*; add "eos_token"'):
        open_model(folder)


def test_a_vocabulary_without_a_tokenizer_json(foreign_folder, tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(foreign_folder("gpt2"), folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").unlink()
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    (folder / "vocab.json").write_text(json.dumps(content["model"]["vocab"] | added))
    merges = "\n".join(" ".join(pair) for pair in content["model"]["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    ends = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "tokenizer_class": "GPT2Tokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(ends))
    text = "the small seed grows under a blue stone"
    wanted = open_model(foreign_folder("gpt2")).tokenizer
    assert open_model(folder).tokenizer.encode(text) == wanted.encode(text)


def test_the_body_is_what_has_no_head(foreign_folder):
    model = open_model(foreign_folder("gpt2")).module
    assert body_of(model) is model.transformer
