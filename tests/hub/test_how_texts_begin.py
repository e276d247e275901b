"""The tokenizers of other makers: how a text begins."""

import shutil
from pathlib import Path

import pytest
from foreign import mark_beginnings
from transformers import AutoTokenizer

from seedbed.data.texts import read_texts
from seedbed.hub.models import open_model


@pytest.mark.parametrize("marks", [False, True])
def test_a_text_begins_as_transformers_begins_it(foreign_folder, tmp_path: Path, marks):
    """Both name a begin of text; one puts it."""
    folder = shutil.copytree(foreign_folder("llama"), tmp_path / "model")
    if marks:
        mark_beginnings(folder)
    (tmp_path / "text.jsonl").write_text('{"text": "the small seed grows"}\n')
    tokenizer = open_model(folder).tokenizer
    (text,) = read_texts([tmp_path / "text.jsonl"], tokenizer, 64).texts
    assert text.ids == AutoTokenizer.from_pretrained(folder)(text.text)["input_ids"]
    assert tokenizer.bos_id is not None
    assert len(tokenizer.start) == marks
