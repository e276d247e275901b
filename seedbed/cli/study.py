"""`seedbed study`: plan, carry out, report and compare grids of runs; heavy imports wait inside the commands."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.analyze.present import Out, command_line, present, work
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json, finite, print_json
from seedbed.cli.study_runs import check_runs, runs_of
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.config import Config
    from seedbed.report.study_rows import StudyResult
    from seedbed.study.outcome import Outcome
    from seedbed.study.plan import Plan
    from seedbed.study.spec import Spec

app = typer.Typer(help="Grids of runs that are compared: plan, carry out, report.", no_args_is_help=True)

HOME = Path("runs", "studies")
REPORT = "report"


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


Study = Annotated[
    Path, typer.Argument(metavar="FILE|FOLDER", help="A study's file (YAML, JSON), or the folder that it was run in.")
]
Changes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[OVERRIDES]...",
        help="Of a file: a scale (size=cpu), fields of the study (seeds=[0,1]), fields of all runs (data.store=DIR).",
        show_default=False,
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "-o", "--out", help="Folder of the study.", show_default="runs/studies/NAME, NAME-SCALE with size=SCALE"
    ),
]
Runs = Annotated[
    Path | None,
    typer.Option(help="Folder of run folders, which studies may share.", show_default="runs, in the study's folder"),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, help="Runs at a time, among which the cores are divided.", show_default="one a GPU, else one a core"
    ),
]


@app.command()
def plan(
    path: Study,
    changes: Changes = None,
    folder: Folder = None,
    runs: Runs = None,
    workers: Workers = None,
    timing: Annotated[
        bool, typer.Option("--timing/--no-timing", help="Try some steps of sizes of which no run has finished here.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show what a study takes, and what of it is done. Nothing is written."""
    spec, folder = _study(path, changes, folder)
    from seedbed.cli.study_text import plan_document, show_plan
    from seedbed.study.estimate import estimate, speeds
    from seedbed.study.plan import Plan
    from seedbed.study.run import known_outcomes

    made = Plan(spec)
    count, place = workers or _workers(made), runs or folder / "runs"
    outcomes = known_outcomes(made, place)
    rates = speeds(made, outcomes, _threads(count), try_steps=timing)
    document = plan_document(made, outcomes, estimate(made, outcomes, rates, place), folder, count)
    print_json(document) if as_json else show_plan(document)


@app.command()
def run(
    path: Study,
    changes: Changes = None,
    folder: Folder = None,
    runs: Runs = None,
    workers: Workers = None,
    engine: Annotated[EngineName, typer.Option(help="Processes of this machine, or a Ray cluster.")] = EngineName.local,
    as_json: Json = False,
) -> None:
    """Carry a study out and report it; the same command again does what is left.

    Exit code 1 where runs failed, which the same command tries again; else 3 where the report is written and an arm has
    no result, since its best tuned value lies at the edge of the grid or all of them diverged.
    """
    spec, folder = _study(path, changes, folder)
    from seedbed.cli.study_progress import study_progress
    from seedbed.cli.study_text import ending, other_data, show_ending
    from seedbed.study.local import local_engine
    from seedbed.study.on_ray import ray_engine
    from seedbed.study.plan import Plan
    from seedbed.study.run import known_outcomes, study_folder
    from seedbed.study.run import run as carry_out

    engines = {EngineName.local: local_engine, EngineName.ray: ray_engine}
    made = Plan(spec)
    count = workers or _workers(made)
    check_runs(folder, runs)
    with study_progress(made) as (tell, say):
        do = engines[engine](count, say)  # says what is missing before anything is written
        with study_folder(folder, spec):
            place = runs_of(folder, runs)
            if changed := other_data(made, folder / REPORT):
                say(changed)
            state = carry_out(made, place, do, _train, _threads(count), tell)
            outcomes = known_outcomes(made, place)
            shown = _report(made, outcomes, folder, place, folder / REPORT)
    document = ending(made, outcomes, folder, shown)
    print_json(document) if as_json else show_ending(document)
    if state.failed or document["problems"]:
        raise typer.Exit(1 if state.failed else 3)


@app.command()
def report(
    path: Study,
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the report.", show_default="report, in the study's")
    ] = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Write the report of a study anew from the runs that have ended: page, Markdown, tables (CSV), figures (SVG)."""
    spec, folder = _study(path, changes, None)
    from seedbed.cli.study_text import ending, show_ending
    from seedbed.report.results import RESULT
    from seedbed.study.plan import Plan
    from seedbed.study.run import known_outcomes

    place = runs or folder / "runs"
    if not place.is_dir():
        raise InputError(
            f"{place}: there are no runs; make them with `seedbed study run {path}`, or name them (--runs)"
        )
    made, out = Plan(spec), out or folder / REPORT
    other = out.is_file() or (out.is_dir() and not (out / RESULT).is_file() and any(out.iterdir()))
    if other and out != folder / REPORT:
        raise InputError(f"{out}: holds other files; name a new folder for the report")
    outcomes = known_outcomes(made, place)
    shown = _report(made, outcomes, folder, place, out)
    document = ending(made, outcomes, folder, shown)
    print_json(document) if as_json else show_ending(document)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of a study.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Folder of another, or of another version of it.")],
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Set arms that two studies share side by side: losses, how far they are apart, what they were run with."""
    from seedbed.report.study_compare_page import study_compare_page
    from seedbed.study.compare import compare as compared

    with work(out, overwrite):
        result = compared(_found(a), _found(b))
        page = study_compare_page(result, {"command": command_line(), "A": str(a.resolve()), "B": str(b.resolve())})
        present(result, page, {"shared": result.shared, "settings": result.settings}, out, as_json)


def _found(folder: Path) -> "StudyResult":
    """What the study in ``folder`` has found so far."""
    from seedbed.study.plan import Plan
    from seedbed.study.results import results
    from seedbed.study.run import known_outcomes, read_study

    made, place = Plan(read_study(folder)), folder / "runs"
    return results(made, known_outcomes(made, place), place)


def _study(path: Path, changes: Sequence[str] | None, folder: Path | None) -> tuple["Spec", Path]:
    """The study of a file or a folder, and the folder it is kept in."""
    from seedbed.study.run import read_study
    from seedbed.study.scales import scale_of
    from seedbed.study.spec import load_spec

    if path.is_dir():
        if changes:
            raise InputError(f"override '{changes[0]}': {path} is a study's folder; overrides go with its file")
        return read_study(path), folder or path
    spec, scale = load_spec(path, changes or []), scale_of(changes or [])
    return spec, folder or HOME / (spec.name if scale is None else f"{spec.name}-{scale}")


def _report(made: "Plan", outcomes: Mapping[str, "Outcome"], folder: Path, place: Path, out: Path) -> Path:
    """Write the report into ``out``; its page."""
    from seedbed.files.atomic import write_atomic
    from seedbed.report.markdown import page_markdown
    from seedbed.report.results import write_results
    from seedbed.report.study_page import study_page
    from seedbed.report.study_rows import study_tables
    from seedbed.study.results import results

    result = results(made, outcomes, place)
    page = study_page(
        result,
        {
            "command": command_line(),
            "to repeat it": f"seedbed study run {shlex.quote(str(folder))}",
            "runs": str(place.resolve()),
        },
    )
    shown = write_results(out, page, study_tables(result), finite(asdict(result)))
    write_atomic(out / "report.md", page_markdown(page))
    return shown


def _workers(made: "Plan") -> int:
    from seedbed.study.estimate import whole
    from seedbed.study.limits import most_workers

    return most_workers(whole(made, made.cells[0]).config)


def _threads(workers: int) -> int:
    from seedbed.study.limits import cores

    return max(1, cores() // workers)


def _train(config: "Config") -> None:
    """A run of a study: trained without a page of its own."""
    from seedbed.api import fit

    fit(config, page=False)
