"""From a document's sequences to token ids, and which of them are trained."""

from collections.abc import Iterable
from itertools import chain

import numpy as np

from seedbed.data.chat import Chat, Span
from seedbed.data.document import Encoded, Piece, Sequence
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError


class Encoder:
    """Two steps: a sequence to spans, which may be refused, then the spans of many sequences to ids, in one call."""

    def __init__(self, tokenizer: Tokenizer, template: str | None):
        self._tokenizer = tokenizer
        self._chat = None if template is None else Chat(template, tokenizer)

    def encode(self, sequences: Iterable[Sequence], where: Iterable[str]) -> list[Encoded]:
        """Both steps; ``where`` names each sequence in errors, as `file:line`. Raises InputError as `spans` does."""
        return self.encode_spans([self.spans(*pair) for pair in zip(sequences, where, strict=True)])

    def spans(self, sequence: Sequence, where: str) -> list[Span]:
        """The sequence's parts, one after another, and its end; the begin of text is not among them.

        A text ends with the end-of-text token, trained as its last piece is; how a conversation ends its template
        says (see Chat.render). Nothing in the sequence may be trained: the caller decides what that means. Raises
        InputError where the template refuses a conversation.
        """
        spans: list[Span] = []
        for part in sequence:
            if isinstance(part, Piece):
                spans.append(Span(part.text, part.trained, False))
            elif self._chat is None:
                raise InputError(f"{where}: a conversation, but no chat template is set; set chat_template")
            else:
                spans += self._chat.render(part, where, last=part is sequence[-1])
        if isinstance(sequence[-1], Piece):
            spans.append(Span(self._tokenizer.eos_token, sequence[-1].trained, True))
        return spans

    def encode_spans(self, batch: Iterable[list[Span]]) -> list[Encoded]:
        """Ids and mask of each sequence, the begin of text first where the tokenizer has one.

        Each span is encoded on its own, as a prompt and its answer are when the model is used: a border of the mask
        is a border of tokens. Where Transformers would make one token across such a border (an answer that starts
        with a line end, after a header that ends with one) there are two here; all other ids of a byte-level
        tokenizer are the same.
        """
        batch = list(batch)
        ids = iter(self._tokenizer.encode_batch([span.text for spans in batch for span in spans if not span.control]))
        bos = [] if self._tokenizer.bos_id is None else [self._tokenizer.bos_id]
        encoded = []
        for spans in batch:
            parts = [[self._tokenizer.special_tokens[s.text]] if s.control else next(ids) for s in spans]
            lengths = [len(bos), *map(len, parts)]
            stream = np.fromiter(chain(bos, *parts), dtype=np.uint32, count=sum(lengths))  # [n]
            trained = None  # all of it: nothing precedes bos, so it needs no mask
            if not all(span.trained for span in spans):
                trained = np.repeat([False, *(span.trained for span in spans)], lengths)  # [n] bool
            encoded.append(Encoded(stream, trained))
        return encoded
