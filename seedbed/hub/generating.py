"""How a model generates for Transformers: where it ends, and which ids stand for no token."""

from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from seedbed.data.chat import Chat
from seedbed.data.document import Conversation
from seedbed.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import GenerationConfig


def end_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids that end a text: the end of text first, then what ends the assistant's turn in the chat template, if another
    token does.

    Raises InputError where the template cannot write a question and its answer.
    """
    ends = [tokenizer.eos_id]
    if tokenizer.chat_template is not None:
        chat = Chat(tokenizer.chat_template, tokenizer)
        ends.append(end_of_turn(tokenizer, chat, f"{tokenizer.folder}: a question and an answer"))
    return list(dict.fromkeys(ends))


def named_ends(module: nn.Module) -> set[int]:
    """Ids at which a model of Transformers ends what it writes, by its own generation configuration; none of ours."""
    named = getattr(getattr(module, "generation_config", None), "eos_token_id", None)
    return set() if named is None else set(named) if isinstance(named, list) else {named}


def end_of_turn(tokenizer: Tokenizer, chat: Chat, where: str = "chat template") -> int:
    """The id that ends the assistant's turn in the template, found by rendering one; end of text where it has none.

    Raises InputError, which begins with ``where``, where the template cannot write a question and its answer.
    """
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    spans = chat.render(Conversation(turns, ["assistant"]), where)
    ends = [span.text for span in spans if span.control and span.trained]
    return tokenizer.special_tokens[ends[-1]] if ends else tokenizer.eos_id


def generation_config(tokenizer: Tokenizer, rows: int) -> "GenerationConfig":
    """Greedy generation that stops at any of `end_ids` and never takes an id below ``rows``, the model's outputs, that
    stands for no token: padding and holes of a vocabulary are outputs too."""
    from transformers import GenerationConfig

    known = np.zeros(rows, dtype=np.bool_)
    known[: tokenizer.vocab_size] = tokenizer.known()[:rows]
    return GenerationConfig(
        bos_token_id=tokenizer.bos_id,
        eos_token_id=end_ids(tokenizer),
        pad_token_id=tokenizer.eos_id,
        suppress_tokens=np.flatnonzero(~known).tolist() or None,
    )
