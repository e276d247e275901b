"""What a rank holds, keeps for backward and sends: as measured, and as the cost model says."""

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import on_ranks
from tiny import config
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seedbed.analysis.cost import Layout, Sizes, kept_bytes, memory, sizes, traffic
from seedbed.config import Config
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.parallel.world import World, open_world
from seedbed.parallel.wrap import recompute
from seedbed.train.loop import train_step
from seedbed.train.setup import resolve, start

RANKS, LENGTH = 2, 32
ARMS: dict[str, tuple[str, ...]] = {
    f"{strategy} {optimizer}": (
        f"parallel.strategy={strategy}",
        f"optim.name={optimizer}",
        f"train.micro_batch_size={2 // passes}",
    )
    for strategy in ("ddp", "fsdp")
    for optimizer, passes in (("adamw", 1), ("muon", 2))
}
ARMS["fsdp summed each pass"] = (*ARMS["fsdp muon"], "parallel.reduce_each_pass=true")


class Sent(TorchDispatchMode):
    """Counts the bytes that a rank sends in collectives, on average over ranks and by the cheapest algorithms."""

    def __init__(self, ranks: int):
        super().__init__()
        self.ranks, self.bytes = ranks, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        if func.namespace == "c10d":
            tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
            whole = max(tensor.nbytes for tensor in tensors)  # gathered, or still to be scattered
            times = {"allreduce_": 2, "broadcast_": 1, "_allgather_base_": 1, "_reduce_scatter_base_": 1}
            if name == "alltoall_base_":  # what comes in may be more than what goes out, or less
                self.bytes += tensors[1].nbytes * (self.ranks - 1) / self.ranks
            else:
                self.bytes += times[name] * whole * (self.ranks - 1) / self.ranks
        return func(*args, **(kwargs or {}))


def held(tensors: Any) -> int:
    """Bytes of this rank's part of ``tensors``, as their storages are."""
    return sum(getattr(tensor, "_local_tensor", tensor).untyped_storage().nbytes() for tensor in tensors)


def measured(store: Path, overrides: tuple[str, ...], world: World) -> dict[str, float]:
    """After and in a second step: bytes of parameters, gradients and optimizer state, and bytes sent."""
    chosen, opened = resolve(config(store, Path("unused"), *overrides))
    job = start(chosen, Path("unused"), opened, world=world)
    found: dict[str, float] = {}
    update = job.optimizers.step

    def watched() -> None:
        found["gradients"] = sum(
            parameter.grad.to_local().nbytes if hasattr(parameter.grad, "to_local") else parameter.grad.nbytes
            for parameter in job.model.parameters()
        )
        update()

    job.optimizers.step = watched
    train_step(job)
    with Sent(world.size) as sent:
        train_step(job)
    found["parameters"] = held(job.model.parameters())
    found["optimizer state"] = held(job.optimizers.state_dict().values())
    return found | {"sent": sent.bytes}


def all_measured(store: Path) -> dict[str, dict[str, float]]:
    with open_world("cpu", 60) as world:
        return {name: measured(store, overrides, world) for name, overrides in ARMS.items()}


@pytest.fixture(scope="module")
def ranks(tiny_store) -> list[dict[str, dict[str, float]]]:
    return on_ranks(RANKS, all_measured, tiny_store)


def predicted(store: Path, name: str) -> tuple[Sizes, Layout]:
    chosen, _ = resolve(config(store, Path("unused"), *ARMS[name]))
    rows = chosen.train.micro_batch_size
    assert rows
    parallel = chosen.parallel
    layout = Layout(
        RANKS, parallel.strategy, "none", rows, 2 // rows, parallel.reduce_each_pass, precision="fp32", device="cpu"
    )
    return sizes(chosen, LENGTH), layout


def test_fsdp_halves_what_a_rank_holds(ranks):
    for rank in ranks:
        for optimizer in ("adamw", "muon"):
            whole, half = rank[f"ddp {optimizer}"], rank[f"fsdp {optimizer}"]
            for part in ("parameters", "gradients", "optimizer state"):
                assert half[part] == pytest.approx(whole[part] / 2, rel=1e-3), part


@pytest.mark.parametrize("name", ARMS)
def test_a_rank_holds_what_the_model_says(name, ranks, tiny_store):
    expected = memory(*predicted(tiny_store, name))
    for rank in ranks:
        assert rank[name]["parameters"] == expected["parameters"]
        assert rank[name]["optimizer state"] == pytest.approx(expected["optimizer state"], rel=2e-3)  # step counts


@pytest.mark.parametrize("name", ARMS)
def test_ranks_send_what_the_model_says(name, ranks, tiny_store):
    expected = sum(traffic(*predicted(tiny_store, name)).values())
    sent = [rank[name]["sent"] for rank in ranks]
    assert sum(sent) / RANKS == pytest.approx(expected, rel=2e-3)  # counts and norms are sums too


class Alive(TorchDispatchMode):
    """Knows the storages that operators made or looked at, but for those of ``model``, and which of them live."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.weights:
                    self.made[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return out

    @property
    def bytes(self) -> int:
        return sum(size for reference, size in self.made.values() if not reference.expired())


def kept(chosen: Config, kind: str, precision: str, rows: int) -> int:
    """Bytes of what operators made in a forward pass and autograd then holds."""
    model = Decoder(chosen.model)
    initialize_(model)
    if precision == "bf16":
        model.layers.to(torch.bfloat16)  # as FSDP gathers them
    recompute(model.layers, kind)
    ids = torch.zeros(rows, LENGTH, dtype=torch.int64)
    with Alive(model) as alive, torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        hidden = model(ids, hidden=True)
    assert hidden.requires_grad
    return alive.bytes - hidden.untyped_storage().nbytes()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("gate", ["none", "elementwise"])
def test_recomputation_keeps_its_share(precision, gate):
    chosen = Config.load(
        None,
        ["model.vocab_size=64", "model.d_model=128", "model.n_layers=6", f"model.attention.gate={gate}",
         "model.attention.n_kv_heads=2", "train.batch_size=4", f"train.precision={precision}"],
    )  # fmt: skip
    found, said = {}, {}
    for kind in ("none", "selective", "block"):
        found[kind] = kept(chosen, kind, precision, rows=4)
        layout = Layout(1, "ddp", kind, rows=4, precision=precision, device="cpu")
        said[kind] = kept_bytes(sizes(chosen, LENGTH), layout)
    for kind, bytes_kept in found.items():
        assert bytes_kept == pytest.approx(said[kind], rel=0.1), kind
    assert found["block"] < found["selective"] < found["none"]
    assert found["block"] / found["none"] == pytest.approx(said["block"] / said["none"], rel=0.15)
