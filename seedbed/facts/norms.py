"""What the gain of a norm is: a factor that starts at 1, or its difference from 1, which starts at 0."""

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor, nn

GAINS, SHIFTS = ("weight", "scale", "gamma", "gain", "g"), ("bias", "beta")


def of_a_norm(module: nn.Module, attribute: str) -> bool:
    """Whether it is a gain or shift of a norm, which is known by the name of its class: LayerNorm, BatchNorm2d, ..."""
    is_norm = "norm" in type(module).__name__.lower() and not isinstance(module, nn.Linear | nn.Embedding)
    return is_norm and attribute in GAINS + SHIFTS


def norm_role(norm: nn.Module, attribute: str) -> str | None:
    """``norm`` or ``norm.offset`` of a gain, ``norm.bias`` of a shift, None where it cannot be found out.

    PyTorch's own norms have factors. Of any other norm it is measured: whether its output vanishes at gain 0 or at
    gain -1. One that cannot be run with the same vector for each of its required inputs gets None.
    """
    if attribute in SHIFTS:
        return "norm.bias"
    if type(norm).__module__.startswith("torch.nn"):
        return "norm"
    if _vanishes(norm, attribute, gain=0.0):
        return "norm"
    return "norm.offset" if _vanishes(norm, attribute, gain=-1.0) else None


@torch.no_grad()
def _vanishes(norm: nn.Module, attribute: str, gain: float) -> bool:
    """Whether the output is 0 at this gain, shifts being 0; on a stand-in on the CPU, as the norm may be on meta."""
    stand_in = object.__new__(type(norm))  # no copy: sharded modules refuse it, and hooks must not run
    values = {name: gain if name == attribute else float(name not in SHIFTS) for name in norm._parameters}
    tensors = {
        name: None if p is None else nn.Parameter(torch.full(p.shape, values[name], device="cpu"))
        for name, p in norm._parameters.items()
    }
    buffers = {name: None if b is None else torch.zeros_like(b, device="cpu") for name, b in norm._buffers.items()}
    stand_in.__dict__.update(norm.__dict__, _parameters=tensors, _buffers=buffers)
    width = norm._parameters[attribute].shape  # pyright: ignore[reportOptionalMemberAccess]
    for shape in ((2, *width), (2, 2, *width), (2, *width, 2, 2)):  # [B, D], [B, T, D], [B, C, H, W]
        x = torch.arange(1.0, 1 + torch.Size(shape).numel(), device="cpu").reshape(shape)
        try:
            return not type(norm).forward(stand_in, *_inputs(norm, x)).any()
        except Exception:  # another layout of its input, or a module that cannot be run on its own
            continue
    return False


def _inputs(norm: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """``x`` once for each input that ``norm`` must have: a gated norm takes two."""
    parameters = list(inspect.signature(type(norm).forward).parameters.values())[1:]
    return [x] * sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
