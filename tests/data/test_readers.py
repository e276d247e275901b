"""One batch, whatever the store is made of: flat files, HDF5, or texts that are encoded when they are read."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_texts import TEXTS

from seedbed.data.prepare import prepare
from seedbed.data.readers import LazyTokens
from seedbed.data.spec import spec_from
from seedbed.data.split import IGNORED, Split
from seedbed.data.store import Store
from seedbed.errors import InputError

pytestmark = pytest.mark.usefixtures("no_flush")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(lambda text: text.strip())
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}\n"
    "{% endfor %}"
)
SECTIONS = {
    "text": [{"field": "text"}],
    "masked": [{"field": "prompt", "action": "mask"}, {"field": "text"}],
    "chat": [{"field": "prompt", "action": "by_role", "answer": "text"}],
}


def stores(folder: Path, records, tokenizer, forms, packing, shard_tokens=10**8, sections="text", **spec):
    """The same store in each of the forms."""
    (folder / "in.jsonl").write_text(
        "".join(json.dumps({"split": None} | record) + "\n" for record in records), encoding="utf-8"
    )
    (folder / "template").write_text(TEMPLATE)
    tree = {"sources": [{"path": str(folder / "in.jsonl"), "split_field": "split"}], "tokenizer": str(tokenizer.folder)}
    tree |= {"packing": packing, "sections": SECTIONS[sections]} | spec
    if sections == "chat":
        tree["chat_template"] = str(folder / "template")
    for form in forms:
        storage = {"format": form, "shard_tokens": shard_tokens}
        prepare(spec_from(tree | {"storage": storage}, "test"), folder / form, workers=1)
    return [Store(folder / form) for form in forms]


def check_same(splits: list[Split]) -> None:
    first, *others = splits
    batch = first.windows(range(len(first)))
    for other in others:
        assert len(other) == len(first)
        backwards = range(len(other))[::-1]  # no reader depends on what it read before
        for wanted, got in zip(batch, other.windows(backwards), strict=True):
            assert torch.equal(wanted.flip(0), got)


@st.composite
def requests(draw: st.DrawFn):
    strategy = draw(st.sampled_from(["simple", "simple", "simple", "bfd", "bfd_split", "none"]))
    kinds = st.sampled_from(["none", "doc_reset", "continuous"])
    packing = {"strategy": strategy, "seq_len": draw(st.integers(4, 40)), "position_ids": draw(kinds)}
    records = draw(
        st.lists(
            st.builds(lambda a, b, d: {"prompt": a, "text": b, "domain": d}, TEXT, TEXT, st.sampled_from("xy")),
            min_size=1,
            max_size=6,
        )
    )
    records[0]["split"] = "train"
    more: dict[str, Any] = {"heldout": draw(st.sampled_from([0.0, 0.4]))}
    if draw(st.booleans()):
        more["mixture"] = {"weights": {records[0]["domain"]: 1}, "max_epochs": 2.5}
    shard_tokens, sections = draw(st.integers(20, 400)), draw(st.sampled_from(list(SECTIONS)))
    return records, packing, shard_tokens, sections, more


@settings(deadline=None, max_examples=20)
@given(requests(), st.integers(1, 600))
def test_same_batches_from_every_form(tokenizer, request_, piece_bytes):
    """Masks and chats, shards that begin inside a document, documents that are read twice, many pieces."""
    records, packing, shard_tokens, sections, more = request_
    forms = ["bin", "hdf5", *(["jsonl"] if packing["strategy"] == "simple" else [])]
    with TemporaryDirectory() as name, mock.patch("seedbed.data.steps.PIECE_BYTES", piece_bytes):
        made = stores(Path(name), records, tokenizer, forms, packing, shard_tokens, sections, **more)
        for side in ("train", "heldout"):
            check_same([store.split(side) for store in made])
            counts = [store.header["streams"][side] for store in made]
            for other in counts:
                for key in counts[0].keys() - {"shards"}:
                    assert counts[0][key] == other[key]
            split = made[-1].split(side)
            targets = split.windows(range(len(split))).targets
            assert counts[0]["predicted"] == int((targets != IGNORED).sum())


LONG = [{"prompt": TEXTS[i % 4], "text": TEXTS[(i + 1) % 4] * (1 + i % 5), "split": "train"} for i in range(12)]


@pytest.fixture(scope="module", params=["text", "masked", "chat"])
def long_store(tokenizer, tmp_path_factory, request) -> Store:
    """Texts that are encoded when they are read, in shards of 2 bins, most of which begin inside a document."""
    folder = tmp_path_factory.mktemp(request.param)
    packing = {"seq_len": 32}
    flat, lazy = stores(folder, LONG, tokenizer, ["bin", "jsonl"], packing, 64, request.param)
    check_same([flat.split("train"), lazy.split("train")])
    return lazy


def test_a_lazy_shard_has_its_documents_once_each(long_store):
    """Also one that began in the shard before; and nothing but them."""
    shards = sorted((long_store.path / "train").iterdir())
    begins_inside = 0
    assert len(shards) == -(-long_store.header["streams"]["train"]["bins"] // 2) > 20
    for number, shard in enumerate(shards):
        starts = np.fromfile(shard / "starts.bin", "<i8")
        lines = (shard / "documents.jsonl").read_bytes().splitlines(keepends=True)
        assert len(starts) == len(lines)
        assert np.fromfile(shard / "lines.bin", "<i8").tolist() == [sum(map(len, lines[:i])) for i in range(len(lines))]
        assert (np.diff(starts) > 0).all()
        begins_inside += starts[0] < 0
        assert (starts[0] < 0) == (np.fromfile(shard / "segments.bin", "<u4")[1] > 0) or number == 0
    assert begins_inside > 10


@pytest.mark.parametrize("kept", [0, 40, 400])
def test_few_tokens_are_remembered(long_store, monkeypatch, kept):
    """And what is forgotten is encoded again."""
    monkeypatch.setattr("seedbed.data.readers.KEPT_TOKENS", kept)
    opened = Store(long_store.path)
    check_same([long_store.split("train"), opened.split("train")])
    readers = [shard.tokens for shard in opened.split("train")._shards]
    remembered = [reader._remembered for reader in readers if isinstance(reader, LazyTokens)]
    assert len(remembered) == len(readers)
    assert all(one is remembered[0] for one in remembered)  # the bound is the store's, whatever its shards
    tokens = sum(len(encoded.ids) for encoded in remembered[0]._found.values())
    assert tokens == remembered[0]._tokens <= kept


def test_a_long_document_is_encoded_once_for_all_its_bins(tokenizer, tmp_path, monkeypatch):
    records = [{"text": TEXTS[i % 4] * 4, "split": "train"} for i in range(300)]
    (store,) = stores(tmp_path, records, tokenizer, ["jsonl"], {"seq_len": 16})
    encoded, encode = [], LazyTokens._encode
    monkeypatch.setattr(LazyTokens, "_encode", lambda self, line: encoded.append(line) or encode(self, line))
    split = Store(store.path).split("train")
    for _ in range(2):
        split.windows(np.arange(len(split))[::-1])
        split.windows(np.arange(0, len(split), 7))
    assert sorted(encoded) == list(range(300))


def test_the_fingerprint_of_texts_follows_their_template(tokenizer, tmp_path):
    """The same texts under another template are other tokens."""
    prints = []
    for template in (TEMPLATE, TEMPLATE.replace("m.role", "m.role | upper")):
        folder = tmp_path / str(len(prints))
        folder.mkdir()
        with mock.patch(f"{__name__}.TEMPLATE", template):
            (store,) = stores(folder, LONG, tokenizer, ["jsonl"], {"seq_len": 64}, sections="chat")
        prints.append(store.split("train").fingerprint)
    assert prints[0] != prints[1]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b"hello hello", b"hello_=#@!~", r"train/00000: damaged: \d+ tokens in a bin of 32"),
        (b'"', b"7", r"train/00000: document \d+: damaged"),
        (b"[[", b"{}", r"train/00000: document \d+: damaged"),
        (b"true", b"tru\xff", r"train/00000: document \d+: damaged"),
    ],
)
def test_damaged_texts_name_shard_and_document(tokenizer, tmp_path, old, new, problem):
    """Texts are not hashed on opening; damage is met where it is read."""
    (store,) = stores(tmp_path, LONG, tokenizer, ["jsonl"], {"seq_len": 32})
    file = store.path / "train" / "00000" / "documents.jsonl"
    raw = file.read_bytes()
    assert old in raw
    file.write_bytes(raw.replace(old, new))
    split = Store(store.path).split("train")
    with pytest.raises(InputError, match=problem) as caught:
        split.windows(range(len(split)))
    assert str(caught.value).endswith("make the store again with `seedbed data prepare`")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["noise", "name", "chunks"])
def test_a_damaged_hdf5_file_is_refused_by_name(tokenizer, tmp_path, damage):
    (store,) = stores(tmp_path, LONG, tokenizer, ["hdf5"], {"seq_len": 32})
    file = store.path / "train" / "00000" / "tokens.h5"
    size = file.stat().st_size
    if damage == "chunks":  # rewritten by somebody, to the same size
        with h5py.File(file, "w") as out:
            out.create_dataset("tokens", data=np.zeros(size // 4, "<u2"), compression="gzip")
        file.write_bytes(file.read_bytes().ljust(size, b"\0"))
    else:
        file.write_bytes(b"\x5a" * size if damage == "noise" else file.read_bytes().replace(b"tokens", b"nekots"))
    with pytest.raises(InputError, match=r"train/00000/tokens\.h5: damaged \(.*\); make the store again") as caught:
        Store(store.path)
    assert "\n" not in str(caught.value)


def test_hdf5_bytes_are_the_same_whenever_they_are_written(tokenizer, tmp_path):
    """No time, no address, no order of a dictionary."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        stores(tmp_path / name, LONG, tokenizer, ["hdf5"], {"seq_len": 32}, sections="masked")
    a, b = (tmp_path / name / "hdf5" / "train" / "00000" / "tokens.h5" for name in "ab")
    assert a.read_bytes() == b.read_bytes()
    with h5py.File(a) as file:
        assert sorted(file) == ["tokens", "trained"]
        assert file["tokens"].dtype == np.dtype("<u2")  # pyright: ignore


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("form", ["bin", "hdf5"])
def test_processes_that_were_started_apart_share_one_copy(tokenizer, tmp_path, form):
    (store,) = stores(tmp_path, LONG * 20, tokenizer, [form], {"seq_len": 32}, sections="masked")
    code = r"""
import json, re, sys
from pathlib import Path
from seedbed.data.store import Store
split = Store(sys.argv[1]).split("train")
split.windows(range(len(split)))
maps = re.split("\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text())
sizes = [re.findall(r"(Rss|Private_Clean|Private_Dirty): +(\d+) kB", one) for one in maps if "/tokens." in one]
print(json.dumps([{name: int(size) for name, size in one} for one in sizes]))
sys.stdin.read()
"""

    def process() -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", code, str(store.path)]
        return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with process() as first:
        assert first.stdout is not None
        first.stdout.readline()  # it has read them, and holds them
        with process() as second:
            found = json.loads(second.communicate()[0])
        first.communicate()
    assert sum(one["Rss"] for one in found) > 0
    assert all(one["Private_Clean"] == one["Private_Dirty"] == 0 for one in found)


@pytest.mark.parametrize("strategy", ["bfd", "bfd_split", "none"])
def test_lazy_texts_are_refused_where_bins_need_lengths(tokenizer, tmp_path, strategy):
    with pytest.raises(InputError, match=r"storage\.format: jsonl .*only packing\.strategy simple"):
        stores(tmp_path, LONG, tokenizer, ["jsonl"], {"strategy": strategy, "seq_len": 32})
    assert not (tmp_path / "jsonl").exists()


def test_records_that_are_left_out_leave_no_trace(tokenizer, tmp_path):
    """Copies between other documents: the store is the one of the documents that stay."""
    rows = [row | {"domain": "ab"[number % 2], "text": f"{number} {row['text']}"} for number, row in enumerate(LONG)]
    found = []
    for name, records in (("once", rows), ("twice", [rows[0], *rows[:3], rows[1], *rows[3:], rows[5]])):
        (tmp_path / name).mkdir()
        made = stores(tmp_path / name, records, tokenizer, ["bin", "jsonl"], {"seq_len": 32}, dedup={"exact": True})
        check_same([store.split("train") for store in made])
        for store in made:
            stream = store.header["streams"]["train"]
            counts = {key: value for key, value in stream.items() if key != "shards"}
            found.append((store.split("train").fingerprint, counts, store.header["groups"]))
        assert made[0].header["duplicates"]["exact"] == len(records) - len(rows)
    assert found[:2] == found[2:]
