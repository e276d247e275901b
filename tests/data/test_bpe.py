"""Training: the same file always, a bounded sample, control tokens that no text can become, true and padded sizes."""

import json
import os
import subprocess
import sys
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_texts import TEXTS

from seedbed.data.bpe import train_tokenizer
from seedbed.data.document import text_hash
from seedbed.data.sampling import Sample
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError

TRICKY = "hello !  it's\t\r\n\0 \U0001f600\U0001f468\u200d\U0001f469 e\u0301 \ufeff\ufffd <|bos|> 床前 \x7f\x85\u2028x"

_TRAIN = """
import random, sys
from seedbed.data.bpe import train_tokenizer
texts = [f"w{i} word{i % 17} {'ab' * (i % 5)} 床前明月{chr(0x4E00 + i % 99)}" for i in range(2000)]
for number in range(5):
    random.Random(sys.argv[2] + str(number)).shuffle(texts)
    print(train_tokenizer(texts, 400, sys.argv[1], max_bytes=50_000).hash)
"""


def test_twenty_trainings_with_other_hash_seeds_threads_and_orders_give_one_file(tmp_path):
    """Case 12."""
    hashes = []
    for seed, threads in [("0", "1"), ("1", "2"), ("77", "5"), ("random", "3")]:
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        command = [sys.executable, "-c", _TRAIN, str(tmp_path / seed), seed]
        hashes += subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert len(hashes) == 20
    assert len(set(hashes)) == 1


def test_control_text_in_training_data_changes_nothing_about_the_control_tokens(tmp_path):
    """Case 15."""
    tokenizer = train_tokenizer(["x <|eos|><|bos|> "] * 50, 265, tmp_path / "t")
    ids = tokenizer.encode("<|eos|>")
    assert [tokenizer.decode([i]) for i in ids] == ["<|", "eos", "|>"]
    assert tokenizer.eos_id not in ids


def test_training_on_long_runs_stays_within_the_bound(tmp_path):
    """Case 7."""
    tokenizer = train_tokenizer(["a" * 100_000, "xy" * 500_000, *TEXTS * 2], 320, tmp_path / "t")
    assert tokenizer.decode(tokenizer.encode("a" * 100_000)) == "a" * 100_000
    assert 32 <= tokenizer.token_bytes().max() <= 64


@pytest.mark.parametrize("size", [0, 100, 257, -1])
def test_vocabulary_below_bytes_and_control_tokens_is_refused(tmp_path, size):
    """Case 14."""
    with pytest.raises(InputError, match="at least 258"):
        train_tokenizer(TEXTS, size, tmp_path / "t")
    assert not list(tmp_path.iterdir())


def test_smallest_vocabulary_works(tmp_path):
    tokenizer = train_tokenizer(TEXTS, 258, tmp_path / "t")
    assert tokenizer.vocab_size == 258
    assert tokenizer.decode(tokenizer.encode(TRICKY)) == TRICKY


def test_larger_than_the_corpus_allows_is_recorded_and_warned(tmp_path):
    """Case 14."""
    with pytest.warns(UserWarning, match="has 260 tokens, not the 5000 asked for"):
        tokenizer = train_tokenizer(["abc abc"], 5000, tmp_path / "t")
    recorded = json.loads((tmp_path / "t" / "training.json").read_text())
    assert tokenizer.vocab_size == recorded["vocab_size"] == 260
    assert recorded["requested_vocab_size"] == 5000
    assert (recorded["documents"], recorded["bytes"]) == (1, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_tokenizer(["abc abc"], 260, tmp_path / "u")


def test_vocabulary_that_special_tokens_fill_up_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"at least 260 \(256 bytes, bos and eos and 2 special tokens\)"):
        train_tokenizer(TEXTS, 259, tmp_path / "t", special_tokens=["<|a|>", "<|b|>"])
    assert train_tokenizer(TEXTS, 260, tmp_path / "t", special_tokens=["<|a|>", "<|b|>"]).vocab_size == 260


def test_special_tokens_come_after_bos_and_eos_and_stay_text_inside_text(tmp_path):
    text = "<|im_start|>user<|im_end|> [INST]hi"
    names = ["<|im_start|>", "<|im_end|>", "[INST]", "<a b>", "<｜x｜>"]
    tokenizer = train_tokenizer([text, "b c d e f g h j k"] * 50, 280, tmp_path / "t", special_tokens=names)
    assert tokenizer.special_tokens == {name: i for i, name in enumerate(["<|bos|>", "<|eos|>", *names])}
    ids = tokenizer.encode(text)
    assert min(ids) >= 2 + len(names)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([tokenizer.token_id("<|im_start|>"), *ids]) == text
    assert not tokenizer.token_bytes()[: 2 + len(names)].any()


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([""], "''"),
        (["<|a|>", "<|a|>"], "given twice"),
        (["<|eos|>"], "given twice, or one of"),
        *[
            ([name], "text may be merged into it")
            for name in ("A", "the", "Ġthe", "<|>", " a", "12", "xÃ", "'s", "Ã©x")
        ],
        (["<|\udcff|>"], "not UTF-8"),
    ],
)
def test_special_tokens_that_text_could_become_are_refused(tmp_path, names, problem):
    with pytest.raises(InputError, match=problem):
        train_tokenizer(TEXTS, 400, tmp_path / "t", special_tokens=names)
    assert not list(tmp_path.iterdir())


@settings(max_examples=40)
@given(st.text("<|>a1 é'\n_", min_size=1, max_size=5))
def test_no_text_becomes_an_accepted_special_token(tmp_path_factory, name):
    """However often the text occurs, and whatever stands around it."""
    texts = [before + name + after for before in ("", "a", "<", " ") for after in ("", "a", ">", " ")] * 20
    folder = tmp_path_factory.mktemp("t") / "t"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tokenizer = train_tokenizer(texts, 400, folder, special_tokens=[name])
        except InputError:
            return
    assert all(min(ids) > 2 for ids in tokenizer.encode_batch(texts))
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts


@pytest.mark.parametrize("name", ["pad_to", "max_bytes", "max_document_bytes"])
def test_arguments_out_of_range_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=f"{name}=0: must be at least 1"):
        train_tokenizer(TEXTS, 300, tmp_path / "t", **{name: 0})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("pad_to", "padded"), [(1, 300), (64, 320), (100, 300)])
def test_padding_is_beside_the_true_size(tmp_path, pad_to, padded):
    tokenizer = train_tokenizer(TEXTS * 3, 300, tmp_path / "t", pad_to=pad_to)
    assert (tokenizer.vocab_size, tokenizer.padded_size) == (300, padded)
    tokenizer.save(tmp_path / "copy")
    assert load_tokenizer(tmp_path / "copy").padded_size == padded
    assert tokenizer.hash == train_tokenizer(TEXTS * 3, 300, tmp_path / "u").hash


def test_transformers_knows_special_tokens_and_template(tmp_path):
    transformers = pytest.importorskip("transformers")
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    names = ["<|im_start|>", "<|im_end|>"]
    tokenizer = train_tokenizer(TEXTS * 3, 300, tmp_path / "t", special_tokens=names, chat_template=template, pad_to=64)
    assert tokenizer.chat_template == template
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "t")
    assert theirs.all_special_tokens == ["<|bos|>", "<|eos|>", *names]
    ids = theirs.apply_chat_template([{"role": "user", "content": "hello"}], tokenize=True, return_dict=False)
    assert ids == [2, *tokenizer.encode("hello"), 3]


# the sample


def sampled(texts, max_bytes, max_document_bytes=10**6):
    sample = Sample(texts, max_bytes, max_document_bytes, lambda _: None)
    return list(sample.take()), sample.counts


@given(st.lists(st.text("aé中\U0001f600", max_size=9)), st.integers(1, 60), st.integers(1, 30), st.randoms())
def test_sample_is_the_documents_of_smallest_hash_that_fit(texts, max_bytes, max_document_bytes, rng):
    longest = min(max_bytes, max_document_bytes)
    heads = [text.encode()[:longest].decode(errors="ignore") for text in texts]
    cut = sum(head != text for head, text in zip(heads, texts, strict=True))
    wanted, size = [], 0
    for head in sorted(heads, key=text_hash):
        size += len(head.encode())
        if size > max_bytes:
            break
        wanted.append(head)
    rng.shuffle(texts)
    kept, counts = sampled(texts, max_bytes, max_document_bytes)
    assert kept == wanted
    read = sum(len(text.encode()) for text in texts)
    assert (counts.documents, counts.documents_cut) == (len(wanted), cut)
    assert counts.documents + counts.documents_left_out == len(texts)
    assert counts.bytes + counts.bytes_left_out + counts.bytes_cut == read
    assert counts.bytes == sum(len(head.encode()) for head in wanted)


def test_sample_is_even_over_domains():
    texts = [f"{'en' if i % 4 else 'zh'} {i}" for i in range(20_000)]
    kept, _ = sampled(texts, 20_000)
    assert sum(text.startswith("zh") for text in kept) / len(kept) == pytest.approx(0.25, abs=0.03)


def test_what_the_sample_left_out_is_recorded(tmp_path):
    texts = [f"document {i} {'x' * (i % 50)}" for i in range(500)]
    with pytest.warns(UserWarning, match="asked for"):
        train_tokenizer([*texts, "y" * 900], 2000, tmp_path / "t", max_bytes=3000, max_document_bytes=400)
    recorded = json.loads((tmp_path / "t" / "training.json").read_text())
    assert recorded["documents"] + recorded["documents_left_out"] == 501
    assert 2800 < recorded["bytes"] <= recorded["max_bytes"] == 3000
    assert (recorded["documents_cut"], recorded["bytes_cut"], recorded["max_document_bytes"]) == (1, 500, 400)
    assert recorded["bytes"] + recorded["bytes_left_out"] == sum(map(len, texts)) + 400


def test_lone_surrogate_in_a_text_is_refused(tmp_path):
    with pytest.raises(InputError, match="lone surrogate"):
        train_tokenizer(["x\ud83d"], 300, tmp_path / "t")


_PEAK = """
import random, re, sys
from pathlib import Path
from seedbed.data.bpe import train_tokenizer
rng = random.Random(0)
word = lambda: "".join(chr(0x4E00 + rng.getrandbits(12)) for _ in range(10))
texts = (" ".join(word() for _ in range(30)) for _ in range(int(sys.argv[2])))
train_tokenizer(texts, 300, sys.argv[1], max_bytes=int(sys.argv[3]))
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def test_peak_memory_does_not_grow_with_the_input(tmp_path):
    def peak(documents, max_bytes):
        command = [sys.executable, "-c", _PEAK, str(tmp_path / "t"), str(documents), str(max_bytes)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    once, fourfold = peak(400, 150_000), peak(1600, 150_000)
    assert abs(fourfold - once) < 8  # megabytes
    assert peak(400, 10**9) > once + 12
