"""Initialization laws: pure functions from the facts of a parameter to a distribution.

A law is one function in :data:`LAWS`. Its keyword arguments are its options; their annotations and defaults are what
the configuration checks, documents and saves. A law of one's own is one more entry::

    seedbed.laws.LAWS["tiny"] = lambda fact, *, std: Distribution("normal", std)

or an entry point of group ``seedbed.laws`` of an installed package. Definitions and sources:
``docs/initialization.md``. What does not depend on the law is listed in :data:`FIXED`.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.laws import scalar, spectral
from seedbed.laws.distribution import COPIED, KEPT, ONE, ZERO, Distribution

__all__ = [
    "COPIED", "FIXED", "JOINT", "KEPT", "LAWS", "ONE", "TELLS_ALL", "ZERO",
    "Distribution", "Law", "distribution", "find_law", "known_laws",
]  # fmt: skip

Law = Callable[..., Distribution]

LAWS: dict[str, Law] = {
    "gamma": scalar.gamma,
    "balanced": scalar.balanced,
    "gpt2": scalar.gpt2,
    "normal": scalar.normal,
    "kaiming": scalar.kaiming,
    "xavier": scalar.xavier,
    "lecun": scalar.lecun,
    "orthogonal": scalar.orthogonal,
    "small_init": scalar.small_init,
    "deepnorm": scalar.deepnorm,
    "mup": scalar.mup,
    "magnitude": spectral.magnitude,
    "magnitude+spectrum": spectral.magnitude_spectrum,
    "realistic": spectral.realistic,
    "reuse": scalar.reuse,
}

# Laws that act on queries, keys and values of a layer as one matrix, as S2 measures them.
JOINT = {"magnitude", "magnitude+spectrum", "realistic"}

# Roles with a rule of their own, the same under every law but those that tell what becomes of each parameter.
FIXED = {"norm": ONE, "norm.offset": ZERO, "norm.bias": ZERO, "bias": ZERO, "pos.bias": ZERO, "kept": KEPT}
TELLS_ALL = {"reuse"}  # it copies them


def distribution(fact: ParameterFact, law: Law | str, options: dict[str, Any]) -> Distribution:
    """The distribution that ``law`` gives to ``fact``; roles in :data:`FIXED` are the same under every law
    but those in :data:`TELLS_ALL`."""
    fixed = None if law in TELLS_ALL else FIXED.get(fact.role)
    return fixed or (find_law(law) if isinstance(law, str) else law)(fact, **options)


def known_laws() -> list[str]:
    """Names of all laws: ours, those put into LAWS, and those of installed packages."""
    return [*LAWS, *(name for name in _installed() if name not in LAWS)]


def find_law(name: str) -> Law:
    """The law of that name. Raises KeyError when there is none, InputError when an installed one does not load."""
    if name in LAWS:
        return LAWS[name]
    point = _installed()[name]
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "an installed package"
        raise InputError(f"law '{name}' of {package} does not load ({point.value}): {error}") from None


@cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="seedbed.laws")}
