"""Work on whole matrices, spread over ranks: each works on one of a round and hands the result to all that need it."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

Work = Callable[[int, Tensor], Tensor]
"""From the number of a matrix and the matrix [m, n] to a result [m, n] of the same type."""


def work_on_whole(matrices: Sequence[Tensor], work: Work, group: dist.ProcessGroup | None) -> list[Tensor]:
    """``work(i, matrices[i])`` for at most as many matrices as ``group`` has ranks; the same list on each rank.

    Matrices split by rows (DTensor) are put together on one rank each and come back split; of matrices that all ranks
    hold, each rank works on one and sends it to the others. Without a group all is done here.
    """
    if group is None or dist.get_world_size(group) == 1:
        return [work(number, matrix) for number, matrix in enumerate(matrices)]
    assert len(matrices) <= dist.get_world_size(group)
    if not isinstance(matrices[0], DTensor):
        return _send_to_all(matrices, work, group)
    sharded = [matrix for matrix in matrices if isinstance(matrix, DTensor) and matrix.placements == (Shard(0),)]
    assert len(sharded) == len(matrices), "FSDP splits every matrix by rows, over one dimension of ranks"
    parts = _exchange([one.to_local() for one in sharded], [one.shape for one in sharded], work, group)
    return [
        DTensor.from_local(part, one.device_mesh, one.placements, run_check=False, shape=one.shape, stride=one.stride())
        for part, one in zip(parts, sharded, strict=True)
    ]


def _send_to_all(matrices: Sequence[Tensor], work: Work, group: dist.ProcessGroup) -> list[Tensor]:
    rank = dist.get_rank(group)
    results = [
        work(number, matrix).contiguous()
        if number == rank
        else torch.empty_like(matrix, memory_format=torch.contiguous_format)
        for number, matrix in enumerate(matrices)
    ]
    sending = [dist.broadcast(one, group=group, group_src=number, async_op=True) for number, one in enumerate(results)]
    for handle in sending:
        assert handle is not None
        handle.wait()
    return results


def _exchange(
    parts: Sequence[Tensor], shapes: Sequence[torch.Size], work: Work, group: dist.ProcessGroup
) -> list[Tensor]:
    """``parts[j]`` are this rank's rows of matrix j, which rank j puts together; returned are these rows of results."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    out = [part.numel() for part in parts] + [0] * (size - len(parts))
    whole_shape = shapes[rank] if rank < len(shapes) else torch.Size((0, 0))
    share = -(-whole_shape[0] // size)  # rows of each rank but the last ones
    into = [max(min(whole_shape[0] - k * share, share), 0) * whole_shape[1] for k in range(size)]
    sent = torch.cat([part.flatten() for part in parts])
    whole = sent.new_empty(sum(into))
    dist.all_to_all_single(whole, sent, into, out, group=group)
    if rank < len(shapes):
        whole = work(rank, whole.view(whole_shape)).flatten()
    back = torch.empty_like(sent)
    dist.all_to_all_single(back, whole, out, into, group=group)
    return [one.view(part.shape) for one, part in zip(back.split([p.numel() for p in parts]), parts, strict=True)]
