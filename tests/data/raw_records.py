"""Stores made of raw records by the whole pipeline, and what should be in them by the tokenizer alone."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.data.document import Encoded
from seedbed.data.prepare import prepare
from seedbed.data.spec import spec_from
from seedbed.data.store import Store
from seedbed.data.tokenizer import Tokenizer


def prepared(
    out: Path, tokenizer: Tokenizer, records: Iterable[Mapping[str, Any]], keep_work: bool = False, **spec: Any
) -> Store:
    """The store of ``records``, whose file stands beside it; what is not set holds nothing out."""
    file = out.with_name(f"{out.name}.jsonl")
    file.write_text("".join(json.dumps({"split": None} | dict(record)) + "\n" for record in records), encoding="utf-8")
    tree = {"sources": [{"path": str(file), "split_field": "split"}], "tokenizer": str(tokenizer.folder), "heldout": 0}
    prepare(spec_from(tree | spec, "test"), out, workers=1, overwrite=True, keep_work=keep_work)
    return Store(out)


def text(tokenizer: Tokenizer, raw: str, trained: bool = True) -> Encoded:
    """A text as a document of its own."""
    ids = [tokenizer.bos_id, *tokenizer.encode(raw), tokenizer.eos_id]
    return Encoded(np.array(ids), None if trained else np.zeros(len(ids), bool))


def chatml(tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]], trained: Container[int]) -> Encoded:
    """A conversation of which the messages with these numbers are trained, each with its end of turn."""
    start, end = (tokenizer.special_tokens[f"<|im_{name}|>"] for name in ("start", "end"))
    stretches: list[tuple[list[int | None], bool]] = [([tokenizer.bos_id], False)]
    for number, message in enumerate(messages):
        header, content, learned = message["role"] + "\n", message["content"], number in trained
        stretches.append(([start], False))
        if learned:
            stretches += [(tokenizer.encode(header), False), (tokenizer.encode(content), True)]
        else:
            stretches.append((tokenizer.encode(header + content), False))
        stretches += [([end], learned), (tokenizer.encode("\n"), False)]
    mask = [learned for ids, learned in stretches for _ in ids]
    return Encoded(np.array([i for ids, _ in stretches for i in ids]), np.array(mask))


def same(found: Encoded, expected: Encoded) -> bool:
    """Whether both are the same tokens, of which the same are trained."""
    masks = [np.ones(len(one.ids), bool) if one.trained is None else one.trained for one in (found, expected)]
    return found.ids.tolist() == expected.ids.tolist() and masks[0].tolist() == masks[1].tolist()


def targets(encoded: Encoded) -> list[int]:
    """The ids that a model learns to predict, in order."""
    trained = np.ones(len(encoded.ids), bool) if encoded.trained is None else encoded.trained
    return encoded.ids[1:][trained[1:]].tolist()
