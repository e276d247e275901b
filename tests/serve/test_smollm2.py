"""A real model answers a question by its own chat template."""

import pytest

from seedbed.data.chat import Chat
from seedbed.serve.chat import Talk
from seedbed.serve.options import Options


@pytest.mark.slow
def test_smollm2_answers_and_remembers(smollm2_model):
    model = smollm2_model
    assert model.tokenizer.chat_template
    talk = Talk(model, Chat(model.tokenizer.chat_template, model.tokenizer), Options(24, 0.0))
    parts: list[str] = []
    answer = talk.reply("What is the capital of France?", parts.append, lambda _: None)
    assert "Paris" in answer.text
    assert (answer.finish, "".join(parts)) == ("stop", answer.text)
    assert len(parts) > 3
    assert "Rome" in talk.reply("And of Italy?", parts.append, lambda _: None).text
