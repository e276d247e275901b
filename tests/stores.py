"""Stores of a few texts, made by the whole pipeline."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from seedbed.data.tokenizer import Tokenizer


class Text(NamedTuple):
    id: str
    text: str
    split: Literal["train", "heldout"] | None = None


def make_store(
    texts: Iterable[Text], tokenizer: "Tokenizer", out: Path, seq_len: int, heldout: float = 0.05, **spec: Any
) -> dict[str, Any]:
    """Write ``texts`` beside ``out`` and prepare them; ``spec`` has further sections. Returns the header."""
    from seedbed.data.prepare import prepare
    from seedbed.data.spec import spec_from

    file = out.with_name(f"{out.name}.jsonl")
    with open(file, "w", encoding="utf-8") as lines:
        for text in texts:
            lines.write(json.dumps(text._asdict(), ensure_ascii=False) + "\n")
    packing = {"seq_len": seq_len, **spec.pop("packing", {})}
    tree = {"sources": [{"path": str(file), "split_field": "split"}], "tokenizer": str(tokenizer.folder)}
    asked = spec_from(tree | {"packing": packing, "heldout": heldout} | spec, "test")
    return prepare(asked, out, workers=1, overwrite=True)
