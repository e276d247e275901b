"""Writers killed at every step, and folders damaged in every way."""

import errno
import json
import os
import socket
from pathlib import Path

import pytest
from killing import killed_at

from seedbed.errors import InputError
from seedbed.files.atomic import (
    COMMIT,
    atomic_folder,
    clear_leftovers,
    folder_damage,
    require_replaceable,
    write_atomic,
)

HERE = socket.gethostname()


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def fill(path: Path, text: str) -> None:
    with atomic_folder(path) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "sub").mkdir()
        (folder / "sub" / "b.txt").write_text(text * 2)


def content(path: Path) -> str:
    assert folder_damage(path) is None
    text = (path / "a.txt").read_text()
    assert (path / "sub" / "b.txt").read_text() == text * 2
    return text


def test_write_atomic_killed_at_each_step_leaves_old_or_new(tmp_path):
    target = tmp_path / "file"
    outcomes = set()
    for step in range(100):
        write_atomic(target, "old")
        died = killed_at(step, lambda: write_atomic(target, "new"))
        outcomes.add(target.read_text())
        if not died:
            break
    assert step > 2
    assert outcomes == {"old", "new"}
    write_atomic(target, "new")
    assert names(tmp_path) == ["file"]  # left-overs of the killed are gone


def test_new_folder_killed_at_each_step_is_absent_or_whole(tmp_path):
    target = tmp_path / "folder"
    for step in range(200):
        died = killed_at(step, lambda: fill(target, "new"))
        if target.exists():
            assert content(target) == "new"
            break
        assert died
    assert step > 8
    fill(target, "again")
    assert content(target) == "again"
    assert names(tmp_path) == ["folder"]


def test_replaced_folder_killed_at_each_step_is_old_or_new(tmp_path):
    """Between the two renames the folder is away; the next writer brings it back before doing anything else."""
    target = tmp_path / "folder"
    absent, outcomes = 0, set()
    for step in range(200):
        fill(target, "old")
        died = killed_at(step, lambda: fill(target, "new"))
        if not target.exists():
            absent += 1
            with pytest.raises(ZeroDivisionError), atomic_folder(target):
                raise ZeroDivisionError
        outcomes.add(content(target))
        if not died:
            break
    assert step > 8
    assert outcomes == {"old", "new"}
    assert absent == 1
    fill(target, "again")
    assert names(tmp_path) == ["folder"]


def test_error_inside_leaves_the_old_folder(tmp_path):
    fill(tmp_path / "folder", "old")
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "folder") as folder:
        (folder / "absent" / "a.txt").write_text("x")
    assert content(tmp_path / "folder") == "old"
    assert names(tmp_path) == ["folder"]


def test_failing_rename_puts_the_old_folder_back(tmp_path, monkeypatch):
    target = tmp_path / "folder"
    fill(target, "old")
    rename = Path.rename

    def fails(self: Path, to: Path) -> Path:
        if to == target and "-old-" not in self.name:
            raise OSError("no")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="no"):
        fill(target, "new")
    assert content(target) == "old"


def test_leftovers_of_other_targets_machines_and_living_writers_stay(tmp_path):
    others = [
        tmp_path / f".partial-{HERE}-{2**22 + 1}-my-store",  # a dead writer of "my-store", whose name ends like ours
        tmp_path / f".partial-{HERE}-{os.getppid()}-store",  # a living writer of "store"
        tmp_path / f".partial-there-{2**22 + 1}-store",  # a writer on another machine that shares the disk
        tmp_path / f".partial-{HERE}-there-{2**22 + 1}-store",
    ]
    mine = tmp_path / f".partial-{HERE}-{2**22 + 1}-store"
    for folder in (*others, mine):
        folder.mkdir()
    fill(tmp_path / "store", "x")
    assert names(tmp_path) == sorted([*(o.name for o in others), "store"])


def test_names_with_pattern_characters(tmp_path):
    fill(tmp_path / "run[1]*", "x")
    (tmp_path / f".partial-{HERE}-{2**22 + 1}-run[1]*").mkdir()
    fill(tmp_path / "run[1]*", "y")
    assert names(tmp_path) == ["run[1]*"]


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "name").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        fill(tmp_path / "name", "x")
    assert (tmp_path / "name").read_text() == "mine"


@pytest.mark.parametrize("name", ["a.txt", "sub/b.txt", COMMIT])
@pytest.mark.parametrize("damage", ["deleted", "cut", "emptied", "flipped"])
def test_each_damaged_file_is_named(tmp_path, name, damage):
    fill(tmp_path / "folder", "some text")
    file = tmp_path / "folder" / name
    raw = file.read_bytes()
    if damage == "deleted":
        file.unlink()
    else:
        file.write_bytes({"cut": raw[:-1], "emptied": b"", "flipped": bytes([raw[0] ^ 1]) + raw[1:]}[damage])
    found = folder_damage(tmp_path / "folder")
    assert found is not None
    assert name in found


@pytest.mark.parametrize("listing", ["[]", '{"files": []}', '{"files": {"a": 1}}', '{"files": {"a": {}}}', "7", "{}"])
def test_odd_commit_files_are_damage_not_tracebacks(tmp_path, listing):
    fill(tmp_path / "folder", "x")
    (tmp_path / "folder" / COMMIT).write_text(listing)
    assert folder_damage(tmp_path / "folder") == f"{COMMIT} is damaged"


def test_missing_folder_and_file_are_damage(tmp_path):
    (tmp_path / "file").touch()
    assert folder_damage(tmp_path / "nothing") is not None
    assert folder_damage(tmp_path / "file") is not None


def test_commit_lists_every_file(tmp_path):
    fill(tmp_path / "folder", "x")
    listing = json.loads((tmp_path / "folder" / COMMIT).read_text())
    assert listing["format_version"] == 1
    assert {name: entry["bytes"] for name, entry in listing["files"].items()} == {"a.txt": 1, "sub/b.txt": 2}


def test_hashes_are_compared_where_asked(tmp_path):
    fill(tmp_path / "folder", "x")
    (tmp_path / "folder" / "a.txt").write_text("y")
    assert folder_damage(tmp_path / "folder", hashed=lambda name: name != "a.txt") is None
    assert folder_damage(tmp_path / "folder", hashed=lambda name: name == "a.txt") is not None


def test_links_and_dots_are_followed(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    links = {"there": tmp_path / "target", "relative": Path("deep/er/other")}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
        for text in ("first", "second"):  # the first makes what a dangling link points at
            fill(tmp_path / name, text)
            assert (tmp_path / name).is_symlink()
            assert content(tmp_path / name) == text
    fill(tmp_path / "deep" / "er" / ".." / "folder", "x")
    assert names(tmp_path / "deep") == ["er", "folder"]
    (tmp_path / "file").symlink_to(tmp_path / "deep" / "file")
    for text in ("first", "second"):
        write_atomic(tmp_path / "file", text)
        assert (tmp_path / "file").is_symlink()
        assert (tmp_path / "deep" / "file").read_text() == text
    assert names(tmp_path) == ["deep", "file", "relative", "target", "there"]


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match="leads back to itself"):
        fill(tmp_path / "loop", "x")


def test_a_full_disk_names_the_target(tmp_path, monkeypatch):
    with pytest.raises(OSError, match="folder") as caught, atomic_folder(tmp_path / "folder"):
        raise OSError(errno.ENOSPC, "No space left on device")  # as writing to an open file does
    assert caught.value.filename == str(tmp_path / "folder")

    def full(self: Path, raw: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomic(tmp_path / "file", "x")
    assert caught.value.filename == str(tmp_path / "file")
    assert names(tmp_path) == []


def test_what_may_be_replaced(tmp_path):
    target = tmp_path / "folder"
    require_replaceable(target, "a.txt")
    target.mkdir()
    require_replaceable(target, "a.txt")
    fill(target, "x")
    require_replaceable(target, "a.txt")
    require_replaceable(target, "sub/b.txt")
    (target / "a.txt").unlink()  # damaged, but ours
    require_replaceable(target, "a.txt")


@pytest.mark.parametrize("state", ["file", "foreign", "other kind", "odd list", "more in it", "linked"])
def test_what_may_not_be_replaced(tmp_path, state):
    target = tmp_path / "folder"
    if state == "file":
        target.touch()
    elif state in ("foreign", "linked"):
        (tmp_path / "real").mkdir()
        target.symlink_to(tmp_path / "real") if state == "linked" else target.mkdir()
        (target / "a.txt").write_text("mine")
    else:
        fill(target, "x")
        if state == "odd list":
            (target / COMMIT).write_text("[]")
        elif state == "more in it":
            (target / "sub" / "notes").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"sub/notes" if state == "more in it" else "folder|real"):
        require_replaceable(target, "header.json" if state == "other kind" else "a.txt")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_writers_left_is_removed_or_brought_back(tmp_path):
    """As where a writer died on any machine; what it had moved away comes back unless the new one is there."""
    for name in ("a/x", "a/.partial-far-away-12-old-x", "a/.partial-far-away-12-old-y", "b/.partial-here-7-gone-z"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "f").write_text(name)
    (tmp_path / "b" / ".partial-here-7-file").write_text("")
    clear_leftovers(tmp_path)
    left = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("f")}
    assert left == {"a/x/f": "a/x", "a/y/f": "a/.partial-far-away-12-old-y"}
    assert list((tmp_path / "b").iterdir()) == []
