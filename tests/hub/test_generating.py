"""Where generation ends, by the chat template, and what it never takes."""

import chat_templates
import pytest
from chat_templates import chat_tokenizer

from seedbed.data.template import CHATML
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError
from seedbed.hub.generating import end_ids, generation_config

ENDS = {
    "CHATML_PLAIN": "<|im_end|>", "LLAMA": "<|eot_id|>", "MISTRAL": "<|eos|>", "THINKING": "<|im_end|>",
    "ALPACA": "<|eos|>", "MARKED_CONTENT": "<|im_end|>", "MARKED_LINE": "<|im_end|>", "MARKED_IN_MACRO": "<|im_end|>",
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tiny_store):
    return load_tokenizer(tiny_store / "tokenizer")


@pytest.mark.parametrize("name", ENDS)
def test_an_answer_ends_where_the_template_ends_it(name, base, tmp_path):
    tokenizer = chat_tokenizer(base, tmp_path / "t", getattr(chat_templates, name))
    ends = [tokenizer.special_tokens[token] for token in dict.fromkeys(("<|eos|>", ENDS[name]))]
    assert end_ids(tokenizer) == ends


def test_without_a_template_the_end_of_text_ends(base):
    assert end_ids(base) == [base.eos_id]


def test_no_id_is_none_and_all_that_stand_for_nothing_are_left_out(base, tmp_path):
    tokenizer = chat_tokenizer(base, tmp_path / "t", CHATML, bos=False)
    pytest.importorskip("transformers")
    settings = generation_config(tokenizer, tokenizer.vocab_size + 3)
    assert settings.bos_token_id is None
    assert settings.suppress_tokens == [tokenizer.vocab_size + i for i in range(3)]
    assert generation_config(tokenizer, tokenizer.vocab_size).suppress_tokens is None
    assert "bos_token_id" not in settings.to_json_string()


def test_a_template_that_cannot_write_an_answer_is_named(base, tmp_path):
    tokenizer = chat_tokenizer(base, tmp_path / "t", "{{ raise_exception('no') }}")
    with pytest.raises(InputError, match="a question and an answer"):
        end_ids(tokenizer)
