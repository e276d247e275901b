"""Muon on matrices that ranks share, by rows or whole: the updates of one rank, to the bit."""

import pytest
import torch
from ranks import on_ranks
from torch import Tensor, nn
from torch.distributed.tensor import Shard, distribute_tensor

from seedbed.errors import GuardStop
from seedbed.init.sharding import read_whole
from seedbed.optim.muon import Muon
from seedbed.optim.spread import work_on_whole
from seedbed.parallel.world import World, open_world

# fewer rows than ranks, one row, one column, rows that do not divide, fused blocks; more matrices than ranks
SHAPES = [(16, 8), (3, 5), (1, 9), (9, 1), (7, 4), (2, 2), (12, 6)]
ROWS = [None, None, None, None, None, None, ((0, 4), (4, 12))]


def values(shape: tuple[int, int], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def placed(tensor: Tensor, split: bool, world: World) -> Tensor:
    return distribute_tensor(tensor, world.mesh, [Shard(0)]) if split and world.mesh else tensor


def updated(world: World, split: bool, scale: float = 1.0, broken: int | None = None) -> list[Tensor]:
    """Parameters after three steps; a gradient that is infinite in matrix ``broken`` at the last."""
    parameters = [nn.Parameter(placed(values(shape, i), split, world)) for i, shape in enumerate(SHAPES)]
    groups = [{"params": parameters, "rows": ROWS}]
    muon = Muon(groups, lr=0.1, weight_decay=0.1, process_group=world.group)
    for step in range(3):
        for i, (parameter, shape) in enumerate(zip(parameters, SHAPES, strict=True)):
            gradient = scale * values(shape, 100 + 10 * step + i)
            if i == broken and step == 2:
                gradient[0, 0] = torch.inf
            parameter.grad = placed(gradient, split, world)
        muon.step()
    return [read_whole(parameter) for parameter in parameters]


def guarded(world: World, split: bool, broken: int) -> str:
    try:
        updated(world, split, broken=broken)
    except GuardStop as stop:
        return str(stop)
    return "went on"


def counted(world: World, split: bool) -> tuple[list[int], list[Tensor]]:
    """Which matrices this rank worked on, and all results."""
    mine: list[int] = []

    def work(number: int, matrix: Tensor) -> Tensor:
        mine.append(number)
        return 2 * matrix

    some = [placed(values(shape, i), split, world) for i, shape in enumerate(SHAPES[: max(world.size - 1, 1)])]
    results = work_on_whole(some, work, world.group)
    return mine, [read_whole(one) for one in results]


def everything() -> dict[str, object]:
    with open_world("cpu", 60) as world:
        found: dict[str, object] = {}
        for split in (False, True):
            found[f"updated {split}"] = updated(world, split)
            found[f"small {split}"] = updated(world, split, scale=1e-9)
            found[f"broken {split}"] = guarded(world, split, broken=4)
            found[f"counted {split}"] = counted(world, split)
        return found


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request) -> list[dict[str, object]]:
    return on_ranks(request.param, everything)


def test_updates_are_those_of_one_rank(ranks):
    alone = World(torch.device("cpu"))
    for split in (False, True):
        for scale, name in ((1.0, "updated"), (1e-9, "small")):
            wanted = updated(alone, False, scale)
            for rank in ranks:
                assert all(map(torch.equal, rank[f"{name} {split}"], wanted))


def test_each_rank_works_on_one_of_a_round(ranks):
    for split in (False, True):
        for number, rank in enumerate(ranks):
            mine, results = rank[f"counted {split}"]
            assert mine == ([number] if number < len(ranks) - 1 else [])
            assert all(torch.equal(one, 2 * values(SHAPES[i], i)) for i, one in enumerate(results))


def test_all_ranks_stop_where_one_holds_what_is_not_finite(ranks):
    for rank in ranks:
        for split in (False, True):
            assert rank[f"broken {split}"] == "Muon: a gradient is not finite; nothing was updated"
