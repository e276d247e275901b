"""A crowd of clients, some of which go away or send nonsense; and a real model."""

import asyncio
import random
import re
from collections import Counter

import pytest
from server_process import resident, started

pytest.importorskip("transformers")
pytest.importorskip("fastapi")

from seedbed.hub.models import open_model
from seedbed.serve.generate import generate
from seedbed.serve.options import Options
from seedbed.serve.prompts import text_ids

TOKENS = 24
MALFORMED = [b"", b"{", b"[]", b"\xff\xfe", b'{"model": "llama"}', b'{"model": "llama", "prompt": 3}', b"[" * 9000]
CLIENTS, ROUNDS, TOLERANCE_MIB = 200, 3, 8


async def crowd(url: str, prompts: list[str], seed: int) -> tuple[Counter, dict[str, set[str]]]:
    """How ``CLIENTS`` clients that come at once fare, and what those heard that stayed, by prompt."""
    import httpx

    rng, ends, heard = random.Random(seed), Counter(), {prompt: set() for prompt in prompts}
    limits = httpx.Limits(max_connections=CLIENTS)

    async def one(client: httpx.AsyncClient, kind: str, prompt: str) -> None:
        if kind == "nonsense":
            response = await client.post("/v1/completions", content=rng.choice(MALFORMED))
            assert response.status_code == 400 and response.json()["error"]["message"]
            ends["refused"] += 1
            return
        asked = {"model": "llama", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        if kind == "leaves":
            async with client.stream("POST", "/v1/completions", json={**asked, "stream": True}) as stream:
                if stream.status_code == 200:
                    await anext(stream.aiter_lines())
            ends["left"] += 1
            return
        while (response := await client.post("/v1/completions", json=asked)).status_code == 429:
            ends["turned away"] += 1
            await asyncio.sleep(0.05)
        assert response.status_code == 200, response.text
        heard[prompt].add(response.json()["choices"][0]["text"])
        ends["answered"] += 1

    kinds = rng.choices(["stays", "leaves", "nonsense"], [3, 1, 1], k=CLIENTS)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as client:
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(one(client, kind, rng.choice(prompts)))
        names = {"answered": "stays", "left": "leaves", "refused": "nonsense"}
        assert {end: ends[end] for end in names} == {end: kinds.count(kind) for end, kind in names.items()}
        while "seedbed_rows 0.0" not in (await client.get("/metrics")).text:
            await asyncio.sleep(0.05)
    return ends, heard


@pytest.mark.slow
def test_two_hundred_at_once(foreign_folder):
    folder = foreign_folder("llama")
    model = open_model(folder)
    rng = random.Random(0)
    prompts = [" ".join(rng.choices(["the", "small", "seed", "river", "blue", "stone"], k=n)) for n in range(1, 13)]
    ids = [text_ids(model.tokenizer, prompt) for prompt in prompts]
    texts = {p: a.text for p, a in zip(prompts, generate(model, ids, Options(TOKENS, 0.0)), strict=True)}
    process, url = started(folder, "--max-rows", "48", "--cache-tokens", "1024")
    try:
        held = []
        for number in range(ROUNDS):
            _, heard = asyncio.run(crowd(url, prompts, number))
            assert all(found <= {texts[prompt]} for prompt, found in heard.items())
            held.append(resident(process))
        import httpx

        assert httpx.get(f"{url}/health").status_code == 200
        left = re.search(r"seedbed_unfinished_total (\d+)", httpx.get(f"{url}/metrics").text)
        assert left and int(left[1]) > 0, "nobody left before the end"
        assert held[-1] - held[0] < TOLERANCE_MIB, held
    finally:
        process.terminate()
        _, told = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in told


@pytest.mark.slow
def test_a_real_chat(smollm2):
    """SmolLM2-135M-Instruct names two capitals, asked at once, and ends its turns."""
    import httpx

    process, url = started(smollm2, "--name", "smol", "--cache-tokens", "2048")
    countries = ["France", "Japan"]

    async def ask(client: httpx.AsyncClient, country: str) -> dict:
        asked = {
            "model": "smol",
            "messages": [{"role": "user", "content": f"What is the capital of {country}?"}],
            "temperature": 0,
            "max_tokens": 24,
        }
        return (await client.post("/v1/chat/completions", json=asked)).json()

    async def together() -> list[dict]:
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            return await asyncio.gather(*(ask(client, country) for country in countries))

    try:
        choices = [answer["choices"][0] for answer in asyncio.run(together())]
    finally:
        process.terminate()
        process.communicate(timeout=60)
    for choice, capital in zip(choices, ("Paris", "Tokyo"), strict=True):
        assert capital in choice["message"]["content"] and "<|" not in choice["message"]["content"]
    assert choices[0]["finish_reason"] == "stop", "the end of turn ends it"
