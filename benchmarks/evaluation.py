"""Evaluation against a bare forward loop over the same tokens, in one run.

    python benchmarks/evaluation.py [--rounds 5] [--texts 200]

Texts of the standard library in windows of 256 tokens, vocabulary 4,096; a model of ours in the shape of
recipes/cpu.yaml and a Llama of Transformers of about that size, with random weights. Bare is what a script would do:
the same windows, sorted by length into the same batches, the module's own logits and one cross-entropy. Evaluation is
all of `perplexity`: windows, batches, losses, scores by domain with their errors; then the same texts strided (against
bare on those windows), and minimal pairs of their sentences. Rounds are interleaved, so that a slow moment of the
machine hits both, and alternate which comes first. Prints the speed relative to bare: median and range over rounds; the
goal is 0.9.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokens import LENGTH, VOCABULARY, encoded, our_model, their_model
from torch.nn import functional as F

from seedbed.data.batching import batches, padded
from seedbed.data.bpe import train_tokenizer
from seedbed.data.stdlib import stdlib_records
from seedbed.data.texts import Texts
from seedbed.eval.likelihood import BATCH_TOKENS, Line
from seedbed.eval.minimal_pairs import Pair, minimal_pairs
from seedbed.eval.perplexity import perplexity, windows
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel

PAIRS = 500


def bare(model: LanguageModel, rows: Sequence[Line]) -> float:
    """Nats of all rows, by the module's own logits."""
    total = 0.0
    with torch.no_grad():
        for batch in batches(rows, BATCH_TOKENS):
            ids, doc_ids = padded(batch, pad_id=0)
            found = model.module(ids)
            logits = found if isinstance(found, torch.Tensor) else found.logits  # [B, T, V]
            targets = ids.where(doc_ids >= 0, -100)[:, 1:]
            losses = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets.flatten(), reduction="sum")
            total += losses.item()
    return total


def race(name: str, tokens: int, rounds: int, plain: Callable[[], object], ours: Callable[[], object]) -> None:
    plain()
    ours()
    seconds: dict[str, list[float]] = {"plain": [], "ours": []}
    order = [("plain", plain), ("ours", ours)]
    for _ in range(rounds):
        for what, work in order:
            began = time.perf_counter()
            work()
            seconds[what].append(time.perf_counter() - began)
        order.reverse()
    ratios = sorted(p / o for p, o in zip(seconds["plain"], seconds["ours"], strict=True))
    print(
        f"{name:<36} {tokens / statistics.median(seconds['ours']):>8,.0f} tokens/s, "
        f"{statistics.median(ratios):.2f}x a bare loop ({ratios[0]:.2f}-{ratios[-1]:.2f}, {rounds} rounds)"
    )


def evaluations(name: str, model: LanguageModel, texts: Texts, rounds: int) -> None:
    for way, stride in (("document-wise", None), ("strided", LENGTH // 2)):
        rows = [
            Line(0, text.id, text.ids[begin:end], counted)
            for text in texts.texts
            for begin, end, counted in windows(len(text.ids), LENGTH, stride)
        ]

        def scored(stride: int | None = stride) -> None:
            perplexity(model, texts, LENGTH, stride, Parts(None, 0), lambda _: None)

        read = sum(len(row.ids) for row in rows)
        race(f"{name}, {way}", read, rounds, lambda rows=rows: bare(model, rows), scored)
    pairs = sentence_pairs(texts)
    begins = model.tokenizer.start
    rows = [Line(0, "", begins + model.tokenizer.encode(text), 1) for pair in pairs for text in (pair.good, pair.bad)]
    read = sum(len(row.ids) for row in rows)
    race(
        f"{name}, minimal pairs", read, rounds, lambda: bare(model, rows),
        lambda: minimal_pairs(model, pairs, Parts(None, 0), lambda _: None),
    )  # fmt: skip


def sentence_pairs(texts: Texts) -> list[Pair]:
    """Lines of the texts, each beside itself with its first two words exchanged."""
    found = []
    for line in (line.strip() for text in texts.texts for line in text.text.splitlines()):
        first, second, *rest = [*line.split(), "", ""]
        if 6 <= len(line.split()) <= 16 and len(found) < PAIRS:
            found.append(Pair(f"line:{len(found)}", line, " ".join([second, first, *rest]), f"p{len(found) % 8}", "f"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=200)
    arguments = parser.parse_args()
    records = list(stdlib_records(max_bytes=3_000_000))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_tokenizer((record["text"] for record in records), VOCABULARY, Path(folder) / "tokenizer")
        texts = encoded(tokenizer, records, arguments.texts, 4 * LENGTH)
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {texts.tokens:,} tokens")
        for name, make in (("ours", our_model), ("Transformers' Llama", their_model)):
            evaluations(name, make(tokenizer, 1), texts, arguments.rounds)


if __name__ == "__main__":
    main()
