"""Initialization laws: pure functions from the facts of a parameter to a distribution.

A law is one function in :data:`LAWS`. Its keyword arguments are its options; their annotations and defaults are what
the configuration checks, documents and saves. A law of one's own is one more entry::

    seedbed.laws.LAWS["tiny"] = lambda fact, *, std: Distribution("normal", std)

Definitions and sources: ``docs/initialization.md``. Norm gains, biases and shifts do not depend on the law and are
listed in :data:`FIXED`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from seedbed.facts.fact import ParameterFact


@dataclass(frozen=True)
class Distribution:
    """``normal``: N(0, std^2), not truncated. ``uniform``: U(-b, b) with b = std*sqrt(3). ``constant``: every entry
    equals ``value``."""

    kind: Literal["normal", "uniform", "constant"]
    std: float = 0.0
    value: float = 0.0

    def __str__(self) -> str:
        if self.kind == "constant":
            return f"= {self.value:g}"
        if self.kind == "uniform":
            return f"U(±{self.std * math.sqrt(3):.4g})"
        return f"N(0, {self.std:.4g}²)"


FIXED = {
    "norm": Distribution("constant", value=1.0),
    "norm.bias": Distribution("constant", value=0.0),
    "bias": Distribution("constant", value=0.0),
}


def gamma(fact: ParameterFact, *, gamma: float = 1.0) -> Distribution:
    """N(0, d_in^(-2*gamma)); gamma 0.5 is the usual scale, 1 the small one (S0 section 1)."""
    return Distribution("normal", fact.d_in**-gamma)


def gpt2(fact: ParameterFact, *, std: float = 0.02) -> Distribution:
    """N(0, std^2); matrices that write to the residual stream get std/sqrt(2L) (S1 section 5.2, S2)."""
    return Distribution("normal", std / math.sqrt(2 * fact.n_layers) if fact.writes_residual else std)


def normal(fact: ParameterFact, *, std: float = 0.02) -> Distribution:
    """N(0, std^2) everywhere, no residual scaling (S2's "No residual scaling", OLMo 2)."""
    return Distribution("normal", std)


def kaiming(fact: ParameterFact, *, variant: Literal["torch", "he"] = "torch") -> Distribution:
    """``torch``: PyTorch's default for linear maps, U(±1/sqrt(d_in)), std 1/sqrt(3*d_in), which S1 calls Kaiming.
    ``he``: N(0, 2/d_in) (He et al. 2015, fan-in, gain sqrt(2))."""
    if variant == "torch":
        return Distribution("uniform", 1 / math.sqrt(3 * fact.d_in))
    return Distribution("normal", math.sqrt(2 / fact.d_in))


def xavier(fact: ParameterFact, *, gain: float = 1.0, shape: Literal["uniform", "normal"] = "uniform") -> Distribution:
    """std gain*sqrt(2/(d_in+d_out)), uniform or normal (Glorot & Bengio 2010)."""
    return Distribution(shape, gain * math.sqrt(2 / (fact.d_in + fact.d_out)))


Law = Callable[..., Distribution]
LAWS: dict[str, Law] = {"gamma": gamma, "gpt2": gpt2, "normal": normal, "kaiming": kaiming, "xavier": xavier}


def distribution(fact: ParameterFact, law: str, options: dict[str, object]) -> Distribution:
    """The distribution that ``law`` gives to ``fact``; roles in :data:`FIXED` are the same under every law."""
    return FIXED.get(fact.role) or LAWS[law](fact, **options)
