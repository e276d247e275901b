"""Gains of one model over another: numbers by hand, one reading in any batch, and going on after an interruption."""

import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import config, quiet, sentences

from seedbed.analysis.token_rows import document_rows, group_rows, histogram, token_rows
from seedbed.analysis.tokens import analyze, check_same_tokens
from seedbed.data.bpe import train_tokenizer
from seedbed.data.texts import Text, Texts, texts_hash
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel
from seedbed.init import initialize_
from seedbed.model import Decoder

LENGTH = 32


@pytest.fixture(scope="module")
def tokenizer(tiny_store) -> Tokenizer:
    return load_tokenizer(tiny_store / "tokenizer")


@pytest.fixture(scope="module")
def models(tokenizer) -> tuple[LanguageModel, LanguageModel]:
    found = []
    for name, seed in (("small", 1), ("large", 2)):
        overrides = [f"model.vocab_size={tokenizer.vocab_size}"]
        decoder = Decoder(config(Path("none"), Path("none"), *overrides).model)
        initialize_(decoder, "normal", std=0.3, seed=seed)
        found.append(LanguageModel(name, decoder, tokenizer, LENGTH))
    return found[0], found[1]


@pytest.fixture(scope="module")
def texts(tokenizer) -> Texts:
    found = []
    for number, text in enumerate([*sentences(24, seed=5), "床前明月光，疑是地上霜。"]):
        ids = [tokenizer.bos_id, *tokenizer.encode(text)]
        domain, lang = ("verse", "zh") if number == 24 else (f"d{number % 2}", "en")
        found.append(Text(f"t{number}", domain, lang, text, ids[:LENGTH], max(len(ids) - LENGTH, 0)))
    return Texts(found)


def run(models, texts, **options):
    options = {"parts": Parts(None, 0), "tell": quiet, "show": 3} | options
    model_a, model_b = models
    return analyze(model_a, model_b, texts, LENGTH, **options)


@pytest.fixture(scope="module")
def result(models, texts):
    return run(models, texts)


def alone(model: LanguageModel, ids: list[int]) -> tuple[np.ndarray, list[int]]:
    """Losses and ranks of a text read by itself, apart from the code that is tested."""
    with torch.no_grad():
        logits = model.module(torch.tensor([ids]))[0, :-1]  # [T - 1, V]
    chosen = logits.gather(1, torch.tensor(ids[1:])[:, None])
    return (logits.logsumexp(1) - chosen[:, 0]).numpy(), ((logits > chosen).sum(1) + 1).tolist()


def test_all_tokens_are_those_of_texts_read_alone(models, texts, result):
    a, b = (np.concatenate([alone(model, text.ids)[0] for text in texts.texts]) for model in models)
    overall = result[0].overall
    assert overall.tokens == len(a) == sum(len(text.ids) - 1 for text in texts.texts)
    assert overall.loss_a == pytest.approx(a.mean(), abs=1e-5)
    assert overall.loss_b == pytest.approx(b.mean(), abs=1e-5)
    assert overall.gain.mean == pytest.approx((a - b).mean(), abs=1e-5)
    assert overall.probability_gain.mean == pytest.approx(np.tanh((a - b) / 2).mean(), abs=1e-5)
    assert overall.better == pytest.approx((a > b).mean(), abs=1e-9)
    uncut = [text for text in texts.texts if not text.cut]
    whole = replace(texts, texts=uncut)
    found = run(models, whole, show=0)[0].overall
    assert found.bytes == sum(len(text.text.encode()) for text in uncut)
    assert found.bits_per_byte_a == pytest.approx(found.loss_a * found.tokens / math.log(2) / found.bytes)


def test_shown_texts_have_losses_and_ranks_of_texts_read_alone(models, texts, result):
    by_id = {text.id: text for text in texts.texts}
    assert [text.id for text in result[1]] == ["t0", "t24", "t1"]  # a domain and language each
    for shown in result[1]:
        tokens = [token for piece in shown.pieces for token in piece.tokens]
        assert [token.id for token in tokens] == by_id[shown.id].ids
        assert tokens[0].loss_a is None
        assert tokens[0].rank_b is None
        for model, losses, ranks in (
            (models[0], [token.loss_a for token in tokens], [token.rank_a for token in tokens]),
            (models[1], [token.loss_b for token in tokens], [token.rank_b for token in tokens]),
        ):
            expected = alone(model, by_id[shown.id].ids)
            assert losses[1:] == pytest.approx(expected[0], abs=1e-5)
            assert ranks[1:] == expected[1]


def numbers(value):
    """All numbers of a result, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, float | int) else []


def test_batches_change_nothing(models, texts, result):
    small, shown = run(models, texts, batch_tokens=1)
    assert numbers(asdict(small)) == pytest.approx(numbers(asdict(result[0])), abs=2e-5)
    assert numbers([asdict(text) for text in shown]) == pytest.approx(
        numbers([asdict(text) for text in result[1]]), abs=2e-5
    )


def test_shown_texts_change_no_number(models, texts, result):
    assert numbers(asdict(run(models, texts, show=0)[0])) == pytest.approx(numbers(asdict(result[0])), abs=2e-5)


def test_exchanged_models_turn_all_signs(models, texts, result):
    back = run(models[::-1], texts)[0]
    for row, other in zip(result[0].bins, back.bins, strict=True):
        assert row.tokens == other.tokens
        assert row.gain.mean == pytest.approx(-other.gain.mean)
        assert numbers([row.gain.low]) == pytest.approx(numbers([-(other.gain.high or 0)]))
        assert row.lowest == other.lowest
    assert result[0].overall.better == pytest.approx(back.overall.worse)


def test_groups_make_up_the_whole(result):
    found = result[0]
    for rows in (found.bins, found.domains, found.languages):
        assert sum(row.tokens for row in rows) == found.overall.tokens
        total = sum(row.gain.mean * row.tokens for row in rows)
        assert total == pytest.approx(found.overall.gain.mean * found.overall.tokens)
    assert [row.name for row in found.bins] == [str(number) for number in range(1, 11)]
    assert [row.name for row in found.languages] == ["en", "zh"]
    english = found.languages[0].gain
    assert english.low is not None
    assert english.high is not None
    assert english.low < english.mean < english.high
    assert found.languages[1].gain.low is None  # of one document
    for rows in (found.gain_histogram, found.probability_gain_histogram):
        assert sum(row.tokens for row in rows) == found.overall.tokens


def test_an_interrupted_analysis_goes_on(models, texts, tmp_path, monkeypatch, result):
    read = []
    scores = LanguageModel.scores
    monkeypatch.setattr(LanguageModel, "scores", lambda *args: read.append(args[0].name) or scores(*args))

    def stop(state: str) -> None:
        if state.startswith("batch 4 "):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(models, texts, parts=Parts(tmp_path, "key"), tell=stop, batch_tokens=64)
    assert len(read) == 6
    read.clear()
    parts = Parts(tmp_path, "key")
    assert len(parts) == 3
    found = run(models, texts, parts=parts, batch_tokens=64)
    assert len(read) == 2 * (len(parts) - 3)
    assert numbers(asdict(found[0])) == pytest.approx(numbers(asdict(result[0])), abs=2e-5)


LOSS_A, LOSS_B = np.array([1.0, 2.0, 3.0, 0.5]), np.array([0.5, 2.5, 1.0, 0.5])
DOCUMENTS = np.array([0, 0, 1, 1])


def test_rows_by_hand():
    groups = {"all": (["all"], np.zeros(4, dtype=int)), "half": (["x", "y"], np.array([0, 1, 1, 0]))}
    rows = group_rows(LOSS_A, LOSS_B, DOCUMENTS, np.array([1, 2, 3, 0]), groups, seed=0)
    (everything,), (x, y) = rows["all"], rows["half"]
    assert everything.gain.mean == pytest.approx((0.5 - 0.5 + 2 + 0) / 4)
    assert everything.probability_gain.mean == pytest.approx(math.tanh(1) / 4)
    assert (everything.better, everything.worse, everything.little) == (0.5, 0.25, 0.25)
    assert (everything.documents, everything.tokens, everything.bytes) == (2, 4, 6)
    assert everything.bits_per_byte_a == pytest.approx(6.5 / (6 * math.log(2)))
    assert (everything.lowest, everything.highest) == (0.5, 2.25)
    assert (x.tokens, x.documents, x.loss_a, x.loss_b) == (2, 2, 0.75, 0.5)
    assert (y.tokens, y.gain.mean) == (2, 0.75)
    assert everything.gain.low is None


def test_a_group_without_bytes_has_no_bits_a_byte():
    rows = group_rows(LOSS_A, LOSS_B, DOCUMENTS, np.zeros(4, dtype=int), {"all": (["all"], np.zeros(4, dtype=int))}, 0)
    assert rows["all"][0].bits_per_byte_a is None and rows["all"][0].bits_per_byte_gain is None


def test_the_bits_a_byte_that_one_model_saves_have_an_interval_over_documents():
    rng = np.random.default_rng(3)
    documents, n_bytes = np.repeat(np.arange(20), 6), rng.integers(1, 9, 120)
    loss_a, loss_b = rng.exponential(2, 120), rng.exponential(2, 120)
    groups = {"all": (["all"], np.zeros(120, dtype=int)), "domain": (["x", "y"], (documents < 4).astype(int))}
    tables = group_rows(loss_a, loss_b, documents, n_bytes, groups, seed=7)
    found = tables["all"][0]
    assert found.bits_per_byte_a is not None and found.bits_per_byte_b is not None
    assert found.bits_per_byte_gain is not None
    assert found.bits_per_byte_gain.mean == pytest.approx(found.bits_per_byte_a - found.bits_per_byte_b)
    # by hand: the same draws, summed bits over summed bytes
    bits = np.bincount(documents, (loss_a - loss_b) / math.log(2))
    sizes = np.bincount(documents, n_bytes)
    draws = np.random.default_rng(7)
    drawn = [draws.integers(20, size=20) for _ in range(1000)]
    low, high = np.percentile([bits[d].sum() / sizes[d].sum() for d in drawn], [2.5, 97.5])
    assert (found.bits_per_byte_gain.low, found.bits_per_byte_gain.high) == pytest.approx((low, high))
    few = tables["domain"][1].bits_per_byte_gain
    assert few is not None and few.low is None and few.high is None


def test_documents_by_hand():
    texts = [Text("p", "d", "en", "", [0, 1, 2], 7), Text("q", "", "", "", [0, 1, 2], 0)]
    p, q = document_rows(texts, LOSS_A, LOSS_B, DOCUMENTS)
    assert (p.id, p.tokens, p.cut, p.loss_a, p.loss_b, p.gain, p.better) == ("p", 2, 7, 1.5, 1.5, 0, 0.5)
    assert (q.gain, q.probability_gain) == (1.0, pytest.approx(math.tanh(1) / 2))


def test_tokens_by_hand(tokenizer):
    ids = tokenizer.encode("a!?")
    assert len(ids) == 3
    twice = [Text("p", "", "", "a!?", [tokenizer.bos_id, *ids], 0)] * 2
    loss_a, loss_b = np.array([1.0, 2, 0, 3, 1, 0]), np.array([0.5, 2.25, 1, 1, 1.25, 1])
    documents = np.array([0, 0, 0, 1, 1, 1])
    gaining, losing = token_rows(
        loss_a, loss_b, np.array(ids * 2), twice, documents, tokenizer, tokenizer.token_bytes()
    )
    (best,) = gaining
    assert (best.id, best.token, best.count, best.total, best.gain) == (ids[0], "a", 2, 2.5, 1.25)
    assert (best.loss_a, best.loss_b) == (2.0, 0.75)
    assert (best.count, best.documents) == (2, 2)
    whole = twice[0]._replace(text="a!?" * 2, ids=[tokenizer.bos_id, *ids, *ids])
    (one,), _ = token_rows(
        loss_a, loss_b, np.array(ids * 2), [whole], np.zeros(6, dtype=int), tokenizer, tokenizer.token_bytes()
    )
    assert (one.count, one.documents) == (2, 1)
    assert [(row.id, row.count, row.total) for row in losing] == [(ids[2], 2, -2.0), (ids[1], 2, -0.5)]


def test_a_histogram_keeps_what_lies_beyond():
    rows = histogram(np.array([-9.0, -0.5, 0.2, 0.3, 4.0]), np.array([-1.0, 0.0, 1.0]))
    assert [(row.low, row.high, row.tokens) for row in rows] == [(-1, 0, 2), (0, 1, 3)]


def test_other_vocabularies_are_refused(models, tmp_path):
    other = train_tokenizer(["床前明月光" * 20, "zzz yyy"], 277, tmp_path / "other")
    with pytest.raises(InputError, match="their vocabularies differ .* give two models of one tokenizer"):
        check_same_tokens(models[0], replace(models[1], tokenizer=other))


def test_other_rules_for_one_vocabulary_are_refused(models, texts, monkeypatch):
    other = load_tokenizer(models[0].tokenizer.folder)
    other.hash = "another file"
    changed = models[0], replace(models[1], tokenizer=other)
    assert run(changed, texts)[0].overall.tokens  # the same rules in another file are fine
    monkeypatch.setattr(other, "encode", lambda text: [0, 0])
    with pytest.raises(InputError, match="cut t0 into different tokens"):
        run(changed, texts)


def test_a_model_with_too_few_outputs_is_refused(models, tokenizer):
    decoder = Decoder(config(Path("none"), Path("none"), "model.vocab_size=100").model)
    with pytest.raises(InputError, match=r"short: predicts 100 ids, fewer than the \d+ tokens"):
        check_same_tokens(models[0], LanguageModel("short", decoder, tokenizer, LENGTH))


def test_weights_that_are_not_numbers(models, texts, tmp_path):
    broken = Decoder(models[1].module.config)  # born NaN
    changed = models[0], replace(models[1], module=broken)
    parts = Parts(tmp_path, 0)
    with pytest.raises(InputError, match="large: its loss is not finite on t"):
        run(changed, texts, parts=parts)
    assert len(parts) == 0


def test_too_little_text(models, texts):
    few = Texts([text._replace(ids=text.ids[:4]) for text in texts.texts[:3]])
    with pytest.raises(InputError, match="9 predicted tokens: too few for 10 bins"):
        run(models, few)


def test_a_transformers_model_with_padded_outputs(models, texts, tokenizer):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings = transformers.GPT2Config(vocab_size=320, n_embd=16, n_layer=2, n_head=2, n_positions=LENGTH)
    theirs = LanguageModel("gpt2", transformers.GPT2LMHeadModel(settings), tokenizer, LENGTH)
    found = run((models[0], theirs), texts)[0]
    assert found.remarks == [
        f"gpt2 has {320 - tokenizer.vocab_size} outputs beyond the vocabulary; what probability they take is missing "
        "from its tokens."
    ]
    small = run((models[0], theirs), texts, batch_tokens=1)[0]
    assert numbers(asdict(small)) == pytest.approx(numbers(asdict(found)), abs=2e-5)


def test_the_hash_of_texts_tells_where_they_end(texts):
    one, two = Text("p", "", "", "", [1, 2, 3], 0), Text("q", "", "", "", [4], 0)
    moved = [one._replace(ids=[1, 2]), two._replace(ids=[3, 4])]
    assert texts_hash([one, two]) != texts_hash(moved)


def test_the_hash_of_texts_tells_domains_apart(texts):
    """They decide which texts are shown, and so what each batch, a part that may be kept, holds."""
    labelled = [text._replace(domain="x") for text in texts.texts]
    assert texts_hash(labelled) != texts_hash(texts.texts)
    assert texts_hash(texts.texts) == texts_hash(list(texts.texts))
