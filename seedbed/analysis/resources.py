"""What a run will take: parameters, memory and time."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from seedbed.config import Config, ModelConfig
from seedbed.facts.fact import EMBEDDING_ROLES, ROLES, ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.model import Decoder
from seedbed.optim.groups import optimizer_of
from seedbed.parallel.world import pick_device
from seedbed.report.preflight_rows import FirstStep, Resources
from seedbed.train.objective import chunk_size

# Multiplications and additions of one forward pass that a preflight measures on: seconds on two cores, and on a GPU.
FORWARD_FLOP = {"cpu": 2e11, "cuda": 2e13}


@dataclass(frozen=True)
class RoleCount:
    role: str
    tensors: int
    parameters: int


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


def non_embedding(counts: list[RoleCount]) -> int:
    """Parameters outside embeddings and head, as scaling laws count them."""
    return sum(count.parameters for count in counts if count.role not in (*EMBEDDING_ROLES, "head"))


def measured_shape(config: Config, sequences: int, length: int) -> tuple[int, int]:
    """How many of ``sequences`` of ``length`` tokens a preflight measures on, and how many tokens of each: whole ones
    as far as :data:`FORWARD_FLOP` goes, and the beginning of one where that is less."""
    model = config.model
    assert model.vocab_size
    tables = sum(math.prod(fact.shape) for fact in meta_facts(model) if fact.role in (*EMBEDDING_ROLES, "head"))
    total = sum(math.prod(fact.shape) for fact in meta_facts(model))
    flop = 2 * (total - tables + model.d_model * model.vocab_size)  # a token
    tokens = max(1, int(FORWARD_FLOP[pick_device(config.train.device).type] / flop))
    rows = min(sequences, max(1, tokens // length))
    return rows, min(length, max(2, tokens))


def resources(config: Config, length: int, first: FirstStep) -> Resources:
    """Memory and time of the run on sequences of ``length`` tokens; time by the tokens of the step that was timed."""
    train = config.train
    assert train.micro_batch_size
    tokens = train.batch_size * length  # a step
    device = pick_device(train.device).type
    return Resources(
        memory=memory_parts(config, length),
        step_seconds=first.pass_seconds * tokens / first.tokens + first.update_seconds,
        timed_tokens=first.tokens,
        timed_in=f"{timed_precision(config, device)} on {device}",
        steps=train.steps,
        tokens=train.steps * tokens,
    )


def timed_precision(config: Config, device: str) -> str:
    """The precision of the measured step: that of the run, but fp32 on a CPU, most of which emulate bf16 products a
    hundred times slower."""
    return config.train.precision if device == "cuda" else "fp32"


def memory_parts(config: Config, length: int) -> dict[str, int]:
    """Bytes of weights, gradients and optimizer state (fp32), of what the backward pass keeps of one micro-batch of
    sequences of ``length`` tokens, and of a chunk of logits and their gradients; nothing of that size is allocated."""
    facts = meta_facts(config.model)
    sizes = [(fact, math.prod(fact.shape)) for fact in facts]
    total = sum(size for _, size in sizes)
    muon = sum(size for fact, size in sizes if optimizer_of(fact, config.optim) == "muon")
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


def measuring_bytes(config: Config, parts: dict[str, int], length: int, tokens: int) -> int:
    """What a preflight itself needs for a step on ``tokens`` tokens, from :func:`memory_parts` of the run."""
    assert config.train.micro_batch_size
    kept = parts["activations"]
    return sum(parts.values()) - kept + kept * tokens // (config.train.micro_batch_size * length)


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
