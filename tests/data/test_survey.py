"""What is counted from the index of a store equals what is counted from the texts."""

from collections import Counter

import pytest
from stores import Text, make_store

from seedbed.data import survey as module
from seedbed.data.look import look_at_bin
from seedbed.data.store import Store
from seedbed.data.survey import survey

TEXTS = [f"{'word ' * (1 + 7 * i % 40)}number {i}" for i in range(60)] + ["a " * 400]
PACKINGS = [
    {"strategy": "simple"}, {"strategy": "bfd"}, {"strategy": "bfd_split"}, {"strategy": "none"},
]  # fmt: skip


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda packing: packing["strategy"])
def test_lengths_fill_and_groups(packing, tokenizer, tmp_path, monkeypatch):
    """Also over several shards, in blocks of a few segments."""
    monkeypatch.setattr(module, "BLOCK_SEGMENTS", 7)
    texts = [Text(str(i), text, "heldout" if i % 5 == 0 else "train") for i, text in enumerate(TEXTS)]
    storage = {"shard_tokens": 256}
    header = make_store(texts, tokenizer, tmp_path / "s", 32, packing=packing, storage=storage)
    store = Store(tmp_path / "s")
    assert len(header["streams"]["train"]["shards"]) > 2
    for split in ("train", "heldout"):
        found, part = survey(tmp_path / "s", split, header), store.split(split)
        lengths = [len(tokenizer.encode(text.text)) + 2 for text in texts if text.split == split]
        levels = Counter(length.bit_length() - 1 for length in lengths)
        assert found["lengths"] == [levels[level] for level in range(max(levels) + 1)]
        bins = [look_at_bin(part, number, tokenizer, header["groups"]) for number in range(len(part))]
        fill = Counter(one.tokens * 10 // 32 for one in bins)
        assert found["fill"] == [fill[tenth] for tenth in range(11)]
        (group,) = found["groups"]
        assert group == {key: header["streams"][split][key] for key in ("tokens", "cut_tokens")}
        assert sum(lengths) == group["tokens"] + group["cut_tokens"]


def test_groups_are_told_apart(tokenizer, tmp_path):
    """Tokens of each domain, as the header has them where nothing was cut off."""
    from seedbed.data.prepare import prepare
    from seedbed.data.spec import spec_from

    for domain, texts in (("prose", ["one two three", "four"]), ("verse", ["five six " * 9])):
        (tmp_path / f"{domain}.txt").write_text("\n".join(texts))
    sources = [{"path": str(tmp_path / f"{domain}.txt"), "domain": domain} for domain in ("prose", "verse")]
    spec = spec_from({"sources": sources, "tokenizer": str(tokenizer.folder), "heldout": 0}, "test")
    header = prepare(spec, tmp_path / "s", workers=1)
    found = survey(tmp_path / "s", "train", header)
    assert [group["domain"] for group in header["groups"]] == ["prose", "verse"]
    assert [group["tokens"] for group in found["groups"]] == [group["tokens"] for group in header["groups"]]
    assert survey(tmp_path / "s", "heldout", header)["lengths"] == []
