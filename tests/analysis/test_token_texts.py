"""What stands behind each token, and which texts are shown."""

import warnings

import pytest

from seedbed.analysis.token_texts import pieces, spread
from seedbed.data.bpe import train_tokenizer
from seedbed.data.texts import Text
from seedbed.data.tokenizer import Tokenizer, load_tokenizer


def text(tokenizer: Tokenizer, content: str) -> Text:
    return Text("t", "", "", content, [tokenizer.bos_id or 0, *tokenizer.encode(content)], 0)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """Bytes, and a few English merges: a Chinese character is three tokens."""
    return train_tokenizer(["the cat sat on the mat"] * 20, 266, tmp_path_factory.mktemp("t") / "t")


def test_tokens_of_one_character_make_one_piece(tokenizer):
    one = text(tokenizer, "a 床\n")
    found = list(pieces(one, tokenizer, tokenizer.token_bytes(), len(one.ids)))
    assert found[0] == (tokenizer.bos_token, [(0, tokenizer.bos_token)])
    assert found[1:] == [
        ("a", [(1, "a")]),
        (" ", [(2, " ")]),
        ("床", [(3, "⟨E5⟩"), (4, "⟨BA⟩"), (5, "⟨8A⟩")]),
        ("\n", [(6, "\n")]),
    ]


@pytest.mark.parametrize("content", ["the cat sat on 床前明月光 the mat \U0001f600!", "\ufffd", "  \u2581 \u202e x\0"])
def test_pieces_make_up_the_text_and_have_every_token_once(tokenizer, content):
    one = text(tokenizer, content)
    found = list(pieces(one, tokenizer, tokenizer.token_bytes(), len(one.ids)))
    assert "".join(whole for whole, _ in found[1:]) == content
    assert [place for _, tokens in found for place, _ in tokens] == list(range(len(one.ids)))


def test_a_text_that_ends_within_a_character(tokenizer):
    one = text(tokenizer, "床前")
    one = one._replace(ids=one.ids[:6], cut=1)
    found = list(pieces(one, tokenizer, tokenizer.token_bytes(), 6))
    assert found[1] == ("床", [(1, "⟨E5⟩"), (2, "⟨BA⟩"), (3, "⟨8A⟩")])
    assert found[2] == ("⟨E5 89⟩", [(4, "⟨E5⟩"), (5, "⟨89⟩")])


def test_a_tokenizer_that_text_does_not_survive_shows_tokens_one_by_one(tmp_path):
    transformers = pytest.importorskip("transformers")
    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "the", "cat", "##s"]
    theirs = transformers.BertTokenizerFast(vocab={word: i for i, word in enumerate(words)})
    theirs.save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lossy = load_tokenizer(tmp_path)
    one = Text("t", "", "", "The Cats", lossy.encode("The Cats"), 0)
    found = list(pieces(one, lossy, lossy.token_bytes(), len(one.ids)))
    assert [place for _, tokens in found for place, _ in tokens] == [0, 1, 2]
    assert [whole for whole, _ in found][:2] == ["the", "cat"]


def test_texts_are_spread_over_domains_and_languages():
    kinds = [("x", "en"), ("x", "en"), ("x", "zh"), ("y", "en"), ("x", "en")]
    texts = [Text(str(i), domain, lang, "", [0, 1], 0) for i, (domain, lang) in enumerate(kinds)]
    assert [one.id for one in spread(texts, 4)] == ["0", "2", "3", "1"]
    assert [one.id for one in spread(texts, 2)] == ["0", "2"]
    assert len(spread(texts, 9)) == 5
    assert spread(texts, 0) == []
    sorted_by_domain = [Text(str(i), f"d{i}", "en" if i < 4 else "zh", "", [0, 1], 0) for i in range(6)]
    assert [one.id for one in spread(sorted_by_domain, 4)] == ["0", "4", "1", "5"]
