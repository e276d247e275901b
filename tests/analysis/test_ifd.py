"""IFD and loss ratio of models whose probabilities are known."""

import json
import math
from collections import Counter

import pytest
import torch
from torch import nn

from seedbed.analysis import ifd
from seedbed.analysis.exchanges import Exchange, Exchanges
from seedbed.analysis.ifd import analyze
from seedbed.config.model import ModelConfig
from seedbed.data import batching
from seedbed.data.bpe import train_tokenizer
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel
from seedbed.model import Decoder
from seedbed.report.ifd_rows import values_of

V = 300


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_tokenizer(["a b c"], 258, tmp_path_factory.mktemp("t") / "tokenizer")


class Known(nn.Module):
    """A model of the Transformers kind: the next token is ``right`` with probability ``after[token]``, the others share
    the rest.
    """

    def __init__(self, after: dict[int, float], right: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        table = torch.full((V, V), 1 / V)
        for token, p in after.items():
            table[token] = (1 - p) / (V - 1)
            table[token, right] = p
        self.table = table.log()

    def forward(self, input_ids, use_cache, attention_mask=None):
        return type("Output", (), {"logits": self.table[input_ids]})


def known(tokenizer, after, right=5, name="known") -> LanguageModel:
    return LanguageModel(name, Known(after, right), tokenizer, 100)


def exchanges(*pairs) -> Exchanges:
    found = [Exchange(f"r{i}", f"a.jsonl:{i}", "ask", "say", *pair) for i, pair in enumerate(pairs, start=1)]
    return Exchanges(found, "none", Counter(), [])


def run(checkpoint, base, found, parts=None, tell=lambda _: None, tokens=2048):
    return analyze(checkpoint, base, found, Parts(None, "") if parts is None else parts, tell, tokens)


def test_ifd_and_ratio_by_hand(tokenizer):
    bos = tokenizer.bos_id
    # the response 5 5: its first token after 9 (the instruction's last) or bos, its second after 5
    found = exchanges(([bos, 8, 9], [5, 5]))
    before = known(tokenizer, {9: 1 / 4, bos: 1 / 16, 5: 1 / 4}, name="before")
    after = known(tokenizer, {9: 1 / 2, bos: 1 / 8, 5: 1 / 2}, name="after")
    (row,) = run(after, before, found).rows
    assert (row.instruction_tokens, row.response_tokens) == (3, 2)
    two = math.log(2)
    assert row.base is not None
    assert row.base.conditional == pytest.approx((2 + 2) / 2 * two, rel=1e-6)
    assert row.base.unconditional == pytest.approx((4 + 2) / 2 * two, rel=1e-6)
    assert row.base.ifd == pytest.approx(4 / 6, rel=1e-6)
    assert row.checkpoint.conditional == pytest.approx((1 + 1) / 2 * two, rel=1e-6)
    assert row.checkpoint.ifd == pytest.approx(2 / 4, rel=1e-6)
    assert row.ratio == pytest.approx(1 / 2, rel=1e-6)
    assert row.unconditional_ratio == pytest.approx(4 / 6, rel=1e-6)


def test_without_a_begin_of_text_the_first_response_token_counts_in_neither(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "bos_id", None)
    monkeypatch.setattr(tokenizer, "bos_token", None)
    model = known(tokenizer, {9: 1 / 1024, 5: 1 / 4})
    result = run(model, None, exchanges(([8, 9], [5, 5, 5])))
    (row,) = result.rows
    assert (row.response_tokens, result.begins, result.begin_opens_turns) == (2, "", False)
    assert row.checkpoint.conditional == pytest.approx(2 * math.log(2), rel=1e-6)
    assert row.checkpoint.ifd == 1.0


@pytest.mark.parametrize(
    ("template", "opens"), [(None, False), ("{{ bos_token }}{{ messages }}", False), ("<|bos|>user", True)]
)
def test_behind_a_begin_of_text_that_opens_turns_no_response_stands(template, opens, tokenizer, monkeypatch):
    assert tokenizer.bos_token == "<|bos|>"
    monkeypatch.setattr(tokenizer, "chat_template", template)
    model = known(tokenizer, {tokenizer.bos_id: 1 / 1024, 9: 1 / 64, 5: 1 / 4})  # 10, 6 and 2 bits
    result = run(model, None, exchanges(([tokenizer.bos_id, 9], [5, 5, 5])))
    (row,) = result.rows
    assert (row.response_tokens, result.begins, result.begin_opens_turns) == (3 - opens, "<|bos|>", opens)
    conditional, unconditional = (2, 2) if opens else ((6 + 2 + 2) / 3, (10 + 2 + 2) / 3)
    assert row.checkpoint.conditional == pytest.approx(conditional * math.log(2), rel=1e-6)
    assert row.checkpoint.unconditional == pytest.approx(unconditional * math.log(2), rel=1e-6)


def test_share_above_one_lengths_and_short_responses(tokenizer):
    bos = tokenizer.bos_id
    model = known(tokenizer, {9: 1 / 4, 8: 1 / 64, bos: 1 / 16, 5: 1 / 4})
    helped, hindered = ([bos, 9], [5] * 30), ([bos, 7, 7, 8], [5] * 10)
    result = run(model, None, exchanges(helped, hindered, ([bos, 9], [5] * 21)))
    assert [row.checkpoint.ifd < 1 for row in result.rows] == [True, False, True]
    found = {row.responses: row.summary for row in result.summaries if row.measure == "checkpoint.ifd"}
    assert {name: one.n for name, one in found.items()} == {"all": 3, "longer": 2, "short": 1}
    assert found["all"].above_one == pytest.approx(1 / 3)
    assert found["longer"].above_one == 0.0 and found["short"].above_one == 1.0
    # 60 of 62 nats/ln 2 at 30 tokens, 24 of 22 at 10, 42 of 44 at 21
    ifds = [60 / 62, 24 / 22, 42 / 44]
    assert values_of(result.rows, "checkpoint.ifd") == pytest.approx(ifds, rel=1e-6)
    by_pair = {(row.x, row.y): row.correlation for row in result.correlations if row.responses == "all"}
    x, mean = [30, 10, 21], sum(ifds) / 3
    top = sum((a - 61 / 3) * (b - mean) for a, b in zip(x, ifds, strict=True))
    below = math.sqrt(sum((a - 61 / 3) ** 2 for a in x) * sum((b - mean) ** 2 for b in ifds))
    of_length = by_pair["response_tokens", "checkpoint.ifd"]
    assert of_length.pearson == pytest.approx(top / below, rel=1e-5)
    assert of_length.spearman == pytest.approx(-0.5)  # ranks 3, 1, 2 and 2, 3, 1
    # S1's table of lengths: against both losses too
    assert by_pair["response_tokens", "checkpoint.unconditional"].spearman == pytest.approx(-1)
    assert ("instruction_tokens", "checkpoint.conditional") in by_pair
    assert {(s.place, s.row.id) for s in result.samples} >= {("lowest", "r3"), ("highest", "r2"), ("median", "r1")}


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    config = ModelConfig.model_validate(
        {"vocab_size": V, "d_model": 16, "n_layers": 2, "max_seq_len": 64, "attention": {"n_heads": 2}}
    )
    model = Decoder(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model


def random_exchanges(tokenizer, n=9) -> Exchanges:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 25, (n, 2), generator=generator).tolist()
    draw = [torch.randint(0, 256, (a + b,), generator=generator).tolist() for a, b in lengths]
    return exchanges(*(([tokenizer.bos_id, *ids[:a]], ids[a:]) for ids, (a, _) in zip(draw, lengths, strict=True)))


def numbers(result) -> list[float]:
    return [value for row in result.rows for value in (row.checkpoint.conditional, row.checkpoint.unconditional)]


def test_case_46_batches_of_one_equal_batches_of_many(tokenizer, decoder):
    model, found = LanguageModel("m", decoder, tokenizer, 64), random_exchanges(tokenizer)
    said = []
    alone = run(model, None, found, tell=said.append, tokens=1)
    assert len(said) == 2 * len(found.found)
    assert numbers(run(model, None, found, tokens=400)) == pytest.approx(numbers(alone), rel=1e-5)


def test_case_50_padding_on_the_left_changes_nothing(tokenizer, decoder, monkeypatch):
    model, found = LanguageModel("m", decoder, tokenizer, 64), random_exchanges(tokenizer)

    def on_the_left(rows, pad_id):
        padded = batching.padded(rows, pad_id)
        shifts = [int((one < 0).sum()) for one in padded.doc_ids]
        return batching.Padded(*(torch.stack([r.roll(k) for r, k in zip(x, shifts, strict=True)]) for x in padded))

    right = run(model, None, found, tokens=400)
    monkeypatch.setattr(ifd, "padded", on_the_left)
    assert numbers(run(model, None, found, tokens=400)) == pytest.approx(numbers(right), rel=1e-5)


def test_interrupted_it_goes_on(tokenizer, decoder, tmp_path):
    model, found = LanguageModel("m", decoder, tokenizer, 64), random_exchanges(tokenizer)
    whole = run(model, None, found, tokens=60)
    batches = []

    def stop_at_fourth(message):
        batches.append(message)
        if len(batches) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model, None, found, Parts(tmp_path, "key"), stop_at_fourth, 60)
    measured = []
    decoder.register_forward_hook(lambda *_: measured.append(1))
    said = []
    assert run(model, None, found, Parts(tmp_path, "key"), said.append, 60).rows == whole.rows
    assert len(measured) == len(said) - 3


def test_another_tokenizer_is_refused(tokenizer, tmp_path, decoder):
    other = train_tokenizer(["say say say ask ask"], 262, tmp_path / "other")
    found = random_exchanges(tokenizer)
    models = [LanguageModel(name, decoder, one, 64) for name, one in (("m", tokenizer), ("b", other))]
    with pytest.raises(InputError, match=r"b: reads other tokens than m \(.*\); losses a token compare"):
        run(*models, found)
    copy = json.loads((tokenizer.folder / "tokenizer.json").read_text())
    tokenizer.save(tmp_path / "copy")
    (tmp_path / "copy" / "tokenizer.json").write_text(json.dumps(copy, indent=7))  # other bytes, the same tokenizer
    same = LanguageModel("b", decoder, load_tokenizer(tmp_path / "copy"), 64)
    result = run(models[0], same, found)
    assert set(values_of(result.rows, "ratio")) == {1.0}


def test_a_broken_model_gives_no_number(tokenizer):
    model = known(tokenizer, {6: math.nan})
    with pytest.raises(InputError, match=r"known: its loss on the response of a\.jsonl:2 is no positive number"):
        run(model, None, exchanges(([tokenizer.bos_id, 9], [5, 5]), ([tokenizer.bos_id, 9], [6, 5])))


def test_one_model_under_two_names(tokenizer, decoder):
    model = LanguageModel("m", decoder, tokenizer, 64)
    result = run(model, model, random_exchanges(tokenizer))
    assert (result.checkpoint, result.base) == ("m (checkpoint)", "m (base)")
