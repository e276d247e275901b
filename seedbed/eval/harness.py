"""Any task of lm-evaluation-harness on a model in memory, through the harness's own interface.

What a task is (prompts, examples, filters, metrics) is the harness's; `local_tasks` gives it data from a folder. What
comes out are scores with the values of single items, as from every other evaluation here.
"""

import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbed.errors import InputError
from seedbed.eval.harness_items import scored_tasks
from seedbed.eval.local_tasks import Loaded, load_local, missing_local
from seedbed.eval.scores import Items, Score, Scored
from seedbed.files.parts import Parts
from seedbed.hub.foreign_words import one_line, quiet
from seedbed.hub.models import LanguageModel

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

SEED = 1234
"""Of the examples that are drawn, the harness's own."""
BATCH_TOKENS = 4096
"""Rows of a batch times its longest."""
_BOOTSTRAP = 1000
"""Samples behind the standard error of a metric that has no formula."""


@dataclass(frozen=True)
class Asked:
    """What is evaluated, and how."""

    tasks: tuple[str, ...]
    """Names of tasks, groups and tags, or the harness's YAML files."""
    data: Path | None = None
    """Folder with their data; None: the harness downloads what it needs."""
    limit: int | None = None
    """Only the first so many items of each task, of each part of a group."""
    fewshot: int | None = None
    """Examples before each question; None: as many as the task shows by itself."""
    chat: bool = False
    """Put each prompt into the chat template of the model."""
    batch_tokens: int = BATCH_TOKENS


@dataclass(frozen=True)
class TaskRead:
    """What one task, or one group of them, was, and what was read of it."""

    task: str
    version: str
    """Of the harness's task."""
    harness: str
    """Version of lm-evaluation-harness."""
    fewshot: int
    items: int
    of: int
    """Items that the data have; fewer are used where there is a limit."""
    files: dict[str, str]
    """Of local data: path -> SHA-256."""
    notes: list[str]
    """What a reader has to know: parts of the test alone, prompts that were cut."""


@dataclass(frozen=True)
class TaskResult(TaskRead):
    """A task with all its metrics."""

    scored: list[Scored]
    others: list[Score]
    """Of metrics that are no mean over items (F1, correlations), by the harness alone: no paired test."""

    @property
    def read(self) -> TaskRead:
        return TaskRead(*(getattr(self, one.name) for one in fields(TaskRead)))


def load_tasks(asked: Asked) -> list[Loaded]:
    """The tasks with their data, before a model is opened.

    Raises InputError where lm-evaluation-harness is not installed, for a task that it does not know, that would run
    code of the model's or needs images, and for data that are not there.
    """
    try:
        import lm_eval.tasks  # noqa: F401
    except ImportError:
        raise InputError(
            "lm-evaluation-harness, which has the tasks, is not installed; pip install 'seedbed[eval]'"
        ) from None
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    if asked.data is None:
        with quiet(), redirect_stdout(StringIO()):
            from lm_eval.tasks import TaskManager

            manager = TaskManager()
        return [_of_the_hub(manager, name, asked.fewshot) for name in asked.tasks]
    if not asked.data.is_dir():
        raise InputError(f"{asked.data}: no such folder; --task-data names the folder with the tasks' data")
    missing_local(asked.tasks)
    with quiet(), redirect_stdout(StringIO()):
        return [load_local(name, asked.data, asked.fewshot) for name in asked.tasks]


def harness(
    model: LanguageModel,
    loaded: Sequence[Loaded],
    asked: Asked,
    parts: Parts,
    tell: Callable[[str], None],
    which: str = "",
) -> list[TaskResult]:
    """All metrics of the tasks, each finished one kept in ``parts`` under a name that begins with ``which``.

    Raises InputError for a chat template that the model does not have, GuardStop for a model whose scores are not
    finite.
    """
    from seedbed.eval.harness_model import HarnessModel

    lm = HarnessModel(model, asked.batch_tokens)
    if asked.chat and not lm.tokenizer.chat_template:
        raise InputError(f"{model.name}: has no chat template; leave --chat out")
    found = []
    for one in loaded:

        def tell_task(state: str, name: str = one.name) -> None:
            tell(f"{name}: {state}")

        lm.begin(tell_task)
        name = f"{which} task {one.name} {_digest(one, asked)}"
        found.append(_result(parts.get(name, lambda one=one: asdict(_evaluate(lm, one, asked)))))
    return found


def _digest(one: Loaded, asked: Asked) -> str:
    """Of what decides a task's scores, but for model and versions. Of data out of the net their size has to do."""
    sizes = {name: len(task.eval_docs) for name, task in one.tasks.items()}
    key = [one.files, sizes, asked.limit, asked.fewshot, asked.chat, asked.batch_tokens]
    return sha256(json.dumps(key).encode()).hexdigest()[:16]


def _evaluate(lm: Any, one: Loaded, asked: Asked) -> TaskResult:
    import lm_eval
    from lm_eval.evaluator import evaluate

    os.environ.setdefault("DISABLE_MULTIPROC", "1")  # no processes for a bootstrap
    for task in one.tasks.values():
        task.set_fewshot_seed(SEED)
    with quiet(), redirect_stdout(StringIO()):
        results: Any = evaluate(
            lm,
            {"tasks": one.tasks, "groups": one.groups},
            limit=asked.limit,
            bootstrap_iters=_BOOTSTRAP,
            apply_chat_template=asked.chat,
            fewshot_as_multiturn=asked.chat,
        )
    scored, others = scored_tasks(lm.model.name, one, results)
    counts = [results["n-samples"][name] for name in one.tasks]
    items, of = (sum(count[key] for count in counts) for key in ("effective", "original"))
    top = one.name if one.name in results["versions"] else next(iter(one.tasks))
    shown = max(results["n-shot"][name] for name in one.tasks)
    return TaskResult(
        one.name, str(results["versions"][top]), lm_eval.__version__, shown, items, of, one.files,
        _notes(lm, one, asked, items, of), scored, others,
    )  # fmt: skip


def _notes(lm: Any, one: Loaded, asked: Asked, items: int, of: int) -> list[str]:
    found = []
    if items < of:
        each = " of each part" if len(one.tasks) > 1 else ""
        found.append(f"only the first {asked.limit:,} items{each}: {items:,} of {of:,}")
    if one.lacking:
        found.append(
            f"{len(one.tasks)} of {len(one.tasks) + len(one.lacking)} parts: the files have nothing of {one.lacking[0]}"
            + (f" and {len(one.lacking) - 1} more" if len(one.lacking) > 1 else "")
        )
    if lm.cuts.prompts:
        found.append(
            f"{lm.cuts.prompts:,} prompts were longer than the model reads ({lm.max_length:,} tokens with the answer); "
            f"{lm.cuts.tokens:,} tokens were cut off in front"
        )
    for allowed, given in lm.cuts.answers.items():
        found.append(f"answers end after {given:,} tokens, not {allowed:,}: the model reads {lm.max_length:,} in all")
    return found


def _of_the_hub(manager: "TaskManager", name: str, fewshot: int | None) -> Loaded:
    """A task, group or tag by its name, or a YAML file; the harness downloads its data."""
    if name not in manager.task_index and not Path(name).is_file():
        near = get_close_matches(name, manager.all_tasks, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`lm_eval ls tasks` lists those that there are"
        raise InputError(f"--tasks: lm-evaluation-harness knows no {name}; {hint}")
    try:
        with quiet(), redirect_stdout(StringIO()):
            found = manager.load([name])
    except Exception as error:  # of any library that fetches or reads the data
        raise InputError(
            f"{name}: lm-evaluation-harness cannot load it: {one_line(error)}; where its data cannot be downloaded, "
            "give them with --task-data FOLDER"
        ) from None
    for task in found["tasks"].values():
        if getattr(task, "UNSAFE_CODE", False) or getattr(task, "MULTIMODAL", False):
            raise InputError(f"{task.task_name}: runs code that the model writes, or needs images; it is not run here")
        if fewshot is not None and task.config.num_fewshot != 0:  # 0 in its own file: examples make no sense there
            task.set_config(key="num_fewshot", value=fewshot)
        elif task.config.num_fewshot is None:
            task.set_config(key="num_fewshot", value=0)
    return Loaded(name, found["tasks"], found.get("groups", {}), {}, [])


def _result(kept: dict[str, Any]) -> TaskResult:
    """Out of what `Parts` keeps."""
    scored = [Scored(Score(**score), Items(**items)) for score, items in map(_pair, kept["scored"])]
    return TaskResult(**{**kept, "scored": scored, "others": [Score(**score) for score in kept["others"]]})


def _pair(kept: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    score, items = kept
    return score, items
