"""The options of `seedbed eval` for tasks of lm-evaluation-harness."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.eval.harness import Asked
    from seedbed.eval.suites import Suite

Tasks = Annotated[
    list[str] | None,
    typer.Option(
        help="Tasks of lm-evaluation-harness: names, groups, tags or its YAML files, with commas; may be repeated.",
        show_default=False,
    ),
]
SuiteName = Annotated[
    str | None, typer.Option("--suite", help="The tasks of a source's table: s0 or s2.", show_default=False)
]
TaskData = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the tasks' data, as docs/evaluation.md lays it out: nothing is downloaded.",
        show_default="the harness downloads",
    ),
]
Fewshot = Annotated[
    int | None, typer.Option(min=0, help="Examples before each question.", show_default="as many as the task shows")
]
Chat = Annotated[bool, typer.Option("--chat", help="Put each prompt into the model's chat template.")]


def suite_of(name: str | None) -> "Suite | None":
    """Raises InputError for a name that no suite has."""
    from seedbed.eval.suites import SUITES

    if name is not None and name not in SUITES:
        raise InputError(f"--suite {name}: there are {' and '.join(SUITES)}")
    return None if name is None else SUITES[name]


def asked_tasks(
    tasks: list[str] | None,
    suite: "Suite | None",
    data: Path | None,
    limit: int | None,
    fewshot: int | None,
    chat: bool,
    batch_tokens: int,
) -> "Asked | None":
    """What is asked of the harness; None where nothing is. Raises InputError for options without a task."""
    from seedbed.eval.harness import Asked

    named = [name for one in tasks or [] for name in one.split(",") if name]
    names = tuple(dict.fromkeys([*(suite.tasks if suite else ()), *named]))
    if names:
        return Asked(names, data, limit, fewshot, chat, batch_tokens)
    given = {"--task-data": data is not None, "--fewshot": fewshot is not None, "--chat": chat}
    if lost := [name for name, is_given in given.items() if is_given]:
        raise InputError(f"{lost[0]}: is for tasks; name them with --tasks or --suite")
    return None
