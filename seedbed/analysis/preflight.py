"""What will this configuration do, before it is trained: plan, stream, first loss, memory, time."""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from seedbed.config import Config, InitConfig, ModelConfig
from seedbed.data.split import IGNORED, Batch
from seedbed.facts.fact import EMBEDDING_ROLES, ROLES, ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.init import Plan, apply_plan, make_plan
from seedbed.measure.losses import LogitStats, logit_stats
from seedbed.measure.residual import ResidualReport, residual_report
from seedbed.model import Decoder
from seedbed.optim.groups import build_optimizers, group_of
from seedbed.train.objective import chunk_size, chunked_cross_entropy, token_losses
from seedbed.train.setup import pick_device


@dataclass(frozen=True)
class RoleCount:
    role: str
    tensors: int
    parameters: int


@dataclass(frozen=True)
class Arm:
    """One initialization, measured on real tokens before any step."""

    title: str
    plan: Plan
    residual: ResidualReport
    loss: float  # nats a token
    logits: LogitStats


@dataclass(frozen=True)
class Resources:
    """What the run will take; memory in bytes, by part."""

    memory: dict[str, int]
    step_seconds: float  # from one timed step on this machine, after a warm-up
    steps: int
    tokens: int

    @property
    def seconds(self) -> float:
        return self.step_seconds * self.steps


def meta_facts(config: ModelConfig) -> list[ParameterFact]:
    """The parameter table of a model of any size, without its memory."""
    with torch.device("meta"):
        return parameter_facts(Decoder(config))


def parameter_counts(config: ModelConfig) -> list[RoleCount]:
    """Exact parameter counts by role, blocks of fused matrices apart."""
    parts = [part for fact in meta_facts(config) for part in fact.parts()]
    return [
        RoleCount(role, len(of_role), sum(math.prod(part.shape) for part in of_role))
        for role in ROLES
        if (of_role := [part for part in parts if part.role == role])
    ]


def measure_arm(model: Decoder, init: InitConfig, seed: int, batch: Batch) -> Arm:
    """Draw ``init`` into ``model`` and measure it on ``batch``; these are the weights of a run with that seed."""
    plan = make_plan(parameter_facts(model), init)
    apply_plan(model, plan, seed)
    with torch.no_grad():
        hidden = model(batch.ids, batch.doc_ids, hidden=True)  # [B, T, D]
        losses = token_losses(hidden, model.head_weight, batch.targets)
        # the logits of every token at once would not fit at a large vocabulary: some tokens show the scale
        some = hidden.flatten(0, 1)[:: max(1, batch.ids.numel() // 256)]
        logits = logit_stats(some @ model.head_weight.T)
    supervised = int((batch.targets != IGNORED).sum())
    return Arm(
        title=plan.title,
        plan=plan,
        residual=residual_report(model, batch.ids, batch.doc_ids),
        loss=losses.double().sum().item() / supervised,
        logits=logits,
    )


def estimate_resources(model: Decoder, config: Config, batch: Batch, memory: dict[str, int]) -> Resources:
    """Time of the run, from a step timed after a warm-up on one micro-batch ``batch``, on the run's device and in its
    precision, not compiled. The weights of ``model`` change.
    """
    device = pick_device(config.train.device)
    optimizers = build_optimizers(model.to(device), parameter_facts(model), config.optim)
    ids, targets, doc_ids = (x.to(device) for x in batch)
    assert config.train.micro_batch_size
    passes = config.train.batch_size // config.train.micro_batch_size
    times = {}
    for trial in ("warm-up", "timed"):
        began = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=config.train.precision == "bf16"):
            hidden = model(ids, doc_ids, hidden=True)
            loss = chunked_cross_entropy(hidden, model.head_weight, targets, scale=1 / ids.numel())
        loss.backward()
        loss.item()  # waits for the device
        backward_done = time.perf_counter()
        optimizers.step()
        times[trial] = (backward_done - began) * passes + time.perf_counter() - backward_done
        optimizers.zero_grad()
    return Resources(
        memory=memory,
        step_seconds=times["timed"],
        steps=config.train.steps,
        tokens=config.train.steps * config.train.batch_size * ids.shape[1],
    )


def memory_parts(config: Config, length: int) -> dict[str, int]:
    """Bytes of weights, gradients and optimizer state (fp32), of what the backward pass keeps of one micro-batch of
    sequences of ``length`` tokens, and of a chunk of logits and their gradients; nothing of that size is allocated."""
    facts = meta_facts(config.model)
    sizes = [(fact, math.prod(fact.shape)) for fact in facts]
    total = sum(size for _, size in sizes)
    muon = sum(size for fact, size in sizes if config.optim.name == "muon" and group_of(fact) == "block matrices")
    vocab, micro_batch = config.model.vocab_size, config.train.micro_batch_size
    assert vocab and micro_batch
    chunk, tokens = chunk_size(pick_device(config.train.device).type, vocab), micro_batch * length
    return {
        "weights": 4 * total,
        "gradients": 4 * total,
        "optimizer state": 8 * (total - muon) + 4 * muon,
        "activations": activation_bytes(config, length),
        "logits of a chunk": 2 * 4 * min(chunk, tokens) * vocab,
    }


def activation_bytes(config: Config, length: int) -> int:
    """Bytes that autograd keeps for the backward pass of one micro-batch in fp32, counted on the meta device.

    One layer is counted and multiplied. Attention goes by formula: its kernel keeps q, k, v, output and a sum a query.
    """
    shallow = config.model.model_copy(update={"n_layers": 1, "vocab_size": 8})
    attention, batch = config.model.attention, config.train.micro_batch_size
    assert batch and attention.head_dim and attention.n_kv_heads
    with torch.device("meta"):
        model = Decoder(shallow, attend=lambda q, k, v, visible: q.clone())
        ids = torch.zeros(batch, length, dtype=torch.int64)
    storages: dict[int, int] = {}
    kept: list[Tensor] = []  # holds the tensors, so that a storage's id is not used twice
    parameters = {id(p) for p in model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        base = tensor if tensor._base is None else tensor._base
        if id(base) not in parameters:
            kept.append(base)
            storages[id(base)] = base.numel() * base.element_size()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        model(ids, hidden=True)
    heads = 2 * attention.n_heads + 2 * attention.n_kv_heads
    in_kernel = batch * length * (heads * attention.head_dim + attention.n_heads) * 4
    return (sum(storages.values()) + in_kernel) * config.model.n_layers


def norm_table(arms: list[Arm]) -> list[tuple[str, list[float], list[float]]]:
    """For every norm of the stream: name, masking ratio of each arm, and the same at the usual epsilon."""
    of_norm = zip(*(arm.residual.norms for arm in arms), strict=True)
    return [(norms[0].name, [n.masking for n in norms], [n.masking_usual for n in norms]) for norms in of_norm]


def plan_table(plans: list[Plan]) -> list[tuple[str, str, int, str, list[str]]]:
    """(parameter, role, tensors, shape, distribution of each plan), equal rows of all layers joined as ``layers.*``."""
    joined: dict[tuple[str, str, tuple[int, ...], tuple[str, ...]], int] = {}
    for rows in zip(*(plan.rows for plan in plans), strict=True):
        parts = rows[0].name.split(".")
        name = ".".join("*" if part.isdigit() else part for part in parts)
        key = (name, rows[0].role, rows[0].shape, tuple(str(row.distribution) for row in rows))
        joined[key] = joined.get(key, 0) + 1
    return [
        (name, role, count, "×".join(map(str, shape)), list(laws))
        for (name, role, shape, laws), count in joined.items()
    ]


def non_embedding(counts: list[RoleCount]) -> int:
    """Parameters outside embeddings and head, as scaling laws count them."""
    return sum(count.parameters for count in counts if count.role not in (*EMBEDDING_ROLES, "head"))
