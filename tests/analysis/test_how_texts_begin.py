"""The tokenizers of other makers: how a text begins."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from seedbed.analysis.models import open_model
from seedbed.analysis.texts import read_texts

SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}


def marked(content: dict) -> dict:
    """The tokenizer with a begin of text before each text."""
    token = content["added_tokens"][0]
    name = token["content"]
    post = {"type": "TemplateProcessing", "pair": [SEQUENCE, {"Sequence": {"id": "B", "type_id": 0}}]}
    post["single"] = [{"SpecialToken": {"id": name, "type_id": 0}}, SEQUENCE]
    post["special_tokens"] = {name: {"id": name, "ids": [token["id"]], "tokens": [name]}}
    return content | {"post_processor": post}


@pytest.mark.parametrize("marks", [False, True])
def test_a_text_begins_as_transformers_begins_it(foreign_folder, tmp_path: Path, marks):
    """Both name a begin of text; one puts it."""
    folder = tmp_path / "model"
    shutil.copytree(foreign_folder("llama"), folder)
    file = folder / "tokenizer.json"
    if marks:
        file.write_text(json.dumps(marked(json.loads(file.read_text()))))
    (tmp_path / "text.jsonl").write_text('{"text": "the small seed grows"}\n')
    tokenizer = open_model(folder).tokenizer
    (text,) = read_texts([tmp_path / "text.jsonl"], tokenizer, 64).texts
    assert text.ids == AutoTokenizer.from_pretrained(folder)(text.text)["input_ids"]
    assert tokenizer.bos_id is not None
    assert len(tokenizer.start) == marks
