"""What the models of a comparison are asked after their last step: text and minimal pairs, as in `seedbed eval`."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from seedbed.config.section import Section
from seedbed.errors import InputError
from seedbed.eval.questions import about_pairs, about_text
from seedbed.files.atomic import COMMIT, sha256
from seedbed.files.parts import Parts
from seedbed.hub.models import open_model

PREFIX = "evaluation "
"""What the names of evaluations among the looks of an outcome begin with."""

Count = Annotated[int, Field(ge=1)]


class Evaluate(Section):
    """What the models of the whole budget are asked; options of `seedbed eval`."""

    data: list[str] = Field(default=[])
    """Texts, of which bits per byte and perplexity are taken by domain: files, folders of them, stores."""
    documents: Count | None = None
    """How many of them, in turns over files; none: all."""
    pairs: list[str] = Field(default=[])
    """Files of minimal pairs."""
    limit: Count | None = None
    """The first so many pairs of each paradigm; none: all."""

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if not self.data and not self.pairs:
            raise ValueError("name texts (data) or minimal pairs (pairs)")
        return self

    def whole(self) -> Self:
        """With absolute paths. Raises InputError for one that is not there, and for pairs that cannot be read."""
        for field in ("data", "pairs"):
            for path in getattr(self, field):
                if not Path(path).exists():
                    raise InputError(f"evaluate.{field}: {path}: no such file or folder")
        if self.pairs:
            about_pairs([Path(path) for path in self.pairs], self.limit)
        places = {field: [os.path.abspath(path) for path in getattr(self, field)] for field in ("data", "pairs")}
        return self.model_copy(update=places)

    @property
    def look(self) -> str:
        """A name that says what is asked: other files, or other content of the same, have another one."""
        files = [[[str(path.name), _hash(path)] for path in _files(where)] for where in (self.data, self.pairs)]
        told = json.dumps([files, self.documents, self.limit])
        return PREFIX + hashlib.sha256(told.encode()).hexdigest()[:16]


def answers(evaluate: Evaluate, checkpoint: Path, length: int) -> dict[str, Any]:
    """Scores of a checkpoint and how they were made, as JSON values; documents are read to their first ``length``
    tokens. Raises InputError as the questions do.
    """
    model, parts = open_model(checkpoint), Parts(None, None)
    data, pairs = [Path(path) for path in evaluate.data], [Path(path) for path in evaluate.pairs]
    questions = [about_text(data, length, None, evaluate.documents)] if data else []
    questions += [about_pairs(pairs, evaluate.limit)] if pairs else []
    found = [question(model, parts, lambda told: None, "") for question in questions]
    scores = [asdict(score) for one in found for score in (*(each.score for each in one.scored), *one.others)]
    return {"scores": scores, "told": [line for one in found for line in (*one.told, *one.problems)]}


def _files(paths: list[str]) -> Iterator[Path]:
    """Of a folder all files; of what has a list of its files and their hashes, that list."""
    for path in map(Path, paths):
        if (path / COMMIT).is_file():
            yield path / COMMIT
        elif path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.is_file())
        else:
            yield path


@cache
def _hash(path: Path) -> str:
    return sha256(path)
