"""Which documents train, and how often, so that each domain has its share of the tokens."""

from collections.abc import Sequence
from difflib import get_close_matches
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from seedbed.data.sections import Mixture
from seedbed.errors import InputError


class DomainShare(NamedTuple):
    """What a domain was to give, has, and gives."""

    domain: str
    weight: float
    """Share of the training tokens that was asked for, in [0, 1]."""
    available: int
    """Tokens of its documents, each counted once."""
    tokens: int
    """Tokens taken."""
    documents: int
    """Documents taken, as often as they are."""
    epochs: float
    """tokens / available."""


def mix(
    tokens: np.ndarray, domain: np.ndarray, order: np.ndarray, names: Sequence[str], mixture: Mixture
) -> tuple[np.ndarray, list[DomainShare]]:
    """Documents in the order of training, [m] int64 indices, and the share of each domain in the order of ``names``.

    ``tokens`` [n] int of each training document, ``domain`` [n] int its index into names, ``order`` [n] uint64 says
    which documents come first where only some are taken (a hash of the text, so that the choice stays the same).

    A domain's goal is its weight's part of the total: of mixture.tokens, else of the largest total at which no domain
    has to pass max_epochs. No domain gives more than max_epochs times what it has; what is then missing of
    mixture.tokens is not made up by the others (:func:`shortfalls` says it). A domain gives whole passes, then whole
    documents in rising ``order`` until the goal is reached: the last one may overshoot, by less than a document, but
    is left out where it would pass max_epochs. So a small share gives one document, and nothing only where max_epochs
    is below 1 and forbids the first document.

    Passes come one after another: pass p has all documents that are taken more than p times, in the order of their
    indices. Sums and shares are exact. Raises InputError for a domain that has a weight and no documents to train.
    """
    by_domain = np.lexsort((order, domain))
    bounds = np.searchsorted(domain[by_domain], np.arange(len(names) + 1))
    members = [by_domain[begin:end] for begin, end in pairwise(bounds)]
    available = [int(tokens[documents].sum(dtype=np.int64)) for documents in members]
    weights = _weights(names, available, mixture)
    caps = [Fraction(mixture.max_epochs) * there for there in available]
    total = mixture.tokens or min(cap / weight for cap, weight in zip(caps, weights, strict=True) if weight)

    times = np.zeros(len(tokens), np.int64)  # how often each document is taken
    shares = []
    for name, documents, weight, there, cap in zip(names, members, weights, available, caps, strict=True):
        if weight:
            ends = np.cumsum(tokens[documents], dtype=np.int64)
            passes, rest = divmod(min(ceil(weight * total), floor(cap)), there)
            some = int(np.searchsorted(ends, rest)) + 1 if rest else 0  # documents until the rest is reached
            if some and passes * there + int(ends[some - 1]) > cap:
                some -= 1
            times[documents] = passes
            times[documents[:some]] += 1
        taken = int((tokens[documents] * times[documents]).sum())
        count = int(times[documents].sum())
        shares.append(DomainShare(name, float(weight), there, taken, count, taken / there if there else 0.0))
    return _passes(times), shares


def shortfalls(shares: list[DomainShare], mixture: Mixture) -> list[str]:
    """One line for each way in which what was taken is less than what was asked for, by whole tokens."""
    lines = []
    wanted = mixture.tokens or 0
    short = [share.domain for share in shares if share.tokens <= share.weight * wanted - 1]
    if short:
        taken = sum(share.tokens for share in shares)
        lines.append(
            f"mixture.tokens: {taken:,} tokens of {wanted:,}; {_listed(short)} would need more than "
            f"{mixture.max_epochs:g} epochs; raise mixture.max_epochs, or lower mixture.tokens or the weights"
        )
    empty = [share.domain for share in shares if share.weight and not share.documents]
    if empty:
        lines.append(
            f"mixture.weights: nothing is taken of {_listed(empty)}, where one document is more than "
            f"{mixture.max_epochs:g} epochs; raise mixture.max_epochs"
        )
    return lines


def unnamed(names: Sequence[str], domain: np.ndarray, mixture: Mixture) -> list[str]:
    """One line about the domains that have documents and no weight, not even 0; ``domain`` [n] int of each document."""
    counts = np.bincount(domain, minlength=len(names))
    found = [
        f"{name!r} ({count:,} document{'s' if count > 1 else ''})"
        for name, count in zip(names, counts.tolist(), strict=True)
        if count and name not in mixture.weights
    ]
    if not found:
        return []
    what, is_are = ("domain", "is") if len(found) == 1 else ("domains", "are")
    why = f"{is_are} not in mixture.weights and {is_are} left out"
    return [f"{what} {_listed(found)} {why}; give a weight, 0 to hold out only"]


def _weights(names: Sequence[str], available: Sequence[int], mixture: Mixture) -> list[Fraction]:
    """Weights that sum to 1, in the order of names."""
    there = dict(zip(names, available, strict=True))
    full = [name for name in names if there[name]]
    for name, weight in mixture.weights.items():
        if there.get(name) or (name in there and weight == 0):
            continue
        if name in there:
            problem = "none of its documents is left to train"
        else:
            close = get_close_matches(name, full, n=1)
            problem = "no such domain" + (f", did you mean '{close[0]}'?" if close else "")
        raise InputError(f"mixture.weights.{name}: {problem}; domains with documents: {_listed(full) or 'none'}")
    weights = [Fraction(mixture.weights.get(name, 0)) for name in names]
    total = sum(weights)
    return [weight / total for weight in weights]


def _passes(times: np.ndarray) -> np.ndarray:
    """Indices [m] int64 of documents, each taken ``times`` [n], one pass after another."""
    passes = [np.flatnonzero(times)]
    while len(passes[-1]):
        passes.append(passes[-1][times[passes[-1]] > len(passes)])
    return np.concatenate(passes)


def _listed(names: Sequence[str], limit: int = 20) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
