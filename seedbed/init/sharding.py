"""Parameters that may be sharded (DTensor), read and written as a whole."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def read_whole(tensor: Tensor) -> Tensor:
    """All of a tensor; of a sharded one every rank must ask, and each gets a copy."""
    detached = tensor.detach()
    return detached.full_tensor() if isinstance(detached, DTensor) else detached


def own_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def write_whole(target: Tensor, whole: Tensor) -> None:
    """Copy ``whole`` into ``target``, of a sharded one this rank's part; no rank waits for another."""
    with torch.no_grad():
        if isinstance(target, DTensor):
            shard = distribute_tensor(whole, target.device_mesh, target.placements, src_data_rank=None)
            target.to_local().copy_(shard.to_local())
        else:
            target.copy_(whole)
