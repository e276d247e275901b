"""Wrapped and sharded models have the table of the bare one."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from zoo import FAMILIES

from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class OffsetNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return (1 + self.weight) * nn.functional.normalize(x, dim=-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 8)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 12, norm_first=True) for _ in range(2))
        self.norm, self.head = OffsetNorm(), nn.Linear(8, 6)


EXPECTED = parameter_facts(Model())


def test_activation_checkpointing_and_compiled_layers():
    wrapped = Model()
    wrapped.layers[0] = checkpoint_wrapper(wrapped.layers[0])
    wrapped.layers[1] = torch.compile(wrapped.layers[1])
    assert parameter_facts(wrapped) == EXPECTED
    assert EXPECTED[-3].role == "norm.offset"
    assert {fact.placement for fact in EXPECTED if fact.layer is not None} == {"pre"}


@pytest.mark.usefixtures("one_rank")
def test_data_parallel_wrappers():
    assert parameter_facts(DistributedDataParallel(Model())) == EXPECTED
    sharded = Model()
    for layer in sharded.layers:
        fully_shard(layer)
    fully_shard(sharded.norm)  # its class is another now, and it must not be copied
    fully_shard(sharded)
    assert parameter_facts(sharded) == EXPECTED


class Around(nn.Module):
    """A module of one's own that holds a model and nothing else, as a trainer's does."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net


def prefixed(fact: ParameterFact) -> ParameterFact:
    return replace(
        fact,
        name=f"net.{fact.name}",
        tied=tuple(f"net.{name}" for name in fact.tied),
        blocks=tuple(prefixed(block) for block in fact.blocks),
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_within_another_module_has_the_same_facts(family):
    with torch.device("meta"):
        model = FAMILIES[family][0]()
        parts = [model, *(part for part in model.children() if any(True for _ in part.children()))]
    for part in parts:  # a base model stands at the top too
        facts = [prefixed(fact) for fact in parameter_facts(part)]
        assert parameter_facts(Around(part)) == facts
        assert parameter_facts(Around(Around(part))) == [prefixed(fact) for fact in facts]
