"""What is looked at during a run, over all ranks: gradients and lost updates of a step where they lie, weights between
steps, whole."""

from collections import defaultdict
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from seedbed.facts.fact import ParameterFact, in_order
from seedbed.facts.table import canonical, parameter_facts, part_of
from seedbed.init.sharding import own_part, read_whole
from seedbed.measure.gradients import tally, told
from seedbed.measure.spectra import matrix_stats
from seedbed.measure.trajectory import averaged, measures
from seedbed.parallel.world import World

SAMPLE = 2**16
"""About so many entries of a parameter, evenly spaced, show how many of its updates are lost."""


def gradient_components(model: nn.Module, world: World) -> dict[str, dict[str, Any]]:
    """``{"attn.q/0": {...}, ..., "embed": {...}}``: scale and histogram of the gradients by role and layer, in the
    order of roles (``measure.gradients.told``). Each rank tallies its shards; only the tallies are added up.
    """
    gradients = {canonical(name): parameter.grad for name, parameter in model.named_parameters()}
    found: dict[tuple[str, int | None], list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for fact in parameter_facts(model):
        gradient = gradients[fact.name]
        assert gradient is not None
        for part in fact.parts():
            found[part.role, part.layer].append(tally(_held(gradient, part)))
    order = in_order(role for role, _ in found)
    keys = sorted(found, key=lambda key: (order.index(key[0]), key[1] or 0))
    sums = torch.stack([torch.stack([one for one, _ in found[key]]).sum(0) for key in keys])  # [components, ...]
    largest = torch.stack([torch.stack([one for _, one in found[key]]).amax() for key in keys])  # [components]
    if any(isinstance(gradient, DTensor) for gradient in gradients.values()):
        dist.all_reduce(sums, group=world.group)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=world.group)
    rows = zip(keys, sums.tolist(), largest.tolist(), strict=True)
    return {role if layer is None else f"{role}/{layer}": told(*numbers) for (role, layer), *numbers in rows}


def _held(gradient: Tensor, part: ParameterFact) -> Tensor:
    """This rank's rows of a part's gradient; where it is not sharded, all."""
    if not isinstance(gradient, DTensor):
        return part_of(gradient, part)
    assert gradient.placements == (Shard(0),) and part.expert is None and not part.transposed
    local, mesh = gradient.to_local(), gradient.device_mesh
    start, stop = part.rows or (0, len(gradient))
    first = -(-len(gradient) // mesh.size()) * mesh.get_local_rank()  # FSDP splits as torch.chunk does
    begin, end = (min(max(row - first, 0), len(local)) for row in (start, stop))
    return local[begin:end]


def weight_components(model: nn.Module, world: World) -> dict[str, dict[str, Any]]:
    """``{"attn.q/0": {"stable_rank": ..., ...}, ..., "embed": {...}}``: what ``measure.trajectory`` follows of each
    matrix by role and layer, in the order of roles; the same numbers as of a checkpoint. Of several matrices of one
    role in a layer (experts) the means.

    Parameters are read in rounds of one a rank, sharded ones put together: each rank measures one of them. It holds
    that one and the one that is being read, besides a copy in float64. Nothing is drawn and nothing changed.
    """
    parameters = {canonical(name): parameter for name, parameter in model.named_parameters()}
    facts = [fact for fact in parameter_facts(model) if fact.is_matrix]
    found: list[tuple[str, int | None, dict[str, Any]]] = []
    for start in range(0, len(facts), world.size):
        own = None
        for rank, fact in enumerate(facts[start : start + world.size]):
            whole = read_whole(parameters[fact.name])  # a sharded one needs all ranks
            if rank == world.rank:
                own = fact, whole
        if own is not None:
            fact, whole = own
            found += [(part.role, part.layer, measures(matrix_stats(part_of(whole, part)))) for part in fact.parts()]
    everyones: dict[tuple[str, int | None], list[dict[str, Any]]] = defaultdict(list)
    for role, layer, values in chain.from_iterable(world.gather(found)):
        everyones[role, layer].append(values)
    order = in_order(role for role, _ in everyones)
    keys = sorted(everyones, key=lambda key: (order.index(key[0]), key[1] or 0))
    return {role if layer is None else f"{role}/{layer}": averaged(everyones[role, layer]) for role, layer in keys}


def rounded_sample(model: nn.Module) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each parameter that is kept in less than fp32 about SAMPLE entries: the weights, their gradients (views), and
    the weights as they are now. Empty for a model in fp32.
    """
    sample = []
    for parameter in model.parameters():
        if torch.finfo(parameter.dtype).bits < 32 and parameter.grad is not None:
            weight, gradient = (own_part(x).detach().flatten() for x in (parameter, parameter.grad))
            step = max(1, len(weight) // SAMPLE)
            sample.append((weight[::step], gradient[::step], weight[::step].clone()))
    return sample


def lost_updates(sample: list[tuple[Tensor, Tensor, Tensor]], world: World) -> float:
    """The share of a ``rounded_sample``, over all ranks, that the step since left as it was in spite of a gradient."""
    lost, counted = world.sum(
        sum(int(((weight == before) & (gradient != 0)).sum()) for weight, gradient, before in sample),
        sum(int((gradient != 0).sum()) for _, gradient, _ in sample),
    )
    return lost / counted
