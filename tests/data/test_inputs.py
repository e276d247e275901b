import importlib.util
import os
import random
import zipfile

import fsspec
import pytest

from seedbed.data.inputs import default_domain, list_inputs, name_in_source, natural_key
from seedbed.data.sections import Source
from seedbed.errors import InputError
from seedbed.files.atomic import commit


@pytest.fixture
def memory():
    """A remote file system: fsspec's in memory, emptied."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    return fs


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"text": "x"}\n')


def paths(*sources):
    return [file.path for file in list_inputs([Source(path=s) if isinstance(s, str) else s for s in sources])]


SHARDS = ["s1.jsonl", "s2.jsonl", "s010.jsonl", "s10.jsonl", "t/1.jsonl", "t/1.jsonl.gz"]


def test_a_file_a_folder_and_a_pattern_keep_the_address_they_were_given(here):
    touch(here, *(f"c/{name}" for name in SHARDS))
    wanted = [f"c/{name}" for name in SHARDS]
    assert paths("c/s2.jsonl") == ["c/s2.jsonl"]
    assert paths("c") == paths("c/") == paths("./c") == wanted
    assert paths("c/**/*.jsonl") == wanted[:-1]
    assert paths("c/s*.jsonl") == wanted[:4]
    assert paths(f"{here}/c") == [f"{here}/{path}" for path in wanted]
    assert paths(f"file://{here}/c/s1.jsonl") == [f"{here}/c/s1.jsonl"]
    (here / "d").mkdir()
    os.chdir(here / "d")
    assert paths("../c/s1.jsonl") == ["../c/s1.jsonl"]


def test_remote_addresses(memory):
    for name in SHARDS:
        memory.pipe(f"/c/{name}", b"{}")
    wanted = [f"memory://c/{name}" for name in SHARDS]
    assert paths("memory://c") == paths("memory://c/") == wanted
    assert paths("memory://c/s*.jsonl") == wanted[:4]
    assert paths("memory://") == [f"memory:///c/{name}" for name in SHARDS]


def test_an_archive(here):
    with zipfile.ZipFile("c.zip", "w") as archive:
        archive.writestr("a/s10.jsonl", "{}")
        archive.writestr("a/s2.jsonl", "{}")
    assert paths("zip://a/*.jsonl::c.zip") == ["zip://a/s2.jsonl::c.zip", "zip://a/s10.jsonl::c.zip"]


def test_order_does_not_depend_on_the_file_system(here, memory, monkeypatch):
    """Case 11."""
    touch(here, *SHARDS)
    listing = type(fsspec.filesystem("file")).ls
    for seed in range(5):

        def ls(self, path, seed=seed, **kwargs):
            entries = sorted(listing(self, path, **kwargs), key=str)
            random.Random(seed).shuffle(entries)
            return entries

        monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.ls", ls)
        assert paths(".") == SHARDS


def test_sources_keep_the_order_of_the_specification(here):
    touch(here, "b/1.jsonl", "a/2.jsonl")
    assert paths("b", "a") == ["b/1.jsonl", "a/2.jsonl"]
    assert paths("a", "b") == ["a/2.jsonl", "b/1.jsonl"]


def test_natural_order_compares_like_with_like():
    names = ["1a", "a1", "a", "10", "9", "a1b2", "a1b10", "1"]
    assert sorted(names, key=natural_key) == ["1", "1a", "9", "10", "a", "a1", "a1b2", "a1b10"]


def test_hidden_and_unknown_files_of_a_folder_are_passed_over(here):
    touch(here, "c/a.jsonl", "c/.b.jsonl", "c/.d/e.jsonl", "c/stats.csv", "c/LICENSE", "c/x.parquet.gz")
    assert paths("c") == paths("c/**/*.jsonl") == ["c/a.jsonl"]
    (here / "c").rename(here / ".c")  # a folder that is named itself may be hidden
    assert paths(".c") == paths(".c/*.jsonl") == [".c/a.jsonl"]


def store_in(folder, committed=True):
    """What tells a store, or one in the making, beside files that look like texts."""
    touch(folder, "rejects.jsonl", "train/00000/documents.jsonl", "work/clean/00000/documents-00000.jsonl")
    (folder / "request.json").write_text('{"format_version": 2, "spec": {}, "inputs": {}}')
    if committed:
        commit(folder)


@pytest.mark.parametrize("committed", [True, False])
def test_what_was_written_here_is_no_text(here, committed):
    touch(here, "c/a.jsonl", "c/d/b.jsonl")
    store_in(here / "c" / "d" / "store", committed)
    touch(here, "c/tokenizer/tokenizer.json")
    commit(here / "c" / "tokenizer")
    assert paths("c") == paths("c/**/*") == paths("c/**/*.jsonl") == ["c/a.jsonl", "c/d/b.jsonl"]
    with pytest.raises(InputError, match=r"no file matches"):
        paths("c/*/store/*.jsonl")


def test_what_was_written_here_and_is_named_itself_is_read(here):
    store_in(here / "c" / "store")
    assert paths("c/store/rejects.jsonl") == paths("c/store/r*.jsonl") == ["c/store/rejects.jsonl"]
    assert paths("c/store/train") == ["c/store/train/00000/documents.jsonl"]
    assert "c/store/rejects.jsonl" in paths("c/store")


def test_files_of_others_that_bear_our_names_are_read(here):
    touch(here, "c/d/commit.json", "c/e/request.json")
    (here / "c" / "e" / "commit.json").write_text("[" * 100_000)
    wanted = ["c/d/commit.json", "c/e/commit.json", "c/e/request.json"]
    assert paths("c") == paths("c/**/*.json") == wanted


def test_what_was_written_here_is_no_text_on_a_remote_system_either(memory):
    memory.pipe("/a.jsonl", b"{}")
    memory.pipe("/s/request.json", b'{"format_version": 2, "spec": {}, "inputs": {}}')
    memory.pipe("/s/rejects.jsonl", b"{}")
    assert paths("memory://") == ["memory:///a.jsonl"]
    assert paths("memory://**/*.jsonl") == ["memory://a.jsonl"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a.jsonl", "jsonl"),
        ("a.json", "jsonl"),
        ("A.NDJSON.GZ", "jsonl"),
        ("a.jsonl.zst", "jsonl"),
        ("a.parquet", "parquet"),
        ("a.txt", "text"),
        ("a.md", "text"),
        ("a.txt.zst", "text"),
    ],
)
def test_formats_by_name(here, name, wanted):
    touch(here, name)
    assert [file.format for file in list_inputs([Source(path=name)])] == [wanted]


def test_a_stated_format_takes_any_named_file_and_chooses_in_a_folder(here):
    touch(here, "c/a.jsonl", "c/README.md", "c/code.py")
    assert paths(Source(path="c", format="jsonl")) == ["c/a.jsonl"]
    assert paths(Source(path="c", format="text")) == ["c/README.md"]
    assert paths(Source(path="c/code.py", format="text")) == ["c/code.py"]
    assert paths(Source(path="c/*.py", format="text")) == ["c/code.py"]


def dataset_folder(folder, files=("data-00000-of-00001.arrow",)):
    touch(folder, "dataset_info.json", "state.json", *files)


def test_a_saved_dataset_is_one_input(here):
    dataset_folder(here / "c" / "one")
    dataset_folder(here / "c" / "two")
    assert [(file.path, file.format) for file in list_inputs([Source(path="c/one")])] == [("c/one", "dataset")]
    assert paths("c") == paths("c/*") == ["c/one", "c/two"]
    with pytest.raises(InputError, match="no file of a kind jsonl"):
        paths(Source(path="c", format="jsonl"))


def test_a_dictionary_of_datasets_is_refused_with_its_splits(here):
    dataset_folder(here / "c" / "train")
    dataset_folder(here / "c" / "test")
    touch(here, "c/dataset_dict.json")
    with pytest.raises(InputError, match=r"c: holds several splits; name one of these folders in it: test, train"):
        paths("c")


def test_a_missing_library_is_told(here, monkeypatch):
    dataset_folder(here / "c")
    touch(here, "a.jsonl")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'seedbed\[hf\]'"):
        paths("c")
    assert paths("a.jsonl") == ["a.jsonl"]

    def url_to_fs(path, **options):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "url_to_fs", url_to_fs)
    with pytest.raises(InputError, match=r"s3://b/x\.jsonl: a library is missing: Install s3fs"):
        paths("s3://b/x.jsonl")


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        (["no.jsonl"], r"no\.jsonl: no such file or folder"),
        (["no/*.jsonl"], r"no/\*\.jsonl: no file matches"),
        (["empty"], r"empty: no file of a known kind .*\.jsonl.*\.parquet"),
        (["c/stats.csv"], r"stats\.csv: unknown kind of file; known are .*\.jsonl"),
        (["c/*"], r"stats\.csv: unknown kind"),
        (["mixed"], r"mixed: holds several kinds of files \(jsonl, text\); set the source's format"),
        (["c/a.jsonl", "c"], r"c/a\.jsonl: given twice"),
        (["c/a.jsonl", "./c/a.jsonl"], "given twice"),
        (["c/a.jsonl", "link.jsonl"], r"link\.jsonl: given twice"),
        (["linked"], "a link to a folder; name that folder"),
        (["pipe.jsonl"], "not a regular file"),
        (["broken"], "a link to nothing"),
        (["bytes"], r"bytes/a\\xff\.jsonl: the name is not UTF-8; rename it"),
        (["xyz://b/a.jsonl"], "Protocol not known: xyz"),
        (["zip://a.jsonl::no.zip"], r"no\.zip"),
        ([Source(path="c/a.jsonl", format="dataset")], "a file; format dataset is for a folder"),
    ],
)
def test_wrong_sources_are_refused_before_anything_is_read(here, sources, problem):
    touch(here, "c/a.jsonl", "c/stats.csv", "mixed/a.jsonl", "mixed/README.md")
    for folder in ("empty", "linked", "broken", "bytes"):
        (here / folder).mkdir()
    (here / "link.jsonl").symlink_to(here / "c" / "a.jsonl")
    (here / "bytes" / os.fsdecode(b"a\xff.jsonl")).write_text("{}")
    (here / "linked" / "c").symlink_to(here / "c")
    (here / "broken" / "a.jsonl").symlink_to(here / "nothing")
    os.mkfifo(here / "pipe.jsonl")
    with pytest.raises(InputError, match=problem) as caught:
        paths(*sources)
    assert "\n" not in str(caught.value)


def test_a_link_to_a_file_or_folder_may_be_named(here):
    touch(here, "c/a.jsonl")
    (here / "link").symlink_to(here / "c")
    (here / "link.jsonl").symlink_to(here / "c" / "a.jsonl")
    assert paths("link") == ["link/a.jsonl"]
    assert paths("link.jsonl") == ["link.jsonl"]


def test_a_file_twice_on_a_remote_system(memory):
    memory.pipe("/c/a.jsonl", b"{}")
    with pytest.raises(InputError, match="memory://c/a.jsonl: given twice"):
        paths("memory://c/*.jsonl", "memory://c")


def test_no_permission(here, monkeypatch):
    touch(here, "c/a.jsonl", "c/sub/b.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda name, mode: not name.endswith("a.jsonl"))
        with pytest.raises(InputError, match=r"a\.jsonl: may not be read"):
            paths("c")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match="c: cannot be read: Permission denied"):
        paths("c")


def test_the_fingerprint_follows_the_content(here, memory):
    def fingerprint(path):
        return list_inputs([Source(path=path)])[0].fingerprint

    touch(here, "a.jsonl")
    dataset_folder(here / "d")
    for path, inside in (("a.jsonl", "a.jsonl"), ("d", "d/data-00000-of-00001.arrow")):
        before = fingerprint(path)
        assert fingerprint(path) == before
        stat = os.stat(inside)
        os.utime(inside, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
        assert fingerprint(path) != before, "a later time of change"
        before, stat = fingerprint(path), os.stat(inside)
        (here / inside).write_text("longer than it was before")
        os.utime(inside, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert fingerprint(path) != before, "another size"
    before = fingerprint("d")
    touch(here, "d/more.arrow")
    assert fingerprint("d") != before, "another file"
    memory.pipe("/a.jsonl", b"one")
    before = fingerprint("memory://a.jsonl")
    assert fingerprint("memory://a.jsonl") == before
    memory.pipe("/a.jsonl", b"two")
    assert fingerprint("memory://a.jsonl") != before


def test_sizes(here):
    touch(here, "a.jsonl")
    dataset_folder(here / "d")
    (one,) = list_inputs([Source(path="a.jsonl")])
    (folder,) = list_inputs([Source(path="d")])
    assert (one.size, folder.size) == (14, 3 * 14)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("c", {"c/a.b.txt": ("a.b.txt", "c"), "c/d/e.txt": ("d/e.txt", "c")}),
        ("c/*.txt", {"c/a.b.txt": ("a.b.txt", "c")}),
        ("c/**/*.txt", {"c/a.b.txt": ("a.b.txt", "c"), "c/d/e.txt": ("d/e.txt", "c")}),
        ("c/a.b.txt", {"c/a.b.txt": ("a.b.txt", "a")}),
        ("*/*.txt", {"c/a.b.txt": ("c/a.b.txt", "text")}),
        ("memory://c", {"memory://c/d/e.txt": ("d/e.txt", "c")}),
        ("j/en.1.jsonl.gz", {"j/en.1.jsonl.gz": ("en.1.jsonl.gz", "en")}),
    ],
)
def test_names_and_domains(here, memory, source, wanted):
    touch(here, "c/a.b.txt", "c/d/e.txt", "j/en.1.jsonl.gz")
    memory.pipe("/c/d/e.txt", b"x")
    files = list_inputs([Source(path=source)])
    assert {file.path: (name_in_source(file), default_domain(file)) for file in files} == wanted
