"""Parts: kept as soon as they are known, nothing written before, and what does not belong is measured anew."""

import pytest

from seedbed.files.parts import FILE, Parts


def never():
    raise AssertionError("was measured before")


def test_parts_are_kept(tmp_path):
    folder = tmp_path / "out"
    parts = Parts(folder, {"files": ["a"]})
    assert not folder.exists()
    assert parts.get("one", lambda: [1, float("inf")]) == [1, float("inf")]
    again = Parts(folder, {"files": ["a"]})
    assert (len(again), again.get("one", never)) == (1, [1, float("inf")])
    assert again.get("two", lambda: "二") == "二"
    third = Parts(folder, {"files": ["a"]})
    assert [third.get(name, never) for name in ("one", "two")] == [[1, float("inf")], "二"]


def test_what_is_of_another_key_or_cut_off_is_made_again(tmp_path):
    parts = Parts(tmp_path, "key")
    for name in "abc":
        parts.get(name, lambda: 1)
    file = tmp_path / FILE
    whole = file.read_text()
    assert len(Parts(tmp_path, "other")) == 0
    assert file.read_text() == whole  # until something else is measured
    file.write_text(whole[:-3])
    cut = Parts(tmp_path, "key")
    assert len(cut) == 2
    assert cut.get("c", lambda: 1) == 1
    assert file.read_text() == whole
    Parts(tmp_path, "other").get("a", lambda: 2)
    assert len(Parts(tmp_path, "key")) == 0


@pytest.mark.parametrize("left", ["", "{"])
def test_a_damaged_file(tmp_path, left):
    (tmp_path / FILE).write_text(left)
    assert len(Parts(tmp_path, "key")) == 0


def test_a_disk_that_fills_up_is_told_with_the_file(tmp_path):
    parts = Parts(tmp_path, "key")
    parts.get("a", lambda: 1)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        parts.get("b", lambda: 2)
    assert caught.value.filename == str(tmp_path / FILE)
