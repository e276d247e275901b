"""Texts as batches and rows."""

from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.batching import batches, padded
from seedbed.data.texts import Text


@given(st.lists(st.integers(2, 40), min_size=1, max_size=30), st.integers(1, 100))
def test_batches_keep_every_text_once_within_the_bound(lengths, tokens):
    texts = [Text(str(i), "", "", "", [7] * length, 0) for i, length in enumerate(lengths)]
    found = list(batches(texts, tokens))
    assert sorted(text.id for batch in found for text in batch) == sorted(text.id for text in texts)
    for batch in found:
        filled = padded(batch, pad_id=5)
        assert len(batch) == 1 or filled.ids.numel() <= tokens
        assert filled.ids.shape == (len(batch), max(len(text.ids) for text in batch))
        assert ((filled.doc_ids == 0).sum(1)).tolist() == [len(text.ids) for text in batch]
        assert ((filled.ids == 7) == (filled.doc_ids == 0)).all()
        assert ((filled.ids == 5) == (filled.doc_ids == -1)).all()
    longest = [len(batch[0].ids) for batch in found]
    assert longest == sorted(longest, reverse=True)
