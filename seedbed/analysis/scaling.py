"""How does each residual branch change with width under a law? Answered by the law alone, before anything is drawn."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from seedbed.analysis.resources import meta_facts
from seedbed.config import InitConfig, ModelConfig
from seedbed.errors import InputError
from seedbed.init import PlanRow, make_plan
from seedbed.report.preflight_rows import Scaling

MAX_LAYERS = 2  # neither slopes nor exponents depend on the depth, the time does (choice)
# Of the maps in a branch these stand in series: queries, keys and attention's gate weigh what passes through them.
IN_SERIES = {"attention": ("attn.v", "attn.o"), "mlp": ("mlp.gate", "mlp.up", "mlp.down")}


def branch_scaling(model: ModelConfig, init: InitConfig, widths: Sequence[int] | None = None) -> dict[str, Scaling]:
    """For "attention" and "mlp" the exponent of the width, and the gamma that would make it 0.

    The exponent is the sum of 1/2 - gamma over the k maps in series plus gamma_e, or k(1/2 - gamma_b) + gamma_e with
    one gamma in a branch (S0 section 5). Each gamma is how the std that the law plans for the first layer falls over
    ``widths``, ascending (by default the model's own, twice and four times that); gamma_e is the embedding's, and with
    learned positions the smaller of the two tables', since the other vanishes beside it in a wide model. A branch is
    left out where its law has no such power: weights that are copied, a std that is no power of the width. Both are
    where norms stand behind the branches: their gains decide what is added, whatever the matrices.
    """
    if model.norm_placement != "pre":
        return {}
    widths = widths or [model.d_model, 2 * model.d_model, 4 * model.d_model]
    plans = [_first_of_role(make_plan(meta_facts(at_width(model, width, widths[0])), init).rows) for width in widths]
    gamma = {role: _gamma(widths, [plan[role] for plan in plans]) for role in plans[0]}
    gamma_e = float(np.min([gamma[role] for role in ("embed", "pos") if role in gamma]))
    found = {}
    for branch, series in IN_SERIES.items():
        gammas = [gamma[role] for role in series if role in gamma]
        exponent = sum(0.5 - each for each in gammas) + gamma_e
        if math.isfinite(exponent):
            found[branch] = Scaling(len(gammas), round(exponent, 6) + 0.0, 0.5 + gamma_e / len(gammas))
    return found


def at_width(model: ModelConfig, width: int, smallest: int) -> ModelConfig:
    """``model`` at another width, with at most ``MAX_LAYERS`` layers: one of a family whose widths are multiples of
    ``smallest``.

    The proportions of heads and d_ff to d_model are rounded at the smallest width and kept exactly from there: d_ff
    rounded at each width would bend slopes (by 0.07 in multiples of 256). Heads are as wide as in ``model``, or as
    narrow as it takes to have one key/value head at the smallest width; then their scores get the usual scale.
    """
    attention, d_ff, growth = model.attention, model.ffn.d_ff, width // smallest
    assert attention.n_kv_heads and attention.head_dim and d_ff
    group = attention.n_heads // attention.n_kv_heads
    share = attention.head_dim * attention.n_kv_heads * smallest / model.d_model  # features of all key heads
    head_dim = min(attention.head_dim, max(2, int(share) // 2 * 2))
    n_kv_heads = max(1, round(share / head_dim)) * growth
    told = model.model_dump(mode="json")
    told |= {"d_model": width, "n_layers": min(MAX_LAYERS, model.n_layers)}
    told["attention"] |= {"n_heads": group * n_kv_heads, "n_kv_heads": n_kv_heads, "head_dim": head_dim}
    if head_dim != attention.head_dim:
        told["attention"]["scale"] = None
    told["ffn"]["d_ff"] = max(1, round(d_ff * smallest / model.d_model)) * growth
    return ModelConfig.model_validate(told)


def family_of(widths: Iterable[int]) -> list[int]:
    """``widths`` ascending, each once. Raises InputError where they make no family for :func:`at_width`."""
    found = sorted(set(widths))
    if len(found) < 2 or found[0] < 1 or any(width % found[0] for width in found):
        told = ", ".join(map(str, found))
        raise InputError(f"widths: give at least two, all of them multiples of the smallest, not {told or 'none'}")
    return found


def _first_of_role(rows: Iterable[PlanRow]) -> dict[str, PlanRow]:
    found: dict[str, PlanRow] = {}
    for row in rows:
        found.setdefault(row.role, row)
    return found


def _gamma(widths: Sequence[int], rows: list[PlanRow]) -> float:
    """Of one role, from its row at each width; not a number where std is no power of the width: three of them tell."""
    if not all(row.distribution.is_drawn for row in rows):
        return math.nan
    x, y = np.log(widths), np.log([row.distribution.std for row in rows])
    slope, offset = np.polyfit(x, y, 1)
    return -float(slope) if np.abs(slope * x + offset - y).max() < 0.01 else math.nan
