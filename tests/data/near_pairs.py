"""Pairs of texts whose Jaccard similarity is known, by edits that are measured until it lies where it is wanted."""

import random


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
