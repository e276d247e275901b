"""What a training step takes on many ranks, on paper: memory of each, operations, bytes between them.

Pure functions of a model's sizes and a layout, which is how ranks share the step; docs/scaling.md has the formulas, and
what was measured beside them.
"""

import math
from dataclasses import dataclass
from typing import Literal

from seedbed.analysis.resources import activation_bytes, memory_parts, meta_facts
from seedbed.config import Config
from seedbed.facts.fact import ParameterFact
from seedbed.optim.groups import optimizer_of
from seedbed.train.objective import chunk_size

Strategy = Literal["ddp", "fsdp"]
Recompute = Literal["none", "selective", "block"]
Matrix = tuple[tuple[int, int], ...]
"""Of a fused matrix: the shapes of its blocks."""

# Bytes of an entry of (weights, gradients and optimizer state; what products read and make), by train.precision.
BYTES = {"fp32": (4, 4), "bf16": (4, 2)}


@dataclass(frozen=True)
class Sizes:
    """A model as its cost sees it. A mixture of experts stores more ``parameters`` than are ``multiplied``."""

    parameters: int
    outside: int
    """Of these those outside the blocks: embeddings, last norm, head."""
    multiplied: int
    """Matrix entries that a token is multiplied by, the head's included; not the embedding's, a lookup."""
    last: int
    """Of these those of each block's last product, which is not made again when a block is."""
    moments: int
    """Entries of optimizer state: two a parameter for AdamW, one for Muon."""
    layers: int
    width: int
    vocab: int
    attention: int
    """Width of all query heads of a layer."""
    length: int
    """Tokens of a sequence."""
    kept: int
    """Bytes that a layer keeps of a token for backward, in fp32."""
    products: int
    """Numbers that the products and the attention of a layer make of a token."""
    muon: tuple[Matrix, ...] = ()
    """What Muon updates."""


def sizes(config: Config, length: int) -> Sizes:
    """Of a configuration on sequences of ``length`` tokens; nothing of its size is allocated."""
    model, facts = config.model, meta_facts(config.model)
    assert model.vocab_size and model.attention.head_dim and config.train.micro_batch_size
    outside = [fact for fact in facts if fact.layer is None]
    matrices = [fact for fact in facts if fact.is_matrix and fact.layer is not None]
    muon = [fact for fact in facts if optimizer_of(fact, config.optim) == "muon"]
    attention = model.attention.n_heads * model.attention.head_dim
    tokens = config.train.micro_batch_size * length
    return Sizes(
        parameters=_count(facts),
        outside=_count(outside),
        multiplied=_count(matrices) + model.d_model * model.vocab_size,
        last=_count([fact for fact in matrices if fact.role == "mlp.down"]),
        moments=memory_parts(config, length)["optimizer state"] // 4,
        layers=model.n_layers,
        width=model.d_model,
        vocab=model.vocab_size,
        attention=attention,
        length=length,
        kept=activation_bytes(config, length) // (tokens * model.n_layers),
        products=sum(fact.d_out for fact in matrices if fact.layer == 0) + attention,
        muon=tuple(tuple((part.shape[0], part.shape[1]) for part in fact.parts()) for fact in muon),
    )


@dataclass(frozen=True)
class Layout:
    """How ``gpus`` ranks share a step of gpus x passes x rows sequences."""

    gpus: int
    strategy: Strategy = "ddp"
    recompute: Recompute = "none"
    rows: int = 1
    """Sequences of a pass on a rank (train.micro_batch_size)."""
    passes: int = 1
    """Passes of a step on a rank."""
    reduce_each_pass: bool = False
    """FSDP: gradients are summed after each pass, not after the last alone."""
    precision: Literal["fp32", "bf16"] = "bf16"
    device: Literal["cuda", "cpu"] = "cuda"
    """On CUDA a dense mask keeps documents apart, and chunks of logits are larger."""

    @property
    def sharded(self) -> bool:
        return self.strategy == "fsdp" and self.gpus > 1

    @property
    def sums(self) -> int:
        """How often a step sums gradients over ranks."""
        return self.passes if self.reduce_each_pass else 1

    @property
    def share(self) -> float:
        """Of what is split over ranks a rank's part."""
        return 1 / self.gpus if self.sharded else 1


def memory(sizes: Sizes, layout: Layout) -> dict[str, float]:
    """Bytes of a rank at the fullest moment of a step, by part."""
    store, compute = BYTES[layout.precision]
    blocks = sizes.parameters - sizes.outside
    if layout.sharded:  # two blocks while one computes and the next comes in, one's gradient; the root all the time
        extra = 3 * compute * blocks / sizes.layers + 2 * store * sizes.outside
    else:  # autocast keeps a copy of every matrix until the pass is over
        extra = compute * blocks if compute != store else 0
    # a chunk of logits and their gradients; the head in the type of products, and its gradient in fp32
    chunk = min(chunk_size(layout.device, sizes.vocab), layout.rows * sizes.length) * sizes.vocab
    head = (4 + (compute if compute != store else 0)) * sizes.vocab * sizes.width
    return {
        "parameters": store * sizes.parameters * layout.share,
        # passes before the last sum nothing over ranks, and FSDP keeps their gradients whole
        "gradients": store * sizes.parameters * (layout.share if layout.sums == layout.passes else 1),
        "optimizer state": store * sizes.moments * layout.share,
        "activations": kept_bytes(sizes, layout),
        "block computed again": layer_bytes(sizes, layout) if layout.recompute != "none" else 0,
        "weights in use": extra,
        "loss": 2 * 4 * chunk + head,
    }


def layer_bytes(sizes: Sizes, layout: Layout) -> int:
    """What a layer keeps of a pass for backward when nothing is computed again.

    Under bf16 the stream stays fp32, which both norms of a block keep, and the rest halves. A dense mask is kept as
    numbers, by each attention anew.
    """
    compute, tokens = BYTES[layout.precision][1], layout.rows * sizes.length
    kept = sizes.kept if compute == 4 else sizes.kept // 2 + 2 * 2 * sizes.width
    return tokens * kept + (tokens * sizes.length * compute if layout.device == "cuda" else 0)


def kept_bytes(sizes: Sizes, layout: Layout) -> int:
    """What a pass has kept for backward when its forward ends; under recomputation the last norm's input too."""
    tokens = layout.rows * sizes.length
    stream = tokens * 4 * sizes.width
    products = tokens * BYTES[layout.precision][1] * sizes.products
    kept = {
        "none": sizes.layers * layer_bytes(sizes, layout),
        "selective": sizes.layers * (stream + products) + stream,
        "block": sizes.layers * stream + stream,
    }[layout.recompute]
    return kept + (tokens * sizes.length if layout.device == "cuda" else 0)  # and the mask itself


def _count(facts: list[ParameterFact]) -> int:
    return sum(math.prod(fact.shape) for fact in facts)


def model_flops(sizes: Sizes) -> int:
    """Multiplications and additions of a token's forward and backward pass: 6 a matrix entry, and attention's two
    products over half the sequence on average; what is computed again or masked does not count (Chowdhery et al. 2022).
    """
    return 6 * sizes.multiplied + 6 * sizes.layers * sizes.attention * sizes.length


def device_flops(sizes: Sizes, layout: Layout) -> int:
    """What is really computed of a token: a dense mask makes attention compute both halves, and blocks run again."""
    attention = (
        2 * sizes.layers * sizes.attention * sizes.length * (2 if layout.device == "cuda" else 1)
    )  # a forward pass
    head = sizes.vocab * sizes.width
    again = 2 * (sizes.multiplied - head - sizes.last) + attention if layout.recompute == "block" else 0
    return 6 * sizes.multiplied + 3 * attention + again


def traffic(sizes: Sizes, layout: Layout) -> dict[str, float]:
    """Bytes that a rank sends in a step, on average over ranks, by what they are for."""
    if layout.gpus == 1:
        return {}
    store, compute = BYTES[layout.precision]
    others, muon = (layout.gpus - 1) / layout.gpus, sum(entries(matrix) for matrix in sizes.muon)
    if layout.sharded:  # blocks come in for forward and for backward, the root once for both
        gathered = 2 * compute * (sizes.parameters - sizes.outside) + store * sizes.outside
        found = {
            "gathering weights": layout.passes * gathered * others,
            "summing gradients": layout.sums * store * sizes.parameters * others,
        }
        exchange = 2 * store * muon / layout.gpus  # to the rank that works on it, and back
    else:
        found = {"summing gradients": 2 * store * sizes.parameters * others}
        exchange = store * muon  # results to all
    return found | ({"Muon's matrices": exchange * others} if muon else {})


def entries(matrix: Matrix) -> int:
    return sum(m * n for m, n in matrix)
