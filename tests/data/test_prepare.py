"""One store whatever makes it; what a change or damage has redone, and what stays."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from fsspec.implementations.local import LocalFileSystem
from prepared import FILES, content, make, redone, spec_of, units, without_keys

from seedbed.data.pipeline import run
from seedbed.data.store import Store
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import folder_damage
from seedbed.files.lock import folder_lock


@pytest.fixture(scope="module", autouse=True)
def nothing_is_flushed():
    with mock.patch("seedbed.files.atomic.sync"), mock.patch("seedbed.data.prepare.sync"):
        yield


@pytest.fixture(scope="module")
def corpus(mixed_corpus) -> Path:
    return mixed_corpus


@pytest.fixture(scope="module")
def store(corpus, tokenizer) -> Path:
    """A store with the files of its stages; tests copy it."""
    make(spec_of(corpus, tokenizer.folder), corpus.parent / "store", keep_work=True)
    return corpus.parent / "store"


@pytest.fixture
def copied(store, tmp_path) -> Path:
    return shutil.copytree(store, tmp_path / "store")


def test_the_corpus_meets_every_stage(store):
    header = Store(store).header
    assert header["duplicates"] == {"exact": 4, "near": 2}
    assert sum(header["skipped"].values()) == 6
    assert len(header["streams"]["train"]["shards"]) > 1
    places = [json.loads(line)["where"].rpartition("/")[2] for line in (store / "rejects.jsonl").open()]
    assert places == [f"part-{number}.jsonl:{line}" for number in FILES for line in (6, 7)]


@pytest.mark.parametrize("how", ["two workers", "another hash seed", "another order of names"])
def test_the_same_bytes_however_it_is_made(how, store, corpus, tokenizer, tmp_path, monkeypatch):
    spec, made = spec_of(corpus, tokenizer.folder), tmp_path / "store"
    if how == "another hash seed":
        script = f"from prepared import *; make({spec!r}, Path({str(made)!r}))"
        environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    else:
        if how == "another order of names":
            ls = LocalFileSystem.ls
            monkeypatch.setattr(LocalFileSystem, "ls", lambda *a, **k: sorted(ls(*a, **k), key=str, reverse=True))
        make(spec, made, workers=2 if how == "two workers" else 1)
    assert content(made) == content(store)


def test_the_size_of_pieces_changes_nothing_but_the_keys_of_units(store, corpus, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("seedbed.data.steps.PIECE_BYTES", 1000)
    monkeypatch.setattr("seedbed.data.steps.BATCH_BYTES", 300)
    make(spec_of(corpus, tokenizer.folder), tmp_path / "store", keep_work=True)
    assert len(units(tmp_path / "store")) > 2 * len(units(store))
    mine, other = without_keys(tmp_path / "store"), without_keys(store)
    assert mine == other
    assert "train/00001/tokens.bin" in mine


def other_eos(folder: Path, to: Path) -> str:
    """A tokenizer with the same tokens, of which another one ends documents."""
    shutil.copytree(folder, to)
    (to / "commit.json").unlink()
    config = json.loads((to / "tokenizer_config.json").read_text())
    config["eos_token"] = config["bos_token"]
    (to / "tokenizer_config.json").write_text(json.dumps(config))
    return str(to)


ENCODE, WRITE = {"encode", "plan", "train", "heldout"}, {"train", "heldout"}
EVERYTHING = {"clean", "sign", "copies", *ENCODE}
CHANGES = {
    "mask rule": ({"sections": [{"field": "prompt"}, {"field": "text"}]}, EVERYTHING),
    "filter": ({"filters": {}}, EVERYTHING),
    "filter without effect": ({"filters": {"char_repetition": {"n": 10, "max_share": 0.6}}}, {"clean"}),
    "threshold": ({"dedup": {"exact": True, "near": {"threshold": 1.0}}}, {"copies", *ENCODE}),
    "alarm": ({"dedup": {"exact": True, "near": {}, "alarm": 0.01}}, {"copies"}),
    "n-grams": ({"dedup": {"exact": True, "near": {"ngram": 2}}}, {"sign", "copies"}),
    "held out": ({"heldout": 0.5}, {"plan", *WRITE}),
    "packing": ({"packing": {"strategy": "simple", "seq_len": 32}}, {"plan", *WRITE}),
    "form": ({"storage": {"shard_tokens": 1500, "format": "hdf5"}}, WRITE),
    "type": ({"storage": {"shard_tokens": 1500, "dtype": "uint32"}}, ENCODE),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_redoes_what_depends_on_it_and_nothing_else(change, copied, corpus, tokenizer, tmp_path):
    changes, stages = CHANGES[change]
    spec, before = spec_of(corpus, tokenizer.folder, **changes), units(copied)
    with pytest.raises(InputError, match="another request"):
        make(spec, copied)
    make(spec, copied, overwrite=True, keep_work=True)
    assert stages_of(redone(before, units(copied))) == stages
    make(spec, tmp_path / "fresh")
    assert content(copied) == content(tmp_path / "fresh")
    assert folder_damage(copied) is None


def stages_of(names: set[str]) -> set[str]:
    return {Path(name).parts[Path(name).parts[0] == "work"] for name in names}


def test_another_tokenizer_or_end_of_text_redoes_encoding(copied, corpus, tokenizer: Tokenizer, tmp_path):
    spec, before = spec_of(corpus, Path(other_eos(tokenizer.folder, tmp_path / "other"))), units(copied)
    make(spec, copied, overwrite=True, keep_work=True)
    assert stages_of(redone(before, units(copied))) == ENCODE
    make(spec, tmp_path / "fresh")
    assert content(copied) == content(tmp_path / "fresh")


def test_another_template_redoes_encoding(corpus, tokenizer, tmp_path):
    template = tmp_path / "template"
    sections = [{"field": "prompt", "action": "by_role", "answer": "text"}]
    spec = spec_of(corpus, tokenizer.folder, sections=sections, chat_template=str(template), on_bad="skip")
    for text in ("{{ m.content }}", "{{ m.role }}: {{ m.content }}"):
        generation = f"{{% generation %}}{text}{{% endgeneration %}}"
        template.write_text(f"{{% for m in messages %}}{generation}{{% endfor %}}")
        before = units(tmp_path / "store") if (tmp_path / "store").exists() else {}
        make(spec, tmp_path / "store", overwrite=True, keep_work=True)
    assert stages_of(redone(before, units(tmp_path / "store"))) == ENCODE


def test_another_content_of_a_file_redoes_its_units(copied, corpus, tokenizer, tmp_path):
    """Of the same name, size and time of change to the second."""
    mine = shutil.copytree(corpus, tmp_path / "corpus")
    spec = spec_of(mine, tokenizer.folder)
    make(spec, tmp_path / "mine", keep_work=True)
    file, before = mine / "part-2.jsonl", units(tmp_path / "mine")
    state = file.stat()
    text = file.read_text()
    file.write_text(text.replace("2 0?", "2 O?", 1))
    assert file.read_text() != text
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    make(spec, tmp_path / "mine", keep_work=True, overwrite=True)
    done = redone(before, units(tmp_path / "mine"))
    assert {name for name in done if name.startswith(("work/clean", "work/sign", "work/encode"))} == {
        f"work/{stage}/00001" for stage in ("clean", "sign", "encode")
    }
    make(spec, tmp_path / "fresh")
    assert content(tmp_path / "mine") == content(tmp_path / "fresh")


def cut(shard: Path) -> None:
    os.truncate(shard / "tokens.bin", (shard / "tokens.bin").stat().st_size - 3)


def flip(file: Path) -> None:
    raw = file.read_bytes()
    file.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut by 3 bytes": lambda store: cut(store / "train" / "00001"),
    "a byte flipped": lambda store: flip(store / "train" / "00001" / "tokens.bin"),
    "index flipped": lambda store: flip(store / "train" / "00001" / "segments.bin"),
    "a shard deleted": lambda store: shutil.rmtree(store / "train" / "00001"),
    "a shard's list deleted": lambda store: (store / "train" / "00001" / "commit.json").unlink(),
    "header deleted": lambda store: (store / "header.json").unlink(),
    "header damaged": lambda store: flip(store / "header.json"),
    "list deleted": lambda store: (store / "commit.json").unlink(),
    "list damaged": lambda store: flip(store / "commit.json"),
    "tokenizer deleted": lambda store: shutil.rmtree(store / "tokenizer"),
    "rejects damaged": lambda store: flip(store / "rejects.jsonl"),
    "copies deleted": lambda store: (store / "duplicates.jsonl").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_prepare_repairs_damage_and_keeps_the_other_shards(damage, copied, corpus, tokenizer, store):
    shutil.rmtree(copied / "work")
    DAMAGE[damage](copied)
    assert folder_damage(copied) is not None
    before = units(copied)
    make(spec_of(corpus, tokenizer.folder), copied)
    shard = {"train/00001"} if damage in list(DAMAGE)[:5] else set()
    assert redone(before, units(copied)) == shard
    assert content(copied) == content(store)
    assert not (copied / "work").exists()


def test_a_whole_store_is_left_alone(copied, corpus, tokenizer):
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*") if "work" not in path.parts}
    with mock.patch("seedbed.data.prepare.run", side_effect=AssertionError):
        make(spec_of(corpus, tokenizer.folder), copied)
    del before[copied / ".lock"]
    assert {path: path.stat().st_mtime_ns for path in before if path != copied} == {
        path: when for path, when in before.items() if path != copied
    }


def test_what_killed_writers_left_anywhere_is_gone(copied, corpus, tokenizer, store):
    """Also what a machine wrote of which nothing is known, and shards that nobody wants."""
    (copied / "header.json").unlink()
    for place in ("train", "heldout", "tokenizer", "train/00000"):
        (copied / place / ".partial-elsewhere-7-x").mkdir()
    (copied / ".partial-elsewhere-7-header.json").touch()
    (copied / "train" / "00099").mkdir()
    (copied / "train" / "00099" / "tokens.bin").touch()
    (copied / "train" / "chosen").mkdir()
    make(spec_of(corpus, tokenizer.folder), copied)
    assert content(copied) == content(store)
    assert [path for path in copied.rglob("*") if path.name.startswith(".partial-")] == []
    assert not (copied / "train" / "chosen").exists()


def test_what_a_worker_leaves_that_is_killed_on_the_way_is_gone(corpus, tokenizer, tmp_path):
    """Another worker of a cluster finished its unit; the store is committed without the left-over."""
    left = tmp_path / "store" / "train" / "00000" / ".partial-elsewhere-7-00000"
    with mock.patch("seedbed.data.prepare.run", side_effect=lambda *a: (run(*a), left.mkdir())[0]):
        make(spec_of(corpus, tokenizer.folder), tmp_path / "store")
    assert not left.exists()


def test_a_second_writer_is_refused(copied, corpus, tokenizer):
    before = content(copied)
    with folder_lock(copied), pytest.raises(InputError, match="in use by process"):
        make(spec_of(corpus, tokenizer.folder, heldout=0.5), copied, overwrite=True)
    assert content(copied) == before


def test_a_bad_record_leaves_the_store_that_was_to_be_replaced(copied, corpus, tokenizer, tmp_path):
    before = content(copied)
    bad = shutil.copytree(corpus, tmp_path / "bad")
    with open(bad / "part-10.jsonl", "a") as file:
        file.write('{"prompt": "x"}\n')
    with pytest.raises(InputError, match=r"part-10.jsonl:17: .*'text'"):
        make(spec_of(bad, tokenizer.folder), copied, overwrite=True)
    assert content(copied) == before
    Store(copied)


def test_more_pieces_than_files_may_be_open(corpus, tokenizer, tmp_path, monkeypatch):
    """A shard takes from all pieces at once."""
    monkeypatch.setattr("seedbed.data.steps.PIECE_BYTES", 1)
    one = {"shard_tokens": 10**8}
    forms = [{"storage": one}, {"packing": {"strategy": "simple", "seq_len": 32}, "storage": {"format": "jsonl"} | one}]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir("/proc/self/fd")}
    free = [number for number in range(1000) if number not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[24], hard))
    try:
        for number, form in enumerate(forms):
            make(spec_of(corpus, tokenizer.folder, **form), tmp_path / str(number), keep_work=True)
            assert len(list((tmp_path / str(number) / "work" / "encode").iterdir())) > 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_preparing_does_not_import_torch():
    script = "import sys, seedbed.data.prepare, seedbed.data.pipeline; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


MEASURED = """
import json, resource, sys
from pathlib import Path
from prepared import make
spec, out = json.loads(sys.argv[1]), Path(sys.argv[2])
if __name__ == "__main__":
    make(spec, out, workers=2)
    print([resource.getrusage(who).ru_maxrss * 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)])
"""


@pytest.mark.slow
def test_memory_is_that_of_pieces_and_of_numbers_for_each_document(tokenizer, tmp_path):
    """Peaks at 1x and 4x of the same short documents, in bytes: of the main process, and of the largest worker."""
    (tmp_path / "measured.py").write_text(MEASURED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    peaks = {}
    for times in (1, 4):
        corpus = tmp_path / f"corpus{times}"
        corpus.mkdir()
        for number in range(times):
            lines = (json.dumps({"text": f"{number} {i} the same short text {i * 7919}"}) for i in range(50_000))
            (corpus / f"{number}.jsonl").write_text("\n".join(lines))
        spec = spec_of(corpus, tokenizer.folder, sections=[{"field": "text"}], dedup={"exact": True}, filters={})
        spec |= {"sources": [str(corpus / f"{i}.jsonl") for i in range(times)], "storage": {"shard_tokens": 1_000_000}}
        command = [sys.executable, tmp_path / "measured.py", json.dumps(spec), tmp_path / f"store{times}"]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        peaks[times] = json.loads(done.stdout)
    main, worker = ((peaks[4][who] - peaks[1][who]) / 150_000 for who in (0, 1))
    assert main < 300
    assert worker < 100
