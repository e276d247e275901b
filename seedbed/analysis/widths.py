"""How an initialization scales with the width: the slope of each residual branch, and the gamma of each role.

Both are fitted over decoders that differ in width alone (:func:`at_width`), one fit a seed; the mean of the fits is
what is reported, their spread gives its standard error.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seedbed.config import InitConfig, ModelConfig
from seedbed.errors import InputError
from seedbed.facts.fact import in_order
from seedbed.facts.table import parameter_facts
from seedbed.init import InitReport, Plan, PlanRow, apply_plan, make_plan
from seedbed.measure.branches import branch_ratios, flow_ratios
from seedbed.model import Decoder
from seedbed.report.preflight_rows import SlopeRow

BRANCHES = ("attention", "mlp", "flow")
N_LAYERS = 2  # slopes do not depend on the depth, the time does (choice)
VOCAB, SEQUENCES, LENGTH = 256, 2, 32  # of the tokens drawn where none are given (choice)
# Of the maps in a branch these stand in series: queries, keys and attention's gate weigh what passes through them.
IN_SERIES = {"attention": ("attn.v", "attn.o"), "mlp": ("mlp.gate", "mlp.up", "mlp.down")}


@dataclass(frozen=True)
class GammaRow:
    """How the matrices of a role were drawn: with std proportional to d_in^-gamma."""

    role: str
    widths: tuple[int, ...]
    stds: tuple[float, ...]  # at each width, geometric mean over seeds and tensors
    gamma: float
    stderr: float


def width_slopes(
    config: ModelConfig, init: InitConfig, widths: Sequence[int], seeds: int = 16, ids: Tensor | None = None
) -> list[SlopeRow]:
    """Slopes of attention, feed-forward network and flow, for the first ``N_LAYERS`` layers of ``config``.

    ``ids`` [B, T] are the tokens to measure on; without them each seed draws some. Two things bend the slopes: an
    epsilon that masks the embedding (science asks for 1e-12 or less), and long sequences at gamma 1/2, over which
    attention averages less evenly the narrower the model is: its slope is 0.49 at T=32, 0.48 at 128, 0.45 at 512.
    Raises InputError for widths that the model cannot have, and for fewer than two widths or seeds.
    """
    vocab, length, tokens = VOCAB, LENGTH, None
    if ids is not None:  # the same tokens, numbered anew: a table of those that occur is enough
        distinct, tokens = ids.unique(return_inverse=True)
        vocab, length = len(distinct), ids.shape[1]
    family = _family(config, init, widths, vocab, length)

    def measure(model: Decoder, _: InitReport, seed: int) -> list[float]:
        generator = torch.Generator().manual_seed(seed)
        some = torch.randint(VOCAB, (SEQUENCES, LENGTH), generator=generator) if tokens is None else tokens
        ratios = branch_ratios(model, "attn", some), branch_ratios(model, "mlp", some), flow_ratios(model, some)
        return [float(ratio.log().mean()) for ratio in ratios]

    logs = _sweep(family, seeds, measure)  # [branches, widths, seeds]
    expected, sizes = _expected(family), tuple(variant.width for variant in family)
    return [
        SlopeRow(branch, sizes, _geometric(log), *_fit(np.log(sizes), log), expected[branch])
        for branch, log in zip(BRANCHES, logs, strict=True)
    ]


def fitted_gamma(config: ModelConfig, init: InitConfig, widths: Sequence[int], seeds: int = 4) -> list[GammaRow]:
    """Gamma of each drawn role by regression of log std, as measured on what was drawn, against log d_in.

    It works for any law: 0 for ``normal``, 1/2 for ``kaiming``. Raises InputError as :func:`width_slopes` does.
    """
    family = _family(config, init, widths, VOCAB, LENGTH)
    roles = in_order(row.role for row in family[0].plan.rows if row.distribution.is_drawn)

    def measure(_model: Decoder, report: InitReport, _seed: int) -> list[float]:
        return [float(np.mean([math.log(row.std) for row in report.rows if row.role == role])) for role in roles]

    logs = _sweep(family, seeds, measure)  # [roles, widths, seeds]
    rows = []
    for role, log in zip(roles, logs, strict=True):
        slope, stderr = _fit(np.log([variant.row(role).d_in for variant in family]), log)
        rows.append(GammaRow(role, tuple(variant.width for variant in family), _geometric(log), -slope, stderr))
    return rows


def at_width(config: ModelConfig, width: int) -> ModelConfig:
    """``config`` at another width: as wide a head, and heads and d_ff exactly in proportion.

    Nothing is rounded: d_ff in multiples of 256 alone moves a slope by 0.07. Raises InputError where that needs parts
    of a head or of a feature.
    """
    d_model, heads, kv, d_ff = config.d_model, config.attention.n_heads, config.attention.n_kv_heads, config.ffn.d_ff
    assert kv and d_ff
    step = d_model // math.gcd(d_model, kv, d_ff)
    if width < step or width % step:
        raise InputError(
            f"widths: {width} does not fit: heads and d_ff keep their proportion to d_model={d_model} at multiples of "
            f"{step} only; try {step},{2 * step},{4 * step}"
        )
    told = config.model_dump(mode="json")
    told["d_model"] = width
    told["attention"] |= {"n_heads": heads * width // d_model, "n_kv_heads": kv * width // d_model}
    told["ffn"]["d_ff"] = d_ff * width // d_model
    return ModelConfig.model_validate(told)


@dataclass(frozen=True)
class _Variant:
    """A decoder of one width, and how it is drawn."""

    width: int
    model: Decoder
    plan: Plan

    def row(self, role: str) -> PlanRow:
        """The first matrix of that role."""
        return next(row for row in self.plan.rows if row.role == role)


def _family(config: ModelConfig, init: InitConfig, widths: Sequence[int], vocab: int, length: int) -> list[_Variant]:
    """Shallow variants of ``config``, ascending in width."""
    if len(set(widths)) < 2:
        raise InputError(f"widths: a slope needs at least two different ones, got {', '.join(map(str, widths))}")
    shallow = {"n_layers": min(N_LAYERS, config.n_layers), "vocab_size": vocab, "max_seq_len": max(length, 2)}
    models = [Decoder(at_width(config, width).model_copy(update=shallow)) for width in sorted(set(widths))]
    return [_Variant(model.config.d_model, model, make_plan(parameter_facts(model), init)) for model in models]


def _sweep(
    family: list[_Variant], seeds: int, measure: Callable[[Decoder, InitReport, int], list[float]]
) -> np.ndarray:
    """The numbers that ``measure`` gives of each draw of each variant: [numbers, widths, seeds]."""
    if seeds < 2:
        raise InputError(f"seeds: a standard error needs at least two, got {seeds}")
    numbers = [
        [measure(variant.model, apply_plan(variant.model, variant.plan, seed), seed) for seed in range(seeds)]
        for variant in family
    ]
    return np.moveaxis(np.array(numbers), 2, 0)


def _fit(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Least-squares slope of y [widths, seeds] over x [widths]: mean over the seeds, and the mean's standard error."""
    slopes = np.polyfit(x, y, 1)[0]  # [seeds]
    return float(slopes.mean()), float(slopes.std(ddof=1) / math.sqrt(len(slopes)))


def _geometric(logs: np.ndarray) -> tuple[float, ...]:
    return tuple(np.exp(logs.mean(axis=1)).tolist())


def _expected(family: list[_Variant]) -> dict[str, float | None]:
    """The slope of each branch of k maps, k(1/2 - gamma) + gamma_e (science section 2), by what the law plans.

    Gamma is the mean over the maps in series. With learned positions gamma_e is the smaller of the two tables', and
    the flow follows the branch that grows faster: what is smaller vanishes beside it in the limit of wide models.
    """
    parts = [part for fact in parameter_facts(family[0].model) for part in fact.parts()]
    maps = {part.role: part.maps for part in parts}

    def gammas(roles: Sequence[str]) -> np.ndarray:
        return np.array([_planned_gamma([variant.row(role) for variant in family]) for role in roles if role in maps])

    gamma_e = gammas(("embed", "pos")).min()
    slopes = {
        branch: maps[series[-1]] * (0.5 - gammas(series).mean()) + gamma_e for branch, series in IN_SERIES.items()
    }
    slopes["flow"] = np.max(list(slopes.values()))  # not a number where either is not
    return {branch: None if math.isnan(slope) else round(float(slope), 6) + 0.0 for branch, slope in slopes.items()}


def _planned_gamma(rows: list[PlanRow]) -> float:
    """Gamma of a role from its rows at each width; not a number where std is no power of d_in: three widths tell."""
    if not all(row.distribution.is_drawn for row in rows):
        return math.nan
    x, y = np.log([row.d_in for row in rows]), np.log([row.distribution.std for row in rows])
    slope, offset = np.polyfit(x, y, 1)
    return -float(slope) if np.abs(slope * x + offset - y).max() < 0.01 else math.nan
