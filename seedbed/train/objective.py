"""The pretraining objective: next-token cross-entropy without ever holding the logits of all tokens.

Shapes: N tokens, D model width, V vocabulary, C tokens of a chunk.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seedbed.data.split import IGNORED

# Logits of a chunk. On a CPU they stay near the caches; on CUDA few large products are better than many small ones.
CHUNK_LOGITS = {"cpu": 2**22, "cuda": 2**25}
# Each chunk passes over the whole [V, D] gradient of the head: fewer tokens would make that the larger cost.
LEAST_TOKENS = 128


def chunk_size(device: str, vocab: int) -> int:
    """Tokens of a chunk on a kind of device: "cpu" or "cuda"."""
    return max(LEAST_TOKENS, CHUNK_LOGITS.get(device, CHUNK_LOGITS["cpu"]) // vocab)


def chunked_cross_entropy(
    hidden: Tensor, head_weight: Tensor, targets: Tensor, scale: float = 1.0, chunk_tokens: int | None = None
) -> Tensor:
    """``scale`` times the sum of the cross-entropies, in nats, of all targets that are not -100: a scalar.

    ``hidden`` [..., D] are the states that the head ``head_weight`` [V, D] reads, ``targets`` [...] the ids to predict
    (int64). Products run in the autocast type, softmax and sums in fp32 (fp64 for fp64). Gradients are made chunk by
    chunk on the way forward, so that no tensor is larger than a chunk's logits or the head's gradient; backward can
    run once. With every target masked the loss is 0 and so are the gradients.
    """
    return cross_entropy_and_z(hidden, head_weight, targets, scale, 0.0, chunk_tokens)[0]


def cross_entropy_and_z(
    hidden: Tensor,
    head_weight: Tensor,
    targets: Tensor,
    scale: float,
    z_loss: float,
    chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The same plus the z-loss, ``scale * z_loss`` times the sum of (log Z)^2 over the same targets; and that part of
    it alone, which has no gradient.

    Z is the sum of the exponentials of a token's logits. Holding it near 1 keeps logits from drifting to where rounding
    is coarse (PaLM: Chowdhery et al. 2022, section 5, with 1e-4; S3). What to report as the loss is the difference.
    """
    flat, ids = hidden.flatten(0, -2), targets.flatten()
    if torch.is_grad_enabled() and (hidden.requires_grad or head_weight.requires_grad):
        return _ChunkedLoss.apply(flat, head_weight, ids, scale, z_loss, chunk_tokens)  # pyright: ignore
    losses, penalty, *_ = _sweep(flat, head_weight, ids, scale, z_loss, chunk_tokens, (False, False))
    return losses.sum() * scale + penalty, penalty


def token_losses(hidden: Tensor, head_weight: Tensor, targets: Tensor, chunk_tokens: int | None = None) -> Tensor:
    """Cross-entropy of each target in nats, shaped like ``targets`` [...], 0 where it is -100; without gradients."""
    losses, *_ = _sweep(hidden.flatten(0, -2), head_weight, targets.flatten(), 1.0, 0.0, chunk_tokens, (False, False))
    return losses.view_as(targets)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        scale: float,
        z_loss: float,
        chunk_tokens: int | None,
    ) -> tuple[Tensor, Tensor]:
        wanted = ctx.needs_input_grad[:2]
        losses, penalty, *ctx.grads = _sweep(hidden, weight, targets, scale, z_loss, chunk_tokens, wanted)
        ctx.mark_non_differentiable(penalty)
        return losses.sum() * scale + penalty, penalty

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        if ctx.grads is None:
            raise RuntimeError("chunked_cross_entropy: backward ran already; its gradients were handed over")
        # handed over, not kept: a second reference would make autograd copy the head's gradient
        grads, ctx.grads = ctx.grads, None
        return *(grad if grad is None else grad.mul_(grad_loss) for grad in grads), None, None, None, None


@torch.no_grad()
def _sweep(
    hidden: Tensor,  # [N, D]
    weight: Tensor,  # [V, D]
    targets: Tensor,  # [N]
    scale: float,
    z_loss: float,
    chunk_tokens: int | None,
    wanted: tuple[bool, bool],
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Losses [N], the z-loss [], and the gradients of it and of ``scale`` times the sum of losses, for hidden and
    weight where wanted."""
    device, vocab = hidden.device.type, weight.shape[0]
    exact = torch.promote_types(hidden.dtype, torch.float32)
    kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    chunk = chunk_tokens or chunk_size(device, vocab)
    losses, penalty = hidden.new_zeros(len(targets), dtype=exact), hidden.new_zeros((), dtype=exact)
    grad_hidden = torch.zeros_like(hidden) if wanted[0] else None
    grad_weight = torch.zeros_like(weight, dtype=exact) if wanted[1] else None
    learned = (targets != IGNORED).nonzero().squeeze(1)
    with torch.autocast(device, enabled=False):
        head = weight.to(kind)
        # two buffers for all chunks: fresh ones would cost as much in page faults as the softmax
        room = (min(chunk, len(learned)), vocab)
        logits_room, probs_room = hidden.new_empty(room, dtype=kind), hidden.new_empty(room, dtype=exact)
        for rows in learned.split(chunk):
            states, target = hidden[rows].to(kind), targets[rows, None]  # [C, D], [C, 1]
            logits = torch.mm(states, head.T, out=logits_room[: len(rows)])  # [C, V]
            probs = torch.softmax(logits, -1, dtype=exact, out=probs_room[: len(rows)])
            # log Z from the likeliest entry; the log of the target's own probability could be that of an underflow
            log_z = logits.amax(1, keepdim=True).to(exact) - probs.amax(1, keepdim=True).log()
            losses[rows] = (log_z - logits.gather(1, target)).squeeze(1)
            if z_loss:
                penalty += scale * z_loss * log_z.square().sum()
            if grad_hidden is None and grad_weight is None:
                continue
            if z_loss:
                probs *= 1 + 2 * z_loss * log_z  # d log Z / d logits are the probabilities
            probs.scatter_add_(1, target, torch.full_like(log_z, -1.0))  # d loss / d logits
            slopes = probs.to(kind)
            if grad_hidden is not None:
                grad_hidden[rows] = (torch.mm(slopes, head) * scale).to(grad_hidden.dtype)
            if grad_weight is not None and kind == exact:
                grad_weight.addmm_(slopes.T, states, alpha=scale)
            elif grad_weight is not None:  # sums over chunks stay in fp32
                grad_weight.add_(torch.mm(slopes.T, states), alpha=scale)
    return losses, penalty, grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype)
