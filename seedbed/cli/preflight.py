"""seedbed preflight CONFIG"""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.output import Json, Overrides, console, note, print_json, table
from seedbed.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from seedbed.config import Config, InitConfig
    from seedbed.report.preflight import PreflightReport
    from seedbed.report.preflight_tables import Table

Arms = Annotated[
    list[str] | None,
    typer.Option("--init", help="An initialization to set beside: a law and options, gamma,gamma=0.5. Repeatable."),
]


def preflight(
    path: Annotated[str, typer.Argument(metavar="CONFIG", help="YAML or JSON file.")],
    overrides: Overrides = None,
    init: Arms = None,
    params_only: Annotated[bool, typer.Option("--params-only", help="Only count parameters; needs no data.")] = False,
    sequences: Annotated[int, typer.Option(min=1, help="Most held-out sequences to measure on.")] = 8,
    html: Annotated[Path | None, typer.Option("--html", help="Write the page with figures to this file.")] = None,
    widths: Annotated[str | None, typer.Option(help="Widths to fit slopes of the branches over: 64,128,256.")] = None,
    as_json: Json = False,
) -> None:
    """Say what a configuration will do before it is trained: norms, stream, gradients, first loss, memory, time."""
    from seedbed.config import Config
    from seedbed.config.load import with_init
    from seedbed.files.atomic import write_atomic
    from seedbed.optim.schedule import validate
    from seedbed.report.preflight import preflight_page

    config = Config.load(path, overrides or [])
    validate(config.train.steps, config.optim.schedule)
    if params_only:
        _counts(config, as_json)
        return
    if config.train.init_from is not None:
        raise InputError(
            f"train.init_from={config.train.init_from}: preflight measures initializations, and this run starts from "
            "weights; leave it out with train.init_from=null"
        )
    configs = [config, *(with_init(config, parse_init(text)) for text in init or [])]
    report = measure(configs, sequences, parse_widths(widths))
    if html is not None:
        write_atomic(html, preflight_page(report))
        note(f"preflight: {html} has the page")
    if as_json:
        print_json(report_json(report))
    else:
        show(report)


def parse_init(text: str) -> "InitConfig":
    """``"gamma,gamma=0.5"`` -> InitConfig. Raises InputError with a suggestion."""
    from seedbed.config import Config

    law, *options = text.split(",")
    if not all("=" in option for option in options):
        raise InputError(f"--init {text}: write LAW or LAW,option=value, for example gamma,gamma=0.5")
    try:
        return Config.load(None, [f"init.law={law}", *(f"init.{option}" for option in options)]).init
    except InputError as error:
        raise InputError(f"--init {text}: {error}") from None


def parse_widths(text: str | None) -> list[int]:
    """``"64,128"`` -> [64, 128]. Raises InputError where that is no list of whole numbers."""
    try:
        return [int(width) for width in text.split(",")] if text else []
    except ValueError:
        raise InputError(f"--widths {text}: write whole numbers with commas between, for example 64,128,256") from None


def measure(configs: "list[Config]", sequences: int, widths: list[int]) -> "PreflightReport":
    """Measure the initialization of each configuration on the first held-out sequences of their store.

    They differ in initialization and in what follows from it; memory and time are those of the first.
    """
    from seedbed.analysis.preflight import measure_arm
    from seedbed.analysis.resources import measured_shape, memory_parts, resources
    from seedbed.analysis.run import store_summary, versions
    from seedbed.analysis.verdicts import verdicts
    from seedbed.analysis.widths import width_slopes
    from seedbed.data.split import Batch
    from seedbed.report.preflight import PreflightReport
    from seedbed.train.setup import resolve

    config, store = resolve(configs[0])
    heldout = store.split("heldout")
    if len(heldout) == 0:
        raise InputError(f"data.store={config.data.store} holds nothing out to measure on; prepare it with --heldout")
    needed = sum(memory_parts(config, heldout.seq_len).values())
    note(f"preflight: the run will need about {needed / 2**20:,.0f} MiB, and so does this")
    rows, length = measured_shape(config, min(sequences, len(heldout)), heldout.seq_len)
    batch = Batch(*(tokens[:, :length] for tokens in heldout.windows(range(rows))))
    arms = []
    for one in configs:
        note(f"preflight: {one.init.law} {' '.join(f'{k}={v}' for k, v in one.init.options.items())}")
        resolved = resolve(one)[0]
        slopes = width_slopes(resolved.model, resolved.init, widths) if widths else []
        arms.append(replace(measure_arm(resolved, batch), slopes=slopes))
    return PreflightReport(
        config=config.dump(),
        command=shlex.join(["seedbed", *sys.argv[1:]]),
        arms=arms,
        verdicts=[verdicts(arm, one) for arm, one in zip(arms, configs, strict=True)],
        resources=resources(config, heldout.seq_len, arms[0].first),
        data=store_summary(store),
        versions=versions(),
    )


def show(report: "PreflightReport", stderr: bool = False) -> None:
    """Tables, and the verdicts last, where the eye is."""
    from seedbed.report.preflight import tables

    out = console(stderr)
    for one in tables(report.arms).values():
        for part in _rich(one, out.width):
            out.print(part)
    for line in (*_resource_lines(report), *_verdict_lines(report)):
        out.print(line)


def _rich(one: "Table", width: int) -> "Iterator[RenderableType]":
    """The table, its arms spread over several tables where ``width`` columns do not hold them side by side."""
    left = sum(max(len(text) for text in column) + 2 for column in zip(one.labels, *(r.labels for r in one.rows)))
    columns = []  # header and cells of each arm, the parts of a cell set to the right one below the other
    for index, arm in enumerate(one.arms):
        lines = [one.parts, *(row.cells[index] for row in one.rows)]
        sizes = [max(map(len, part)) for part in zip(*lines, strict=True)]
        head, *cells = ["  ".join(text.rjust(n) for text, n in zip(line, sizes, strict=True)) for line in lines]
        columns.append([f"{arm}\n{head}" if head else arm, *cells])
    title = one.title
    while columns:
        fitting, room = 0, width - left
        while fitting < len(columns) and (room := room - max(len(columns[fitting][1]), 12) - 2) >= -2:
            fitting += 1
        shown, columns = columns[: max(fitting, 1)], columns[max(fitting, 1) :]
        heads = [column[0] for column in shown]
        rows = [[*row.labels, *(column[i + 1] for column in shown)] for i, row in enumerate(one.rows)]
        yield table(f"\n{title}", [*one.labels, *heads], rows)
        title = f"{one.title}, continued"


def _resource_lines(report: "PreflightReport") -> "Iterator[RenderableType]":
    from seedbed.train.progress import duration

    of_run = report.resources
    rows = [[part, f"{size / 2**20:,.1f}"] for part, size in of_run.memory.items()]
    rows.append(["sum", f"{sum(of_run.memory.values()) / 2**20:,.1f}"])
    yield table("\nMemory of the run, MiB", ["part", "MiB"], rows)
    yield (
        f"\n{of_run.steps:,} steps of {of_run.step_seconds:.3g} s, {of_run.tokens:,} tokens: about "
        f"{duration(of_run.seconds)} on this machine, from one step on {of_run.timed_tokens:,} tokens, timed in "
        f"{of_run.timed_in}; evaluation and checkpoints apart"
    )


def _verdict_lines(report: "PreflightReport") -> Iterator[str]:
    marks = {"warning": "!!", "note": " !", "good": " ✓"}
    for arm, found in zip(report.arms, report.verdicts, strict=True):
        yield f"\nVerdict on {arm.title}"
        yield from (f"{marks[verdict.level]} {verdict.text}" for verdict in found)


def report_json(report: "PreflightReport") -> dict[str, Any]:
    return {
        "arms": [
            {
                "init": {"law": arm.plan.law, **arm.plan.options},
                "plan": arm.plan.dump()["rows"],
                "verdicts": [asdict(verdict) for verdict in found],
                "scaling": {branch: asdict(scaling) for branch, scaling in arm.scaling.items()},
                "residual": asdict(arm.residual),
                "budget": [asdict(row) for row in arm.budget],
                "precision": {"tokens": arm.precision_tokens, "layers": [asdict(row) for row in arm.precision]},
                "sink": asdict(arm.sink),
                "first_loss": arm.first.loss,
                "logits": asdict(arm.first.logits),
                "gradients": [asdict(row) for row in arm.first.gradients],
                "lost_updates": [asdict(row) for row in arm.first.lost],
                "widths": [asdict(row) for row in arm.slopes],
            }
            for arm, found in zip(report.arms, report.verdicts, strict=True)
        ],
        "resources": {**asdict(report.resources), "seconds": report.resources.seconds},
    }


def _counts(config: "Config", as_json: bool) -> None:
    from seedbed.analysis.resources import non_embedding, parameter_counts

    if config.model.vocab_size is None:
        if config.data.store is None:
            raise InputError("model.vocab_size is not set and there is no data.store to take it from; set one of them")
        from seedbed.train.setup import resolve

        config, _ = resolve(config)
    counts = parameter_counts(config.model)
    total, inner = sum(count.parameters for count in counts), non_embedding(counts)
    if as_json:
        print_json({"parameters": total, "non_embedding": inner, "roles": [asdict(count) for count in counts]})
        return
    rows = [[count.role, f"{count.tensors:,}", f"{count.parameters:,}"] for count in counts]
    rows += [
        ["total", f"{sum(c.tensors for c in counts):,}", f"{total:,}"],
        ["without embeddings and head", "", f"{inner:,}"],
    ]
    console().print(table(f"{total / 1e9:.3f}B parameters", ["role", "tensors", "parameters"], rows))
