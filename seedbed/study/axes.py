"""Axes of arms, and sizes, as data: what each level sets in the configuration."""

import json
import math
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from seedbed.config.options import suggest
from seedbed.config.section import Positive, Section


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 80 and not any(sign in "/\\" or sign < " " for sign in text)


def _name(text: str) -> str:
    if not _is_name(text):
        raise ValueError("is no name: write 1 to 80 characters, none of them / or \\")
    return text


Name = Annotated[str, AfterValidator(_name)]
Values = dict[str, Any]
"""Dotted paths of a configuration and what is set there. ``{times: a, width_power: p}`` stands for a * d_model^p."""


def label_of(value: Any) -> str:
    """How a value is called where it names a level: ``0.5``, ``adamw``."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _levels(axis: Any) -> Any:
    """``{path: [values]}`` written out: a level a value, called by it."""
    if isinstance(axis, dict) and len(axis) == 1:
        ((path, values),) = axis.items()
        if isinstance(values, list):
            if not values:
                raise ValueError(f"{path}: is empty; it needs one value at least")
            levels = {label_of(value): {path: value} for value in values}
            if not all(map(_is_name, levels)):
                raise ValueError(
                    f"{path}: such values are no names for levels; name the levels: {{a: {{{path}: ...}}}}"
                )
            if len(levels) < len(values):
                raise ValueError(f"{path}: a value stands twice")
            return levels
    if not isinstance(axis, dict) or not all(isinstance(level, dict) for level in axis.values()):
        raise ValueError(
            "write a list of values of one field {init.gamma: [0.5, 1.0]}, or named levels {a: {init.gamma: 0.5}}"
        )
    return axis


class SizeRule(Section):
    """Sizes by formula: d_ff = ffn_ratio * d_model, up to the next multiple; heads = d_model / head_dim."""

    widths: Annotated[list[Positive], Field(min_length=1)]
    """Each d_model."""
    layers: Positive | list[Positive]
    """Layers of all sizes, or of each."""
    head_dim: Positive
    """Width of a head."""
    ffn_ratio: Annotated[float, Field(gt=0, le=64)] = 8 / 3
    """d_ff / d_model; rounding it changes what a width does to a branch, so keep the multiple small."""
    ffn_multiple: Positive = 8
    """d_ff is a multiple of it."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if isinstance(self.layers, list) and len(self.layers) != len(self.widths):
            raise ValueError(f"layers has {len(self.layers)} numbers for {len(self.widths)} widths")
        if bad := [width for width in self.widths if width % self.head_dim]:
            raise ValueError(f"head_dim={self.head_dim} does not divide widths {', '.join(map(str, bad))}")
        return self

    def levels(self) -> dict[str, Values]:
        """The sizes, called ``4x128``: layers and width. Raises ValueError where one stands twice."""
        layers = self.layers if isinstance(self.layers, list) else [self.layers] * len(self.widths)
        found = {}
        for width, depth in zip(self.widths, layers, strict=True):
            d_ff = math.ceil(round(self.ffn_ratio * width / self.ffn_multiple, 6)) * self.ffn_multiple
            found[f"{depth}x{width}"] = {
                "model.d_model": width, "model.n_layers": depth, "model.attention.n_heads": width // self.head_dim,
                "model.attention.head_dim": self.head_dim, "model.ffn.d_ff": d_ff,
            }  # fmt: skip
        if len(found) < len(layers):
            raise ValueError("a size stands twice")
        return found


def _sizes(value: Any) -> Any:
    """Sizes by formula written out."""
    if not isinstance(value, dict) or "widths" not in value:
        return value
    if unknown := [key for key in value if key not in SizeRule.model_fields]:
        raise ValueError(f"{unknown[0]}: unknown key; {suggest(unknown[0], list(SizeRule.model_fields))}")
    return SizeRule.model_validate(value).levels()


Axis = Annotated[dict[Name, Values], BeforeValidator(_levels), Field(min_length=1)]
Sizes = Annotated[dict[Name, Values], BeforeValidator(_sizes), Field(min_length=1)]
