"""Where in a model a parameter stands: its layer, and where its block has the norms."""

from collections.abc import Iterable, Mapping

from torch import nn

from seedbed.facts.patterns import BLOCK


def layers(names: Iterable[str], modules: Mapping[str, nn.Module]) -> dict[str, tuple[int | None, int]]:
    """Of each parameter the index of its block and the number of blocks, counted in each stack by itself: encoder and
    decoder are two. Stages, as Swin has them, are one stack, whose blocks are counted through (choice).

    Outside of a stack the index is None, and the number that of the deepest stack, 0 where there is none. Only modules
    that have modules of their own are blocks: a row of linear maps is no stack.
    """
    names = list(names)
    found = {name: match for name in names if (match := BLOCK.match(name)) and any(modules[match[0][:-1]].children())}
    staged = {match[1] for match in found.values() if match[3]}
    places = {  # name -> stack, stage, index in the stage; what is in a stage but in none of its blocks has no place
        name: (match[1], int(match[2]), int(match[3])) if match[3] else (match[1], 0, int(match[2]))
        for name, match in found.items()
        if match[3] or match[1] not in staged
    }
    sizes: dict[str, dict[int, int]] = {}  # stack -> stage -> number of blocks
    for stack, stage, index in places.values():
        stages = sizes.setdefault(stack, {})
        stages[stage] = max(stages.get(stage, 0), index + 1)
    depth = {stack: sum(stages.values()) for stack, stages in sizes.items()}
    outside = (None, max(depth.values(), default=0))

    def layer(stack: str, stage: int, index: int) -> tuple[int, int]:
        return sum(size for other, size in sizes[stack].items() if other < stage) + index, depth[stack]

    return {name: layer(*places[name]) if name in places else outside for name in names}


def placement(path: str, modules: Mapping[str, nn.Module]) -> str | None:
    """``pre`` or ``post`` as the nearest enclosing module says it, by an attribute ``placement`` or, PyTorch's own
    layers, ``norm_first``; None where none does."""
    while True:
        module = modules[path]
        told = getattr(module, "placement", None)
        if told in ("pre", "post"):
            return told
        if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            return "pre" if module.norm_first else "post"
        if not path:
            return None
        path = path.rpartition(".")[0]
