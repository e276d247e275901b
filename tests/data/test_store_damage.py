"""Stores that are damaged, unfinished or none: noticed on opening, or where tokens are read and by inspection."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from sample_texts import TEXTS
from store_edits import recommit, refusal

from seedbed.data.bpe import train_tokenizer
from seedbed.data.store import Store
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, folder_damage, listed


def one_digit_other(file: Path) -> None:
    """Of the same size, and often still readable: only the hash tells."""
    raw = file.read_bytes()
    last = max((i for i, byte in enumerate(raw) if byte in b"0123456789\x00"), default=len(raw) - 1)
    file.write_bytes(raw[:last] + bytes([raw[last] ^ 1]) + raw[last + 1 :])


PAYLOAD = ("tokens.bin", "trained.bin", "tokens.h5", "documents.jsonl")


@pytest.mark.parametrize("form", ["bin", "hdf5", "jsonl"])
def test_every_file_cut_missing_or_changed_is_noticed(made, tmp_path, form):
    """On opening; tokens and texts that are changed but as long as before, by inspection."""
    names = [*listed(made[form])]
    assert len(names) > 20
    store = shutil.copytree(made[form], tmp_path / "s")
    for name in names:
        file, whole = store / name, (store / name).read_bytes()
        if not whole:
            continue
        file.write_bytes(whole[:-3])
        problem = refusal(store)
        assert f"{name} has" in problem or f"{name}: damaged" in problem or name == "header.json"
        file.unlink()
        problem = refusal(store)
        assert f"{name} is missing" in problem or name == "header.json"
        file.write_bytes(whole)
        one_digit_other(file)
        damage = folder_damage(store)
        assert damage is not None
        assert name in damage
        if not name.endswith(PAYLOAD):
            assert f"the content of {name} changed" in refusal(store)
        file.write_bytes(whole)
    Store(store)


def test_store_that_was_never_committed_is_refused(store):
    (store / COMMIT).unlink()
    assert f"{COMMIT} is missing" in refusal(store)
    (store / COMMIT).write_text("{")
    assert f"{COMMIT} is damaged" in refusal(store)


def test_a_store_in_the_making_is_none(store):
    (store / "header.json").unlink()
    assert "not finished; run the same `seedbed data prepare` again" in refusal(store)


@pytest.mark.parametrize("content", ["", "[]", "{}", "{", "\x00", "null", "[" * 100_000])
def test_a_damaged_header_is_refused(store, content):
    (store / "header.json").write_text(content)
    assert "header.json: damaged; make the store again" in refusal(store)


def test_no_store(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        assert "no token store there; make one with `seedbed data prepare`" in refusal(path)


@pytest.mark.parametrize("form", ["bin", "hdf5", "jsonl"])
def test_tokenizer_swapped_inside_the_store_is_refused(made, tmp_path, form):
    """Listed as if it belonged there; texts are refused at once, since they would be encoded by it."""
    store = shutil.copytree(made[form], tmp_path / "s")
    train_tokenizer(TEXTS, 258, tmp_path / "other").save(store / "tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json", "training.json"):
        recommit(store, f"tokenizer/{name}")
    with pytest.raises(InputError, match="encoded by tokenizer"):
        Store(store).tokenizer()
    if form == "jsonl":
        assert "encoded by tokenizer" in refusal(store)


def test_token_beyond_the_vocabulary_names_the_shard(store):
    """Tokens are not hashed on opening; damage is met where it is read, and by inspection."""
    file = store / "train" / "00001" / "tokens.bin"
    tokens = np.fromfile(file, dtype="<u2")
    tokens[20] = 300
    tokens.tofile(file)
    split = Store(store).split("train")
    split.windows(range(7))
    with pytest.raises(InputError, match=r"train/00001: damaged: holds 300, where every id is below 300; make the"):
        split.windows([7])
    assert folder_damage(store) == "the content of train/00001/tokens.bin changed (SHA-256 differs)"
