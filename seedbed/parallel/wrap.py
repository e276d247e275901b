"""What is done to a model from outside so that many ranks, or little memory, can train it. It computes the same."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from seedbed.config.train import ParallelConfig
from seedbed.config.tree import Config
from seedbed.parallel.world import World

PRODUCTS = [
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
]
"""What takes longest to compute again: matrix products and attention."""


COMPILE_FROM = 2000
"""Steps of a run on a GPU from which it is compiled (choice: compiling takes a minute)."""


def recompute(blocks: Iterable[nn.Module], kind: str) -> None:
    """Activation checkpointing, in place: of each block only the input is kept, and in backward its forward runs again.

    ``kind``: "none"; "block", all of it; "selective", the results of products are kept too (Korthikanti et al. 2022).
    """
    if kind == "none":
        return
    contexts: dict[str, Any] = {}
    if kind == "selective":
        contexts["context_fn"] = partial(create_selective_checkpoint_contexts, _keep_products)
    for block in blocks:
        # the block's own forward, so that names stay and hooks of sharding run outside
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False, **contexts)


def _keep_products(_context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


def shard(model: nn.Module, blocks: Iterable[nn.Module], config: ParallelConfig, precision: str, world: World) -> None:
    """FSDP2, in place, as far as there are several ranks: parameters, gradients and optimizer state are split by rows.

    Each of ``blocks`` is gathered when its turn comes; what is outside of them, embeddings, last norm and head, from
    the start of forward to the end of backward. Under precision bf16 blocks are gathered in bf16 and gradients summed
    in fp32; the residual stream stays as it is on one rank.
    """
    if config.strategy != "fsdp" or world.mesh is None:
        return
    # a block does not cast what comes in: that is the stream, which autocast keeps in fp32
    halves = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    policy = halves if precision == "bf16" else MixedPrecisionPolicy(cast_forward_inputs=False)
    offload = CPUOffloadPolicy(pin_memory=world.device.type == "cuda") if config.offload else OffloadPolicy()
    for block in blocks:
        fully_shard(block, mesh=world.mesh, mp_policy=policy, offload_policy=offload)
    whole = MixedPrecisionPolicy(cast_forward_inputs=False)
    fully_shard(model, mesh=world.mesh, mp_policy=whole, offload_policy=offload)


def compiles(config: Config, world: World) -> bool:
    """Whether the run's model is compiled: what train.compile says; under auto, long runs on a GPU of a model not
    split. On a CPU it does not pay: benchmarks/compile.py measured 0.93 to 0.98 of the eager rate in four of six cases.

    It decides by all steps of a run, not by those that are left, so that a resumed run computes as it did before.
    """
    if config.train.compile != "auto":
        return config.train.compile
    split = config.parallel.strategy == "fsdp" and world.size > 1  # a block by itself gains nothing
    return world.device.type == "cuda" and config.train.steps >= COMPILE_FROM and not split


def replicate(model: nn.Module, world: World, compiled: bool, blocks: Iterable[nn.Module]) -> Callable[..., Tensor]:
    """What training calls in place of ``model``: DDP around it where ranks hold it whole, compiled where asked.

    One compiled graph for the whole model, but one a block where it is sharded, whose gathers stay outside.
    """
    sharded = isinstance(model, FSDPModule)
    if compiled and sharded:
        model.same_shapes = True  # pyright: ignore[reportArgumentType]
        for block in blocks:
            block.compile()
    forward = torch.compile(model) if compiled and not sharded else model
    if world.size == 1 or sharded:
        return forward  # pyright: ignore[reportReturnType]
    device_ids = [world.device] if world.device.type == "cuda" else None
    # nothing is sent from rank 0: all have drawn or read the same
    return DistributedDataParallel(forward, device_ids, gradient_as_bucket_view=True, init_sync=False)  # pyright: ignore


def accumulating(forward: Any, summing: bool) -> AbstractContextManager[None]:
    """Around forward and backward of a micro-batch: whether gradients are summed over ranks after it. Until they are,
    each rank keeps all of them, under FSDP too.
    """
    if isinstance(forward, FSDPModule):
        forward.set_requires_gradient_sync(summing)
        forward.set_is_last_backward(summing)
    elif isinstance(forward, DistributedDataParallel) and not summing:
        return forward.no_sync()
    return nullcontext()


def split_again(model: nn.Module) -> None:
    """After a forward without backward: what that gathered is given up, so that parameters are shards again."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
