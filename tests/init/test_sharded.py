"""Sharded by FSDP2 on 1 and 2 ranks, models hold the numbers of one process, bit for bit (cases 29 and 30)."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.init import gamma_, initialize_, materialize_
from seedbed.model import Decoder


def decoder() -> nn.Module:
    """Fused matrices, and row counts that two ranks cannot share evenly: 33 tokens, 27 + 2 x 9 + 3 rows of qkv."""
    overrides = ["vocab_size=33", "d_model=27", "n_layers=2", "tied=true", "attention.n_heads=3",
                 "attention.n_kv_heads=1", "attention.head_dim=9", "attention.gate=headwise", "ffn.kind=gelu",
                 "ffn.d_ff=35", "position=learned", "max_seq_len=16"]  # fmt: skip
    return Decoder(Config.load(None, [f"model.{override}" for override in overrides]).model)


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=33, hidden_size=24, intermediate_size=35, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, tie_word_embeddings=True, pad_token_id=4, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config)


# the spectral laws draw queries, keys and values as one matrix
CASES: list[tuple[Callable[[], nn.Module], str]] = [
    (decoder, "gamma"),
    (decoder, "orthogonal"),
    (decoder, "magnitude+spectrum"),
    (llama, "gamma"),
    (llama, "magnitude"),
]


def shard_layers(model: nn.Module) -> None:
    for layer in model.layers if isinstance(model, Decoder) else model.model.layers:  # pyright: ignore
        fully_shard(layer)
    fully_shard(model)


def told(model: nn.Module, receipt: dict) -> str:
    """One hash of all parameters under all their names, of the buffers, and of the receipt."""
    digest = hashlib.sha256(json.dumps(receipt, sort_keys=True).encode())
    for name, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers()):
        whole = tensor.detach()
        whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
        digest.update(name.encode() + whole.numpy().tobytes())
    return digest.hexdigest()


def one_process() -> list[str]:
    hashes = []
    for build, law in CASES:
        model = build()
        hashes.append(told(model, initialize_(model, law, seed=5).dump()))
    return hashes


def on_a_rank() -> list[str]:
    """The hashes of the same cases, built on the meta device and sharded before any number is there."""
    hashes = []
    for build, law in CASES:
        with torch.device("meta"):
            model = build()
        shard_layers(model)
        materialize_(model)
        assert all(parameter.to_local().isnan().all() for parameter in model.parameters())  # pyright: ignore
        hashes.append(told(model, initialize_(model, law, seed=5).dump()))
    check_kept(model)
    check_other_placements()
    return hashes


def check_kept(model: nn.Module) -> None:
    """What is kept on a sharded model stays, is measured as a whole, and is refused where nothing wrote it."""
    whole = llama()
    initialize_(whole, "magnitude", seed=5)
    only = ["model.layers.0.self_attn.q_proj.weight", "model.norm.weight"]
    here, there = (initialize_(m, "xavier", seed=6, only=only) for m in (model, whole))
    assert told(model, here.dump()) == told(whole, there.dump())
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.to_local()[-1:].fill_(torch.nan)  # pyright: ignore
    with pytest.raises(InputError, match=r"layers\.1\.mlp\.up_proj\.weight would be kept"):
        initialize_(model, only=only)


def check_other_placements() -> None:
    """Columns, both dimensions and copies: whatever the placement, a shard of the same draw."""
    size = dist.get_world_size()
    flat, grid = init_device_mesh("cpu", (size,)), init_device_mesh("cpu", (1, size), mesh_dim_names=("a", "b"))
    for mesh, placements in ((flat, [Shard(1)]), (flat, [Replicate()]), (grid, [Shard(0), Shard(1)])):
        layer, plain = nn.Linear(11, 7), nn.Linear(11, 7)
        for name, parameter in list(layer.named_parameters()):
            at = placements if parameter.dim() > 1 else [Replicate()] * mesh.ndim
            setattr(layer, name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, at)))
        assert initialize_(layer, "lecun", seed=1) == initialize_(plain, "lecun", seed=1)
        assert torch.equal(layer.weight.full_tensor(), plain.weight)  # pyright: ignore
        gamma_(layer.weight)
        assert layer.weight.full_tensor().isfinite().all()  # pyright: ignore


def run(rank: int, size: int, folder: Path) -> None:
    warnings.simplefilter("ignore")  # of sharding on a CPU
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), size), rank=rank, world_size=size)
    (folder / f"{rank}.json").write_text(json.dumps(on_a_rank()))
    dist.barrier()  # a rank that leaves first would cut the connection that the other still reads from


def run_and_leave(rank: int, size: int, folder: Path) -> None:
    run(rank, size, folder)
    os._exit(0)  # the interpreter's end, with the threads of the process group still there, aborts now and then


@pytest.mark.parametrize("size", [1, 2])
def test_sharded_models_hold_the_numbers_of_one_process(size, tmp_path):
    if size == 1:
        try:
            run(0, 1, tmp_path)
        finally:
            dist.destroy_process_group()
    else:
        mp.spawn(run_and_leave, args=(size, tmp_path), nprocs=size)
    expected = one_process()
    assert len(set(expected)) == len(CASES)
    for rank in range(size):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == expected, rank
