"""One model, two side by side, or the checkpoints of a run, asked the same questions.

A question is a function of a model; it scores items and says what it read. Each model is opened when its turn comes,
and goes before the next.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.errors import InputError
from seedbed.eval.paired import Paired, paired
from seedbed.eval.perplexity import BITS, PER_TOKEN
from seedbed.eval.scores import ALL, Items, Score, Scored, only
from seedbed.files.atomic import COMMIT
from seedbed.files.parts import Parts
from seedbed.files.steps import step_folders
from seedbed.hub.checkpoints import fingerprint
from seedbed.hub.identity import identity
from seedbed.hub.models import LanguageModel
from seedbed.measure.table import Rows
from seedbed.train.run import read_config


class Answer(NamedTuple):
    """Of one model to one question."""

    scored: list[Scored]
    read: Any
    """A dataclass: what was read, and what was left out."""
    told: list[str]
    """The same in sentences, with how it was read."""
    problems: list[str]
    """What stands between the numbers and their plain reading."""
    others: Sequence[Score] = ()
    """Scores of metrics that are no mean over items, which are not compared item by item."""


Question = Callable[[LanguageModel, Parts, Callable[[str], None], str], Answer]
"""Given a model, the parts that are kept, what tells progress, and what the names of this model's parts begin with."""


class Source(NamedTuple):
    """A model that is not open yet."""

    name: str
    step: int | None
    """Of a run's checkpoint."""
    open: Callable[[], LanguageModel]


@dataclass(frozen=True)
class ModelRow:
    name: str
    step: int | None
    identity: str
    """SHA-256 of weights, configuration and tokenizer."""
    tokenizer: str
    """SHA-256 of `tokenizer.json`."""
    files: dict[str, str]
    """What tells its files apart: their SHA-256, or size and time of change."""


@dataclass(frozen=True)
class ItemRow:
    model: str
    task: str
    metric: str
    item: str
    value: float
    weight: float
    """Of the mean."""
    stratum: str


@dataclass(frozen=True)
class Evaluation:
    title: str
    """The models, or the run."""
    models: Rows[ModelRow]
    scores: Rows[Score]
    differences: Rows[Paired]
    """The second model minus the first, where there are two."""
    read: dict[str, Rows[Any]]
    """By question, a row a model."""
    told: dict[str, list[str]]
    """By question, in sentences."""
    problems: list[str]


def evaluate(
    title: str,
    sources: Sequence[Source],
    questions: Mapping[str, Question],
    parts: Parts,
    tell: Callable[[str], None],
    course: bool = False,
) -> tuple[Evaluation, Rows[ItemRow]]:
    """Ask each model each question; two models that are no ``course`` are compared. Also the items of all scores.

    In a ``course``, the checkpoints of a run, one that cannot be opened or scored is passed over with a line. Raises
    InputError as opening and the questions do, where two models are the same weights, and where no checkpoint is left.
    """
    models, problems = Rows[ModelRow](), list[str]()
    answers: dict[str, dict[str, Answer]] = {question: {} for question in questions}  # by question and model
    for number, source in enumerate(sources, 1):
        place = f"{source.name} ({number} of {len(sources)})" if len(sources) > 1 else source.name

        def say(said: str, place: str = place) -> None:
            tell(f"{place}: {said}")

        try:
            say("opening")
            row, own = _asked(source, questions, parts, say)
            _check_new(row, models)
        except InputError as error:
            if not course:
                raise
            problems.append(f"{source.name} passed over: {error}")
            continue
        models.append(row)
        for question, answer in own.items():
            answers[question][source.name] = answer
    if not models:
        raise InputError(f"no checkpoint could be scored: {'; '.join(problems[:3])}")
    differences = Rows[Paired]()
    if len(models) == 2 and not course:
        same_tokenizer = models[0].tokenizer == models[1].tokenizer
        for a, b in (own.values() for own in answers.values()):
            found, left_out = compare(a, b, same_tokenizer)
            differences += found
            problems += left_out
    by_model = {row.name: [own[row.name] for own in answers.values()] for row in models}
    result = Evaluation(
        title=title,
        models=models,
        scores=Rows(score for own in by_model.values() for answer in own for score in _scores(answer)),
        differences=differences,
        read={question: Rows(answer.read for answer in own.values()) for question, own in answers.items()},
        told={question: _said({name: one.told for name, one in own.items()}) for question, own in answers.items()},
        problems=problems + [line for own in answers.values() for line in _problems(own)],
    )
    rows = (row for name, own in by_model.items() for answer in own for row in _item_rows(name, answer.scored))
    return result, Rows(rows)


def _scores(answer: Answer) -> list[Score]:
    return [*(one.score for one in answer.scored), *answer.others]


def _item_rows(model: str, scored: Sequence[Scored]) -> Iterator[ItemRow]:
    """Each item once: subsets are of the same ones."""
    for items in (one.items for one in scored if one.items.subset == ALL):
        n = len(items.ids)
        for one in zip(items.ids, items.values, items.weights or [1.0] * n, items.strata or [""] * n, strict=True):
            yield ItemRow(model, items.task, items.metric, *one)


def _asked(
    source: Source, questions: Mapping[str, Question], parts: Parts, say: Callable[[str], None]
) -> tuple[ModelRow, dict[str, Answer]]:
    """All answers of one model."""
    model = source.open()
    which = identity(model)
    row = ModelRow(source.name, source.step, which, model.tokenizer.hash, fingerprint(model))
    answers = {}
    for name, question in questions.items():
        answers[name] = question(model, parts, lambda said, name=name: say(f"{name}, {said}"), which[:16])
    return row, answers


def _check_new(row: ModelRow, others: Sequence[ModelRow]) -> None:
    if same := next((other.name for other in others if other.identity == row.identity), None):
        raise InputError(f"{row.name}: has the same weights as {same}; give two models")


def _said(told: Mapping[str, list[str]]) -> list[str]:
    """What was told of each model: once where it is the same of all, else line by line with the names."""
    first, *others = told.values()
    if all(other == first for other in others):
        return first
    return [f"{name}: {line}" for name, lines in told.items() for line in lines]


def _problems(own: Mapping[str, Answer]) -> list[str]:
    return _said({name: answer.problems for name, answer in own.items()})


def compare(a: Answer, b: Answer, same_tokenizer: bool) -> tuple[list[Paired], list[str]]:
    """What ``b`` has more than ``a`` by each score that both have, on the items that both have; and in sentences what
    was left out. Metrics a token compare under one tokenizer alone."""
    found, left_out = [], []
    theirs = {_kind(one.items): one.items for one in b.scored}
    for mine, other in ((one.items, theirs.get(_kind(one.items))) for one in a.scored):
        if other is None:
            left_out.append(f"{mine.task}, {mine.subset}: one model alone has items.")
        elif same_tokenizer or mine.metric not in PER_TOKEN:
            shared = set(mine.ids) & set(other.ids)
            if lost := len(set(mine.ids) ^ set(other.ids)):
                left_out.append(f"{mine.task}, {mine.subset}, {mine.metric}: {lost:,} items of one model alone.")
            pair = only(mine, shared), only(other, shared)
            found.append(paired(*pair))
            if mine.metric == BITS and mine.subset == ALL and (n := _read_differently(*pair)):
                left_out.append(
                    f"{mine.task}: of {n:,} of {len(shared):,} documents the models read parts of other lengths, and "
                    "bits per byte are of these; give --stride, and both read all of them."
                )
    if not same_tokenizer and any(one.items.metric in PER_TOKEN for one in a.scored):
        left_out.append(f"Not compared, since the tokenizers differ: {' and '.join(PER_TOKEN)}.")
    return found, left_out


def _read_differently(a: Items, b: Items) -> int:
    """Items of the same ids whose weights, the bytes that were read, differ."""
    theirs = dict(zip(b.ids, b.weights or [], strict=True))
    return sum(theirs[one] != weight for one, weight in zip(a.ids, a.weights or [], strict=True))


def _kind(items: Items) -> tuple[str, str, str]:
    return items.task, items.subset, items.metric


def checkpoints_of(run: Path, steps: Sequence[int] | None) -> list[tuple[int, Path]]:
    """The kept checkpoints of a run, training or finished, by step: those of ``steps``, or all.

    Raises InputError for what is no run, and where a step is not kept.
    """
    if (run / COMMIT).exists():
        raise InputError(f"{run}: is a checkpoint; --checkpoints takes the run's folder")
    read_config(run)
    kept = {int(folder.name.removeprefix("step_")): folder for folder in step_folders(run)[::-1]}
    if not kept:
        raise InputError(f"{run}: has no checkpoint yet; train it first")
    if lost := [step for step in steps or () if step not in kept]:
        raise InputError(
            f"--checkpoints: {run} keeps no step {lost[0]}; it has {', '.join(map(str, kept))} "
            "(train.checkpoint_every, train.keep_checkpoints)"
        )
    return [(step, kept[step]) for step in (kept if steps is None else sorted(set(steps)))]
