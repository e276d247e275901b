"""Texts whose Jaccard similarity is known, by edits that are measured until it lies where it is wanted; near copies
among them, as the code under test finds them and by comparing all pairs."""

import random

import numpy as np

from seedbed.data.dedup import Removal, near_duplicates
from seedbed.data.minhash import signatures
from seedbed.data.sections import NearDuplicates

NEAR = NearDuplicates()


def grams(text: str) -> set[str]:
    """Its character 3-grams, told by other means than the code under test."""
    return {text[i : i + 3] for i in range(len(text) - 2)}


def similarity(a: str, b: str) -> float:
    return len(grams(a) & grams(b)) / len(grams(a) | grams(b))


def edited(text: str, low: float, high: float, rng: random.Random) -> str | None:
    """A copy with a similarity in [low, high), by single characters or whole stretches; None where that overshoots."""
    copy, stretch = text, rng.choice([1, 1, 3, 30])
    while similarity(text, copy) >= high:
        for _ in range(max(1, len(text) // (400 * stretch))):
            at = rng.randrange(len(copy))
            start = rng.randrange(len(text))
            new = "".join(rng.sample(text[start : start + stretch], len(text[start : start + stretch])))
            kind = rng.choice(["substitute", "insert", "delete"])
            copy = copy[:at] + ("" if kind == "delete" else new) + copy[at + (0 if kind == "insert" else stretch) :]
    return copy if similarity(text, copy) >= low else None


def random_text(rng: random.Random, words: int = 150, chinese: bool = False) -> str:
    if chinese:
        return "".join(chr(0x4E00 + int(rng.paretovariate(0.5)) % 3000) for _ in range(3 * words))
    return " ".join("".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 8))) for _ in range(words))


def family(rng, count, chinese=False):
    """Documents of which many are edited copies of earlier ones, in chains, at all similarities."""
    texts = [random_text(rng, 60, chinese)]
    while len(texts) < count:
        low = rng.choice([0.3, 0.55, 0.65, 0.7, 0.75, 0.9])
        copy = edited(rng.choice(texts), low, low + 0.1, rng) if rng.random() < 0.6 else random_text(rng, 60, chinese)
        texts += [copy] if copy else []
    return texts


def find(texts, near=NEAR, alive=None, ends=()) -> list[Removal]:
    """Near copies among texts, signed in pieces that end at ``ends``."""
    rows = signatures(texts, near.ngram, near.permutations)
    alive = np.ones(len(texts), bool) if alive is None else np.array(alive, bool)
    return near_duplicates(np.split(rows, sorted(ends)), alive, texts.__getitem__, near, lambda _: None)


def pairs(removals) -> list[tuple[int, int]]:
    return [(removal.document, removal.kept) for removal in removals]


def by_all_pairs(texts, near=NEAR) -> list[tuple[int, int]]:
    """Keep first, by comparing each document with all kept ones that it shares a band with."""
    sets = [grams(text) for text in texts]
    rows = signatures(texts, near.ngram, near.permutations)
    bands = rows[:, : near.bands * near.rows].reshape(-1, near.bands, near.rows)
    kept: list[int] = []
    removed = []
    for i in range(len(texts)):
        for j in kept:
            both = len(sets[i] & sets[j])
            similar = both / (len(sets[i]) + len(sets[j]) - both) >= near.threshold
            if similar and (bands[i] == bands[j]).all(axis=1).any():
                removed.append((i, j))
                break
        else:
            kept.append(i)
    return removed
