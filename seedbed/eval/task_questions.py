"""The questions that lm-evaluation-harness's tasks ask, as `evaluation` asks any other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seedbed.eval.evaluation import Answer, Question
from seedbed.eval.harness import Asked, TaskRead, TaskResult, harness, load_tasks
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel


@dataclass(frozen=True)
class TasksRead:
    """Of one model."""

    tasks: list[TaskRead]


def about_tasks(asked: Asked, stated: str | None = None) -> Question:
    """Any tasks of lm-evaluation-harness; their data are read, and what is wrong with them said, before any model is
    opened. ``stated`` says how a suite's source measured."""
    loaded = load_tasks(asked)

    def ask(model: LanguageModel, parts: Parts, tell: Callable[[str], None], which: str) -> Answer:
        results = harness(model, loaded, asked, parts, tell, which)
        read = TasksRead([result.read for result in results])
        scored = [one for result in results for one in result.scored]
        others = [score for result in results for score in result.others]
        problems = [f"{result.task}: {note}." for result in results for note in result.notes]
        return Answer(scored, read, _told(results, asked, stated), problems, others)

    return ask


def _told(results: Sequence[TaskResult], asked: Asked, stated: str | None) -> list[str]:
    found = [] if stated is None else [stated]
    how = "in the model's chat template" if asked.chat else "without a chat template"
    found.append(f"lm-evaluation-harness {results[0].harness}, prompts {how}.")
    for result in results:
        shown = f"{result.fewshot} examples a prompt" if result.fewshot else "no examples"
        files = ", ".join(f"{name} (SHA-256 {digest[:12]})" for name, digest in result.files.items())
        found.append(
            f"{result.task}, version {result.version}: {result.items:,} of {result.of:,} items, {shown}; "
            f"{files or 'data that the task itself names'}."
        )
    return found
