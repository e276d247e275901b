"""From the meta device to memory: NaN where a draw is due, and what the modules compute by themselves."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.table import canonical, parameter_facts
from seedbed.init.sharding import write_whole

OWN_METHODS = ("reset_parameters", "reset_buffers")


@torch.no_grad()
def materialize_(
    module: nn.Module, device: torch.device | str = "cpu", roles: Mapping[str, str] | None = None, seed: int = 0
) -> nn.Module:
    """Give memory on ``device`` to all that ``module`` has on the meta device, in place; initialize_ comes next.

    Parameters hold NaN, so that one which nothing writes is noticed. Ties are kept; sharded parameters (DTensor) get
    their shard. Buffers, and parameters whose role is ``kept``, get what the modules' own code writes into them:
    ``reset_parameters()`` and ``reset_buffers()`` of their modules and then, in a Transformers model, its
    ``_init_weights``; where that draws, it draws from ``seed``, and torch's own generator stays as it was. A ``kept``
    parameter that it does not write holds NaN too, and initialize_ will ask for it.

    Raises InputError, leaving the module untouched, naming buffers that no such code writes, and as parameter_facts.
    """
    kept = {fact.name for fact in parameter_facts(module, roles) if fact.role == "kept"}
    parameters, buffers = _on_meta(module.named_parameters()), _on_meta(module.named_buffers())
    wanted = {name: parameter for name, parameter in parameters.items() if name in kept} | buffers
    values = _own_values(module, wanted, seed)
    lost = [name for name in buffers if name not in values] + _meta_attributes(module)
    if lost:
        raise InputError(
            f"materialize_: nothing computes {', '.join(lost)}: the module that holds it needs a reset_buffers() or "
            "reset_parameters() that writes it, or build the model off the meta device"
        )
    _allocate(module, torch.device(device))
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        name = canonical(name)
        if name in values:
            write_whole(tensor, values[name])
        elif name in parameters and tensor.is_floating_point():  # initialize_ refuses the others
            tensor.fill_(torch.nan)
    return module


def _on_meta(named: Iterator[tuple[str, Any]]) -> dict[str, Tensor]:
    return {canonical(name): tensor for name, tensor in named if tensor.is_meta}


def _meta_attributes(module: nn.Module) -> list[str]:
    """Tensors on the meta device that are neither parameters nor buffers: no code is bound to make them anew."""
    return [
        canonical(f"{prefix}.{name}".lstrip("."))
        for prefix, owner in module.named_modules()
        for name, value in vars(owner).items()
        if isinstance(value, Tensor) and value.is_meta
    ]


def _own_values(module: nn.Module, wanted: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """What the modules' own code writes into the ``wanted`` tensors; those that it does not write are left out.

    It runs twice, on zeros and on ones: only what it writes comes out the same.
    """
    if not wanted:
        return {}
    trials: list[dict[str, Tensor]] = []
    for fill in (0, 1):
        with _stand_ins(module, {id(tensor) for tensor in wanted.values()}, fill), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _reset(module)
            tensors = chain(module.named_parameters(), module.named_buffers())
            trials.append({canonical(name): tensor.detach() for name, tensor in tensors})
    first, second = trials
    return {
        name: first[name]
        for name, tensor in wanted.items()
        if first[name].shape == tensor.shape and torch.equal(first[name], second[name])
    }


@contextmanager
def _stand_ins(module: nn.Module, wanted: set[int], fill: int) -> Iterator[None]:
    """Meanwhile the tensors with ids ``wanted`` are plain ones on the CPU, full of ``fill``; all others are on the meta
    device, where writing costs nothing and harms nothing."""
    slots: list[tuple[dict[str, Any], str, Tensor]] = [
        (tensors, name, tensor)
        for owner in module.modules()
        for tensors in (owner._parameters, owner._buffers)
        for name, tensor in tensors.items()
        if tensor is not None
    ]
    made: dict[int, Tensor] = {}
    for tensors, name, tensor in slots:
        if id(tensor) not in made:
            device = "cpu" if id(tensor) in wanted else "meta"
            made[id(tensor)] = torch.full(tensor.shape, fill, dtype=tensor.dtype, device=device)
        tensors[name] = made[id(tensor)]
    try:
        yield
    finally:
        for tensors, name, tensor in slots:
            tensors[name] = tensor


def _reset(module: nn.Module, model: nn.Module | None = None) -> None:
    """Let every module that holds a tensor off the meta device write its own, children first, as construction does;
    ``model`` is the innermost enclosing one with ``_init_weights``, which Transformers calls with each module."""
    if all(tensor.is_meta for tensor in chain(module.parameters(), module.buffers())):
        return
    model = module if hasattr(module, "_init_weights") else model
    for child in module.children():
        _reset(child, model)
    try:
        for method in OWN_METHODS:
            if hasattr(module, method):
                getattr(module, method)()
        if model is not None:
            model._init_weights(module)  # pyright: ignore[reportCallIssue]
    except Exception as error:
        raise InputError(
            f"materialize_: the own initialization of {type(module).__name__} fails ({error}); build the model off the "
            "meta device"
        ) from error


def _allocate(module: nn.Module, device: torch.device) -> None:
    """Replace what lies on the meta device by empty memory, as ``to_empty`` does; what stands or is tied stays so.

    ``_apply`` is what sharding hooks into.
    """
    made: dict[int, tuple[Tensor, Tensor]] = {}  # the old tensor too, so that its id is not used again

    def place(tensor: Tensor) -> Tensor:
        if not tensor.is_meta:
            return tensor
        if id(tensor) not in made:
            made[id(tensor)] = tensor, torch.empty_like(tensor, device=device)
        return made[id(tensor)][1]

    names: dict[int, list[tuple[dict[str, Any], str]]] = {}
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                names.setdefault(id(parameter), []).append((owner._parameters, name))
    module._apply(place)
    for (slots, name), *tied in names.values():
        for others, other in tied:
            others[other] = slots[name]
