"""What a law decides outside its own section: how the model and the rates change with width."""

from typing import Any

# Decided by init.law=mup, free under every other law.
PATHS = ("model.output_multiplier", "model.attention.scale", "optim.base_width")


def parametrization(law: str, options: dict[str, Any], d_model: int, head_dim: int) -> tuple[float, float, int | None]:
    """The values of :data:`PATHS` that go with a law.

    µP (Yang et al. 2022; S3) multiplies logits by base_width/d_model and scores by a multiple of 1/head_dim; that it is
    8, so that heads of 64 have the usual scale, is a (choice). Learning rates are scaled in seedbed.optim.groups.
    """
    if law != "mup":
        return 1.0, head_dim**-0.5, None
    base_width = options["base_width"]
    return base_width / d_model, 8 / head_dim, base_width


def forget(tree: dict[str, Any]) -> None:
    """Drop the values of :data:`PATHS` from plain values, in place: those of the law before mean nothing to mup, nor
    mup's to the next."""
    for path in PATHS:
        *sections, key = path.split(".")
        node: Any = tree
        for section in sections:
            node = node.get(section) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(key, None)
