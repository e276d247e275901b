"""What is asked of a generation, besides the prompts."""

import math
from dataclasses import dataclass

from seedbed.errors import InputError


@dataclass(frozen=True)
class Options:
    """How tokens are drawn and when to stop; definitions and order of the filters are those of Transformers.

    Raises InputError on a value out of range.
    """

    max_new_tokens: int = 100
    temperature: float = 0.8
    """Divides the logits; below GREEDY the likeliest token is taken."""
    top_k: int | None = None
    """Draw among the k likeliest tokens."""
    top_p: float | None = None
    """Draw among the likeliest tokens that together have this probability (Holtzman et al. 2020)."""
    min_p: float | None = None
    """Draw among tokens at least this many times as likely as the likeliest (Nguyen et al. 2024)."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens that are there already (Keskar et al. 2019)."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer, which is cut before them."""

    def __post_init__(self) -> None:
        bounds = {
            "max_new_tokens": (self.max_new_tokens >= 1, "1 or more"),
            "temperature": (0 <= self.temperature < math.inf, "a finite number, 0 for the likeliest token"),
            "top_k": (self.top_k is None or self.top_k >= 1, "1 or more"),
            "top_p": (self.top_p is None or 0 < self.top_p <= 1, "a number above 0, up to 1"),
            "min_p": (self.min_p is None or 0 <= self.min_p <= 1, "a number from 0 to 1"),
            "repetition_penalty": (0 < self.repetition_penalty < math.inf, "a finite number above 0, 1 for none"),
            "stop": (all(self.stop), "texts that are not empty"),
        }
        for name, (fits, right) in bounds.items():
            if not fits:
                raise InputError(f"{name} {getattr(self, name)}: give {right}")


GREEDY = 1e-3
"""Temperatures below are greedy: there the probabilities of all but the likeliest vanish in fp32."""
