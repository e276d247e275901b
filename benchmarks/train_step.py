"""Training step against Transformers' Llama of the same shape, eager and compiled, in one run.

    python benchmarks/train_step.py [--vocab 8192] [--rounds 5]

Same shape, batch, tokens, fused AdamW and clipping for every contestant; rounds are interleaved, so that a slow moment
of the machine hits all of them. Prints tokens a second, ratios with their spread over rounds, and the share of the fp32
matrix-product rate that the same run measures.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from seedbed.config import Config
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.train.objective import chunked_cross_entropy

WIDTH, LAYERS, HEADS, LENGTH, D_FF = 384, 6, 6, 512, 1024


def matmul_rate() -> float:
    """fp32 FLOP/s of products as large as the model's: the best of several."""
    a, b = torch.randn(4096, WIDTH), torch.randn(4 * WIDTH, WIDTH)
    best = math.inf
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(8):
            a @ b.T
        best = min(best, (time.perf_counter() - began) / 8)
    return 2 * a.shape[0] * WIDTH * 4 * WIDTH / best


def flops_a_token(vocab: int) -> float:
    """Forward and backward: 6 a matrix entry, and attention's two products over on average half the length."""
    entries = LAYERS * (4 * WIDTH**2 + 3 * WIDTH * D_FF) + vocab * WIDTH
    return 6 * entries + LAYERS * 3 * 2 * 2 * WIDTH * LENGTH / 2


def ours(vocab: int) -> Decoder:
    overrides = [
        f"model.vocab_size={vocab}", f"model.d_model={WIDTH}", f"model.n_layers={LAYERS}",
        f"model.attention.n_heads={HEADS}", f"model.max_seq_len={LENGTH}", f"model.ffn.d_ff={D_FF}",
    ]  # fmt: skip
    model = Decoder(Config.load(None, overrides).model)
    initialize_(model, "normal")
    return model


def theirs(vocab: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab,
            hidden_size=WIDTH,
            intermediate_size=D_FF,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=False,
            use_cache=False,
        )
    )


def stepper(model: nn.Module, loss: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(tokens: torch.Tensor) -> None:  # [B, T + 1]
        loss(tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def contestants(vocab: int, compiled: bool) -> dict[str, Callable[[torch.Tensor], None]]:
    def our_loss(forward: Callable[..., torch.Tensor], model: Decoder) -> Callable[[torch.Tensor], torch.Tensor]:
        def loss(tokens: torch.Tensor) -> torch.Tensor:
            hidden = forward(tokens[:, :-1], hidden=True)
            targets = tokens[:, 1:]
            return chunked_cross_entropy(hidden, model.head_weight, targets, scale=1 / targets.numel())

        return loss

    def their_loss(forward: Callable[..., object]) -> Callable[[torch.Tensor], torch.Tensor]:
        def loss(tokens: torch.Tensor) -> torch.Tensor:
            logits = forward(input_ids=tokens[:, :-1]).logits  # pyright: ignore[reportAttributeAccessIssue]
            return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

        return loss

    ours_eager, theirs_eager = ours(vocab), theirs(vocab)
    found = {
        "seedbed eager": stepper(ours_eager, our_loss(ours_eager, ours_eager)),
        "transformers eager": stepper(theirs_eager, their_loss(theirs_eager)),
    }
    if compiled:
        ours_compiled, theirs_compiled = ours(vocab), theirs(vocab)
        found["seedbed compiled"] = stepper(ours_compiled, our_loss(torch.compile(ours_compiled), ours_compiled))
        found["transformers compiled"] = stepper(theirs_compiled, their_loss(torch.compile(theirs_compiled)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    steps = contestants(arguments.vocab, not arguments.no_compile)
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randint(arguments.vocab, (arguments.batch, LENGTH + 1), generator=generator) for _ in range(2)]
    for step in steps.values():  # compiling, allocating
        step(batches[0])
        step(batches[1])
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            began = time.perf_counter()
            for tokens in batches:
                step(tokens)
            seconds[name].append((time.perf_counter() - began) / len(batches))
    peak = matmul_rate()
    tokens = arguments.batch * LENGTH
    print(f"d={WIDTH}, {LAYERS} layers, vocabulary {arguments.vocab}, {arguments.batch}x{LENGTH} tokens a step")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, fp32 products {peak / 1e9:.0f} GFLOP/s")
    base = seconds["transformers eager"]
    for name, spent in seconds.items():
        ratios = [b / s for b, s in zip(base, spent, strict=True)]
        share = flops_a_token(arguments.vocab) * tokens / statistics.median(spent) / peak
        print(
            f"{name:<22} {tokens / statistics.median(spent):>8,.0f} tokens/s  {share:5.0%} of products  "
            f"{statistics.median(ratios):.2f}x transformers eager ({min(ratios):.2f}-{max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
