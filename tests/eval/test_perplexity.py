"""Bits per byte and perplexity: by an independent script, by hand, in any batch, strided and cut, byte by byte."""

import json
import math
from pathlib import Path

import pytest
import torch
from foreign import VOCAB, build
from hypothesis import given
from hypothesis import strategies as st
from tiny import quiet, sentences

from seedbed.data.texts import Text, Texts, read_texts
from seedbed.errors import InputError
from seedbed.eval.perplexity import BITS, NATS, PERPLEXITY, perplexity, told, windows
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel, open_model

transformers = pytest.importorskip("transformers")
EMOJI = "床前明月光，疑是地上霜。 \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 é e\u0301 \ufffd"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    records = [{"text": text, "domain": f"d{n % 2}", "lang": "en"} for n, text in enumerate(sentences(9, seed=4))]
    records += [{"text": EMOJI, "domain": "d0", "lang": "zh"}, {"text": ""}]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def run(model, texts, length=32, stride=None, **options):
    parts = options.pop("parts", Parts(None, 0))
    return perplexity(model, texts, length, stride, parts, quiet, **options)


def by_metric(found, subset="all"):
    return {one.score.metric: one for one in found[0] if one.score.subset == subset}


@pytest.mark.parametrize("stride", [None, 20])
def test_an_independent_script_of_transformers_agrees(foreign_folder, data, stride):
    folder = foreign_folder("llama")
    found = by_metric(
        run(open_model(folder), read_texts([data], open_model(folder).tokenizer, 10**9 if stride else 32), 32, stride)
    )
    # the script: nothing of seedbed
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    nats = tokens = 0
    for line in data.read_text().splitlines():
        ids = tokenizer(json.loads(line)["text"], return_tensors="pt").input_ids
        seen = 0
        for begin in range(0, ids.shape[1] if stride else 1, stride or 1):
            window = ids[:, begin : begin + 32]
            end, new = begin + window.shape[1], begin + window.shape[1] - max(seen, 1)
            if new > 0:
                with torch.no_grad():
                    logits = model(window).logits[0, :-1].double()
                losses = -logits.log_softmax(1).gather(1, window[0, 1:, None])[-new:]
                nats, tokens, seen = nats + losses.sum().item(), tokens + new, end
    assert found[NATS].score.value == pytest.approx(nats / tokens, rel=1e-6)
    assert found[PERPLEXITY].score.value == pytest.approx(math.exp(nats / tokens), rel=1e-5)
    assert sum(found[NATS].items.weights) == tokens


def test_a_uniform_model_by_hand(foreign_folder):
    """Each of the vocabulary's tokens has the same probability, whatever the text."""
    opened = open_model(foreign_folder("gpt2"))
    module = build("gpt2", n_positions=128)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    model = LanguageModel("uniform", module, opened.tokenizer, 128)
    texts = Texts([text("a", "stone"), text("b", EMOJI)])
    for number, one in enumerate(texts.texts):
        ids = model.tokenizer.encode(one.text)
        texts.texts[number] = one._replace(ids=[0, *ids])
    model.tokenizer.start = [0]  # a begin of text, so that all of it is predicted
    found, reading = run(model, texts, 128)
    tokens = sum(len(one.ids) - 1 for one in texts.texts)
    raw = len(b"stone") + len(EMOJI.encode())
    scores = by_metric((found, reading))
    assert (reading.tokens, reading.bytes) == (tokens, raw)
    assert scores[NATS].score.value == pytest.approx(math.log(VOCAB), rel=1e-6)
    assert scores[NATS].score.stderr == pytest.approx(0, abs=1e-6)
    assert scores[BITS].score.value == pytest.approx(tokens * math.log2(VOCAB) / raw, rel=1e-6)


def text(name: str, content: str) -> Text:
    return Text(name, "", "", content, [], 0)


@pytest.mark.parametrize("family", ["llama", "bloom"])
@pytest.mark.parametrize("stride", [None, 7])
def test_batches_and_padding_change_nothing(foreign_folder, data, family, stride):
    model = open_model(foreign_folder(family))
    texts = read_texts([data], model.tokenizer, 10**9)
    alone, together = (run(model, texts, 24, stride, batch_tokens=n)[0] for n in (1, 400))
    for one, other in zip(alone, together, strict=True):
        assert one.score.value == pytest.approx(other.score.value, rel=1e-6)
        assert one.items.ids == other.items.ids
        assert one.items.values == pytest.approx(other.items.values, rel=1e-5)


def test_groups_are_of_their_documents(foreign_folder, data):
    model = open_model(foreign_folder("llama"))
    found = run(model, read_texts([data], model.tokenizer, 32))
    subsets = list(dict.fromkeys(one.score.subset for one in found[0]))
    assert subsets == ["all", "domain: d0", "domain: d1", "language: en", "language: zh"]
    whole, parts = by_metric(found)[BITS], [by_metric(found, f"domain: d{n}")[BITS] for n in (0, 1)]
    assert [one.score.items for one in (whole, *parts)] == [10, 6, 4]
    weights = [sum(one.items.weights) for one in parts]
    assert sum(weights) == sum(whole.items.weights)
    mean = sum(w * one.score.value for w, one in zip(weights, parts, strict=True)) / sum(weights)
    assert mean == pytest.approx(whole.score.value, rel=1e-12)
    assert by_metric(found, "language: zh")[BITS].score.stderr is None  # of one document


def test_what_is_left_off_is_counted(foreign_folder, data):
    model = open_model(foreign_folder("llama"))
    texts = read_texts([data], model.tokenizer, 10**9)
    lengths = [len(one.ids) for one in texts.texts]
    reading = run(model, texts, 16)[1]
    more = [n - 16 for n in lengths if n > 16]
    assert (reading.cut_documents, reading.cut_tokens) == (len(more), sum(more)) == (8, 183)
    assert (reading.documents, reading.tokens, reading.windows) == (10, sum(lengths) - sum(more) - 10, 10)
    assert reading.skipped == {"empty text": 1}
    assert "Left off: 183 tokens of 8 documents." in told(reading)
    assert run(model, read_texts([data], model.tokenizer, 16), 16)[1] == reading  # cut by whoever reads
    strided = run(model, texts, 16, 8)[1]
    assert (strided.cut_documents, strided.cut_tokens, strided.tokens) == (0, 0, sum(lengths) - 10)
    assert "after at least 8 others" in told(strided)[0]


def test_bytes_are_those_of_the_text_that_is_predicted(foreign_folder, data):
    model = open_model(foreign_folder("llama"))
    texts = read_texts([data], model.tokenizer, 10**9)
    assert model.tokenizer.start == []
    raw = sum(len(one.text.encode()) for one in texts.texts)
    first = sum(len(model.tokenizer.decode(one.ids[:1]).encode()) for one in texts.texts[:-1]) + 1  # a byte of 床
    found, reading = run(model, texts, 64, 32)
    assert reading.bytes == raw - first
    assert sum(by_metric((found, reading))[BITS].items.weights) == reading.bytes
    assert "no begin of text" in reading.remarks[0]


@pytest.mark.parametrize(
    ("n", "length", "stride", "expected"),
    [
        (5, 8, None, [(0, 5, 4)]),
        (20, 8, None, [(0, 8, 7)]),
        (8, 8, 3, [(0, 8, 7)]),
        (9, 8, 3, [(0, 8, 7), (3, 9, 1)]),
        (20, 8, 4, [(0, 8, 7), (4, 12, 4), (8, 16, 4), (12, 20, 4)]),
        (12, 8, 7, [(0, 8, 7), (7, 12, 4)]),
    ],
)
def test_windows(n, length, stride, expected):
    assert windows(n, length, stride) == expected


@given(st.integers(2, 200), st.integers(2, 40), st.integers(1, 39))
def test_windows_predict_each_token_once(n, length, stride):
    stride = min(stride, length - 1)
    seen = [place for _, end, counted in windows(n, length, stride) for place in range(end - counted, end)]
    assert seen == list(range(1, n))
    for begin, end, counted in windows(n, length, stride)[1:]:
        assert end - begin <= length
        assert end - counted - begin >= length - stride


def test_strides_that_leave_tokens_out_are_refused(foreign_folder, data):
    model = open_model(foreign_folder("llama"))
    texts = read_texts([data], model.tokenizer, 10**9)
    with pytest.raises(InputError, match="--stride 16: give 1 to 15"):
        run(model, texts, 16, 16)


def test_a_loss_that_is_not_finite_names_the_document(foreign_folder, data):
    model = open_model(foreign_folder("llama"))
    texts = read_texts([data], model.tokenizer, 32)
    with torch.no_grad():
        model.module.model.layers[0].mlp.up_proj.weight[0] = math.nan
    with pytest.raises(InputError, match=r"not finite on .*texts\.jsonl"):
        run(model, texts)


def test_an_interrupted_reading_goes_on(foreign_folder, data, tmp_path):
    model = open_model(foreign_folder("llama"))
    texts = read_texts([data], model.tokenizer, 32)
    whole = run(model, texts, batch_tokens=64)

    def stop(said):
        if said.startswith("batch 4"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perplexity(model, texts, 32, None, Parts(tmp_path, "key"), stop, batch_tokens=64)
    kept = Parts(tmp_path, "key")
    assert len(kept) == 3
    assert run(model, texts, parts=kept, batch_tokens=64) == whole
