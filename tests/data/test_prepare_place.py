"""Where a store may be made, and what wrong input and interruptions leave there."""

import json
import os
import shutil
from pathlib import Path

import fsspec
import pytest
from sample_texts import TEXTS

from seedbed.data import prepare as prepare_module
from seedbed.data.inputs import list_inputs
from seedbed.data.prepare import prepare
from seedbed.data.spec import spec_from
from seedbed.data.stages import local_engine
from seedbed.data.store import Store
from seedbed.errors import InputError


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def make(tmp_path, tokenizer):
    """Prepare `a.jsonl` at a folder, with more of a specification."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 3))

    def call(out, overwrite=False, **more):
        tree = {"sources": [str(tmp_path / "a.jsonl")], "tokenizer": str(tokenizer.folder), "heldout": 0}
        tree["packing"] = {"seq_len": 16}
        return prepare(spec_from(tree | more, "test"), out, workers=1, overwrite=overwrite)

    return call


@pytest.fixture
def spoil(tmp_path):
    """Make the last record of `a.jsonl` a bad one."""

    def call():
        with open(tmp_path / "a.jsonl", "a") as file:
            file.write('{"txt": "a"}\n')

    return call


@pytest.mark.parametrize("place", ["new", "deep/er/new", "empty"])
def test_wrong_input_leaves_nothing_in_a_new_place(place, make, spoil, tmp_path):
    """Not even an empty folder, nor the lock file in one that was there."""
    (tmp_path / "empty").mkdir()
    spoil()
    before = sorted(tmp_path.rglob("*"))
    for problem, more in (
        ("a.jsonl:.*: no field 'text'", {}),
        ("nowhere.jsonl: no such file", {"sources": [str(tmp_path / "nowhere.jsonl")]}),
        ("no such folder", {"tokenizer": str(tmp_path / "nowhere")}),
        ("filters.datatrove.C4: unknown filter", {"filters": {"datatrove": {"C4": {}}}}),
    ):
        with pytest.raises(InputError, match=problem):
            make(tmp_path / place, **more)
        assert sorted(tmp_path.rglob("*")) == before


def test_what_was_finished_before_wrong_input_stays(make, tmp_path):
    """A domain that does not exist is known only when all is encoded, which then need not be done again."""
    with pytest.raises(InputError, match="verse"):
        make(tmp_path / "s", mixture={"weights": {"verse": 1}})
    encoded = tmp_path / "s" / "work" / "encode" / "00000"
    inode = encoded.stat().st_ino
    with pytest.raises(InputError, match="prose"):
        make(tmp_path / "s", mixture={"weights": {"prose": 1}})
    assert encoded.stat().st_ino == inode
    make(tmp_path / "s")
    make(tmp_path / "t")
    assert files_in(tmp_path / "s") == files_in(tmp_path / "t")


def test_a_store_survives_wrong_input_that_was_to_replace_it(make, spoil, tmp_path):
    make(tmp_path / "s", dedup={"exact": True})
    before = files_in(tmp_path / "s")
    spoil()
    with pytest.raises(InputError, match="no field 'text'"):
        make(tmp_path / "s", overwrite=True, packing={"seq_len": 8})
    after = files_in(tmp_path / "s")
    assert {name: after[name] for name in before} == before
    make(tmp_path / "s", overwrite=True, packing={"seq_len": 8}, on_bad="skip")
    make(tmp_path / "t", packing={"seq_len": 8}, on_bad="skip")
    assert files_in(tmp_path / "s") == files_in(tmp_path / "t")


def test_the_same_again_does_nothing_and_says_so(make, tmp_path, capsys):
    header = make(tmp_path / "s")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*") if path.name != ".lock"}
    capsys.readouterr()
    assert make(tmp_path / "s") == header
    assert (
        capsys.readouterr().err == f"{tmp_path / 's'}: is there already, whole, of the same request; nothing was done\n"
    )
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*") if path.name != ".lock"} == before


def test_an_input_that_changed_is_noticed_by_size_and_time_alone(make, tmp_path):
    """A change that keeps both is not, whatever is asked for; the same with another time is."""
    file, before = tmp_path / "a.jsonl", make(tmp_path / "s")
    time, text = file.stat().st_mtime_ns, json.dumps(TEXTS[0])
    file.write_text(file.read_text().replace(text, text.lower().swapcase()))
    os.utime(file, ns=(time, time))
    assert make(tmp_path / "s", overwrite=True) == before
    os.utime(file, ns=(time, time + 1))
    with pytest.raises(InputError, match=r"the input .*a\.jsonl changed; choose another name or pass --overwrite"):
        make(tmp_path / "s")
    assert make(tmp_path / "s", overwrite=True)["streams"] != before["streams"]
    os.utime(file, ns=(time, time))
    assert make(tmp_path / "t")["streams"] == Store(tmp_path / "s").header["streams"]


def test_options_of_sources_are_secret(tokenizer, tmp_path):
    """Keys of a file system: nothing that is written holds them, and other ones make the same store."""
    fsspec.filesystem("memory").pipe("/a.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode())
    headers = []
    for secret in ("hunter2", "hunter3"):
        tree = {"sources": [{"path": "memory://a.jsonl", "options": {"secret": secret}}], "heldout": 0}
        spec = spec_from(tree | {"tokenizer": str(tokenizer.folder), "packing": {"seq_len": 16}}, "test")
        headers.append(prepare(spec, tmp_path / "s", workers=1, keep_work=True))
        assert secret not in f"{spec!r} {headers[-1]}"
        assert not any(secret.encode() in content for content in files_in(tmp_path / "s").values())
    assert headers[0] == headers[1]
    prepare(spec, tmp_path / "t", workers=1, keep_work=True)
    assert files_in(tmp_path / "s") == files_in(tmp_path / "t")  # the keys of units among them


@pytest.mark.parametrize("source", ["", "**/*"])
def test_a_store_may_stand_among_its_sources(source, make, tmp_path, capsys):
    """In the making and whole, it is no text."""
    with pytest.raises(InputError, match="verse"):  # known when all is encoded: what was done stays
        make(tmp_path / "s", sources=[f"{tmp_path}/{source}"], mixture={"weights": {"verse": 1}})
    header = make(tmp_path / "s", sources=[f"{tmp_path}/{source}"])
    capsys.readouterr()
    assert make(tmp_path / "s", sources=[f"{tmp_path}/{source}"]) == header
    assert "is there already, whole" in capsys.readouterr().err
    assert header["records"] == make(tmp_path / "t")["records"]


def test_another_request_is_refused_with_what_differs(make, tmp_path):
    make(tmp_path / "s")
    (tmp_path / "b.jsonl").write_text('{"text": "b"}\n')
    before = files_in(tmp_path / "s")
    for more, different in (
        ({"packing": {"seq_len": 8}}, "packing.seq_len was 16, asked is 8"),
        ({"dedup": {"near": {}}}, "dedup.near was null, asked is {"),
        ({"sources": [str(tmp_path / "b.jsonl")]}, f"sources.0.path was .*the input {tmp_path / 'b.jsonl'} is new; "
         f"the input {tmp_path / 'a.jsonl'} is gone"),
        ({"min_chars": 1, "max_chars": 2, "heldout": 0.5, "clean": ["nfc"], "on_bad": "skip", "keep_rejects": True},
         "and 1 more; choose another name or pass --overwrite"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=different) as error:
            make(tmp_path / "s", **more)
        assert len(str(error.value).splitlines()) == 1
    (tmp_path / "a.jsonl").write_text('{"text": "changed"}\n')
    with pytest.raises(InputError, match=f"the input {tmp_path / 'a.jsonl'} changed"):
        make(tmp_path / "s")
    assert files_in(tmp_path / "s") == before


def test_what_another_version_made_is_replaced_only_where_that_is_asked(make, tmp_path, monkeypatch):
    header = make(tmp_path / "s", dedup={"near": {}})
    assert header["libraries"].keys() == {"tokenizers", "rensa"}
    make(tmp_path / "t")
    monkeypatch.setattr("seedbed.data.prepare.SIGNATURE_VERSION", "another")
    with pytest.raises(InputError, match="its signatures are of version .*, these of"):
        make(tmp_path / "s", dedup={"near": {}})
    before = files_in(tmp_path / "t")
    make(tmp_path / "t")  # nothing was signed there
    monkeypatch.setattr("seedbed.data.prepare.VERSION", 10_000)
    with pytest.raises(InputError, match="its stages are of version .*, these of 10000; choose .* --overwrite"):
        make(tmp_path / "t")
    assert files_in(tmp_path / "t") == before
    make(tmp_path / "t", overwrite=True)
    assert json.loads((tmp_path / "t" / "request.json").read_text())["versions"]["stages"] == 10_000


def test_a_store_that_another_process_has_just_finished_is_kept(make, tmp_path, monkeypatch):
    """Between the look at the place and the lock."""
    real = prepare_module.folder_lock

    def late(out):
        monkeypatch.setattr(prepare_module, "folder_lock", real)
        make(tmp_path / "s", packing={"seq_len": 8})
        return real(out)

    monkeypatch.setattr(prepare_module, "folder_lock", late)
    with pytest.raises(InputError, match="packing.seq_len was 8, asked is 16"):
        make(tmp_path / "s")
    assert Store(tmp_path / "s").header["seq_len"] == 8


@pytest.fixture
def without_begin(tokenizer, tmp_path) -> Path:
    """A tokenizer with the same tokens, of which none begins a document."""
    folder = shutil.copytree(tokenizer.folder, tmp_path / "other")
    (folder / "commit.json").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["bos_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_nothing_of_an_interrupted_run_with_another_tokenizer_is_used(make, without_begin, tokenizer, tmp_path):
    """One that names the token that begins a document in a file that the other does not have."""
    first = shutil.copytree(without_begin, tmp_path / "first")
    (first / "special_tokens_map.json").write_text(json.dumps({"bos_token": tokenizer.bos_token}))
    with pytest.raises(InputError, match="verse"):  # known when all is encoded: what was done stays
        make(tmp_path / "s", tokenizer=str(first), mixture={"weights": {"verse": 1}})
    make(tmp_path / "s", tokenizer=str(without_begin))
    make(tmp_path / "t", tokenizer=str(without_begin))
    assert files_in(tmp_path / "s") == files_in(tmp_path / "t")


def test_a_tokenizer_that_changes_while_it_is_copied_is_refused(make, without_begin, tokenizer, tmp_path, monkeypatch):
    def late(sources):
        shutil.copyfile(tokenizer.folder / "tokenizer_config.json", without_begin / "tokenizer_config.json")
        return list_inputs(sources)

    monkeypatch.setattr(prepare_module, "list_inputs", late)
    with pytest.raises(InputError, match="other: changed while it was read"):
        make(tmp_path / "s", tokenizer=str(without_begin))
    assert not (tmp_path / "s").exists()


def test_as_many_workers_as_cores_that_may_be_used(tokenizer, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(TEXTS[0] * 9)
    asked = []

    def engine(workers):
        asked.append(workers)
        return local_engine(1)

    monkeypatch.setattr(prepare_module, "local_engine", engine)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 8})
    tree = {"sources": [str(tmp_path / "a.txt")], "tokenizer": str(tokenizer.folder), "heldout": 0}
    prepare(spec_from(tree, "test"), tmp_path / "s")
    assert asked == [3]


def test_an_unfinished_store_goes_on(make, tmp_path):
    """Killed before the header, while it began, or with the request of another run: the same bytes in the end."""
    make(tmp_path / "whole")
    for number, leave in enumerate(
        (("request.json", "train", "tokenizer"), ("request.json",), (".partial-1-request.json",))
    ):
        out = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", out)
        (out / ".partial-1-request.json").write_text("{")
        for entry in out.iterdir():
            if entry.name not in leave:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if number == 1:
            (out / "request.json").write_text('{"spec": {"heldout": 0.3}}')
        make(out)
        assert files_in(out) == files_in(tmp_path / "whole")


def test_a_damaged_shard_is_made_anew(make, tmp_path):
    make(tmp_path / "s")
    before = files_in(tmp_path / "s")
    shard = tmp_path / "s" / "train" / "00000" / "tokens.bin"
    shard.write_bytes(shard.read_bytes()[:-3])
    make(tmp_path / "s")
    assert files_in(tmp_path / "s") == before


def test_what_is_not_a_store_is_kept(make, tmp_path):
    make(tmp_path / "s")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("x")
    (tmp_path / "s" / "notes").write_text("x")
    (tmp_path / "file").write_text("x")
    before = files_in(tmp_path)
    for out, problem in (
        (tmp_path / "mine", "is not a store made here"),
        (tmp_path / "s", "holds notes, which was not written with it"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "s", "is a file, or lies in one|Not a directory"),
        (tmp_path, "holds the input"),
    ):
        for overwrite in (False, True):
            with pytest.raises(InputError, match=problem):
                make(out, overwrite=overwrite)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", "[" * 100_000])
def test_a_finished_store_without_its_request_is_made_anew_where_that_is_asked(content, make, tmp_path):
    out = tmp_path / "s"
    make(out)
    before, request = files_in(out), out / "request.json"
    request.unlink() if content is None else request.write_text(content)
    with pytest.raises(InputError, match="request.json.*make the store again"):
        Store(out)
    with pytest.raises(InputError, match="its request.json is missing or damaged; pass --overwrite"):
        make(out)
    make(out, overwrite=True)
    assert files_in(out) == before


def test_a_store_without_its_request_survives_wrong_input(make, spoil, tmp_path):
    out = tmp_path / "s"
    make(out)
    (out / "request.json").unlink()
    before = files_in(out)
    spoil()
    with pytest.raises(InputError):
        make(out, overwrite=True)
    assert files_in(out).items() >= before.items()


def test_an_unfinished_store_without_its_request_is_kept(make, tmp_path):
    out = tmp_path / "s"
    make(out)
    for name in ("request.json", "header.json", "commit.json"):
        (out / name).unlink()
    with pytest.raises(InputError, match="or remove the folder if it is what is left of a store"):
        make(out, overwrite=True)
