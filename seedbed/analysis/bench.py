"""How fast a run trains on this machine, how near to its matrix peak, what its memory holds, where its time goes."""

import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from seedbed.analysis.cost import model_flops, sizes
from seedbed.config import Config
from seedbed.data.split import Batch, Split
from seedbed.data.store import Store
from seedbed.errors import InputError
from seedbed.measure.memory import allocated, tensor_bytes
from seedbed.parallel.world import World
from seedbed.train.loop import Job, train_step
from seedbed.train.setup import resolve, start

WARMUP = 2
"""Steps before anything is timed: compilers, allocators and threads start in them."""
LOOKED_AT = 2
"""Steps whose phases are timed apart; where the device runs ahead of Python, it is waited for between phases."""
PEAK_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "pure_bf16": torch.bfloat16, "fp64": torch.float64}
"""What products are made of, for each train.precision."""
LARGEST_PRODUCT, LONG_ENOUGH = 8192, 0.05  # its side, and the seconds from which on no larger one is tried


@dataclass(frozen=True)
class Bench:
    """What was measured. Times are the leading rank's, bytes those of the rank that has most."""

    device: str
    ranks: int
    threads: int
    precision: str
    parameters: int
    tokens: int
    """Of a step, over all ranks."""
    seconds: list[float]
    """Of each step."""
    flops_a_token: int
    peak: float
    """FLOP/s of a large matrix product on one rank, all ranks at it at once."""
    memory: dict[str, int]
    peak_memory: int
    """The most that was there at once, parameters and all."""
    phases: dict[str, float]
    """Seconds of a step by phase, in LOOKED_AT steps of their own, which being looked at slows down."""
    communication: float
    """Seconds of a step in which tensors were between ranks, mostly beside the phases."""

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / statistics.median(self.seconds)

    @property
    def peak_share(self) -> float:
        """Model FLOPs over what products of all ranks would have made in the time (MFU, against the measured peak)."""
        return self.flops_a_token * self.tokens_per_s / (self.ranks * self.peak)

    def phase_share(self, phase: str) -> float:
        return self.phases.get(phase, 0.0) / sum(self.phases.values())


class _RandomTokens(Split):
    """Bins of random tokens in place of a store's: each one document."""

    def __init__(self, length: int, vocab_size: int):
        super().__init__("random tokens", length, 0, vocab_size, "none", "", "", [])

    def __len__(self) -> int:
        return 2**20

    def windows(self, indices: "np.ndarray") -> Batch:  # pyright: ignore[reportIncompatibleMethodOverride]
        generator = torch.Generator().manual_seed(int(indices[0]))
        tokens = torch.randint(self._vocab_size, (len(indices), self.seq_len + 1), generator=generator)
        places = torch.arange(self.seq_len).repeat(len(indices), 1)
        return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), torch.zeros_like(places), places)


class RandomStore(Store):
    """Random tokens as long as ``config`` reads, for its vocabulary; nothing is on a disk."""

    def __init__(self, config: Config):
        assert config.model.vocab_size
        self.path = Path("random tokens")
        self.streams = {"train": _RandomTokens(config.model.max_seq_len, config.model.vocab_size)}


def _resolve(config: Config) -> tuple[Config, Store]:
    """The run to measure, and its store, or random tokens where it has none. Weights are drawn, never loaded."""
    config = config.model_copy(update={"train": config.train.model_copy(update={"init_from": None})})
    if config.data.store is not None:
        if not Path(config.data.store).is_dir():
            raise InputError(
                f"data.store={config.data.store}: there is no such folder; prepare it, or measure on random tokens: "
                "data.store=null model.vocab_size=8192"
            )
        return resolve(config)
    if config.model.vocab_size is None:
        raise InputError("neither data.store nor model.vocab_size is set; set one: random tokens need a vocabulary")
    return config, RandomStore(config)


def bench(config: Config, steps: int, world: World) -> Bench:
    """Train ``config`` for a few steps on all ranks of ``world``, nothing being written, and measure ``steps`` of them.

    Raises InputError as a run of it would.
    """
    config, store = world.together(lambda: _resolve(config))
    total = max(config.train.steps, WARMUP + steps + LOOKED_AT + 2)  # so that the schedule goes as far
    config = config.model_copy(update={"train": config.train.model_copy(update={"steps": total})})
    job = start(config, Path("unused"), store, world=world)
    for _ in range(WARMUP):
        train_step(job)
    dtype = PEAK_DTYPES[config.train.precision]
    peaks = [_peak(world, dtype)]
    seconds = [_timed(world.device, lambda: train_step(job)) for _ in range(steps)]
    peaks.append(_peak(world, dtype))
    phases = _phases(job)
    communication = _communication(job)
    memory, peak_memory = step_memory(job)
    assert config.train.micro_batch_size
    length = store.split("train").seq_len
    return Bench(
        device=device_name(world.device),
        ranks=world.size,
        threads=torch.get_num_threads(),
        precision=config.train.precision,
        parameters=sum(parameter.numel() for parameter in job.model.parameters()),
        tokens=config.train.batch_size * length,
        seconds=seconds,
        flops_a_token=model_flops(sizes(config, length)),
        peak=max(peaks),
        memory=memory,
        peak_memory=peak_memory,
        phases=phases,
        communication=communication,
    )


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of the product of two square matrices, as large as one that takes LONG_ENOUGH; the best of three."""
    side = 256
    while True:
        a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        best = min(_timed(device, lambda a=a, b=b: a @ b) for _ in range(3))
        if best > LONG_ENOUGH or side == LARGEST_PRODUCT:
            return 2 * side**3 / best
        side *= 2


def _peak(world: World, dtype: torch.dtype) -> float:
    """The mean over ranks, which share the cores of a CPU and so begin together."""
    world.sum(0)
    return world.sum(product_rate(world.device, dtype))[0] / world.size


def _timed(device: torch.device, work: Callable[[], object]) -> float:
    began = _now(device)
    work()
    return _now(device) - began


def _now(device: torch.device) -> float:
    """The time when all that ``device`` was told to do is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@dataclass
class _Watched(World):
    """The same ranks; ``look(phase)`` is called where this one begins a phase."""

    look: Callable[[str], None] = print

    def at(self, step: int, phase: str) -> None:
        self.look(phase)


def _watched(job: Job, look: Callable[[str], None]) -> None:
    """One step; ``look(phase)`` is called where each of its phases begins, and at its end with ""."""
    train_step(replace(job, world=_Watched(**vars(job.world), look=look)))
    look("")


def _phases(job: Job) -> dict[str, float]:
    """Seconds of a step by phase."""
    found: dict[str, float] = defaultdict(float)
    for _ in range(LOOKED_AT):
        marks: list[tuple[str, float]] = []
        _watched(job, lambda phase, marks=marks: marks.append((phase, _now(job.world.device))))
        for (phase, began), (_, ended) in pairwise(marks):
            found[phase] += (ended - began) / LOOKED_AT
    return dict(found)


def _communication(job: Job) -> float:
    """Seconds of a step in which at least one collective of this rank was under way, waiting for others included."""
    if job.world.size == 1:
        return 0.0
    on_cuda = job.world.device.type == "cuda"
    activity, prefix = (ProfilerActivity.CUDA, "nccl") if on_cuda else (ProfilerActivity.CPU, "gloo:")
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else it prints two lines a profile, of the highest level, 5
    with profile(activities=[activity], acc_events=True) as profiled:
        train_step(job)
    spans = [e.time_range for e in profiled.events() or [] if e.name.startswith(prefix)]
    return 1e-6 * _union([(span.start, span.end) for span in spans])


def _union(spans: list[tuple[float, float]]) -> float:
    """The length that ``spans`` cover together."""
    covered, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered


def step_memory(job: Job) -> tuple[dict[str, int], int]:
    """Bytes by part and the most there was at once, during a step; on the rank with most, each.

    The peak is that of the device: parts that parallel.offload keeps elsewhere are not in it.
    """
    model, world = job.model, job.world
    parts = {
        "parameters": tensor_bytes(model.parameters()),
        "gradients": 0,
        "optimizer": tensor_bytes(job.optimizers.state_dict().values()),
        "activations": 0,
        "loss": 0,
    }
    # what is there before the counter begins: DDP's buckets too, of which gradients are views
    held = parts["parameters"] + parts["optimizer"]
    held += parts["parameters"] if isinstance(job.forward, DistributedDataParallel) else 0
    if world.device.type == "cuda":
        held = torch.cuda.memory_allocated(world.device)
    with allocated(world.device) as counter:
        phase, before, peak = "", 0, 0

        def look(following: str) -> None:
            nonlocal phase, before, peak
            if phase == "forward":
                parts["activations"] = max(parts["activations"], counter.now - before)
            elif phase == "loss":
                parts["loss"] = max(parts["loss"], counter.peak - before)
            elif phase == "backward":
                parts["gradients"] = tensor_bytes(parameter.grad for parameter in model.parameters())
            peak = max(peak, counter.peak)
            phase, before = following, counter.now
            counter.forget()

        _watched(job, look)
    return {part: world.max(size) for part, size in parts.items()}, world.max(held + peak)


def hints(found: Bench, config: Config) -> list[str]:
    """What may be done about a part that is large, as it was measured."""
    data, optimizer = found.phase_share("data"), found.phase_share("optimizer")
    beside = found.communication / sum(found.phases.values())
    activations = found.memory["activations"] / found.peak_memory
    said = []
    if data > 0.05 and config.data.store is not None:
        faster = "prepare the store with storage.format bin, the fastest to read" if config.data.prefetch else None
        said.append(f"data takes {data:.0%} of a step: {faster or 'set data.prefetch above 0'}")
    if optimizer > 0.25:
        said.append(f"the optimizer takes {optimizer:.0%} of a step: a larger train.batch_size makes its part smaller")
    if beside > 0.5:
        size = "micro_batch_size" if config.parallel.strategy == "fsdp" else "batch_size"
        said.append(
            f"ranks exchange tensors in {beside:.0%} of a step: with a larger train.{size} as many for more tokens"
        )
    if activations > 0.5 and config.parallel.recompute == "none":
        said.append(
            f"activations are {activations:.0%} of the most memory: parallel.recompute or a smaller "
            "train.micro_batch_size makes them fewer"
        )
    return said
