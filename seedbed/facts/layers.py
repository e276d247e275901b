"""Where in a model a parameter stands: its layer, and where its block has the norms."""

from collections.abc import Iterable, Mapping, Sequence

from torch import nn

from seedbed.facts.patterns import BLOCK

# Where a block's norms stand: on what a branch reads, x + f(norm(x)); on the sum, norm(x + f(x)); or on what a branch
# adds, x + norm(f(x)), as in OLMo 2.
PLACEMENTS = ("pre", "post", "branch")


def layers(names: Iterable[str], modules: Mapping[str, nn.Module]) -> dict[str, tuple[int | None, int]]:
    """Of each parameter the index of its block and the number of blocks, counted in each stack by itself: encoder and
    decoder are two. Stages, as Swin has them, are one stack, whose blocks are counted through (choice).

    Outside of a stack the index is None, and the number that of the deepest stack, 0 where there is none. Only modules
    that have modules of their own are blocks: a row of linear maps is no stack. A list within the modules of a stack
    makes them stages where all that it holds is built alike, and otherwise it is a part of a block, such as its
    attention and its feed-forward network. A block that runs several times, as ALBERT's does, counts once: only the
    model's code knows how often.
    """
    names = list(names)
    found = {
        name: match
        for name in names
        if (match := BLOCK.match(name)) and any(modules[name[: match.end("index")]].children())
    }
    lists: dict[tuple[str, str], dict[str, nn.Module]] = {}  # (stack, stage) -> the modules of the list within it
    for name, match in found.items():
        if match["inner"]:
            lists.setdefault((match["stack"], match["index"]), {})[match["inner"]] = modules[name[: match.end("inner")]]
    candidates = {stack for stack, _ in lists}
    staged = candidates - {stack for (stack, _), inner in lists.items() if not _alike(list(inner.values()))}
    places: dict[str, tuple[str, int, int]] = {}  # name -> stack, stage, index in the stage
    for name, match in found.items():
        if match["stack"] not in staged:
            places[name] = match["stack"], 0, int(match["index"])
        elif match["inner"]:  # what is in a stage but in none of its blocks has no place
            places[name] = match["stack"], int(match["index"]), int(match["inner"])
    sizes: dict[str, dict[int, int]] = {}  # stack -> stage -> number of blocks
    for stack, stage, index in places.values():
        stages = sizes.setdefault(stack, {})
        stages[stage] = max(stages.get(stage, 0), index + 1)
    depth = {stack: sum(stages.values()) for stack, stages in sizes.items()}
    outside = (None, max(depth.values(), default=0))

    def layer(stack: str, stage: int, index: int) -> tuple[int, int]:
        return sum(size for other, size in sizes[stack].items() if other < stage) + index, depth[stack]

    return {name: layer(*places[name]) if name in places else outside for name in names}


def _alike(modules: Sequence[nn.Module]) -> bool:
    """Whether all are blocks of one class, whose parts of one name are of one class too: an attention and a
    feed-forward network differ in that even where the same wrapper is around both."""
    kinds = {type(module) for module in modules}
    parts: dict[str, set[type[nn.Module]]] = {}
    for module in modules:
        for name, part in module.named_children():
            if any(True for _ in part.parameters()):  # blocks differ in parts without any, as in stochastic depth
                parts.setdefault(name, set()).add(type(part))
    return len(kinds) == 1 and bool(parts) and all(len(kind) == 1 for kind in parts.values())


def placement(path: str, modules: Mapping[str, nn.Module]) -> str | None:
    """One of PLACEMENTS as the nearest enclosing module says it, by an attribute ``placement`` or, PyTorch's own
    layers, ``norm_first``; None where none does."""
    while True:
        module = modules[path]
        told = getattr(module, "placement", None)
        if told in PLACEMENTS:
            return told
        if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            return "pre" if module.norm_first else "post"
        if not path:
            return None
        path = path.rpartition(".")[0]
