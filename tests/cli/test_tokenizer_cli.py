"""`seedbed tokenizer`, as a person calls it."""

import gzip
import json
import re

import pytest

from seedbed.data.tokenizer import load_tokenizer

ENGLISH = ["the cat sat on the mat", "the dog sat on the log", "more words, more words"]
CHINESE = ["床前明月光，疑是地上霜。", "举头望明月，低头思故乡。"]


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "a.jsonl"
    rows = [{"text": text, "domain": "prose", "lang": "en"} for text in ENGLISH]
    rows += [{"text": text, "domain": "verse", "lang": "zh"} for text in CHINESE]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '\n{"text": ""}\n')
    return file


def test_training_prints_what_it_made_and_left_out(seedbed, corpus, tmp_path):
    train = ("tokenizer", "train", corpus, "--vocab-size", 262, "--max-bytes", 60, "--max-document-bytes", 20)
    code, out, _ = seedbed(*train, "-o", tmp_path / "t", "--json")
    trained = json.loads(out)
    assert code == 0
    assert (trained["vocab_size"], trained["documents"] + trained["documents_left_out"]) == (262, 5)
    assert trained["bytes"] <= 60
    assert trained["hash"] == load_tokenizer(tmp_path / "t").hash
    assert trained["skipped"] == {"blank line": 1, "empty text": 1}
    _, out, _ = seedbed(*train, "-o", tmp_path / "u")
    assert f"left out, above 60 bytes in all: {trained['documents_left_out']} documents" in out
    assert f"cut at 20 bytes: 5 documents, by {trained['bytes_cut']} bytes" in out
    assert "1 × empty text" in out


def test_true_vocabulary_is_warned_about_on_stderr(seedbed, corpus, tmp_path):
    """Case 14."""
    code, out, err = seedbed("tokenizer", "train", corpus, "--vocab-size", 9000, "-o", tmp_path / "t", "--json")
    trained = json.loads(out)
    assert (code, trained["requested_vocab_size"]) == (0, 9000)
    assert trained["vocab_size"] < 9000
    assert f"warning: the vocabulary has {trained['vocab_size']} tokens" in err


def test_special_tokens_template_and_padding(seedbed, corpus, tmp_path):
    code, out, _ = seedbed(
        "tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t", "--pad-to", 64,
        "--special-token", "<|im_start|>", "--special-token", "<|im_end|>", "--chat-template", "chatml",
    )  # fmt: skip
    assert code == 0
    assert "262 tokens (models round up to 320)" in out
    tokenizer = load_tokenizer(tmp_path / "t")
    assert tokenizer.special_tokens == {"<|bos|>": 0, "<|eos|>": 1, "<|im_start|>": 2, "<|im_end|>": 3}
    assert tokenizer.padded_size == 320
    assert "<|im_start|>" in (tokenizer.chat_template or "")
    (tmp_path / "mine.jinja").write_text("{{ messages }}")
    template = ("--chat-template", tmp_path / "mine.jinja")
    assert seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "u", *template)[0] == 0
    assert load_tokenizer(tmp_path / "u").chat_template == "{{ messages }}"


def test_any_source_and_field_is_read(seedbed, tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("the cat sat on the mat the cat sat")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"body": "the cat sat"}\n'))
    for source, arguments in (("texts", ()), ("b.jsonl.gz", ("--field", "body"))):
        out = tmp_path / f"{source}-t"
        code, _, err = seedbed("tokenizer", "train", tmp_path / source, "--vocab-size", 258, "-o", out, *arguments)
        assert (code, load_tokenizer(out).vocab_size) == (0, 258), err


def test_report_by_domain_and_language(seedbed, corpus, tmp_path):
    seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    code, out, _ = seedbed("tokenizer", "report", tmp_path / "t", corpus, "--json")
    found = json.loads(out)
    tokenizer = load_tokenizer(tmp_path / "t")
    assert code == 0
    assert [(row["domain"], row["lang"], row["documents"]) for row in found["rows"]] == [
        ("prose", "en", 3),
        ("verse", "zh", 2),
    ]
    tokens = sum(map(len, tokenizer.encode_batch(CHINESE)))
    assert found["rows"][1]["tokens"] == tokens
    assert found["rows"][1]["bytes_per_token"] == sum(len(text.encode()) for text in CHINESE) / tokens
    assert found["total"]["documents"] == 5
    assert found["skipped"] == {"blank line": 1, "empty text": 1}
    code, out, _ = seedbed("tokenizer", "report", tmp_path / "t", corpus)
    assert code == 0
    assert re.search(r"domain\s+lang\s+documents\s+bytes\s+characters\s+tokens\s+bytes/token\s+chars/token", out)
    assert re.search(r"total\s+5\s", out)


def test_import(seedbed, corpus, tmp_path):
    pytest.importorskip("transformers")
    seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    code, out, _ = seedbed("tokenizer", "import", tmp_path / "t", "-o", tmp_path / "u", "--json")
    imported = json.loads(out)
    assert (code, imported["vocab_size"], imported["eos_token"], imported["lossless"]) == (0, 262, "<|eos|>", True)
    text = "the cat 床前"
    assert load_tokenizer(tmp_path / "u").encode(text) == load_tokenizer(tmp_path / "t").encode(text)
    code, out, _ = seedbed("tokenizer", "import", tmp_path / "t", "-o", tmp_path / "v")
    assert "vocab_size 262" in out


def test_every_wrong_option_exits_2_with_one_line_and_changes_nothing(seedbed, corpus, tmp_path):
    seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    (tmp_path / "bad.jsonl").write_text('{"content": "x"}\n')
    (tmp_path / "bad.jinja").write_text("{% if %}")
    (tmp_path / "empty.jsonl").write_text('{"text": " "}\n')
    before = sorted(tmp_path.rglob("*"))
    train = ("tokenizer", "train", corpus, "--vocab-size", 300, "-o", tmp_path / "u")
    made = ("tokenizer", "train", "--vocab-size", 300, "-o", tmp_path / "u")
    for arguments, problem in (
        ((*train, "--special-token", ""), "special token '': text may be merged"),
        ((*train, "--special-token", "the"), "special token 'the'"),
        ((*train, "--special-token", "<|eos|>"), "given twice"),
        ((*train, "--pad-to", 0), "pad_to=0: must be at least 1"),
        ((*train, "--pad-to", 99999999999), "pad_to=99999999999: must be at most 65536"),
        ((*train, "--max-bytes", -5), "max_bytes=-5"),
        ((*train, "--max-document-bytes", 0), "max_document_bytes=0"),
        ((*train, "--chat-template", "chatmll"), "--chat-template chatmll: neither chatml nor a file"),
        ((*train, "--chat-template", "chatml"), "writes <|im_start|>, <|im_end|>, which are no tokens"),
        ((*train, "--chat-template", tmp_path / "bad.jinja"), "chat_template: line 1: not valid Jinja"),
        ((*train, "--field", "txt"), "no field 'txt'"),
        ((*train, "--field", ""), "field"),
        ((*made, tmp_path / "bad.jsonl"), "bad.jsonl:1: no field 'text'"),
        ((*made, tmp_path / "bad.jsonl", "--on-bad", "skip"), "no document left (1 × no field 'text')"),
        ((*made, tmp_path / "empty.jsonl"), "no document left (1 × empty text)"),
        ((*made, tmp_path / "none.jsonl"), "none.jsonl"),
        ((*made, corpus, corpus), "given twice"),
        (("tokenizer", "train", corpus, "--vocab-size", 9, "-o", tmp_path / "u"), "at least 258"),
        (("tokenizer", "train", corpus, "--vocab-size", 10**11, "-o", tmp_path / "u"), "must be at most 16777216"),
        (("tokenizer", "train", corpus, "--vocab-size", 300, "-o", tmp_path / "t"), "exists already"),
        (("tokenizer", "report", tmp_path / "none", corpus), "no such folder"),
        (("tokenizer", "report", tmp_path, corpus), "not a tokenizer folder"),
        (("tokenizer", "report", tmp_path / "t", tmp_path / "empty.jsonl"), "no document left"),
        (("tokenizer", "report", tmp_path / "t", corpus, "--field", "x"), "no field 'x'"),
        (("tokenizer", "import", tmp_path / "none", "-o", tmp_path / "u"), "neither a folder here nor"),
        (("tokenizer", "import", tmp_path / "t", "-o", tmp_path / "t"), "exists already"),
        (("tokenizer", "import", tmp_path / "t", "-o", tmp_path / "t", "--overwrite"), "holds the input"),
    ):
        code, out, err = seedbed(*arguments)
        assert (code, out) == (2, ""), arguments
        assert problem in err
        assert err.count("\n") == 1, err
        assert sorted(tmp_path.rglob("*")) == before
    for arguments in ((*train, "--pad-to", "many"), (*train, "--on-bad", "ignore"), (*train, "--specialtoken", "x")):
        assert seedbed(*arguments)[0] == 2
        assert sorted(tmp_path.rglob("*")) == before
