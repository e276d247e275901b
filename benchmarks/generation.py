"""Generation against Transformers' ``generate`` for the same Llama, in one run.

    python benchmarks/generation.py [--rounds 5] [--model FOLDER-OR-GGUF] [--batches 1 8]

Without ``--model`` a small one with random weights; it is imported, and both write 128 tokens behind prompts of 64,
greedily, so that they can be compared: the number of equal tokens is shown. Rounds are interleaved, so that a slow
moment of the machine hits both. Prints tokens a second of all rows together and the ratio with its spread over rounds.
OMP_NUM_THREADS sets the threads.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from seedbed.data.bpe import train_tokenizer
from seedbed.data.stdlib import stdlib_records
from seedbed.hub.importing import import_checkpoint
from seedbed.hub.models import LanguageModel, open_model
from seedbed.serve.generate import generate
from seedbed.serve.options import Options

WIDTH, LAYERS, HEADS, D_FF, VOCAB, LENGTH = 384, 6, 6, 1024, 8192, 512
PROMPT, NEW = 64, 128


def small(folder: Path) -> Path:
    """A Llama with random weights and a tokenizer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=D_FF, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, max_position_embeddings=LENGTH, tie_word_embeddings=False, bos_token_id=0,
        eos_token_id=1, initializer_range=0.1,
    )  # fmt: skip
    train_tokenizer((record["text"] for record in stdlib_records()), VOCAB, folder)
    (folder / "commit.json").unlink()
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def race(theirs: Any, ours: LanguageModel, rows: int, rounds: int) -> None:
    prompts = torch.randint(len(ours.tokenizer.known()), (rows, PROMPT), generator=torch.Generator().manual_seed(rows))

    def by_transformers() -> Tensor:
        options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        return theirs.generate(input_ids=prompts, attention_mask=torch.ones_like(prompts), **options)[:, PROMPT:]

    def by_us() -> Tensor:
        answers = generate(ours, prompts.tolist(), Options(NEW, 0.0), ends=(), batch_size=rows)
        return torch.tensor([answer.ids for answer in answers])

    contestants: dict[str, Callable[[], Tensor]] = {"seedbed": by_us, "transformers": by_transformers}
    written = {name: write() for name, write in contestants.items()}  # allocating too
    same = (written["seedbed"] == written["transformers"]).sum()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, write in contestants.items():
            began = time.perf_counter()
            write()
            seconds[name].append(time.perf_counter() - began)
    ratios = sorted(b / a for a, b in zip(seconds["seedbed"], seconds["transformers"], strict=True))
    for name, spent in seconds.items():
        print(f"  {name:<14} {rows * NEW / statistics.median(spent):>8,.0f} tokens/s")
    print(f"  ratio          {statistics.median(ratios):8.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    print(f"  equal tokens   {int(same):,} of {rows * NEW:,}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or small(Path(folder) / "llama")
        import_checkpoint(path, Path(folder) / "run", lambda _: None)
        theirs, ours = open_model(path).module, open_model(Path(folder) / "run")
    print(f"{arguments.model or 'small Llama'}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    for rows in arguments.batches:
        print(f"{rows} rows, {PROMPT} + {NEW} tokens, {arguments.rounds} rounds")
        race(theirs, ours, rows, arguments.rounds)


if __name__ == "__main__":
    main()
