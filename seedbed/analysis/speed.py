"""How long a training step takes on many GPUs, on paper, and which layout makes it shortest.

From what analysis/cost.py counts, and the figures of hardware; docs/scaling.md has the tables, and what was measured.
"""

import math
from dataclasses import dataclass

from seedbed.analysis.cost import BYTES, Layout, Matrix, Sizes, device_flops, entries, memory, model_flops, traffic

HOP = 3e-6
"""Seconds from one rank to the next, however little is sent (choice)."""
CONTROL_HOP = 20e-6
"""Seconds of a small message over TCP, the way of what ranks tell each other by way of their CPUs (choice)."""
CONTROL_SUMS = 2
"""Of a step over TCP: the count of tokens; then loss, norm and what else ranks have to tell, a signal for example."""
BUCKET = 25e6
"""Bytes of gradients that DDP sums at a time, PyTorch's default."""
ROOM = 0.9
"""Share of a GPU's memory that a step may fill; the rest is for the libraries and what allocation wastes (choice)."""


@dataclass(frozen=True)
class Hardware:
    """Rates of one GPU, in one direction where there are two."""

    name: str
    peak: float
    """FLOP/s of dense matrix products in the type that is computed in, bf16 for the GPUs below."""
    memory: float
    """Bytes."""
    memory_rate: float
    """Bytes/s between the GPU and its memory."""
    intra: float
    """Bytes/s that a GPU sends to the others of its node."""
    inter: float
    """Bytes/s that a GPU sends to other nodes, its share of the node's network."""
    node: int = 8
    """GPUs of a node."""
    efficiency: float = 0.5
    """Share of the peak that the products of a step reach (choice)."""
    link: float = 0.7
    """Share of a link's rate that a collective reaches (choice)."""


# The makers' figures for the SXM forms: dense bf16 peak, half of NVLink's two-way rate; the network of their own
# eight-GPU servers, one port a GPU: 200 Gbit/s for A100, 400 Gbit/s for the others.
HARDWARE = {
    "A100": Hardware("A100 80 GB", 312e12, 80e9, 2.039e12, 300e9, 25e9),
    "H100": Hardware("H100 80 GB", 989e12, 80e9, 3.35e12, 450e9, 50e9),
    "H200": Hardware("H200 141 GB", 989e12, 141e9, 4.8e12, 450e9, 50e9),
}


@dataclass(frozen=True)
class Seconds:
    """Of a step."""

    compute: float
    """Forward and backward."""
    update: float
    """The optimizers' passes over memory, and Muon's products."""
    exchange: float
    """Muon's matrices between ranks, before and after its products."""
    communication: float
    """Weights and gradients between ranks, beside the compute as far as that lasts."""
    hidden: float
    """Of that what the compute covers."""
    control: float
    """Small sums over TCP, beside nothing."""

    @property
    def step(self) -> float:
        return self.compute + self.update + self.exchange + self.communication - self.hidden + self.control

    @property
    def communicating(self) -> float:
        """Share of the step in which ranks send, whatever else they do."""
        return (self.exchange + self.communication + self.control) / self.step

    @property
    def waiting(self) -> float:
        """Share of the step in which nothing but communication happens."""
        return (self.exchange + self.communication - self.hidden + self.control) / self.step


def seconds(sizes: Sizes, layout: Layout, hardware: Hardware) -> Seconds:
    """Of a step of ``layout`` on ``hardware``.

    Assumed: FSDP's collectives run beside all of the compute, DDP's beside the backward of the last pass. Muon's round
    of one matrix a rank lasts as long as its largest, and nothing runs beside.
    """
    flop_rate, store = hardware.efficiency * hardware.peak, BYTES[layout.precision][0]
    compute = layout.passes * layout.rows * sizes.length * device_flops(sizes, layout) / flop_rate
    # weights, gradients and state are read, and all but gradients written
    moved = store * layout.share * (3 * sizes.parameters + 2 * sizes.moments)
    products = sum(max(map(_muon_flops, one)) for one in _rounds(sizes, layout.gpus))
    update = moved / hardware.memory_rate + products / flop_rate
    communication = _communication(sizes, layout, hardware) if layout.gpus > 1 else 0.0
    beside = compute if layout.sharded else compute / layout.passes * 2 / 3
    exchange = _exchange(sizes, layout, hardware) if layout.gpus > 1 else 0.0
    control = CONTROL_SUMS * 2 * (layout.gpus - 1) * CONTROL_HOP  # gloo sums around a ring, and hands out so
    return Seconds(compute, update, exchange, communication, min(communication, beside), control)


def _ring(layout: Layout, hardware: Hardware) -> float:
    """Bytes/s of a collective that passes from rank to rank: at the border of a node its GPUs share all its ports."""
    return hardware.link * min(
        hardware.intra, hardware.node * hardware.inter if layout.gpus > hardware.node else math.inf
    )


def _communication(sizes: Sizes, layout: Layout, hardware: Hardware) -> float:
    """Seconds for weights and gradients: what is sent, and a hop from each rank to the next for rings, or along the
    branches of a tree for DDP's sums."""
    sent = sum(size for part, size in traffic(sizes, layout).items() if part != "Muon's matrices")
    if layout.sharded:
        collectives = layout.passes * (2 * sizes.layers + 1) + layout.sums * (sizes.layers + 1)
        hops = layout.gpus - 1
    else:
        collectives = math.ceil(BYTES[layout.precision][0] * sizes.parameters / BUCKET)
        hops = 2 * math.ceil(math.log2(layout.gpus))
    return sent / _ring(layout, hardware) + collectives * hops * HOP


def _exchange(sizes: Sizes, layout: Layout, hardware: Hardware) -> float:
    """Seconds for Muon's matrices. FSDP: a round's largest to its rank and back, through that rank's own port. DDP: all
    of a round to everybody."""
    sent, rounds = 0, _rounds(sizes, layout.gpus)
    for one in rounds:
        sent += 2 * entries(one[0]) if layout.sharded else sum(map(entries, one))
    own = hardware.link * (hardware.inter if layout.gpus > hardware.node else hardware.intra)
    rate = own if layout.sharded else _ring(layout, hardware)
    return BYTES[layout.precision][0] * sent * (layout.gpus - 1) / layout.gpus / rate


def _rounds(sizes: Sizes, gpus: int) -> list[list[Matrix]]:
    """Muon's matrices, largest first, so many at a time as there are ranks."""
    ordered = sorted(sizes.muon, key=entries, reverse=True)
    return [ordered[start : start + gpus] for start in range(0, len(ordered), gpus)]


def _muon_flops(matrix: Matrix) -> int:
    """Five steps of three products each: X X^T, its square, and that times X; m the smaller side."""
    sides = [sorted(shape) for shape in matrix]
    return sum(5 * (4 * m * m * n + 2 * m**3) for m, n in sides)


@dataclass(frozen=True)
class Prediction:
    layout: Layout
    memory: dict[str, float]
    """Bytes of a rank by part."""
    seconds: Seconds
    tokens_per_s: float
    """Of all ranks together."""
    mfu: float
    """Share of the matrix peak that the model's own operations are."""


def predict(sizes: Sizes, layout: Layout, hardware: Hardware) -> Prediction:
    spent = seconds(sizes, layout, hardware)
    rate = layout.gpus * layout.passes * layout.rows * sizes.length / spent.step
    mfu = rate * model_flops(sizes) / (layout.gpus * hardware.peak)
    return Prediction(layout, memory(sizes, layout), spent, rate, mfu)


def fastest(sizes: Sizes, hardware: Hardware, gpus: int, batch: int) -> Prediction:
    """How ``gpus`` make a step of ``batch`` sequences in bf16 fastest, of the layouts that fit in their memory.

    Of those within 1 % of the fastest it is the first: DDP before FSDP, little before much recomputation, few passes
    before many, gradients summed once before after each pass. Raises ValueError where the ranks cannot share the batch
    evenly, or no layout fits.
    """
    if batch % gpus:
        raise ValueError(f"{gpus} ranks cannot share a batch of {batch} sequences evenly")
    each = batch // gpus
    layouts = [
        Layout(gpus, strategy, recompute, each // passes, passes, often)
        for strategy in ("ddp", "fsdp")
        for recompute in ("none", "selective", "block")
        for passes in range(1, each + 1)
        if each % passes == 0
        for often in ((False, True) if strategy == "fsdp" and passes > 1 else (False,))
    ]
    room = ROOM * hardware.memory
    found = [predict(sizes, one, hardware) for one in layouts if sum(memory(sizes, one).values()) <= room]
    if not found:
        raise ValueError(f"no layout of {batch} sequences on {gpus} x {hardware.name} fits")
    best = max(one.tokens_per_s for one in found)
    return next(one for one in found if one.tokens_per_s >= 0.99 * best)
