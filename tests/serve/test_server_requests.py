"""What may be asked of the server, without a server."""

import json

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("transformers")

from seedbed.serve.server_requests import ChatAsked, CompletionAsked, Refusal, options_of, read_request


def completion(**fields):
    return read_request(json.dumps({"model": "m", "prompt": "a", **fields}).encode(), CompletionAsked)


def chat(messages, **fields):
    return read_request(json.dumps({"model": "m", "messages": messages, **fields}).encode(), ChatAsked)


def test_null_counts_as_absent():
    asked = completion(temperature=None, stop=None, seed=None, logprobs=None, tools=None, max_tokens=None)
    assert asked == completion()
    assert (asked.temperature, asked.top_p, asked.n, asked.new_tokens()) == (1.0, 1.0, 1, None)


@pytest.mark.parametrize(
    ("prompt", "one_by_one"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_four_forms_of_prompts(prompt, one_by_one):
    assert completion(prompt=prompt).prompts() == one_by_one


def test_options():
    asked = completion(temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, repetition_penalty=1.2, stop="x")
    options = options_of(asked, 7)
    assert (options.max_new_tokens, options.temperature, options.top_k, options.top_p) == (7, 0.5, 3, 0.9)
    assert (options.min_p, options.repetition_penalty, options.stop) == (0.1, 1.2, ("x",))
    assert options_of(completion(stop=["x", "y"]), 7).stop == ("x", "y")


def test_content_in_parts_is_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = chat([{"role": "user", "content": parts}], max_completion_tokens=3)
    assert [message.as_template() for message in asked.messages] == [{"role": "user", "content": "ab"}]
    assert asked.new_tokens() == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 1), ("logit_bias", {}), ("echo", False), ("frequency_penalty", 0.0), ("response_format", {"type": "text"})],
)
def test_what_asks_for_nothing_is_taken(name, value):
    assert completion(**{name: value}) == completion()


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"prompt": ""}, "prompt", "none of them empty"),
        ({"prompt": []}, "prompt", "none of them empty"),
        ({"prompt": ["a", ""]}, "prompt", "none of them empty"),
        ({"prompt": [1, "a"]}, "prompt", "a text, token ids"),
        ({"prompt": "a \ud83d"}, "prompt", "lone surrogate"),
        ({"prompt": None}, "prompt", "is missing"),
        ({"model": 3}, "model", "GET /v1/models"),
        ({"model": "\ud83d"}, "model", "lone surrogate"),
        ({"user": "\ud83d"}, "user", "lone surrogate"),
        ({"max_tokens": 0}, "max_tokens", "whole number from 1"),
        ({"max_tokens": 1.5}, "max_tokens", "whole number"),
        ({"n": True}, "n", "whole number"),
        ({"n": 0}, "n", "from 1"),
        ({"temperature": "1"}, "temperature", "a number"),
        ({"temperature": -0.1}, "temperature", "from 0"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"top_k": 0}, "top_k", "from 1"),
        ({"seed": -1}, "seed", "from 0"),
        ({"stop": ""}, "stop", "none of them empty"),
        ({"stop": ["a"] * 17}, "stop", "up to 16"),
        ({"stream": 1}, "stream", "true or false"),
        ({"stream_options": {"usage": True}}, "stream_options", "include_usage"),
        ({"logprobs": 2}, "logprobs", "no probabilities"),
        ({"logprobs": 0}, "logprobs", "no probabilities"),
        ({"echo": True}, "echo", "not supported"),
        ({"best_of": 2}, "best_of", "not supported"),
        ({"presence_penalty": 0.5}, "presence_penalty", "not supported"),
        ({"temprature": 1}, "temprature", "no such field"),
        ({"messages": []}, "messages", "no such field"),
    ],
)
def test_refused_in_one_line(fields, param, words):
    with pytest.raises(Refusal) as caught:
        completion(**fields)
    assert caught.value.status == 400
    assert caught.value.error["param"] == param
    assert caught.value.error["type"] == "invalid_request_error"
    message = caught.value.error["message"]
    assert message.startswith(f"{param}: ") and words in message and "\n" not in message


@pytest.mark.parametrize(
    ("messages", "fields", "words"),
    [
        ([], {}, "not empty"),
        ("hi", {}, "a list of"),
        ([{"role": "tool", "content": "x"}], {}, '"user"'),
        ([{"role": "user"}], {}, '"content"'),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], {}, "a text"),
        ([{"role": "user", "content": "x", "name": "y"}], {}, "a list of"),
        ([{"role": "user", "content": "x"}], {"max_tokens": 1, "max_completion_tokens": 2}, "not both"),
        ([{"role": "user", "content": "x"}], {"logprobs": True}, "no probabilities"),
        ([{"role": "user", "content": "x"}], {"top_logprobs": 3}, "no probabilities"),
        ([{"role": "user", "content": "x"}], {"response_format": {"type": "json_object"}}, "not supported"),
        ([{"role": "user", "content": "x"}], {"tools": [{"type": "function"}]}, "not supported"),
    ],
)
def test_chats_refused_in_one_line(messages, fields, words):
    with pytest.raises(Refusal) as caught:
        chat(messages, **fields)
    assert words in caught.value.error["message"] and "\n" not in caught.value.error["message"]


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[1]", b"3", b"[" * 100_000, b'{"model": ' + b"1" * 5000 + b"}"])
def test_a_body_that_is_no_request(raw):
    with pytest.raises(Refusal) as caught:
        read_request(raw, CompletionAsked)
    assert caught.value.status == 400 and caught.value.error["message"].startswith("the body is not")


def test_a_field_whose_name_is_no_text():
    with pytest.raises(Refusal, match="the name of a field: a text holds a lone surrogate"):
        completion(**{"\ud83d": 1})


def test_not_a_number():
    with pytest.raises(Refusal, match="top_p"):
        read_request(b'{"model": "m", "prompt": "a", "top_p": NaN}', CompletionAsked)
