"""Laws that imitate trained weights, after the depth curves of a cohort of checkpoints (S2 section 3).

They act on the matrices of residual branches, queries, keys and values of a layer as one (laws.JOINT); lookup tables,
head, routers and the like keep N(0, std^2). S2 tells the direction of its curves only (queries, keys and values fall
with depth, writing matrices rise): here they are the cohort's mean RMS, linear between its depths (choice).
"""

from typing import Annotated, Literal

from pydantic import Field

from seedbed.facts.fact import ParameterFact
from seedbed.laws.cohort import read_cohort
from seedbed.laws.distribution import Distribution

CohortFile = Annotated[str, Field(pattern=r"^[^\x00]+$")]  # made by `seedbed analyze cohort`; None: the shipped one
Strength = Annotated[float, Field(ge=0)]
Direction = Literal["early", "late"]


def magnitude(fact: ParameterFact, *, cohort: CohortFile | None = None, std: float = 0.02) -> Distribution:
    """N(0, sigma_c(z)^2): at relative depth z, ``std`` times the cohort's RMS of component c over its mean over depth,
    so that each component has ``std`` on average (S2 "Magnitude"). ``cohort``: a file, null for the shipped one."""
    if not _on_branch(fact):
        return Distribution("normal", std)
    trained = read_cohort(cohort)
    return Distribution("normal", std * trained.rms(fact.role, fact.depth) / trained.mean_rms(fact.role))


def magnitude_spectrum(
    fact: ParameterFact,
    *,
    cohort: CohortFile | None = None,
    std: float = 0.02,
    strength: Strength = 5.0,
    direction: Direction = "early",
) -> Distribution:
    """The scale of ``magnitude``, and before it singular value i of n times exp(-lambda(z)*i/n) (S2 "Mag.+spectrum").
    ``early``: lambda = strength*(1-z), as S2 prints it, which concentrates the first layers, while S2 finds trained
    models concentrated in the last ones; ``late``: lambda = strength*z."""
    scaled = magnitude(fact, cohort=cohort, std=std)
    if not _on_branch(fact):
        return scaled
    rising = fact.depth if direction == "late" else 1 - fact.depth
    return Distribution("spectrum", scaled.std, decay=strength * rising)


def realistic(
    fact: ParameterFact,
    *,
    cohort: CohortFile | None = None,
    std: float = 0.02,
    strength: Strength = 5.0,
    direction: Direction = "early",
) -> Distribution:
    """``magnitude+spectrum`` with one more multiplier a component, the cohort's mean RMS over ``std``: the RMS is the
    cohort's at every depth (S2 "Realistic scale"), and ``std`` is left to lookup tables, head and the like."""
    level = read_cohort(cohort).mean_rms(fact.role) if _on_branch(fact) else std
    return magnitude_spectrum(fact, cohort=cohort, std=level, strength=strength, direction=direction)


def _on_branch(fact: ParameterFact) -> bool:
    return fact.role.startswith(("attn.", "mlp."))
