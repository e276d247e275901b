"""Muon: momentum whose matrix is replaced by the nearest semi-orthogonal one (Jordan et al. 2024; used in S1)."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from seedbed.errors import GuardStop
from seedbed.init.sharding import own_part
from seedbed.optim.spread import work_on_whole

Blocks = tuple[tuple[int, int], ...]
"""Row ranges of a fused matrix's blocks."""

# Singular values of at least this share of the Frobenius norm end in [0.87, 1.13] after five steps (the tests ask for
# [0.7, 1.2] from 2e-3 on).
FLOOR = 1e-3
# Each step expects singular values up to 1 % above what exact arithmetic allows: bf16 rounding stays inside.
HEADROOM = 1.01


def _best_quintic(low: float, high: float) -> tuple[float, float, float, float]:
    """The odd quintic ax + bx^3 + cx^5 nearest to 1 on [low, high] in the largest error, and that error.

    Remez exchange: the optimum errs by +-e at low, its two inner extrema and high, in turn (Chebyshev).
    """
    a, b, c, error = 15 / 8, -10 / 8, 3 / 8, 1e-4  # the limit low, high -> 1, where the exchange would be singular
    inner = np.array([0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high])
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for _ in range(50 if high - low > 0.05 else 0):
        x = np.array([low, *inner, high])
        a, b, c, error = np.linalg.solve(np.stack([x, x**3, x**5, signs], 1), np.ones(4))
        spread = np.sqrt(9 * b * b - 20 * a * c)
        inner = np.sqrt(np.array([-3 * b - spread, -3 * b + spread]) / (10 * c))  # zeros of a + 3bx^2 + 5cx^4
    return float(a), float(b), float(c), float(error)


@cache
def quintics(steps: int) -> tuple[tuple[tuple[float, float, float], ...], float]:
    """Coefficients (a, b, c) of ``steps`` odd quintics whose composition takes [FLOOR, 1] to [1 - e, 1 + e]; and e.

    The fixed 3.4445, -4.7750, 2.0315 of the first Muon let singular values dip to 0.68. Here each step is the best
    one for the interval that the steps before leave, which is optimal for the composition too (Amsel et al. 2025,
    "The Polar Express"): the interval [l, u] becomes [1 - e, 1 + e]. More steps bring it closer to 1.
    """
    error, low, high, result = 1.0, FLOOR, 1.0, []
    for _ in range(steps):
        a, b, c, error = _best_quintic(low, high * HEADROOM)
        result.append((a, b, c))
        low, high = 1 - error, 1 + error
    return tuple(result), error


def _unit(matrix: Tensor) -> Tensor:
    """``matrix`` over its Frobenius norm, in fp32 or better; zero stays zero."""
    x = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
    tiny = torch.finfo(x.dtype).tiny
    x = x / x.abs().amax().clamp_min(tiny)  # first to entries of at most 1: the squares of 1e-25 are 0 in fp32
    return x / x.norm().clamp_min(tiny)


def orthogonalize(matrix: Tensor, steps: int = 5) -> Tensor:
    """U V^T of ``matrix`` = U S V^T [m, n], nearly: every direction with a singular value of at least 2e-3 of the
    Frobenius norm gets one in [0.7, 1.2] at five steps; smaller ones are enlarged but never above 1.2.

    Scale does not matter; zero stays zero. Iterates in bf16 on CUDA and in fp32 (fp64 for fp64) elsewhere, where bf16
    is emulated and slow. Returns that type.
    """
    x = _unit(matrix)
    x = x.bfloat16() if x.is_cuda else x
    tall = x.shape[0] > x.shape[1]
    if tall:  # iterate on the smaller Gram matrix
        x = x.mT
    for a, b, c in quintics(steps)[0]:
        gram = x @ x.mT  # [m, m], m the smaller side
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)  # ax + (b gram + c gram^2) x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """``p <- p (1 - lr wd) - lr * 0.2 sqrt(max(m, n)) * orthogonalize(momentum)`` for matrices [m, n].

    The factor gives updates the RMS of AdamW's, so that one learning rate serves both (Liu et al. 2025, "Muon is
    scalable for LLM training"; S1). A group may carry ``rows``: per parameter the row ranges of a fused matrix's
    blocks, or None; each block is orthogonalized and scaled as a matrix of its own. Momentum is fp32.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        weight_decay: float = 0.0,
        process_group: dist.ProcessGroup | None = None,
    ):
        """``process_group``: ranks that hold the same matrices, or rows of them (DTensor), and share the work."""
        defaults = {
            "lr": lr, "momentum": momentum, "nesterov": nesterov, "ns_steps": ns_steps, "weight_decay": weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        self._process_group = process_group
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError(f"Muon takes matrices, not a parameter of shape {tuple(parameter.shape)}")
                dtype = torch.promote_types(parameter.dtype, torch.float32)
                self.state[parameter]["momentum"] = torch.zeros_like(parameter, dtype=dtype)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient.

        Raises GuardStop, on all ranks, before anything changes when a gradient is not finite, and after the update when
        a block of it was not orthogonal (:func:`is_orthogonal`), which would mean that the iteration failed.
        """
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not grads:
            return
        parts = [part for grad in grads if (part := own_part(grad)).numel()]
        largest = nn.utils.get_total_norm(parts, float("inf")).to(grads[0].device)  # on the CPU where there are none
        if not self._everywhere(largest.isfinite()):
            raise GuardStop("Muon: a gradient is not finite; nothing was updated")
        todo = [
            (parameter, blocks or ((0, len(parameter)),), group)
            for group in self.param_groups
            for parameter, blocks in zip(
                group["params"], group.get("rows") or [None] * len(group["params"]), strict=True
            )
            if parameter.grad is not None
        ]
        todo.sort(key=lambda one: one[0].numel(), reverse=True)  # ranks of a round have about the same to do
        size = 1 if self._process_group is None else dist.get_world_size(self._process_group)
        checks = [torch.ones((), dtype=torch.bool, device=grads[0].device)]
        for start in range(0, len(todo), size):
            checks += self._update(todo[start : start + size])
        if not self._everywhere(torch.stack(checks).all()):
            raise GuardStop("Muon: an update is not orthogonal; the weights in memory are not to be used")

    def _everywhere(self, sound: Tensor) -> bool:
        """Whether the boolean scalar ``sound`` is true on all ranks."""
        if self._process_group is None:
            return bool(sound)
        least = sound.int()
        dist.all_reduce(least, dist.ReduceOp.MIN, self._process_group)
        return bool(least)

    def _update(self, todo: Sequence[tuple[Tensor, Blocks, dict[str, Any]]]) -> list[Tensor]:
        """Update one round of parameters; a boolean for each block of this rank's says whether it can be orthogonal."""
        checks: list[Tensor] = []

        def orthogonal(number: int, direction: Tensor) -> Tensor:
            _, blocks, group = todo[number]
            update = torch.empty_like(direction)
            for start, stop in blocks:
                block = orthogonalize(direction[start:stop], group["ns_steps"])
                checks.append(is_orthogonal(block, direction[start:stop], group["ns_steps"]))
                update[start:stop] = block * (0.2 * max(block.shape) ** 0.5)
            return update

        directions = [self._direction(parameter, group) for parameter, _, group in todo]
        updates = work_on_whole(directions, orthogonal, self._process_group)
        for (parameter, _, group), update in zip(todo, updates, strict=True):
            wide = parameter.to(update.dtype)  # itself, unless it is kept in less than fp32: then it is rounded once
            wide.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])
            if wide is not parameter:
                parameter.copy_(wide)
        return checks

    def _direction(self, parameter: Tensor, group: dict[str, Any]) -> Tensor:
        """The momentum to orthogonalize, after this step's gradient."""
        buffer, beta = self.state[parameter]["momentum"], group["momentum"]
        grad = parameter.grad.to(buffer.dtype)  # pyright: ignore[reportOptionalMemberAccess]
        buffer.lerp_(grad, 1 - beta)
        return grad.lerp(buffer, beta) if group["nesterov"] else buffer


def is_orthogonal(update: Tensor, matrix: Tensor, steps: int) -> Tensor:
    """Whether ``update`` can be ``orthogonalize(matrix, steps)``: a boolean scalar, from seven products with a vector.

    ``update update^T`` must keep the length of a vector that leads along the large singular directions of ``matrix``,
    and the Frobenius norm of the update must be small enough for its rank.
    """
    x = _unit(matrix)
    update = update.to(x.dtype)
    probe = x @ (x.mT @ (x @ torch.arange(x.shape[1], device=x.device, dtype=x.dtype).cos()))  # [m], weights s^3
    length, kept = probe.norm(), (update @ (update.mT @ probe)).norm()
    error = quintics(steps)[1]
    isometric = (kept >= 0.8 * (1 - error) ** 2 * length) & (kept <= 1.2 * (1 + error) ** 2 * length)
    return isometric & (update.norm() <= 1.1 * (1 + error) * min(update.shape) ** 0.5)
