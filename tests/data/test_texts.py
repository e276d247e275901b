"""Which texts are read, fairly of all files and domains, and what becomes of them."""

import json
from collections import Counter
from pathlib import Path

import pytest
from stores import Text as Written
from stores import make_store
from tiny import sentences

from seedbed.data.bpe import train_tokenizer
from seedbed.data.store import Store
from seedbed.data.texts import read_texts
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return train_tokenizer(sentences(200, seed=3), 300, tmp_path_factory.mktemp("texts") / "tokenizer")


def write(file: Path, texts: list[str], **fields: str) -> Path:
    file.write_text("".join(json.dumps({"text": text, **fields}) + "\n" for text in texts))
    return file


def test_a_count_is_spread_over_the_files(tmp_path, tokenizer):
    for name, size in (("a", 6), ("b", 1), ("c", 4)):
        write(tmp_path / f"{name}.jsonl", [f"{name} text {i}" for i in range(size)], lang="en")
    (tmp_path / "d").mkdir()
    for number in range(2):
        (tmp_path / "d" / f"{number}.txt").write_text(f"d text {number}\n")
    paths = [*(tmp_path / f"{name}.jsonl" for name in "abc"), tmp_path / "d"]

    def read(count):
        return [text.text.strip() for text in read_texts(paths, tokenizer, 64, count).texts]

    assert read(3) == ["a text 0", "b text 0", "c text 0"]
    wanted = ["a text 0", "a text 1", "b text 0", "c text 0", "c text 1", "d text 0", "d text 1"]
    assert read(7) == wanted  # five files: one of each, then one more of those that have it
    assert len(read(100)) == len(read(None)) == 13
    found = read_texts(paths, tokenizer, 64, 7)
    assert [text.domain for text in found.texts] == ["a", "a", "b", "c", "c", "d", "d"]
    assert [text.lang for text in found.texts] == ["en"] * 5 + [""] * 2


def test_what_is_cut_or_left_out_is_counted(tmp_path, tokenizer):
    texts = ["the small seed grows", "", " ", "blue stone river " * 9]
    found = read_texts([write(tmp_path / "a.jsonl", texts)], tokenizer, 8)
    whole = [[tokenizer.bos_id, *tokenizer.encode(text)] for text in (texts[0], texts[3])]
    assert [text.ids for text in found.texts] == [ids[:8] for ids in whole]
    assert found.skipped == {"empty text": 2}
    assert found.cut == sum(max(len(ids) - 8, 0) for ids in whole)
    assert (found.cut_texts, found.tokens) == (sum(len(ids) > 8 for ids in whole), sum(len(i[:8]) for i in whole))


def test_errors_say_what_is_there(tmp_path, tokenizer):
    file = write(tmp_path / "a.jsonl", ["the seed"], lang="en")
    with pytest.raises(InputError, match=r"a\.jsonl:1: no field 'body'; the keys there are: lang, text"):
        read_texts([file], tokenizer, 8, text_field="body")
    with pytest.raises(InputError, match=r"no text to read \(1 × empty text\)"):
        read_texts([write(tmp_path / "b.jsonl", [""])], tokenizer, 8)
    (tmp_path / "c.jsonl").write_text("")
    with pytest.raises(InputError, match=r"c\.jsonl: no text to read \(the input is empty\)"):
        read_texts([tmp_path / "c.jsonl"], tokenizer, 8)
    with pytest.raises(InputError, match="no such file or folder"):
        read_texts([tmp_path / "none"], tokenizer, 8)
    with pytest.raises(InputError, match=r"a\.jsonl: given twice"):
        read_texts([file, file], tokenizer, 8)
    with pytest.raises(InputError, match="no texts to read; name files"):
        read_texts([], tokenizer, 8)


@pytest.fixture(scope="module", params=["simple", "bfd_split"])
def store(request, tmp_path_factory, tokenizer) -> tuple[Path, dict[str, str]]:
    """A store whose held-out documents are longer than its bins, and their texts by domain."""
    from seedbed.data.prepare import prepare
    from seedbed.data.spec import spec_from

    folder = tmp_path_factory.mktemp("stores")
    texts = {name: sentences(12, seed=seed) for seed, name in enumerate(("tree", "stone"))}
    for name, of in texts.items():
        lines = [{"text": text, "lang": "en", "split": "heldout" if i % 2 else "train"} for i, text in enumerate(of)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tree = {
        "sources": [{"path": str(folder / f"{name}.jsonl"), "split_field": "split"} for name in texts],
        "tokenizer": str(tokenizer.folder),
        "packing": {"seq_len": 16, "strategy": request.param},
    }
    prepare(spec_from(tree, "test"), folder / "store", workers=1)
    return folder / "store", {text: name for name, of in texts.items() for text in of[1::2]}


def test_a_store_has_its_held_out_documents_whole(store, tokenizer):
    folder, texts = store
    found = read_texts([folder], tokenizer, 512)
    assert len(found.texts) == len(texts) and not found.cut
    assert all(text.lang == "en" for text in found.texts)
    if Store(folder).header["packing"] == "simple":
        assert {text.text: text.domain for text in found.texts} == texts
        tokens = Store(folder).header["streams"]["heldout"]["tokens"]
        assert found.tokens == tokens - len(texts)  # without the ends
        assert not found.skipped
    else:  # what does not follow on a beginning is counted
        whole = {text.text: next(known for known in texts if known.startswith(text.text)) for text in found.texts}
        assert set(whole.values()) == set(texts)
        assert [texts[whole[text.text]] for text in found.texts] == [text.domain for text in found.texts]
        assert set(found.skipped) == {"the rest of a document, packed elsewhere"}
    assert sorted(Counter(text.domain for text in read_texts([folder], tokenizer, 512, 5).texts).values()) == [2, 3]


def test_a_store_that_is_given_twice(store, tokenizer):
    folder, _ = store
    with pytest.raises(InputError, match="given twice; its documents would be read twice"):
        read_texts([folder, folder / "train" / ".."], tokenizer, 512)


def test_a_rest_is_not_put_behind_another_document(tmp_path, tokenizer):
    """The longest rest, of "seed", comes right behind the beginning of "green", and begins where that ends."""
    documents = [" ".join([word] * count) for word, count in (("seed", 24), ("stone", 30), ("green", 28))]
    written = [Written(str(i), text, "heldout") for i, text in enumerate(documents)] + [Written("t", "x", "train")]
    make_store(written, tokenizer, tmp_path / "store", seq_len=40, packing={"strategy": "bfd_split"})
    found = read_texts([tmp_path / "store"], tokenizer, 512)
    assert [len(tokenizer.encode(text)) for text in documents] == [72, 60, 56]
    assert all(whole.startswith(text.text) for whole, text in zip(documents, found.texts, strict=True))
    assert found.skipped == {"the rest of a document, packed elsewhere": 3}


def test_pieces_that_fill_bins_are_put_together(tmp_path, tokenizer):
    documents = [" ".join(["seed"] * 40), " ".join(["stone"] * 30)]
    written = [Written(str(i), text, "heldout") for i, text in enumerate(documents)] + [Written("t", "x", "train")]
    make_store(written, tokenizer, tmp_path / "store", seq_len=40, packing={"strategy": "bfd_split"})
    assert [len(tokenizer.encode(text)) for text in documents] == [120, 60]
    found = read_texts([tmp_path / "store"], tokenizer, 512)
    assert documents[0].startswith(found.texts[0].text) and len(found.texts[0].ids) == 120


def test_a_store_that_holds_nothing_out(tmp_path, tokenizer):
    texts = [Written(str(i), text, "train") for i, text in enumerate(sentences(5, seed=0))]
    make_store(texts, tokenizer, tmp_path / "store", seq_len=16, heldout=0.0)
    with pytest.raises(InputError, match="holds nothing out; prepare it with --heldout above 0"):
        read_texts([tmp_path / "store"], tokenizer, 16)
