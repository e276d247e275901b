"""How an initialization scales with the width, as measured: the slope of each residual branch, the gamma of each role.

Both are fitted over decoders that differ in width alone, one fit a seed; the mean of the fits is what is reported,
their spread gives its standard error.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from seedbed.analysis.resources import meta_facts
from seedbed.analysis.scaling import at_width, branch_scaling, family_of
from seedbed.config import InitConfig, ModelConfig
from seedbed.data.split import Batch
from seedbed.errors import InputError
from seedbed.facts.fact import in_order
from seedbed.facts.table import parameter_facts
from seedbed.init import Plan, apply_plan, make_plan
from seedbed.measure.branches import branch_ratios, flow_ratios
from seedbed.model import Decoder
from seedbed.report.preflight_rows import GammaRow, SlopeRow

SEEDS = 16  # for a standard error of a slope around 0.01 (science section 2)
SEQUENCES, LENGTH = 4, 32  # (choice) seconds, and short enough for gamma 1/2: see over_widths


def over_widths(
    model: ModelConfig, init: InitConfig, widths: Sequence[int], batch: Batch, seeds: int = SEEDS
) -> tuple[list[SlopeRow], list[GammaRow]]:
    """Slopes of attention, feed-forward network and flow, and the gamma of each drawn role, over :func:`at_width`.

    Ratios are means over the first ``SEQUENCES`` windows of ``LENGTH`` tokens that ``batch`` is cut into, without its
    padding. Windows are short because at gamma 1/2 attention averages over long ones less evenly the narrower the
    model is: its slope is 0.49 at 32 tokens, 0.48 at 128, 0.45 at 512. An epsilon that masks the embedding bends the
    slopes as well (science asks for 1e-12 or less). Gammas are regressions of log std, as measured on what was drawn,
    against log d_in, under any law: 0 for ``normal``, 1/2 for ``kaiming``. Raises InputError for widths that make no
    family, for fewer than two seeds, and for a law that copies weights, which have one width.
    """
    widths = family_of(widths)
    if seeds < 2:
        raise InputError(f"seeds: a standard error needs at least two, got {seeds}")
    ids, doc_ids, vocab = _windows(batch)
    draws, facts = [], []  # of each width: what each seed measures; d_in by role
    for width in widths:
        full = at_width(model, width, widths[0])
        length = max(ids.shape[1], 2)
        decoder = Decoder(full.model_copy(update={"vocab_size": vocab, "max_seq_len": length}))
        plan = _planned(decoder, full, init)
        draws.append([_measured(decoder, plan, seed, ids, doc_ids) for seed in range(seeds)])
        facts.append({row.role: row.d_in for row in plan.rows})
    logs = {name: np.array([[draw[name] for draw in of_width] for of_width in draws]) for name in draws[0][0]}
    tokens, expected = int((doc_ids >= 0).sum()), _expected(model, init, widths)
    slopes = [
        SlopeRow(name, tuple(widths), _geometric(logs[name]), *_fit(widths, logs[name]), expected.get(name), tokens)
        for name in ("attention", "mlp", "flow")
    ]
    gammas = []
    for role in in_order(logs.keys() - {"attention", "mlp", "flow"}):
        slope, stderr = _fit([of_width[role] for of_width in facts], logs[role])
        gammas.append(GammaRow(role, tuple(widths), _geometric(logs[role]), -slope, stderr))
    return slopes, gammas


def _windows(batch: Batch) -> tuple[Tensor, Tensor, int]:
    """Ids and document ids of the first windows of ``batch``, and how many distinct tokens they hold. Those are
    numbered anew: a table of what occurs is enough. Positions too: a window is a sequence by itself."""
    length = min(LENGTH, batch.ids.shape[1])
    whole = batch.ids.shape[1] // length * length
    ids, doc_ids = (x[:, :whole].reshape(-1, length)[:SEQUENCES] for x in (batch.ids, batch.doc_ids))
    distinct, ids = ids.unique(return_inverse=True)
    return ids, doc_ids, len(distinct)


def _planned(decoder: Decoder, full: ModelConfig, init: InitConfig) -> Plan:
    """``decoder``, whose tables are short, drawn as ``full`` would be: a law may look at the size of a vocabulary."""
    short, whole = make_plan(parameter_facts(decoder), init), make_plan(meta_facts(full), init)
    if any(row.distribution.kind == "copied" for row in short.rows):
        raise InputError(f"widths: law '{init.law}' copies weights, which have one width; leave widths out")
    rows = zip(short.rows, whole.rows, strict=True)
    return replace(short, rows=tuple(replace(row, distribution=of.distribution) for row, of in rows))


def _measured(decoder: Decoder, plan: Plan, seed: int, ids: Tensor, doc_ids: Tensor) -> dict[str, float]:
    """Logs of one draw: of the ratio of each branch and of the flow, mean over layers and tokens; of the std of each
    drawn role, mean over its matrices."""
    receipt = apply_plan(decoder, plan, seed)
    ratios = {
        "attention": branch_ratios(decoder, "attn", ids, doc_ids),
        "mlp": branch_ratios(decoder, "mlp", ids, doc_ids),
        "flow": flow_ratios(decoder, ids, doc_ids),
    }
    stds: dict[str, list[float]] = {}
    for row, drawn in zip(plan.rows, receipt.rows, strict=True):
        if row.distribution.is_drawn:
            stds.setdefault(row.role, []).append(math.log(drawn.std))
    return {name: float(ratio.log().mean()) for name, ratio in ratios.items()} | {
        role: float(np.mean(logs)) for role, logs in stds.items()
    }


def _expected(model: ModelConfig, init: InitConfig, widths: list[int]) -> dict[str, float]:
    """The exponent of each branch, and of the flow that of the branch that grows faster: what is smaller vanishes
    beside it in the limit of wide models."""
    slopes = {branch: scaling.exponent for branch, scaling in branch_scaling(model, init, widths).items()}
    return slopes | ({"flow": max(slopes.values())} if len(slopes) == 2 else {})


def _fit(sizes: Sequence[float], logs: np.ndarray) -> tuple[float, float]:
    """Least-squares slope of ``logs`` [widths, seeds] over the log of ``sizes`` [widths]: mean over the seeds, and the
    mean's standard error."""
    slopes = np.polyfit(np.log(sizes), logs, 1)[0]  # [seeds]
    return float(slopes.mean()), float(slopes.std(ddof=1) / math.sqrt(len(slopes)))


def _geometric(logs: np.ndarray) -> tuple[float, ...]:
    return tuple(np.exp(logs.mean(axis=1)).tolist())
