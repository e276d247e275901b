"""Training step against Transformers' Llama of the same shape, eager and compiled, in one run.

    python benchmarks/train_step.py [--rounds 7] [--no-compile]

Same shape, batch, tokens, fused AdamW and clipping for every contestant; rounds are interleaved, so that a slow moment
of the machine hits all of them. Prints tokens a second, ratios with their spread over rounds, and the share of the fp32
matrix-product rate measured between the same rounds.
"""

import argparse
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
    """fp32 FLOP/s of products as large as the model's, over a second or so, so that a short burst does not count."""
    a, b = torch.randn(4096, WIDTH), torch.randn(4 * WIDTH, WIDTH)
    began, count = time.perf_counter(), 60
    for _ in range(count):
        a @ b.T
    return count * 2 * a.shape[0] * WIDTH * 4 * WIDTH / (time.perf_counter() - began)


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


def race(vocab: int, batch: int, rounds: int, compiled: bool) -> None:
    steps = contestants(vocab, compiled)
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randint(vocab, (batch, LENGTH + 1), generator=generator) for _ in range(2)]
    for step in steps.values():  # compiling, allocating
        step(batches[0])
        step(batches[1])
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    peaks = []
    for _ in range(rounds):
        for name, step in steps.items():
            began = time.perf_counter()
            for tokens in batches:
                step(tokens)
            seconds[name].append((time.perf_counter() - began) / len(batches))
        peaks.append(matmul_rate())
    peak, tokens = statistics.median(peaks), batch * LENGTH
    print(f"\nd={WIDTH}, {LAYERS} layers, vocabulary {vocab:,}, {batch}x{LENGTH} tokens a step, {rounds} rounds")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, fp32 products {peak / 1e9:.0f} GFLOP/s")
    rivals = [name for name in seconds if name.startswith("transformers")]
    for name, spent in seconds.items():
        share = flops_a_token(vocab) * tokens / statistics.median(spent) / peak
        line = f"{name:<22} {tokens / statistics.median(spent):>6,.0f} tokens/s  {share:4.0%} of products"
        for rival in rivals:
            ratios = sorted(b / s for b, s in zip(seconds[rival], spent, strict=True))
            line += (
                f"  {statistics.median(ratios):.2f}x {rival} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
                if rival != name
                else ""
            )
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    race(8192, 8, arguments.rounds, not arguments.no_compile)
    race(100_000, 4, max(arguments.rounds // 2, 2), not arguments.no_compile)


if __name__ == "__main__":
    main()
