import hashlib
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from sample_texts import TEXTS

from seedbed.data.bpe import train_tokenizer
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError

TRICKY = (
    "hello !  it's\t\r\n\0 \U0001f600\U0001f468\u200d\U0001f469 e\u0301 \ufeff\ufffd "
    "<|bos|> <|eos|><|eos|> 床前 \x7f\x85\u2028x"
)
PLAIN_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def test_control_tokens_first_and_sizes_true(tokenizer):
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size) == (0, 1, 300)
    raw = (tokenizer.folder / "tokenizer.json").read_bytes()
    assert tokenizer.hash == hashlib.sha256(raw).hexdigest()


def test_tricky_text_round_trips(tokenizer):
    """Case 13."""
    assert tokenizer.decode(tokenizer.encode(TRICKY)) == TRICKY


@given(PLAIN_TEXT)
def test_any_text_round_trips_and_bytes_add_up(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.token_bytes()[ids].sum() == len(text.encode("utf-8"))
    assert not {tokenizer.bos_id, tokenizer.eos_id} & set(ids)


def test_control_text_inside_a_document_stays_text(tokenizer):
    """Case 15."""
    for text in ("<|eos|>", "a<|bos|>b", " <|eos|> <|eos|>"):
        assert tokenizer.eos_id not in tokenizer.encode(text)
        assert tokenizer.bos_id not in tokenizer.encode(text)


def test_control_text_in_training_data_changes_nothing_about_the_control_tokens(tmp_path):
    """Case 15."""
    tokenizer = train_tokenizer(["x <|eos|><|bos|> "] * 50, 265, tmp_path / "t")
    ids = tokenizer.encode("<|eos|>")
    assert tokenizer.decode(ids) == "<|eos|>"
    assert tokenizer.eos_id not in ids


def test_batch_equals_single(tokenizer):
    assert tokenizer.encode_batch([*TEXTS, ""]) == [*(tokenizer.encode(text) for text in TEXTS), []]


def test_token_bytes(tokenizer):
    lengths = tokenizer.token_bytes()
    assert lengths.dtype == np.uint16
    assert lengths.shape == (300,)
    assert lengths[0] == lengths[1] == 0
    assert sorted(lengths[2:258]) == [1] * 256
    assert lengths[258:].min() >= 2


_TRAIN = """
import sys
from pathlib import Path
from seedbed.data.bpe import train_tokenizer
texts = [f"w{i} word{i % 17} {'ab' * (i % 5)}" for i in range(3000)]
print(train_tokenizer(texts, 400, sys.argv[1]).hash)
"""


def test_same_file_under_other_hash_seeds_and_thread_counts(tmp_path):
    """Case 12."""
    hashes = set()
    for run, (seed, threads) in enumerate([("0", "1"), ("1", "2"), ("77", "5"), ("random", "3")]):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        command = [sys.executable, "-c", _TRAIN, str(tmp_path / str(run))]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        hashes.add(result.stdout)
    assert len(hashes) == 1


@pytest.mark.parametrize("unit", ["a", "\u4e2d", " ", "!", "\n", "a1"])
def test_long_runs_are_cut_into_bounded_pieces(tokenizer, unit):
    """Case 7: the pieces that merging sees do not grow with the run, so time stays linear."""
    backend = tokenizers.Tokenizer.from_file(str(tokenizer.folder / "tokenizer.json"))
    text = unit * 20_000
    pieces = backend.pre_tokenizer.pre_tokenize_str(text)  # pyright: ignore[reportOptionalMemberAccess]
    assert max(end - start for _, (start, end) in pieces) <= 2 * 64 + 1
    assert sum(end - start for _, (start, end) in pieces) == len(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


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


def test_transformers_loads_the_folder(tokenizer):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tokenizer.folder)
    assert (theirs.bos_token_id, theirs.eos_token_id, len(theirs)) == (0, 1, 300)
    for text in (*TEXTS, "hello !  , it 's"):
        assert theirs(text)["input_ids"] == tokenizer.encode(text)
        assert theirs.decode(tokenizer.encode(text)) == text


def test_lone_surrogate_is_refused_in_one_line(tokenizer):
    with pytest.raises(InputError, match="lone surrogate"):
        tokenizer.encode("x\ud83d")


def test_saved_copy_is_the_same_tokenizer(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "copy")
    assert load_tokenizer(tmp_path / "copy").hash == tokenizer.hash


def damaged(tokenizer, folder, name, content):
    tokenizer.save(folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}"])
def test_folder_without_a_valid_tokenizer_is_refused(tokenizer, tmp_path, name, content):
    with pytest.raises(InputError, match=str(tmp_path)):
        load_tokenizer(damaged(tokenizer, tmp_path / "t", name, content))


def test_missing_folder_and_unknown_bos_are_refused(tokenizer, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        load_tokenizer(tmp_path / "none")
    for bos in (None, "<s>"):
        config = json.dumps({"bos_token": bos, "eos_token": "<|eos|>"})
        with pytest.raises(InputError, match="bos_token is"):
            load_tokenizer(damaged(tokenizer, tmp_path / "t", "tokenizer_config.json", config))


@pytest.mark.parametrize("change", ["normalizer", "prefix space"])
def test_lossy_foreign_tokenizer_is_refused(tokenizer, tmp_path, change):
    tokenizer.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    if change == "normalizer":
        content["normalizer"] = {"type": "NFC"}
    else:
        content["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match="not a lossless"):
        load_tokenizer(tmp_path)


def test_truncation_and_padding_of_a_foreign_file_are_switched_off(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.enable_truncation(3)
    backend.enable_padding(length=500)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])


@pytest.mark.realdata
def test_real_text_of_ten_domains_round_trips(small_corpus, tmp_path):
    from seedbed.data.sources import read_documents

    texts = [document.text for document in read_documents(small_corpus)][::6]
    tokenizer = train_tokenizer(texts, 2000, tmp_path / "t")
    lengths = tokenizer.token_bytes()
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert tokenizer.decode(ids) == text
        assert lengths[ids].sum() == len(text.encode("utf-8"))
