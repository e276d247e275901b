"""The cost model against two and four ranks on this machine's CPU: memory, bytes between ranks, seconds of a step.

    python benchmarks/scaling_check.py [--steps 3]

Memory is the growth of the process (VmHWM) over the moment before its model was built; bytes are those that the
loopback device carried, the least of the steps, since others may use it; rates of products, memory and links are
measured by the same ranks just before, the best of five, as of the steps; what products of a step reach of the peak is
taken from one rank.
"""

import argparse
import ctypes
import json
import os
import re
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from seedbed.analysis.cost import Layout, memory, sizes, traffic
from seedbed.analysis.speed import Hardware, predict
from seedbed.config import Config
from seedbed.facts.table import parameter_facts
from seedbed.init import apply_plan, make_plan
from seedbed.optim.groups import build_optimizers
from seedbed.parallel.world import World, open_world
from seedbed.parallel.wrap import accumulating, replicate
from seedbed.train.objective import chunked_cross_entropy
from seedbed.train.setup import build_model

LENGTH, ROWS = 256, 2  # of a pass of one rank
SHAPE = ["model.vocab_size=8192", "model.d_model=512", "model.n_layers=8", "model.attention.n_heads=8",
         f"model.max_seq_len={LENGTH}", "train.device=cpu"]  # fmt: skip
ARMS = [(1, "ddp", "adamw", "none"), (1, "ddp", "adamw", "block")] + [
    (ranks, strategy, optimizer, "none")
    for ranks in (2, 4)
    for optimizer in ("adamw", "muon")
    for strategy in ("ddp", "fsdp")
]


def resident(field: str) -> int:
    """VmRSS, bytes of this process now, or VmHWM, the most it had."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def loopback() -> int:
    """Bytes that the loopback device has carried."""
    line = next(x for x in Path("/proc/net/dev").read_text().splitlines() if x.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def rates(world: World) -> dict[str, float]:
    """Of this rank while all others do the same: FLOP/s of products, bytes/s of memory, bytes/s of a sum over ranks."""

    def fastest(work: Any, amount: float) -> float:
        spent = []
        for _ in range(5):
            world.sum(0)
            began = time.perf_counter()
            work()
            spent.append(time.perf_counter() - began)
        return amount / min(spent)

    a, b, big = torch.randn(512, 512), torch.randn(512, 2048), torch.randn(2**23)
    peak = fastest(lambda: [a @ b for _ in range(50)], 50 * 2 * 512 * 512 * 2048)
    copied = fastest(lambda: big.clone(), 2 * big.nbytes)
    link = 1.0
    if world.size > 1:
        link = fastest(lambda: dist.all_reduce(big), 2 * big.nbytes * (world.size - 1) / world.size)
    return {"peak": peak, "memory_rate": copied, "link": link}


def measure(arm: tuple[int, str, str, str], steps: int) -> dict[str, Any]:
    """One rank of an arm: what it reached, and the medians of its steps."""
    ranks, strategy, optimizer, kind = arm
    overrides = [f"parallel.strategy={strategy}", f"parallel.recompute={kind}", f"optim.name={optimizer}",
                 f"train.batch_size={ranks * ROWS}", f"train.micro_batch_size={ROWS}"]  # fmt: skip
    config = Config.load(None, [*SHAPE, *overrides])
    with open_world("cpu", 300) as world:
        found = rates(world)
        return_at_once = ctypes.CDLL(None).mallopt(-3, 2**20)  # freed memory leaves the process, as RSS should say
        assert return_at_once
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the most that it had starts anew
        model = build_model(config, world)
        facts = parameter_facts(model)
        apply_plan(model, make_plan(facts, config.init), 0)
        forward = replicate(model, world, False, model.layers)
        optimizers = build_optimizers(model, facts, config.optim, world.group)
        ids = torch.randint(8192, (ROWS, LENGTH), generator=torch.Generator().manual_seed(world.rank))
        spent, sent, held = [], [], 0
        for number in range(2 + steps):
            world.sum(0)
            began, carried = time.perf_counter(), loopback()
            with accumulating(forward, summing=True):
                hidden = forward(ids, hidden=True)
                chunked_cross_entropy(hidden, model.head_weight, ids, scale=1 / ids.numel()).backward()
            optimizers.step()
            optimizers.zero_grad()
            world.sum(0)
            spent.append(time.perf_counter() - began)
            sent.append((loopback() - carried) / ranks)
            if number == 1:  # the optimizer's state has been written to; the time of these steps does not count
                held = resident("VmHWM") - before
                ctypes.CDLL(None).mallopt(-3, 2**25)
        return found | {"held": held, "sent": min(sent), "seconds": min(spent[2:])}


def rank(number: int, port: int, folder: str, arm: tuple[int, str, str, str], steps: int) -> None:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {
        k: str(v) for k, v in ({"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": arm[0]} | address).items()
    }
    torch.set_num_threads(1)
    (Path(folder) / str(number)).write_text(json.dumps(measure(arm, steps)))


def on_ranks(arm: tuple[int, str, str, str], steps: int) -> dict[str, Any]:
    """An arm in processes of its own: the slowest and fullest of its ranks."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        mp.spawn(rank, (port, folder, arm, steps), arm[0])  # pyright: ignore
        every = [json.loads((Path(folder) / str(number)).read_text()) for number in range(arm[0])]
    rated = ("peak", "memory_rate", "link")
    return {key: (min if key in rated else max)(one[key] for one in every) for key in every[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    steps = parser.parse_args().steps
    efficiency = None
    print("| ranks | | MB held | predicted | MB sent | predicted | s a step | predicted | GFLOP/s a rank |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for arm in ARMS:
        ranks, strategy, optimizer, kind = arm
        found = on_ranks(arm, steps)
        config = Config.load(None, [*SHAPE, f"optim.name={optimizer}", f"train.micro_batch_size={ROWS}"])
        model = sizes(config, LENGTH)
        layout = Layout(ranks, strategy, kind, ROWS, precision="fp32", device="cpu")  # pyright: ignore
        hardware = Hardware(
            "this machine", found["peak"], 0, found["memory_rate"], found["link"], found["link"], ranks, 1.0, 1.0
        )
        if efficiency is None:
            efficiency = predict(model, layout, hardware).seconds.compute / found["seconds"]
        said = predict(model, layout, replace(hardware, efficiency=efficiency))
        print(
            f"| {ranks} | {strategy}, {optimizer}{', ' + kind if kind != 'none' else ''} "
            f"| {found['held'] / 1e6:,.0f} | {sum(memory(model, layout).values()) / 1e6:,.0f} "
            f"| {found['sent'] / 1e6:,.0f} | {sum(traffic(model, layout).values()) / 1e6:,.0f} "
            f"| {found['seconds']:.2f} | {said.seconds.step:.2f} | {found['peak'] / 1e9:.0f} |",
            flush=True,
        )
    print(f"\nA step of one rank reached {efficiency:.0%} of its products' rate, and the predictions assume that.")


if __name__ == "__main__":
    main()
