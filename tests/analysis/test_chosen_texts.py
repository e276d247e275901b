"""Whose texts are read where none are named."""

from pathlib import Path

import pytest
from stores import Text as Written
from stores import make_store
from tiny import config

from seedbed.analysis.chosen_texts import held_out_texts, shared_store, texts_for
from seedbed.api import fit
from seedbed.data.texts import read_texts
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError


def test_a_run_has_the_texts_of_its_store(tiny_store, tmp_path, monkeypatch):
    run = tmp_path / "runs" / "a"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").symlink_to(tiny_store)
    fit(config(Path("store"), Path("runs/a"), "train.steps=2"), lambda _: None)
    monkeypatch.chdir("/")  # the store is named from where the run was started
    tokenizer = load_tokenizer(tiny_store / "tokenizer")
    step = run / "checkpoints" / "step_00000002"
    wanted = read_texts([tiny_store], tokenizer, 32)
    for path in (run, step):
        found = held_out_texts(path, tokenizer, 32)
        assert [text.text for text in found.texts] == [text.text for text in wanted.texts]
        assert [text.text for text in texts_for(path, [], tokenizer, 32, 2).texts] == [
            text.text for text in wanted.texts[:2]
        ]
    assert shared_store([tmp_path, step, run]).samefile(tiny_store)
    (tmp_path / "store").unlink()
    with pytest.raises(InputError, match=r"runs/a: its store, store, is not there; name texts"):
        held_out_texts(run, tokenizer, 32)
    with pytest.raises(InputError, match=r"has no texts of its own; name files"):
        texts_for(tmp_path, [], tokenizer, 32)
    with pytest.raises(InputError, match=r"has no texts of its own; name files"):
        shared_store([tmp_path])

    other = tmp_path / "store"  # another one where the run's was
    make_store([Written("a", "the stone."), Written("b", "the bed.")], tokenizer, other, seq_len=32)
    monkeypatch.chdir(tmp_path)
    fit(config(tiny_store, Path("runs/b"), "train.steps=2"), lambda _: None)
    with pytest.raises(InputError, match=r"runs/b and .*runs/a: were trained on different stores, .*name files"):
        shared_store([Path("runs/b"), run])
