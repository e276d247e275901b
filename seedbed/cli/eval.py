"""seedbed eval: how good one model is, two side by side, or a run over its steps."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.analyze.present import MODEL, Out, command_line, documents_option, length_option, present, work
from seedbed.cli.options import Device, DeviceName, Field, OnBad, OnBadPolicy, Overwrite, device_of
from seedbed.cli.output import Json, note
from seedbed.cli.task_options import Chat, Fewshot, SuiteName, TaskData, Tasks, asked_tasks, suite_of
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.eval.evaluation import Source
    from seedbed.hub.models import LanguageModel

LENGTH = 1024


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=f"What is scored: {MODEL}.")],
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OTHER]", help="A second one; its gain is its score minus the first's.", show_default=False
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Texts: JSONL, text or Parquet files, folders of them, stores (their held-out part); may be repeated.",
            show_default=False,
        ),
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(
            help="Minimal pairs: JSONL files in BLiMP's format, or folders of them; may be repeated.",
            show_default=False,
        ),
    ] = None,
    tasks: Tasks = None,
    suite: SuiteName = None,
    task_data: TaskData = None,
    fewshot: Fewshot = None,
    chat: Chat = False,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            help="Of the run MODEL: all that it keeps, or the steps N,N,...; scores over its steps.", show_default=False
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Read whole texts in windows that begin so many tokens apart.",
            show_default="their first --length tokens",
        ),
    ] = None,
    length: Annotated[int | None, length_option(LENGTH)] = None,
    documents: Annotated[int | None, documents_option("all")] = None,
    field: Field = "text",
    on_bad: OnBad = OnBadPolicy.strict,
    limit: Annotated[
        int | None, typer.Option(min=1, help="The first so many items of each task and paradigm.", show_default="all")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens read at once, padding included.")] = 8192,
    device: Device = DeviceName.auto,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """How good a model is: bits per byte and perplexity on texts, accuracy on minimal pairs, any task of
    lm-evaluation-harness.

    With a second model, its gain with a paired test; with --checkpoints, the course of a run, training or finished.
    The same command goes on after an interruption where -o names a folder.
    """
    table = suite_of(suite)
    asked = asked_tasks(tasks, table, task_data, limit, fewshot, chat, batch_tokens)
    if not data and not pairs and asked is None:
        raise InputError(
            "nothing to evaluate; name texts with --data, minimal pairs with --pairs, or tasks with --tasks or --suite"
        )
    if checkpoints is not None and other is not None:
        raise InputError("--checkpoints: is of one run; give no second model")
    with work(out, overwrite) as keep:
        from seedbed.analysis.provenance import provenance
        from seedbed.analysis.run import versions
        from seedbed.data.progress import spinner
        from seedbed.eval.evaluation import Question, evaluate
        from seedbed.eval.questions import about_pairs, about_text
        from seedbed.files.atomic import write_atomic
        from seedbed.hub.models import common_length
        from seedbed.report.eval_page import eval_page
        from seedbed.report.markdown import page_markdown

        sources = _sources(model, other, checkpoints, device_of(device))
        questions: dict[str, Question] = {}
        if data:
            paths = [model] if other is None else [model, other]
            length = common_length(paths, length, LENGTH)
            questions["text"] = about_text(data, length, stride, documents, field, on_bad.value, batch_tokens)
        if pairs:
            questions["minimal pairs"] = about_pairs(pairs, limit, batch_tokens)
        if asked is not None:
            from seedbed.eval.task_questions import about_tasks

            questions["tasks"] = about_tasks(asked, table and table.stated)
        options = {"length": length, "stride": stride, "batch_tokens": batch_tokens}
        title = str(model) if checkpoints is not None else " and ".join(source.name for source in sources)
        with spinner("eval") as tell:
            kept = keep({"analysis": "eval", "options": options, "versions": versions()})
            result, items = evaluate(title, sources, questions, kept, tell, checkpoints is not None)
        files = {row.name: row.files for row in result.models}
        named = ", ".join(map(str, [*(data or []), *(pairs or []), *(asked.tasks if asked else [])]))
        page = eval_page(result, provenance(command_line(), files, named), table)
        tables = {"scores": result.scores, "differences": result.differences, "items": items, "models": result.models}
        if out is not None:
            write_atomic(out / "report.md", page_markdown(page))
        if not as_json:
            for line in (f"{question}: {line}" for question, told in result.told.items() for line in told):
                note(line)  # what was read, and what was left off
        present(result, page, {name: rows for name, rows in tables.items() if rows}, out, as_json)


def _sources(model: Path, other: Path | None, checkpoints: str | None, device: str) -> "list[Source]":
    from seedbed.eval.evaluation import Source, checkpoints_of
    from seedbed.hub.checkpoints import names_of

    if checkpoints is not None:
        found = checkpoints_of(model, None if checkpoints == "all" else _steps(checkpoints))
        return [Source(f"step {step}", step, partial(_open, folder, f"step {step}", device)) for step, folder in found]
    paths = [model] if other is None else [model, other]
    return [
        Source(name, None, partial(_open, path, name, device))
        for path, name in zip(paths, names_of(paths), strict=True)
    ]


def _steps(text: str) -> Sequence[int]:
    try:
        return [int(step) for step in text.split(",")]
    except ValueError:
        raise InputError(f"--checkpoints {text}: give all, or steps such as 100,200") from None


def _open(path: Path, name: str, device: str) -> "LanguageModel":
    from dataclasses import replace

    from seedbed.hub.models import open_model

    return replace(open_model(path, device), name=name)
