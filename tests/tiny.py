"""A model and texts small enough to train in a test (torch is imported late: conftest sets its threads first)."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from seedbed.config import Config

TINY = [
    "model.d_model=32", "model.n_layers=2", "model.attention.n_heads=2", "model.max_seq_len=32", "train.steps=6",
    "train.batch_size=4", "train.eval_sequences=4", "train.eval_every=0", "train.checkpoint_every=0",
    "train.device=cpu", "train.compile=false",
]  # fmt: skip


def sentences(count: int, seed: int) -> list[str]:
    """Texts with something to learn: words from a small list, with a rule between neighbours."""
    words = "the a small large seed bed grows falls quickly slowly under over green blue stone river"
    words = words.split()
    rng = random.Random(seed)
    return [
        " ".join(words[(start + step * k) % len(words)] for k in range(rng.randint(8, 60))) + "."
        for start, step in ((rng.randrange(16), rng.choice((1, 3, 5))) for _ in range(count))
    ]


def config(store: Path, run: Path, *overrides: str) -> "Config":
    from seedbed.config import Config

    return Config.load(None, [*TINY, f"data.store={store}", f"run.dir={run}", *overrides])


def quiet(_message: str) -> None:
    pass


def weights(run: Path, step: int) -> "dict[str, Tensor]":
    from safetensors.torch import load_file

    return load_file(run / "checkpoints" / f"step_{step:08d}" / "model.safetensors")


def same(a: "dict[str, Tensor]", b: "dict[str, Tensor]") -> bool:
    import torch

    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
