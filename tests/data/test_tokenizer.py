import hashlib
import json
import re

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from sample_texts import TEXTS

from seedbed.data.bpe import train_tokenizer
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError
from seedbed.files.jsonl import read_jsonl

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


def test_batch_equals_single(tokenizer):
    assert tokenizer.encode_batch([*TEXTS, ""]) == [*(tokenizer.encode(text) for text in TEXTS), []]


def test_token_bytes(tokenizer):
    lengths = tokenizer.token_bytes()
    assert lengths.dtype == np.uint16
    assert lengths.shape == (300,)
    assert lengths[0] == lengths[1] == 0
    assert sorted(lengths[2:258]) == [1] * 256
    assert lengths[258:].min() >= 2


@pytest.mark.parametrize("unit", ["a", "\u4e2d", " ", "!", "\n", "a1"])
def test_long_runs_are_cut_into_bounded_pieces(tokenizer, unit):
    """Case 7: the pieces that merging sees do not grow with the run, so time stays linear."""
    backend = tokenizers.Tokenizer.from_file(str(tokenizer.folder / "tokenizer.json"))
    text = unit * 20_000
    pieces = backend.pre_tokenizer.pre_tokenize_str(text)  # pyright: ignore[reportOptionalMemberAccess]
    assert max(end - start for _, (start, end) in pieces) <= 2 * 64 + 1
    assert sum(end - start for _, (start, end) in pieces) == len(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


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


@pytest.mark.parametrize(
    ("vocab", "added", "problem"),
    [
        ({"hello": 5}, None, "'$' and 'hello' have the same id, 5"),
        ({"hello": 2**24}, None, "the id of 'hello' is 16777216, above 16777215"),
        ({}, {"id": 5, "content": "<|x|>"}, "'$' and '<|x|>' have the same id, 5"),
        ({}, {"id": 1, "content": "<|x|>"}, "'<|eos|>' and '<|x|>' have the same id, 1"),
    ],
)
def test_ids_that_no_tokenizer_has_are_refused(tokenizer, tmp_path, vocab, added, problem):
    content = json.loads((tokenizer.folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"] |= vocab
    content["added_tokens"] += [content["added_tokens"][0] | added] if added else []
    with pytest.raises(InputError, match=re.escape(problem)):
        load_tokenizer(damaged(tokenizer, tmp_path, "tokenizer.json", json.dumps(content)))


def test_vocabulary_without_a_token_is_refused(tokenizer, tmp_path):
    empty = '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'
    with pytest.raises(InputError, match="holds no token"):
        load_tokenizer(damaged(tokenizer, tmp_path, "tokenizer.json", empty))


def test_change_to_a_folder_made_here_is_noticed(tmp_path):
    made = train_tokenizer(TEXTS, 262, tmp_path / "t")
    content = (made.folder / "tokenizer.json").read_bytes()
    (made.folder / "tokenizer.json").write_bytes(content.replace(b"1.0", b"1.1", 1))
    with pytest.raises(InputError, match=re.escape("the content of tokenizer.json changed")) as error:
        load_tokenizer(made.folder)
    assert "remove commit.json" in str(error.value)


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        load_tokenizer(tmp_path / "none")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"bos_token": "<s>"}, "bos_token is '<s>'; name a token"),
        ({"bos_token": 7}, "bos_token is 7"),
        ({"eos_token": {"content": "</s>"}}, "eos_token is '</s>'"),
        ({"eos_token": None}, 'no eos_token; add "eos_token"'),
        ({"padded_vocab_size": 299}, "padded_vocab_size is 299; the vocabulary has 300 ids"),
        ({"padded_vocab_size": 300 + 2**16}, "padded_vocab_size is 65836; the vocabulary has 300 ids, and fewer than"),
        ({"padded_vocab_size": 320.0}, "padded_vocab_size is 320.0"),
        ({"padded_vocab_size": True}, "padded_vocab_size is True"),
        ({"chat_template": {"a": 1}}, "chat_template is no text"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tokenizer, tmp_path, changes, problem):
    config = json.loads((tokenizer.folder / "tokenizer_config.json").read_text()) | changes
    with pytest.raises(InputError, match=re.escape(problem)):
        load_tokenizer(damaged(tokenizer, tmp_path, "tokenizer_config.json", json.dumps(config)))


def test_begin_of_text_is_optional_and_names_may_stand_in_the_special_tokens_map(tokenizer, tmp_path):
    damaged(tokenizer, tmp_path, "tokenizer_config.json", '{"sep_token": {"content": "<|bos|>"}}')
    loaded = load_tokenizer(tmp_path)
    assert (loaded.bos_token, loaded.bos_id, loaded.eos_token, loaded.eos_id) == (None, None, "<|bos|>", 0)
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<|eos|>", "bos_token": {"content": "<|bos|>"}}')
    load_tokenizer(tmp_path).save(tmp_path / "copy")
    for folder in (tmp_path, tmp_path / "copy"):
        loaded = load_tokenizer(folder)
        assert (loaded.bos_token, loaded.bos_id, loaded.eos_token, loaded.eos_id) == ("<|bos|>", 0, "<|eos|>", 1)


def test_chat_template_of_a_file_goes_before_that_of_the_settings(tokenizer, tmp_path):
    config = json.loads((tokenizer.folder / "tokenizer_config.json").read_text())
    several = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    for template in ("b", several):
        content = json.dumps(config | {"chat_template": template})
        damaged(tokenizer, tmp_path / "t", "tokenizer_config.json", content)
        assert load_tokenizer(tmp_path / "t").chat_template == "b"
    (tmp_path / "t" / "chat_template.jinja").write_text("c")
    load_tokenizer(tmp_path / "t").save(tmp_path / "copy")
    assert load_tokenizer(tmp_path / "copy").chat_template == "c"
    assert tokenizer.chat_template is None


def test_ids_by_name(tokenizer):
    assert tokenizer.special_tokens == {"<|bos|>": 0, "<|eos|>": 1}
    assert (tokenizer.token_id("<|eos|>"), tokenizer.token_id("<|x|>")) == (1, None)
    assert tokenizer.known().tolist() == [True] * 300
    assert tokenizer.lossless


def test_truncation_and_padding_of_a_foreign_file_are_switched_off(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.enable_truncation(3)
    backend.enable_padding(length=500)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])


@pytest.mark.realdata
def test_real_text_of_ten_domains_round_trips(small_corpus, tmp_path):
    texts = [record["text"] for file in small_corpus for _, record in read_jsonl(file)][::6]
    tokenizer = train_tokenizer(texts, 2000, tmp_path / "t")
    lengths = tokenizer.token_bytes()
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert tokenizer.decode(ids) == text
        assert lengths[ids].sum() == len(text.encode("utf-8"))
