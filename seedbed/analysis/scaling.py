"""How does each residual branch change with width under a law? Answered by the law alone, before anything is drawn."""

import math

from seedbed.analysis.resources import meta_facts
from seedbed.analysis.widths import IN_SERIES, at_width
from seedbed.config import InitConfig, ModelConfig
from seedbed.init import make_plan
from seedbed.laws import Distribution
from seedbed.report.preflight_rows import Scaling


def branch_scaling(model: ModelConfig, init: InitConfig) -> dict[str, Scaling]:
    """For "attention" and "mlp" the exponent of the width, and the gamma that would make it 0.

    The exponent is the sum of 1/2 - gamma over the k maps in series plus the embedding's gamma, or k(1/2 - gamma_b) +
    gamma_e with one gamma in a branch (S0 section 5); gamma is how the law's std falls from this width to twice as
    wide, in the first layer. Empty where a law has no std: weights that are copied.
    """
    narrow, wide = _distributions(model, init), _distributions(at_width(model, 2 * model.d_model), init)
    maps = {branch: [role for role in roles if role in narrow] for branch, roles in IN_SERIES.items()}
    used = ["embed", *(role for roles in maps.values() for role in roles)]
    if not all(narrow[role].is_drawn for role in used):
        return {}
    gamma = {role: math.log2(narrow[role].std / wide[role].std) for role in used}
    return {
        branch: Scaling(
            maps=len(roles),
            exponent=sum(0.5 - gamma[role] for role in roles) + gamma["embed"],
            balancing=0.5 + gamma["embed"] / len(roles),
        )
        for branch, roles in maps.items()
    }


def _distributions(model: ModelConfig, init: InitConfig) -> dict[str, Distribution]:
    """By role, of the embedding and of the first layer."""
    facts = meta_facts(model)
    shown = {part.name for fact in facts for part in fact.parts() if part.layer in (0, None)}
    return {row.role: row.distribution for row in make_plan(facts, init).rows if row.name in shown}
