"""Texts and conversations as ids: equal to Transformers', one begin of text, no control token from a message."""

import pytest
from chat_templates import ALPACA, CHATML_PLAIN, LLAMA, MISTRAL, THINKING, chat_tokenizer

from seedbed.config import Config
from seedbed.data.chat import Chat
from seedbed.data.template import CHATML
from seedbed.errors import InputError
from seedbed.hub.generating import end_of_turn
from seedbed.hub.models import LanguageModel
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.serve.chat import Talk
from seedbed.serve.generate import generate
from seedbed.serve.options import Options
from seedbed.serve.prompts import chat_ids, check_ids, cut, text_ids
from seedbed.serve.requests import requests

TALK = [
    {"role": "user", "content": "the small stone"},
    {"role": "assistant", "content": "a river"},
    {"role": "user", "content": "the\nriver <|im_end|> 中"},
]


def test_a_text_begins_as_texts_do(tiny_tokenizer, monkeypatch):
    bos, eos, plain = tiny_tokenizer.bos_id, tiny_tokenizer.eos_id, tiny_tokenizer.encode("the river")
    assert text_ids(tiny_tokenizer, "the river") == [bos, *plain]
    assert text_ids(tiny_tokenizer, "") == [bos]
    monkeypatch.setattr(tiny_tokenizer, "start", [])  # case 45
    assert text_ids(tiny_tokenizer, "the river") == plain
    assert text_ids(tiny_tokenizer, "") == [eos]


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("template", [CHATML_PLAIN, LLAMA, THINKING, ALPACA])
def test_a_conversation_is_what_transformers_makes_of_it(tiny_tokenizer, tmp_path, template, bos):
    transformers = pytest.importorskip("transformers")
    if not bos and "bos_token" in template:
        template = template.replace("{{ bos_token }}", "")
    tokenizer = chat_tokenizer(tiny_tokenizer, tmp_path / "t", template, bos=bos)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "t")
    talk = [*TALK[:2], {"role": "user", "content": "the river"}]
    expected = theirs.apply_chat_template(talk, add_generation_prompt=True)["input_ids"]
    start = [] if expected[:1] == [tokenizer.bos_id] else tokenizer.start  # a template that writes none gets one
    assert chat_ids(tokenizer, Chat(template, tokenizer), talk, "talk") == [*start, *expected]


def test_a_control_token_in_a_message_is_text(tiny_tokenizer, tmp_path):
    tokenizer = chat_tokenizer(tiny_tokenizer, tmp_path / "t", CHATML)
    ids = chat_ids(tokenizer, Chat(CHATML, tokenizer), TALK, "talk")
    assert ids.count(tokenizer.token_id("<|im_end|>")) == 3
    assert ids.count(tokenizer.bos_id) == 1
    assert ids[0] == tokenizer.bos_id
    assert "<|im_end|> 中" in tokenizer.decode(ids)


def test_the_end_of_the_turn_is_found_in_the_template(tiny_tokenizer, tmp_path):
    tokenizer = chat_tokenizer(tiny_tokenizer, tmp_path / "t")
    ends = {CHATML: "<|im_end|>", LLAMA: "<|eot_id|>", MISTRAL: tokenizer.eos_token, ALPACA: tokenizer.eos_token}
    for template, end in ends.items():
        assert end_of_turn(tokenizer, Chat(template, tokenizer)) == tokenizer.token_id(end)


def test_a_conversation_that_the_template_refuses_is_named(tiny_tokenizer, tmp_path):
    tokenizer = chat_tokenizer(tiny_tokenizer, tmp_path / "t", MISTRAL)
    with pytest.raises(InputError, match=r"rows.jsonl:3: chat template.*only user and assistant"):
        chat_ids(tokenizer, Chat(MISTRAL, tokenizer), [{"role": "system", "content": "x"}], "rows.jsonl:3")


def test_a_cut_prompt_keeps_its_begin_of_text_and_its_end(tiny_tokenizer, monkeypatch):
    bos = tiny_tokenizer.bos_id
    assert cut([bos, 5, 6, 7, 8], tiny_tokenizer, 5) == [bos, 5, 6, 7, 8]
    assert cut([bos, 5, 6, 7, 8], tiny_tokenizer, 3) == [bos, 7, 8]
    assert cut([4, 5, 6, 7, 8], tiny_tokenizer, 3) == [6, 7, 8]
    monkeypatch.setattr(tiny_tokenizer, "bos_id", None)
    assert cut([bos, 5, 6, 7, 8], tiny_tokenizer, 3) == [6, 7, 8]


def test_control_tokens_without_a_row_are_refused(tiny_tokenizer, tmp_path):
    """Many checkpoints have them: added to the tokenizer, not to the embedding."""
    tokenizer = chat_tokenizer(tiny_tokenizer, tmp_path / "t", CHATML)
    ids = chat_ids(tokenizer, Chat(CHATML, tokenizer), TALK, "talk")
    rows = tokenizer.special_tokens["<|im_start|>"]
    shape = [f"model.vocab_size={rows}", "model.d_model=32", "model.n_layers=2", "model.max_seq_len=128"]
    module = Decoder(Config.load(None, shape).model)
    initialize_(module, "gamma")
    model = LanguageModel("small", module, tokenizer, 128)
    assert model.known.shape == (rows,) and rows not in model.readable
    with pytest.raises(InputError, match=f"^talk: {rows} is the id of no token that small has an embedding of"):
        check_ids(model, ids, "talk")
    with pytest.raises(InputError, match=f"prompt 1: {rows} is"):
        generate(model, [ids], Options())
    talk = Talk(model, Chat(CHATML, tokenizer), Options())
    with pytest.raises(InputError, match=f"chat: {rows} is"):
        talk.reply("a", lambda _: None, lambda _: None)
    assert talk.turns == []
    with pytest.raises(InputError, match=f"row 1: {rows} is"):
        requests(model, [{"messages": TALK}], Options(), "tokenizer", "drop")
    plain = text_ids(tokenizer, "the river")
    options = Options(max_new_tokens=3, temperature=0.0, repetition_penalty=1.3)
    assert max(generate(model, [plain], options)[0].ids) < rows
