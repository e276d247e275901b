"""What all stages of a pipeline share."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbed.data.inputs import InputFile
from seedbed.data.spec import Spec
from seedbed.data.stages import Engine
from seedbed.data.steps import storage_type
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError

VERSION = 4
"""Of what the stages write: a change makes them redo it."""


@dataclass
class Job:
    """A store to make, of what, and what runs the units."""

    spec: Spec
    out: Path
    files: list[InputFile]
    tokenizer: Tokenizer
    template: str | None
    engine: Engine

    def __post_init__(self) -> None:
        self.work = self.out / "work"
        self.dtype = storage_type(self.spec, self.tokenizer.vocab_size)

    def asked(self, *sections: str) -> dict[str, Any]:
        """Those sections of the specification, as JSON values."""
        return self.spec.model_dump(mode="json", include=set(sections))

    def nothing_left(self, skipped: Counter[str]) -> InputError:
        """What to raise where no document is left."""
        why = ", ".join(f"{count:,} × {reason}" for reason, count in skipped.items()) or "the input is empty"
        more = " and others" if len(self.files) > 1 else ""
        return InputError(f"{self.files[0].path}{more}: no document left ({why})")


def total(facts: Iterable[dict[str, Any]], name: str) -> Counter[str]:
    """Sum of the counts that units returned under ``name``."""
    return sum((Counter(fact[name]) for fact in facts), Counter())
