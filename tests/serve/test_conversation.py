"""A conversation: turns are kept while they fit and forgotten from the oldest on; an interrupted one keeps its text."""

import pytest
from chat_templates import CHATML_PLAIN, chat_tokenizer

from seedbed.data.chat import Chat
from seedbed.errors import InputError
from seedbed.hub.models import LanguageModel
from seedbed.serve.chat import Talk
from seedbed.serve.generate import generate
from seedbed.serve.options import Options
from seedbed.serve.prompts import chat_ids, text_ids


@pytest.fixture(scope="module")
def model(make_model, tmp_path_factory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("chat") / "t"
    made = make_model("model.max_seq_len=128")
    tokenizer = chat_tokenizer(made.tokenizer, folder, CHATML_PLAIN, control=["<|im_start|>", "<|im_end|>"])
    return LanguageModel("tiny", made.module, tokenizer, 128)


def talk(model: LanguageModel, plain: bool = False, **options) -> Talk:
    chat = None if plain else Chat(CHATML_PLAIN, model.tokenizer)
    return Talk(model, chat, Options(**{"max_new_tokens": 4, "temperature": 0.0, **options}))


def never(_: object) -> None:
    raise AssertionError


def quiet(_: object) -> None:
    pass


def test_a_turn_is_answered_with_what_was_said_before(model):
    talked = talk(model)
    talked.system = "so"
    heard: list[str] = []
    first = talked.reply("a", heard.append, never)
    assert "".join(heard) == first.text
    second = talked.reply("b", quiet, never)
    said = [("system", "so"), ("user", "a"), ("assistant", first.text), ("user", "b"), ("assistant", second.text)]
    messages = [{"role": role, "content": content} for role, content in said]
    assert talked.turns == messages[1:]
    ids = chat_ids(model.tokenizer, Chat(CHATML_PLAIN, model.tokenizer), messages[:4], "t")
    assert generate(model, [ids], talked.options)[0].ids == second.ids
    talked.reset()
    assert talked.reply("a", quiet, never).text == first.text


def test_the_end_of_the_turn_ends_it(model, monkeypatch):
    talked = talk(model)
    whole = talked.reply("a", quiet, never).ids
    assert whole[1] != whole[0]
    monkeypatch.setattr("seedbed.serve.chat.end_of_turn", lambda *_: whole[1])
    talked.reset()
    answer = talked.reply("a", quiet, never)
    assert (answer.ids, answer.finish) == (whole[:2], "stop")


def test_each_answer_draws_anew_and_a_seed_repeats_them(model):
    def answers(seed: int) -> list[list[int]]:
        talked = talk(model, temperature=1.0)
        talked.seed = seed
        return [(talked.reset(), talked.reply("a", quiet, never).ids)[1] for _ in range(2)]

    assert answers(0) == answers(0)
    assert answers(0)[1] == answers(1)[0] != answers(0)[0]


def test_the_oldest_turns_are_forgotten_when_the_context_is_full(model):
    """The model reads 128 tokens, of which 4 are kept for the answer."""
    talked, forgotten = talk(model), []
    for _ in range(5):
        talked.reply("the small stone", quiet, forgotten.append)
        assert talked.turns[0]["role"] == "user"
        assert talked.turns[-1]["role"] == "assistant"
    assert forgotten
    assert set(forgotten) == {2}
    before = list(talked.turns)
    with pytest.raises(InputError, match=r"tokens with what goes before, tiny reads at most 128 with the answer"):
        talked.reply("the small stone " * 60, never, never)
    assert talked.turns == before


def test_what_was_heard_of_an_interrupted_answer_is_kept(model):
    talked, heard = talk(model), []

    def interrupt(text: str) -> None:
        heard.append(text)
        if len(heard) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        talked.reply("a", interrupt, never)
    assert talked.turns == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "".join(heard)}]
    assert talked.seed == 1


def test_plain_goes_on_with_one_text(model):
    talked = talk(model, plain=True)
    first = talked.reply("the small", quiet, never)
    second = talked.reply(" stone", quiet, never)
    ids = text_ids(model.tokenizer, f"the small{first.text} stone")
    assert second.ids == generate(model, [ids], talked.options)[0].ids
