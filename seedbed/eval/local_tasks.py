"""Tasks of lm-evaluation-harness whose data lie in a folder: nothing is downloaded.

`tasks/NAME.yaml` says which of the harness's own tasks it is, which files hold its data, and how a line becomes the
document that the harness's task reads (Jinja expressions over the line's keys). All else, prompt, choices, filters,
metrics, number of examples, is the harness's.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
import yaml
from jinja2 import meta

from seedbed.data.jinja import environment
from seedbed.errors import InputError
from seedbed.files.atomic import sha256
from seedbed.files.jsonl import OR_SKIP, read_jsonl

if TYPE_CHECKING:
    from lm_eval.api.group import Group
    from lm_eval.api.task import Task

_FOLDER = resources.files("seedbed.eval") / "tasks"
_SPLITS = ("test_split", "validation_split", "training_split", "fewshot_split")
_ENDINGS = ("", ".zst", ".gz")


@dataclass(frozen=True)
class LocalTask:
    name: str
    lm_eval: str
    """Its file among the harness's tasks; a pattern where it is a group."""
    files: dict[str, str | list[str]]
    """Split -> where its file is looked for, as JSON lines, plain or compressed."""
    document: dict[str, str]
    """Column of the document -> expression over the keys of a line."""
    group: str | None = None
    """The harness's file of the group."""
    part: str | None = None
    """The key that says which of the group's tasks a line belongs to."""

    @cached_property
    def keys(self) -> list[str]:
        """That a line has."""
        found = {key for text in self.document.values() for key in meta.find_undeclared_variables(_parsed(text))}
        return sorted(found | ({self.part} if self.part else set()))


class Loaded(NamedTuple):
    """What the harness evaluates as one."""

    name: str
    tasks: "dict[str, Task]"
    groups: "dict[str, Group]"
    files: dict[str, str]
    """Of local data: path in the folder -> SHA-256."""
    lacking: list[str]
    """Tasks of the group of which the files have nothing."""


def local_names() -> list[str]:
    """Tasks that can be given local data."""
    return sorted(file.name.removesuffix(".yaml") for file in _FOLDER.iterdir() if file.name.endswith(".yaml"))


@cache
def local_task(name: str) -> LocalTask:
    """What `tasks/NAME.yaml` says."""
    return LocalTask(name, **yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))


def load_local(name: str, folder: Path, fewshot: int | None) -> Loaded:
    """The task with its data out of ``folder``, and ``fewshot`` examples before each question (None: as many as the
    harness shows; a task that forbids examples has none).

    Raises InputError where a file is missing or a line does not fit: what is looked for, and what a line has.
    """
    from lm_eval import tasks
    from lm_eval.api.group import Group
    from lm_eval.tasks._yaml_loader import load_yaml

    home, task = Path(tasks.__file__).parent, local_task(name)
    configs = [load_yaml(path) for path in sorted(home.glob(task.lm_eval))]
    first = configs[0]
    shown = first.get("num_fewshot") if fewshot is None or first.get("num_fewshot") == 0 else fewshot
    splits = {first.get("test_split") or first["validation_split"]: "its items"}
    if shown and not (first.get("fewshot_config") or {}).get("samples"):
        splits[first.get("fewshot_split") or first.get("training_split") or ""] = f"the {shown} examples of a prompt"
    files, found = {}, {}
    for split, what in splits.items():
        file = _file(task, folder, split, what)
        files[str(file.relative_to(folder))] = sha256(file)
        found[split] = list(_documents(task, file))
    made = {}
    for config in configs:
        part = config["dataset_name"] if task.part else None
        rows = {split: [doc for owner, doc in docs if owner == part] for split, docs in found.items()}
        if all(rows.values()):
            made[config["task"]] = _task(config, rows, shown or 0)
    group = None
    if task.group is not None:
        group = Group.from_config(load_yaml(home / task.group))
        for one in made.values():
            group.add(one)
    lacking = [config["task"] for config in configs if config["task"] not in made]
    if not made:
        raise InputError(f"{folder}: {', '.join(files)}: no line belongs to a part of {name}; see the key {task.part}")
    return Loaded(name, made, {} if group is None else {group.name: group}, files, lacking)


def _task(config: dict[str, Any], rows: dict[str, list[dict[str, Any]]], shown: int) -> "Task":
    from datasets import Dataset
    from lm_eval.api.task import ConfigurableTask

    data = {split: Dataset.from_list(docs) for split, docs in rows.items()}  # in memory: no cache is written
    splits = {key: config.get(key) if config.get(key) in data else None for key in _SPLITS}
    own = {"custom_dataset": lambda **_: data, "dataset_kwargs": None, "num_fewshot": shown}
    rest = {key: value for key, value in config.items() if key not in ("tag", "group", "task_list")}
    return ConfigurableTask(config={**rest, **splits, **own})


def _file(task: LocalTask, folder: Path, split: str, what: str) -> Path:
    names = task.files.get(split, [])
    names = [names] if isinstance(names, str) else names
    for name in names:
        for ending in _ENDINGS:
            if (file := folder / f"{name}{ending}").is_file():
                return file
    if not names:
        raise InputError(f"{task.name}: no local file has {what}; ask for none with --fewshot 0")
    places = " or ".join(str(folder / name) for name in names)
    advice = "" if what == "its items" else ", or ask for other examples with --fewshot"
    raise InputError(
        f"{task.name}: {what} are looked for in {places} (also .zst, .gz), which is not there; put it there, a JSON "
        f"object a line with {', '.join(task.keys)}{advice}"
    )


def _documents(task: LocalTask, file: Path) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """(part, document) of each line."""
    made = {column: _expression(text) for column, text in task.document.items()}
    count = 0
    for line, row in _lines(file):
        count += 1
        where = f"{file}:{line}"
        has = list(row) if isinstance(row, dict) else []
        if missing := [key for key in task.keys if key not in has]:
            raise InputError(
                f"{where}: {task.name} needs {', '.join(missing)}; the line has {', '.join(has) or 'no keys'}"
            )
        if "choices" in task.keys and (problem := _unanswerable(row)):
            raise InputError(f"{where}: {task.name}: {problem}")
        try:
            document = {column: expression(row) for column, expression in made.items()}
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            shown = json.dumps(row, ensure_ascii=False)[:200]
            raise InputError(f"{where}: no document of {task.name}: {error}; the line is {shown}") from None
        yield row[task.part] if task.part else None, document
    if not count:
        raise InputError(f"{file}: empty; {task.name} needs a JSON object a line with {', '.join(task.keys)}")


def _unanswerable(row: dict[str, Any]) -> str | None:
    """What is wrong with a question of several choices: the harness would count it as answered wrongly."""
    choices, answer = row["choices"], row["answer"]
    if not isinstance(choices, list) or not all(isinstance(choice, str) and choice for choice in choices):
        return f"choices is not a list of texts: {json.dumps(choices, ensure_ascii=False)[:80]}"
    if not isinstance(answer, int) or not 0 <= answer < len(choices):
        return f"answer is {json.dumps(answer)}, not the place (from 0) of one of {len(choices)} choices"
    return None


def _lines(file: Path) -> Iterator[tuple[int, Any]]:
    try:
        yield from read_jsonl(file)
    except InputError as error:
        raise InputError(str(error).removesuffix(OR_SKIP)) from None  # no line of a test is left out


@cache
def _environment() -> jinja2.Environment:
    return environment().overlay(undefined=jinja2.StrictUndefined)


def _parsed(text: str) -> Any:
    return _environment().parse("{{" + text + "}}")


def _expression(text: str) -> Callable[[dict[str, Any]], Any]:
    compiled = _environment().compile_expression(text, undefined_to_none=False)

    def value(row: dict[str, Any]) -> Any:
        found = compiled(row)
        if isinstance(found, jinja2.Undefined):
            raise LookupError(f"{text} is not there")
        return found

    return value


def missing_local(names: Sequence[str]) -> None:
    """Raise InputError where one of ``names`` has no form with local data."""
    if unknown := [name for name in names if name not in local_names()]:
        raise InputError(
            f"{unknown[0]}: not among the tasks with local data ({', '.join(local_names())}); leave --task-data out "
            "to let lm-evaluation-harness download what it needs"
        )
