"""What a law decides outside its own section: how the model and the rates change with width."""

from collections.abc import Iterable
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


def forget(tree: dict[str, Any], usual: bool = False) -> None:
    """Drop the values of :data:`PATHS` from plain values, in place: those that mup decided mean nothing to the next
    law. With ``usual`` only those that other laws have by default, which mean nothing to mup; it refuses the rest."""
    head_dim = (_at(tree, ("model", "attention")) or {}).get("head_dim")
    defaults = (1.0, head_dim and head_dim**-0.5, None)
    for path, default in zip(PATHS, defaults, strict=True):
        *sections, key = path.split(".")
        section = _at(tree, sections)
        if section is not None and (not usual or section.get(key) == default):
            section.pop(key, None)


def _at(tree: Any, path: Iterable[str]) -> dict[str, Any] | None:
    """The section at ``path``, or None where there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else None
