"""The variance budget of a pre-norm decoder (S1 section 5.1): what S1's algebra predicts, what real tokens show.

S1 takes the input of every branch as normed, with variance 1, and follows variances through it: a linear map multiplies
by ``d_in·std²``, attention passes the values' variance on (averaging over tokens is ignored), an activation multiplies
by ``Var(f(z))/Var(z)``, a product of two maps multiplies their variances, and a block adds both branches to the stream.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seedbed.config import ModelConfig
from seedbed.errors import InputError
from seedbed.measure.evaluating import evaluating
from seedbed.model.decoder import Decoder, SwiGLU
from seedbed.model.norm import gelu

NORMAL = torch.linspace(-10, 10, 4001, dtype=torch.float64)  # z ~ N(0, 1), for expectations by the trapezoid rule
DENSITY = torch.softmax(-NORMAL.square() / 2, dim=0)


@dataclass(frozen=True)
class BudgetRow:
    """One quantity of the budget.

    ``predicted`` is a variance, ``measured`` a second moment over tokens and features; both are relative to the
    branch's normed input and means over layers. The last two rows are about the stream h and relative to the embedded
    input e: ``after L blocks`` is ``E[h_L²] / E[e²]``, and ``per block`` what one block adds to that, so that in both
    columns ``after = 1 + L · per block``.
    """

    quantity: str
    predicted: float | None
    measured: float | None


def predicted_budget(config: ModelConfig, std: Mapping[tuple[int, str], float]) -> list[BudgetRow]:
    """S1's budget of ``config`` when the matrix of (layer, role) is drawn with ``std[layer, role]``.

    A feed-forward network without a gate has one row ``gelu(up)`` for ``gate``, ``silu(gate)`` and ``gate·up``. Where
    S1 is silent (choice): GELU goes as SiLU does; a gate on attention multiplies by the second moment of its sigmoid, ¼
    while its input is small; biases are zero; QK-norm comes after ``q`` and ``k``. Raises KeyError for a missing std,
    InputError for norms behind the branches, where what a branch reads is not normed.
    """
    if config.norm_placement != "pre":
        raise InputError("variance budget: model.norm_placement=post; S1's algebra is that of a pre-norm model")
    layers = [_predict_layer(config, lambda role, layer=layer: std[layer, role]) for layer in range(config.n_layers)]
    rows = [BudgetRow(quantity, fmean(layer[quantity] for layer in layers), None) for quantity in layers[0]]
    return [*rows, BudgetRow("after L blocks", 1 + sum(layer["per block"] for layer in layers), None)]


def _predict_layer(config: ModelConfig, std: Callable[[str], float]) -> dict[str, float]:
    a, d_ff = config.attention, config.ffn.d_ff
    assert a.head_dim and d_ff  # resolved by the configuration

    def linear(role: str, variance: float, d_in: int) -> float:
        return d_in * std(role) ** 2 * variance

    budget = {part: linear(f"attn.{part}", 1, config.d_model) for part in "qkv"}
    heads = budget["v"]
    if a.gate != "none":
        heads *= _second_moment(torch.sigmoid, linear("attn.gate", 1, config.d_model))
    budget["attention out"] = linear("attn.o", heads, a.n_heads * a.head_dim)
    up = linear("mlp.up", 1, config.d_model)
    if config.ffn.kind == "swiglu":
        budget["gate"] = gate = linear("mlp.gate", 1, config.d_model)
        budget["up"] = up
        budget["silu(gate)"] = _activated(F.silu, gate)
        budget["gate·up"] = hidden = budget["silu(gate)"] * up
    else:
        budget["up"] = up
        budget["gelu(up)"] = hidden = _activated(gelu, up)
    budget["down"] = linear("mlp.down", hidden, d_ff)
    budget["per block"] = budget["attention out"] + budget["down"]
    return budget


def _activated(function: Callable[[Tensor], Tensor], variance: float) -> float:
    """Variance of f(z) for z ~ N(0, variance): the variance by a factor of three decimals, as S1 has it (0.298)."""
    mean = float(DENSITY @ function(NORMAL * variance**0.5))
    exact = _second_moment(function, variance) - mean**2
    return variance * round(exact / variance, 3) if variance else 0.0


def _second_moment(function: Callable[[Tensor], Tensor], variance: float) -> float:
    """E[f(z)²] for z ~ N(0, variance)."""
    return float(DENSITY @ function(NORMAL * variance**0.5).square())


def measure_budget(
    model: Decoder,
    ids: Tensor,
    doc_ids: Tensor | None,
    predicted: list[BudgetRow],
    positions: Tensor | None = None,
) -> list[BudgetRow]:
    """``predicted``, of the configuration of ``model``, with ``measured`` from one pass over ids [B, T].

    A row is the mean over layers of ``E[x²]``, biases included, over that of the branch's normed input, in fp32.
    Tokens of negative document id are padding and are not counted. The model is left as it was, error or not. A branch
    input of nothing but zeros, or a NaN, makes NaN of the rows behind it. Raises ValueError when no token is left.
    """
    keep = torch.ones_like(ids, dtype=torch.bool) if doc_ids is None else doc_ids >= 0  # [B, T]
    if not keep.any():
        raise ValueError("variance budget of zero tokens")
    moments = _Moments(keep)
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))

        def watch(module: nn.Module, use: Callable[[Tensor, Tensor], None]) -> None:
            hook = module.register_forward_hook(lambda _, args, out: use(args[0], out.detach()))
            stack.callback(hook.remove)

        layers: Any = model.layers
        for layer in layers:
            attn = layer.attn
            watch(attn.qkv, partial(moments.attention_in, attn.qkv.blocks))
            watch(attn.o, moments.attention_out)
            mlp = layer.mlp
            if isinstance(mlp, SwiGLU):
                watch(mlp.gate_up, moments.gate_up)
                watch(mlp.down, partial(moments.down, "gate·up"))
            else:
                watch(mlp.up, moments.up)
                watch(mlp.down, partial(moments.down, "gelu(up)"))
            watch(layer, moments.stream)
        model(ids, doc_ids, hidden=True, positions=positions)
    measured = moments.means()
    return [replace(row, measured=measured[row.quantity]) for row in predicted]


class _Moments:
    """Second moments of one pass; its methods but the last are called with (input, output) of modules, as they run."""

    base: Tensor  # of the input of the branch that the pass is in
    embedded: Tensor | None = None  # of e

    def __init__(self, keep: Tensor):
        self.keep = keep  # [B, T]
        self.ratios: dict[str, list[Tensor]] = {}  # of each quantity, layer by layer
        self.growth: list[Tensor] = []  # of the stream against e, after each layer

    def attention_in(self, blocks: Mapping[str, int], x: Tensor, out: Tensor) -> None:
        self.base = self._moment(x)
        for part, rows in zip(blocks, out.split(list(blocks.values()), dim=-1), strict=True):
            if part != "gate":  # S1 has none, and a feed-forward network's has that name
                self._add(part, rows)

    def attention_out(self, _: Tensor, out: Tensor) -> None:
        self._add("attention out", out)

    def gate_up(self, x: Tensor, out: Tensor) -> None:
        gate, up = out.chunk(2, dim=-1)
        self.up(x, up)
        self._add("gate", gate)
        self._add("silu(gate)", F.silu(gate))

    def up(self, x: Tensor, out: Tensor) -> None:
        self.base = self._moment(x)
        self._add("up", out)

    def down(self, hidden: str, x: Tensor, out: Tensor) -> None:
        self._add(hidden, x)
        self._add("down", out)

    def stream(self, x: Tensor, out: Tensor) -> None:
        if self.embedded is None:
            self.embedded = self._moment(x)
        self.growth.append(self._moment(out) / self.embedded)

    def means(self) -> dict[str, float]:
        """Every quantity by name."""
        after = float(self.growth[-1])
        means = {quantity: float(torch.stack(ratios).mean()) for quantity, ratios in self.ratios.items()}
        return {**means, "per block": (after - 1) / len(self.growth), "after L blocks": after}

    def _add(self, quantity: str, x: Tensor) -> None:
        self.ratios.setdefault(quantity, []).append(self._moment(x) / self.base)

    def _moment(self, x: Tensor) -> Tensor:  # [B, T, ...] -> []
        return x[self.keep].float().square().mean()
