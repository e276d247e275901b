"""Token analysis against the two models' own evaluation on the same batches, in one run.

    python benchmarks/tokens.py [--rounds 5] [--texts 200]

Texts of the standard library, cut to 256 tokens, vocabulary 4,096. Two of our models in the shape of recipes/cpu.yaml,
then two Llamas of Transformers of about that size, all with random weights. Evaluation is `LanguageModel.losses` of
both; analysis is all of `analyze`: losses, ranks of six texts, rows and intervals. Rounds are interleaved, so that a
slow moment of the machine hits both, and alternate which comes first. Prints the speed of analysis relative to
evaluation: median and range over rounds.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from seedbed.analysis.tokens import BATCH_TOKENS, analyze
from seedbed.config import Config
from seedbed.data.batching import batches, padded
from seedbed.data.bpe import train_tokenizer
from seedbed.data.stdlib import Record, stdlib_records
from seedbed.data.texts import Text, Texts
from seedbed.data.tokenizer import Tokenizer
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel
from seedbed.init import initialize_
from seedbed.model import Decoder

RECIPE = Path(__file__).parent.parent / "recipes" / "cpu.yaml"
VOCABULARY, LENGTH = 4096, 256


def our_model(tokenizer: Tokenizer, seed: int) -> LanguageModel:
    decoder = Decoder(Config.load(str(RECIPE), [f"model.vocab_size={tokenizer.vocab_size}"]).model)
    initialize_(decoder, "normal", seed=seed)
    return LanguageModel(f"ours {seed}", decoder.eval(), tokenizer, LENGTH)


def their_model(tokenizer: Tokenizer, seed: int) -> LanguageModel:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
        use_cache=False,
    )
    return LanguageModel(f"Llama {seed}", LlamaForCausalLM(config).eval(), tokenizer, LENGTH)


def encoded(tokenizer: Tokenizer, records: Sequence[Record], count: int, length: int = LENGTH) -> Texts:
    assert tokenizer.bos_id is not None
    found = []
    for number, record in enumerate(records[:count]):
        ids = [tokenizer.bos_id, *tokenizer.encode(record["text"])]
        kept = Text(str(number), f"d{number % 8}", "", record["text"], ids[:length], max(len(ids) - length, 0))
        found.append(kept)
    return Texts(found)


def race(name: str, a: LanguageModel, b: LanguageModel, texts: Texts, rounds: int) -> None:
    def evaluate() -> None:
        for batch in batches(texts.texts, BATCH_TOKENS):
            ids, doc_ids = padded(batch, pad_id=0)
            for model in (a, b):
                model.losses(ids, doc_ids)

    def analysis() -> None:
        analyze(a, b, texts, LENGTH, Parts(None, 0), lambda _: None)

    evaluate()
    analysis()
    seconds: dict[str, list[float]] = {"evaluation": [], "analysis": []}
    order = [("evaluation", evaluate), ("analysis", analysis)]
    for _ in range(rounds):
        for what, work in order:
            began = time.perf_counter()
            work()
            seconds[what].append(time.perf_counter() - began)
        order.reverse()
    ratios = sorted(e / s for e, s in zip(seconds["evaluation"], seconds["analysis"], strict=True))
    speed = texts.tokens / statistics.median(seconds["analysis"])
    print(
        f"{name:<24} {texts.tokens:,} tokens, {len(texts.texts):,} texts: {speed:,.0f} tokens/s through both, "
        f"{statistics.median(ratios):.2f}x evaluation ({ratios[0]:.2f}-{ratios[-1]:.2f}, {rounds} rounds)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=200)
    arguments = parser.parse_args()
    records = list(stdlib_records(max_bytes=3_000_000))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_tokenizer((record["text"] for record in records), VOCABULARY, Path(folder) / "tokenizer")
        texts = encoded(tokenizer, records, arguments.texts)
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
        for name, make in (("ours", our_model), ("Transformers' Llama", their_model)):
            race(name, make(tokenizer, 1), make(tokenizer, 2), texts, arguments.rounds)


if __name__ == "__main__":
    main()
