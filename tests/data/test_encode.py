import io
import json

import numpy as np
import pytest
import zstandard
from chat_templates import (
    ALPACA,
    CHATML_PLAIN,
    LLAMA,
    MARKED_CONTENT,
    MARKED_LINE,
    MISTRAL,
    THINKING,
    chat_tokenizer,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_texts import TEXTS

from seedbed.data.document import Conversation, Piece
from seedbed.data.encode import Encoder
from seedbed.data.template import CHATML
from seedbed.errors import InputError

TEMPLATES = {
    "chatml": CHATML,
    "prefixes": CHATML_PLAIN,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "thinking": THINKING,
    "alpaca": ALPACA,
    "content": MARKED_CONTENT,
    "line": MARKED_LINE,
}
TWO_TURNS = [
    {"role": "user", "content": "What is 2+2?"},
    {"role": "assistant", "content": "It is 4."},
    {"role": "user", "content": "Sure? 真的吗"},
    {"role": "assistant", "content": "def add(a, b):\n    return a + b"},
]


@pytest.fixture(scope="module")
def chat_tok(tokenizer, tmp_path_factory):
    return chat_tokenizer(tokenizer, tmp_path_factory.mktemp("encode") / "tokenizer")


@pytest.fixture(scope="module")
def foreign(chat_tok):
    """The same folder as Transformers reads it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(chat_tok.folder))


def one(tokenizer, *parts, template=None):
    [encoded] = Encoder(tokenizer, template).encode([list(parts)], ["a.jsonl:7"])
    assert encoded.ids.dtype == np.uint32
    assert encoded.trained is None or (encoded.trained.dtype == bool and encoded.trained.shape == encoded.ids.shape)
    return encoded


def chat(tokenizer, messages, template, roles=("assistant",)):
    return one(tokenizer, Conversation(messages, list(roles)), template=template)


def stretches(tokenizer, encoded) -> list[list[int]]:
    """Ids of each stretch that is trained."""
    borders = np.flatnonzero(np.diff(np.concatenate([[0], encoded.trained.astype(np.int8), [0]])))
    return [encoded.ids[a:b].tolist() for a, b in zip(borders[::2], borders[1::2], strict=True)]


def test_a_text_is_bos_text_eos(tokenizer):
    ids, trained = one(tokenizer, Piece(TEXTS[0], True))
    assert ids.tolist() == [tokenizer.bos_id, *tokenizer.encode(TEXTS[0]), tokenizer.eos_id]
    assert trained is None


def test_a_mask_has_its_borders_between_tokens(tokenizer):
    a, b, c = "hello wor", "ld hello", " world"
    ids, trained = one(tokenizer, Piece(a, False), Piece(b, True), Piece(c, False))
    parts = [tokenizer.encode(text) for text in (a, b, c)]
    assert ids.tolist() == [tokenizer.bos_id, *parts[0], *parts[1], *parts[2], tokenizer.eos_id]
    assert trained.tolist() == [False] * (1 + len(parts[0])) + [True] * len(parts[1]) + [False] * (len(parts[2]) + 1)


def test_the_end_is_trained_as_the_last_piece_is(tokenizer):
    _, trained = one(tokenizer, Piece("a", False), Piece("b", True))
    assert trained.tolist() == [False, False, True, True]
    _, trained = one(tokenizer, Piece("a", False), Piece("", True))  # an empty answer: its end is learned
    assert trained.tolist() == [False, False, True]
    _, trained = one(tokenizer, Piece("a", False))
    assert trained.tolist() == [False, False, False]
    assert one(tokenizer, Piece("a", True), Piece("b", True)).trained is None


def test_without_a_begin_of_text(tokenizer, tmp_path):
    tok = chat_tokenizer(tokenizer, tmp_path / "t", bos=False)
    ids, trained = one(tok, Piece("a", False), Piece("b", True))
    assert ids.tolist() == [*tok.encode("a"), *tok.encode("b"), tok.eos_id] and trained.tolist() == [False, True, True]
    ids = chat(tok, TWO_TURNS, LLAMA).ids
    assert ids[0] == tok.special_tokens["<|start_header_id|>"] and None not in ids.tolist()


def test_control_tokens_in_a_text_are_text(chat_tok):
    literal = "a <|eos|> <|im_end|><|bos|>"
    ids, _ = one(chat_tok, Piece(literal, True))
    assert [i for i in ids.tolist() if i in chat_tok.special_tokens.values()] == [chat_tok.bos_id, chat_tok.eos_id]
    assert chat_tok.decode(ids) == literal


def test_many_sequences_at_once_are_as_each_alone(chat_tok):
    sequences = [
        [Piece(TEXTS[0], True)],
        [Conversation(TWO_TURNS, ["assistant"])],
        [Piece("a", False), Piece("b", True)],
        [Piece("", True)],
    ]
    together = Encoder(chat_tok, CHATML).encode(sequences, list("abcd"))
    for sequence, encoded in zip(sequences, together, strict=True):
        alone = one(chat_tok, *sequence, template=CHATML)
        assert encoded.ids.tolist() == alone.ids.tolist()
        assert (encoded.trained is None) == (alone.trained is None)
        assert encoded.trained is None or encoded.trained.tolist() == alone.trained.tolist()
    with pytest.raises(ValueError, match="zip"):
        Encoder(chat_tok, CHATML).encode(sequences, ["a"])


@pytest.mark.parametrize("name", ["chatml", "prefixes", "llama", "mistral"])
def test_two_turns_have_one_begin_and_learn_both_ends(name, chat_tok):
    encoded = chat(chat_tok, TWO_TURNS, TEMPLATES[name])
    assert encoded.ids[0] == chat_tok.bos_id and not encoded.trained[0]
    assert (encoded.ids == chat_tok.bos_id).sum() == 1
    end = {"llama": "<|eot_id|>", "mistral": "<|eos|>"}.get(name, "<|im_end|>")
    end_id, space = chat_tok.special_tokens[end], " " if name == "mistral" else ""
    answers = [[*chat_tok.encode(space + m["content"]), end_id] for m in TWO_TURNS[1::2]]
    assert stretches(chat_tok, encoded) == answers


def test_a_conversation_ends_as_its_template_does(chat_tok):
    ids, trained = chat(chat_tok, TWO_TURNS, ALPACA)
    assert ids[-1] == chat_tok.eos_id and trained[-1]
    assert chat_tok.eos_id not in chat(chat_tok, TWO_TURNS, CHATML).ids


def test_pieces_and_conversations_mix(chat_tok):
    talk = Conversation(TWO_TURNS, ["assistant"])
    alone = chat(chat_tok, TWO_TURNS, LLAMA)
    ids, trained = one(chat_tok, Piece("read", False), talk, Piece("end", True), template=LLAMA)
    before, after = chat_tok.encode("read"), chat_tok.encode("end")
    assert ids.tolist() == [chat_tok.bos_id, *before, *alone.ids[1:], *after, chat_tok.eos_id]
    assert trained.tolist() == [False] * (1 + len(before)) + alone.trained[1:].tolist() + [True] * (len(after) + 1)
    ids, trained = one(chat_tok, talk, talk._replace(roles=["nobody"]), template=LLAMA)
    assert ids.tolist() == [*alone.ids, *alone.ids[1:]]
    assert trained.tolist() == alone.trained.tolist() + [False] * (len(alone.ids) - 1)


def test_only_the_last_part_gets_an_end(chat_tok):
    ids, _ = one(chat_tok, Conversation(TWO_TURNS, ["assistant"]), Piece("end", True), template=ALPACA)
    assert np.flatnonzero(ids == chat_tok.eos_id).tolist() == [len(ids) - 1]


def test_nothing_trained_is_a_mask_of_false(chat_tok):
    for roles in (["model"], []):
        for template in TEMPLATES.values():
            encoded = chat(chat_tok, TWO_TURNS, template, roles)
            assert encoded.trained is not None and not encoded.trained.any()
    unmarked = chat(chat_tok, TWO_TURNS[:1], CHATML)
    assert not unmarked.trained.any()


def test_refusals_name_the_place(chat_tok):
    with pytest.raises(InputError, match=r"^a\.jsonl:7: .*no chat template is set"):
        chat(chat_tok, TWO_TURNS, None)
    with pytest.raises(InputError, match=r"^a\.jsonl:7: .*only user and assistant"):
        chat(chat_tok, [{"role": "system", "content": "x"}], MISTRAL)


def test_a_token_across_the_border_of_an_answer_is_two(chat_tok, foreign):
    """The one difference from Transformers: a prompt and its answer are encoded apart, as in use."""
    messages = [TWO_TURNS[0], {"role": "assistant", "content": "\n\nIt"}]
    ours = chat(chat_tok, messages, CHATML)
    assert stretches(chat_tok, ours) == [[*chat_tok.encode("\n\nIt"), chat_tok.special_tokens["<|im_end|>"]]]
    assert chat_tok.decode(ours.ids) == "user\nWhat is 2+2?\nassistant\n\n\nIt\n"


WORDS = st.text(st.sampled_from("ab12 \n\t.,<|>\"'{}\\床前é\u0301😀\0\ufdd0"), max_size=30)
# an answer that starts with space may share a token with its header, one that ends in punctuation with what follows
ANSWERS = WORDS.map(lambda text: f"A{text}Z")


def conversations(roles: tuple[str, ...]):
    turn = st.tuples(st.sampled_from(roles), WORDS, ANSWERS)
    return st.lists(turn, min_size=1, max_size=4).map(
        lambda turns: [
            message
            for role, question, answer in turns
            for message in ({"role": role, "content": question}, {"role": "assistant", "content": answer})
        ]
    )


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_ids_and_mask_are_those_of_transformers(name, data, chat_tok, foreign):
    messages = data.draw(conversations(("user",) if name == "mistral" else ("user", "system", "tool")))
    ours, template = chat(chat_tok, messages, TEMPLATES[name]), TEMPLATES[name]
    marked = name in ("chatml", "content", "line")
    theirs = foreign.apply_chat_template(
        messages, chat_template=template, return_dict=True, return_assistant_tokens_mask=marked
    )
    ids = theirs["input_ids"]
    if ids[:1] != [chat_tok.bos_id]:
        ids = [chat_tok.bos_id, *ids]
    assert ours.ids.tolist() == [*ids, *([chat_tok.eos_id] if name == "alpaca" else [])]
    if not marked:
        return
    mask = theirs["assistant_masks"]
    mask = np.array([0] * (len(ids) - len(mask)) + mask, dtype=bool)
    if name == "content":  # the one addition: the end of the turn, which these marks leave out
        ends = np.flatnonzero(ours.ids == chat_tok.special_tokens["<|im_end|>"])
        for i, message in enumerate(messages):
            if message["role"] == "assistant":
                mask[ends[i] - 1 : ends[i] + 1] = True
    assert ours.trained.tolist() == mask.tolist()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.tuples(st.text(max_size=40), st.booleans()), min_size=1, max_size=5))
def test_pieces_decode_to_their_texts(texts, tokenizer):
    pieces = [Piece(text.encode("utf-8", "replace").decode("utf-8"), trained) for text, trained in texts]
    ids, trained = one(tokenizer, *pieces)
    assert tokenizer.decode(ids) == "".join(piece.text for piece in pieces)
    if trained is not None:
        kept = b"".join(piece.text.encode() for piece in pieces if piece.trained)
        assert tokenizer.token_bytes()[ids[trained]].sum() == len(kept)


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["chatml", "prefixes", "llama", "mistral"])
def test_real_conversations_decode_to_their_contents(name, chat_tok, real_data):
    lines = (real_data / "evals" / "sft" / "sft_small.jsonl").read_text(encoding="utf-8").splitlines()
    talks = [Conversation(json.loads(line)["messages"], ["assistant"]) for line in lines]
    encoded = Encoder(chat_tok, TEMPLATES[name]).encode([[talk] for talk in talks], map(str, range(len(talks))))
    assert len(encoded) == 1000
    for talk, (ids, trained) in zip(talks, encoded, strict=True):
        text, at = chat_tok.decode(ids), 0
        for message in talk.messages:
            at = text.index(message["content"].strip(), at) + len(message["content"].strip())
        answers = [m["content"] for m in talk.messages if m["role"] == "assistant"]
        assert (np.diff(trained.astype(np.int8)) == 1).sum() == len(answers)
        space = " " if name == "mistral" else ""
        assert chat_tok.decode(ids[trained]) == "".join(space + answer for answer in answers)


@pytest.mark.realdata
def test_real_tool_calls(chat_tok, real_data):
    with open(real_data / "evals" / "sft" / "tool_calls.jsonl.zst", "rb") as file:
        text = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8").read()
    talks = [json.loads(line)["messages"] for line in text.splitlines()]
    roles = ["assistant", "tool_call"]
    encoded = Encoder(chat_tok, CHATML).encode([[Conversation(talk, roles)] for talk in talks], [""] * len(talks))
    for talk, (ids, trained) in zip(talks, encoded, strict=True):
        assert chat_tok.decode(ids[trained]) == "".join(m["content"] for m in talk if m["role"] in roles)
    with_tools = next(talk for talk in talks if any(m["role"] == "tool" for m in talk))
    with pytest.raises(InputError, match="only user and assistant"):
        chat(chat_tok, with_tools, MISTRAL)
