"""Nothing is lost without a count: what was read is what a store holds and what its header says is not in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from prepared import make, spec_of, write_corpus

PACKINGS = ["simple", "bfd", "bfd_split", "none"]
FORMS = [(packing, form) for packing in PACKINGS for form in ("bin", "hdf5")] + [("simple", "jsonl")]


def check(header: dict[str, Any], read: int) -> None:
    groups = header["groups"]

    def total(key: str) -> int:
        return sum(group[key] for group in groups)

    trained = total("documents") - total("repeated_documents")
    encoded = trained + total("heldout_documents") + total("left_out_documents")
    assert read == sum(header["skipped"].values()) + sum(header["duplicates"].values()) + encoded
    for split, prefix in (("train", ""), ("heldout", "heldout_")):
        stream = header["streams"][split]
        assert stream["documents"] == header["records"][split] == total(f"{prefix}documents")
        assert stream["tokens"] + stream["cut_tokens"] == total(f"{prefix}tokens")


def different_tokens(header: dict[str, Any]) -> int:
    """Of all documents that were encoded, each counted once."""
    return sum(
        group["tokens"] - group["repeated_tokens"] + group["heldout_tokens"] + group["left_out_tokens"]
        for group in header["groups"]
    )


def mixtures(names: list[str]) -> list[dict[str, Any] | None]:
    """None; a domain that is not named and one beyond its share; documents that are read again."""
    shares = dict.fromkeys(names[:-1], 1.0)
    return [None, {"weights": shares}, {"weights": shares | {names[0]: 3.0}, "max_epochs": 2.5}]


def check_all(folder: Path, spec: dict[str, Any], names: list[str], read: int, forms: list[tuple[str, str]]) -> None:
    tokens = set()
    for number, mixture in enumerate(mixtures(names)):
        for packing, form in forms:
            sections = {"packing": {"strategy": packing, "seq_len": 32}, "storage": {"format": form}}
            header = make(spec | sections | {"mixture": mixture}, folder / f"{number}-{packing}-{form}")
            check(header, read)
            tokens.add(different_tokens(header))
            left_out = sum(group["left_out_documents"] for group in header["groups"])
            assert (left_out > 0) == (mixture is not None)
            repeated = sum(group["repeated_documents"] for group in header["groups"])
            assert (repeated > 0) == (number == 2)
    assert len(tokens) == 1  # whatever is made of them


@pytest.mark.usefixtures("no_flush")
def test_documents_and_tokens_are_somewhere(tokenizer, tmp_path):
    """Filters, exact and near copies, empty texts, held-out documents."""
    write_corpus(tmp_path / "corpus", 20)
    lines = [line for file in (tmp_path / "corpus").iterdir() for line in file.read_text().splitlines()]
    spec = spec_of(tmp_path / "corpus", tokenizer.folder, on_bad="skip")
    check_all(tmp_path, spec, ["part-1", "part-2", "part-10"], len(lines), FORMS)


@pytest.mark.realdata
@pytest.mark.usefixtures("no_flush")
def test_real_documents_and_tokens_are_somewhere(small_corpus, tokenizer, tmp_path):
    names, rows = ["code_python", "zh_law", "en_tech"], []
    for file in small_corpus:
        if file.stem in names:
            rows += [json.loads(line) | {"domain": file.stem} for line in file.read_text().splitlines()[:40]]
    rows += rows[::7]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sections = {"sections": [{"field": "text"}], "min_chars": 200, "on_bad": "skip"}
    sections |= {"sources": [{"path": str(tmp_path / "in.jsonl")}]}
    spec = spec_of(tmp_path, tokenizer.folder, **sections)
    check_all(tmp_path, spec, names, len(rows), [("simple", "jsonl"), ("bfd", "bin"), ("bfd_split", "hdf5")])
