"""The server over HTTP: answers, streams, limits, ends."""

import asyncio
import json
import threading
import time
from contextlib import suppress

import pytest

pytest.importorskip("transformers")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

import httpx
from serving import make_service, running

from seedbed.serve.generate import generate
from seedbed.serve.options import Options
from seedbed.serve.prompts import text_ids
from seedbed.serve.server_draws import Chooser

PROMPT = "the small seed"
ASKED = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "seed"}], "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def service(tiny_model):
    return make_service(tiny_model)


@pytest.fixture(scope="module")
def client(service):
    with running(service) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture
def slow(monkeypatch):
    """Each step of the engine takes a twentieth of a second."""
    call = Chooser.__call__

    def waiting(self, scores, arg):
        time.sleep(0.05)
        return call(self, scores, arg)

    monkeypatch.setattr(Chooser, "__call__", waiting)


def error(response, status: int) -> str:
    """The message of an error of OpenAI's form."""
    assert response.status_code == status, response.text
    content = response.json()
    assert set(content) == {"error"} and set(content["error"]) == {"message", "type", "param", "code"}
    assert "\n" not in content["error"]["message"]
    return content["error"]["message"]


def free(service, within: float) -> None:
    """Wait until nothing is being written."""
    until = time.monotonic() + within
    while service.engine.written:
        assert time.monotonic() < until
        time.sleep(0.01)


def events(response) -> list:
    """What a stream held; the last is [DONE]."""
    assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
    parts = [part.removeprefix("data: ") for part in response.text.split("\n\n") if part]
    assert parts[-1] == "[DONE]"
    return [json.loads(part) for part in parts[:-1]]


def expected(model, prompt: str = PROMPT, seed: int = 0, **options):
    options = Options(**{"max_new_tokens": 12, "temperature": 0.0, **options})
    return generate(model, [text_ids(model.tokenizer, prompt)], options, [seed])[0]


def test_a_completion(client, tiny_model):
    answer, prompt = expected(tiny_model), len(text_ids(tiny_model.tokenizer, PROMPT))
    content = client.post("/v1/completions", json=ASKED).json()
    assert content.pop("id").startswith("cmpl-") and abs(content.pop("created") - time.time()) < 60
    usage = {
        "prompt_tokens": prompt, "completion_tokens": len(answer.ids), "total_tokens": prompt + len(answer.ids)
    }  # fmt: skip
    assert content == {
        "object": "text_completion",
        "model": "tiny",
        "choices": [{"index": 0, "text": answer.text, "logprobs": None, "finish_reason": "length"}],
        "usage": usage,
    }


def test_a_stream_is_the_same_text(client, tiny_model):
    answer = expected(tiny_model)
    parts = events(client.post("/v1/completions", json={**ASKED, "stream": True}))
    assert "".join(part["choices"][0]["text"] for part in parts) == answer.text
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]
    assert len({part["id"] for part in parts}) == 1 and len(parts) > 3
    *_, last = events(
        client.post("/v1/completions", json={**ASKED, "stream": True, "stream_options": {"include_usage": True}})
    )
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 12


def test_several_prompts_several_answers(client, tiny_model):
    """Choice number i draws by seed + i, as rows of `seedbed generate` do."""
    asked = {**ASKED, "prompt": [PROMPT, "river"], "n": 2, "temperature": 1.0, "seed": 5}
    content = client.post("/v1/completions", json=asked).json()
    texts = [expected(tiny_model, p, 5 + i, temperature=1.0).text for i, p in enumerate([PROMPT] * 2 + ["river"] * 2)]
    assert [(c["index"], c["text"]) for c in content["choices"]] == list(enumerate(texts))
    assert content["usage"]["prompt_tokens"] == sum(len(text_ids(tiny_model.tokenizer, p)) for p in (PROMPT, "river"))
    parts = events(client.post("/v1/completions", json={**asked, "stream": True}))
    streamed = ["".join(c["text"] for p in parts for c in p["choices"] if c["index"] == i) for i in range(4)]
    assert streamed == texts


def test_ids_as_prompts(client, tiny_model):
    ids = text_ids(tiny_model.tokenizer, PROMPT)
    content = client.post("/v1/completions", json={**ASKED, "prompt": ids}).json()
    assert content["choices"][0]["text"] == expected(tiny_model).text
    hole = tiny_model.tokenizer.vocab_size  # padding of the vocabulary
    assert f"{hole} is the id of no token" in error(
        client.post("/v1/completions", json={**ASKED, "prompt": [hole]}), 400
    )


def test_a_stop_text_across_tokens(client, tiny_model):
    whole = expected(tiny_model).text
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    cut = whole[: whole.index(stop)]
    choice = client.post("/v1/completions", json={**ASKED, "stop": [stop, "never"]}).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (cut, "stop")
    parts = events(client.post("/v1/completions", json={**ASKED, "stop": stop, "stream": True}))
    assert "".join(part["choices"][0]["text"] for part in parts) == cut


def test_a_chat(client):
    content = client.post("/v1/chat/completions", json=CHAT).json()
    assert content["object"] == "chat.completion" and content["id"].startswith("chatcmpl-")
    message = content["choices"][0]["message"]
    assert message["role"] == "assistant" and message["content"]
    first, *parts = events(client.post("/v1/chat/completions", json={**CHAT, "stream": True}))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in parts) == message["content"]
    assert all(part["object"] == "chat.completion.chunk" for part in parts)


def test_a_chat_without_a_number_gets_the_room_there_is(client, service):
    asked = {key: value for key, value in CHAT.items() if key != "max_tokens"}
    usage = client.post("/v1/chat/completions", json=asked).json()["usage"]
    assert usage["completion_tokens"] <= min(service.limits.max_new_tokens, 48 - usage["prompt_tokens"])
    assert usage["completion_tokens"] > 12


def test_openai_client(client):
    openai = pytest.importorskip("openai")
    ours = openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="any", max_retries=0)
    assert [model.id for model in ours.models.list()] == ["tiny"]
    assert ours.models.retrieve("tiny").id == "tiny"
    text = ours.completions.create(**ASKED).choices[0].text
    assert "".join(part.choices[0].text for part in ours.completions.create(**ASKED, stream=True)) == text
    said = ours.chat.completions.create(**CHAT, user="me").choices[0].message.content
    stream = ours.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True})
    parts = list(stream)
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == said
    assert parts[-1].usage.total_tokens > 0
    with pytest.raises(openai.BadRequestError, match="logprobs: is not supported"):
        ours.completions.create(**ASKED, logprobs=2)
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        ours.completions.create(**{**ASKED, "model": "other"})


def test_models_health_metrics(client):
    before = client.get("/metrics").text
    client.post("/v1/completions", json=ASKED)
    client.post("/v1/completions", content=b"{")
    after = client.get("/metrics").text

    def value(text: str, name: str) -> float:
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " ")), 0.0)

    def grown(name: str) -> float:
        return value(after, name) - value(before, name)

    assert grown('seedbed_requests_total{path="/v1/completions",status="200"}') == 1
    assert grown('seedbed_requests_total{path="/v1/completions",status="400"}') == 1
    assert grown("seedbed_new_tokens_total") == 12 and grown("seedbed_request_seconds_count") == 1
    assert value(after, "seedbed_rows") == 0 and value(after, "seedbed_up") == 1
    assert 0 <= value(after, "seedbed_cache_used") < 1
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/v1/models").json()["data"][0]["id"] == "tiny"


def test_no_such_path(client):
    assert "Not Found" in error(client.post("/load_model", json={}), 404)
    assert "Not Allowed" in error(client.get("/v1/completions"), 405)
    assert "is not served here" in error(client.get("/v1/models/other"), 404)


def test_limits_of_one_request(client, tiny_model):
    def refused(**fields) -> str:
        return error(client.post("/v1/completions", json={**ASKED, **fields}), 400)

    long = [text_ids(tiny_model.tokenizer, "a")[-1]]
    assert "a prompt of 31 tokens; the server takes 30" in refused(prompt=long * 31)
    assert "30 tokens and 19 new ones; together 48 are the most" in refused(prompt=long * 30, max_tokens=19)
    assert client.post("/v1/completions", json={**ASKED, "prompt": long * 30, "max_tokens": 18}).status_code == 200
    assert "max_tokens: 41; the server writes at most 40" in refused(max_tokens=41)
    assert "9 answers (prompts x n): the server writes at most 8" in refused(n=9)
    assert "is missing" in error(client.post("/v1/completions", json={"model": "tiny"}), 400)


def test_a_body_too_large(client):
    large = b" " * 5000
    assert "more than 4,096 bytes" in error(client.post("/v1/completions", content=large), 413)
    sent = []

    def parts():
        for _ in range(400):
            sent.append(1)
            yield b" " * 2**16

    with suppress(httpx.TransportError):  # without a length; the connection closes before all of it was sent
        assert error(client.post("/v1/completions", content=parts()), 413)
    assert len(sent) < 400
    assert client.post("/v1/completions", json=ASKED).status_code == 200


def test_too_many_at_once(client, slow):
    busy = threading.Thread(target=client.post, args=["/v1/completions"], kwargs={"json": {**ASKED, "n": 8}})
    busy.start()
    while "seedbed_rows 8.0" not in client.get("/metrics").text:
        time.sleep(0.01)
    response = client.post("/v1/completions", json=ASKED)
    assert "8 answers are being written" in error(response, 429) and int(response.headers["retry-after"]) > 0
    busy.join()
    assert client.post("/v1/completions", json=ASKED).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_frees_its_row(client, service, slow, stream):
    before = service.metrics.unfinished._value.get()

    async def leave() -> None:
        async with httpx.AsyncClient(base_url=client.base_url) as other:
            asked = {**ASKED, "max_tokens": 40, "stream": stream}
            task = asyncio.create_task(other.post("/v1/completions", json=asked))
            while service.engine.written == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(leave())
    free(service, within=1.5)  # forty steps take two seconds
    assert service.metrics.unfinished._value.get() == before + 1


def test_a_key(tiny_model):
    with running(make_service(tiny_model), key="secret") as url:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
            response = httpx.post(f"{url}/v1/completions", json=ASKED, headers=headers)
            assert "API key" in error(response, 401) and "secret" not in response.text
            assert httpx.get(f"{url}/v1/models", headers=headers).status_code == 401
            assert httpx.get(f"{url}/metrics", headers=headers).status_code == 401
        assert httpx.get(f"{url}/health").status_code == 200
        right = {"authorization": "Bearer secret"}
        assert httpx.post(f"{url}/v1/completions", json=ASKED, headers=right, timeout=60).status_code == 200
        assert httpx.get(f"{url}/v1/models", headers={"authorization": b"Bearer \xff"}).status_code == 401


def test_out_of_time_and_without_a_template(tiny_model, slow):
    service = make_service(tiny_model, template=None, timeout_s=0.4)
    with running(service) as url:
        assert "has no chat template" in error(httpx.post(f"{url}/v1/chat/completions", json=CHAT), 400)
        asked = {**ASKED, "max_tokens": 40}
        assert "not finished within 0.4 s" in error(httpx.post(f"{url}/v1/completions", json=asked), 504)
        *_, last = httpx.post(f"{url}/v1/completions", json={**asked, "stream": True}).text.strip().split("\n\n")
        assert json.loads(last.removeprefix("data: "))["error"]["message"] == "not finished within 0.4 s"
        free(service, within=1)


def test_an_engine_that_fails(tiny_model, monkeypatch):
    """Requests that run get 500, streams an error; later ones 500; health turns bad."""

    def failing(self, scores, arg):
        raise RuntimeError("no memory")

    with running(make_service(tiny_model)) as url:
        monkeypatch.setattr(Chooser, "__call__", failing)
        assert "no memory" in error(httpx.post(f"{url}/v1/completions", json=ASKED, timeout=60), 500)
        while httpx.get(f"{url}/health").status_code == 200:
            time.sleep(0.01)
        assert httpx.get(f"{url}/health").status_code == 503
        assert "the engine failed: no memory" in error(httpx.post(f"{url}/v1/completions", json=ASKED), 500)
        assert "seedbed_up 0.0" in httpx.get(f"{url}/metrics").text


def test_an_engine_that_fails_in_a_stream(tiny_model, monkeypatch):
    call = Chooser.__call__

    def failing(self, scores, arg):
        if any(len(state.generated_tokens) == 5 for state in self._states):
            raise RuntimeError("no memory")
        return call(self, scores, arg)

    with running(make_service(tiny_model)) as url:
        monkeypatch.setattr(Chooser, "__call__", failing)
        response = httpx.post(f"{url}/v1/completions", json={**ASKED, "stream": True}, timeout=60)
        last = response.text.strip().split("\n\n")[-1]
        assert "no memory" in json.loads(last.removeprefix("data: "))["error"]["message"]


def test_while_it_shuts_down(tiny_model, slow):
    """New requests get 503, those that run come to their end."""
    service, found = make_service(tiny_model), []
    with running(service) as url:
        busy = threading.Thread(
            target=lambda: found.append(httpx.post(f"{url}/v1/completions", json=ASKED, timeout=60))
        )
        busy.start()
        while service.engine.written == 0:
            time.sleep(0.01)
        service.draining = True
        assert "shutting down" in error(httpx.post(f"{url}/v1/completions", json=ASKED), 503)
        assert httpx.get(f"{url}/health").status_code == 503
        busy.join()
    assert found[0].status_code == 200 and found[0].json()["usage"]["completion_tokens"] == 12
