"""What a decoder's layer adds to the residual stream: found among its modules' outputs, and checked.

Pre-norm, post-norm of a branch, sandwich norms, parallel branches: implementations differ in what is added and to what.
So nothing is taken from a model's name: a reading of the layer counts when stream + attention + feed-forward network is
the layer's output.

Shapes: N tokens, D model width.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.blocks import holder
from seedbed.facts.fact import ParameterFact
from seedbed.measure.branches import Branch

OUTPUT_MAPS: dict[str, Branch] = {"attn.o": "attn", "mlp.down": "mlp"}
NAMES: dict[Branch, str] = {"attn": "attention", "mlp": "MLP"}
TOLERANCE = 1e-3  # of what is added, relative (choice); below it a reading explains the output


class LayerPlace(NamedTuple):
    """A layer's module, and of each branch the modules around its output maps: outermost first, a single map last."""

    path: str
    branches: dict[Branch, tuple[str, ...]]

    def inside(self, path: str) -> Branch | None:
        """The branch in whose outermost module the module at ``path`` is."""
        return next((branch for branch, (outer, *_) in self.branches.items() if path.startswith(f"{outer}.")), None)


class Output(NamedTuple):
    """What a module of a branch, or a norm behind it, gave."""

    branch: Branch
    path: str
    value: Tensor  # [N, D]
    factor: float = 1.0  # that the layer multiplies it by; `value` is the product


class Addition(NamedTuple):
    output: Output
    stream: Tensor  # [N, D], what it is added to


def layer_places(facts: Iterable[ParameterFact], modules: Mapping[str, nn.Module]) -> list[LayerPlace]:
    """The layers of a model, from its parameter table; ``modules`` are its modules by canonical name.

    Raises InputError for a model without layers, and for one with several stacks of them.
    """
    by_layer: dict[int, list[ParameterFact]] = {}
    sizes = set()
    for fact in facts:
        if fact.layer is not None:
            by_layer.setdefault(fact.layer, []).append(fact)
            sizes.add(fact.n_layers)
    if len(sizes) != 1:
        what = "several stacks of layers" if sizes else "no layers"
        raise InputError(f"the model has {what}; the residual stream is followed through the one stack of a decoder")
    return [_place(by_layer[layer], modules) for layer in sorted(by_layer)]


def additions(
    h: Tensor, out: Tensor, outputs: Sequence[Output], read: Sequence[Tensor], branches: Iterable[Branch]
) -> tuple[Addition, ...] | str:
    """What makes ``out`` [N, D], a layer's output, of ``h`` [N, D], its input; or why that is not known.

    ``outputs`` come in the order of time. Of each branch the latest that explains the output is taken: a norm behind
    the branch before the branch, that before a map in it; where none does, with a constant factor each. ``read`` are
    inputs of the layer's norms and branches: they tell whether the second branch reads the stream with the first one
    added, or beside it.
    """
    order: dict[Branch, list[int]] = {
        branch: [place for place, each in enumerate(outputs) if each.branch == branch] for branch in branches
    }
    if not order:
        return "it has no attention or MLP that the parameter table knows"
    missing = [NAMES[branch] for branch, places in order.items() if not places]
    if missing:
        return f"no output of its {' and '.join(missing)} has the shape of the stream"
    choices = [sorted(chosen) for chosen in product(*(reversed(places) for places in order.values()))]
    for scaled, chosen in ((scaled, chosen) for scaled in (False, True) for chosen in choices):
        taken = [outputs[place] for place in chosen]
        if scaled:
            taken = _scaled(taken, out - h)
        if _agree(sum((each.value for each in taken), h), out, [each.value for each in taken]):
            break
    else:
        names = " and ".join(NAMES[branch] for branch in order)
        return f"stream + {names} is not its output, whichever of its modules is taken"
    first, *second = taken
    found = [Addition(first, h)]
    if second:
        between = h + first.value
        if any(_agree(x, between, [first.value]) for x in read):
            found.append(Addition(second[0], between))
        elif any(_agree(x, h, [first.value]) for x in read):
            found.append(Addition(second[0], h))
        else:
            return "neither its input nor that and its first branch is read by one of its norms or branches"
    return tuple(found)


def _scaled(outputs: Sequence[Output], change: Tensor) -> list[Output]:
    """Each times the constant that comes closest to ``change`` [N, D]: some models multiply what a branch adds."""
    values = torch.stack([output.value.double().flatten() for output in outputs]).nan_to_num(0, 0, 0)  # [branches, N D]
    wanted = values @ change.double().flatten().nan_to_num(0, 0, 0)
    factors = (torch.linalg.pinv(values @ values.T) @ wanted).tolist()
    return [
        output._replace(value=output.value * factor, factor=factor)
        for output, factor in zip(outputs, factors, strict=True)
    ]


def _place(facts: Sequence[ParameterFact], modules: Mapping[str, nn.Module]) -> LayerPlace:
    path = _common(holder(fact.name) for fact in facts)
    around: dict[Branch, list[str]] = {}
    for role, branch in OUTPUT_MAPS.items():
        names = [fact.name for fact in facts if fact.role == role]
        maps = [name.removesuffix(".weight") for name in names]
        if maps:
            inner = _common(map_ if map_ in modules else holder(name) for map_, name in zip(maps, names, strict=True))
            around[branch] = list(_ancestors(inner, path))
    shared = set.intersection(*map(set, around.values())) if len(around) > 1 else set()
    return LayerPlace(
        path, {branch: tuple(p for p in paths if p not in shared) for branch, paths in around.items() if paths}
    )


def _ancestors(path: str, layer: str) -> Iterable[str]:
    """``path`` and the modules around it within ``layer``, outermost first."""
    parts = path.removeprefix(f"{layer}.").split(".")
    return (f"{layer}.{'.'.join(parts[: n + 1])}" for n in range(len(parts)) if path != layer)


def _common(paths: Iterable[str]) -> str:
    """The innermost module around all of ``paths``, or the only one."""
    first, *others = (path.split(".") for path in paths)
    for other in others:
        shared = next((n for n, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), len(other))
        first = first[:shared]
    return ".".join(first)


def _agree(x: Tensor, y: Tensor, added: Sequence[Tensor]) -> bool:
    """Whether x is y at every token, to TOLERANCE of the sizes of ``added`` and to rounding."""
    room = TOLERANCE * sum(_norm(value) for value in added) + 8 * torch.finfo(y.dtype).eps * _norm(y)
    return not bool((_norm(x - y) > room).any())  # what is not finite is never "larger": its numbers are none either


def _norm(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64)
