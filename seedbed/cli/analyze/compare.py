"""seedbed analyze compare: the weights of several checkpoints side by side."""

from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import Out, command_line, present, work
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json


def compare(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(
            metavar="CHECKPOINT...",
            help="Two to eight runs, checkpoints of runs (RUN/checkpoints/step_X), initial weights of runs "
            "(RUN/initial.json), Hugging Face checkpoints; or one run, initialized against trained.",
        ),
    ],
    cohort: Annotated[
        Path | None,
        typer.Option(help="Cohort behind the curves; by default the one that is shipped.", show_default=False),
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Scales, ranks and spectra of several checkpoints by component and depth, before a cohort of trained models."""
    from seedbed.analysis.compare import analyze, sources
    from seedbed.analysis.run import versions
    from seedbed.laws.cohort import read_cohort
    from seedbed.report.compare_page import compare_page
    from seedbed.report.compare_rows import compared_tables

    band = read_cohort(None if cohort is None else str(cohort))
    found = sources(checkpoints)
    key = {"analysis": "compare", "files": {one.name: one.files for one in found}, "versions": versions()}
    with work(out, overwrite, key, "weights of") as (parts, tell):
        result = analyze(found, parts, tell)
    page = compare_page(result, band, {"command": command_line(), **versions()})
    present(result, page, compared_tables(result.models), out, as_json)
