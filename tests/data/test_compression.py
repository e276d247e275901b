"""The report of compression: sums by domain and language."""

import math

import pytest
from sample_texts import TEXTS

from seedbed.data.compression import Compression, compression, total
from seedbed.data.document import text_document


def documents():
    for number, text in enumerate(TEXTS * 50):
        yield text_document(str(number), text, domain="prose" if number % 4 < 2 else "b", lang=("en", "zh")[number % 2])


def test_rows_are_sums_by_domain_and_language(tokenizer):
    rows = compression(tokenizer, documents())
    assert [(row.domain, row.lang) for row in rows] == [("b", "en"), ("b", "zh"), ("prose", "en"), ("prose", "zh")]
    for row, text in zip(rows, (TEXTS[2], TEXTS[3], TEXTS[0], TEXTS[1]), strict=True):
        n_bytes, tokens = len(text.encode()), len(tokenizer.encode(text))
        assert (row.documents, row.bytes, row.characters, row.tokens) == (
            50, 50 * n_bytes, 50 * len(text), 50 * tokens
        )  # fmt: skip
        assert row.bytes_per_token == pytest.approx(n_bytes / tokens)
        assert row.chars_per_token == pytest.approx(len(text) / tokens)
    everything = total(rows)
    assert (everything.domain, everything.documents) == ("total", 200)
    assert everything.bytes == 50 * sum(len(text.encode()) for text in TEXTS)
    assert everything.characters == 50 * sum(map(len, TEXTS))
    assert everything.tokens == sum(row.tokens for row in rows)


def test_nothing_gives_no_row_and_no_ratio(tokenizer):
    assert compression(tokenizer, []) == []
    assert total([]) == Compression("total", "")
    assert math.isnan(total([]).bytes_per_token)


def test_few_documents_wait_at_a_time(tokenizer):
    ahead = 0

    def counted():
        nonlocal ahead
        for document in documents():
            ahead += 1
            yield document

    encode, waiting = tokenizer.encode_batch, []

    class Watched:
        def encode_batch(self, texts):
            waiting.append(len(texts))
            return encode(texts)

    compression(Watched(), counted())
    assert ahead == sum(waiting) == 200
    assert max(waiting) <= 64
