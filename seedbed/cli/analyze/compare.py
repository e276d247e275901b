"""seedbed analyze compare: the weights of several checkpoints side by side."""

from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import MODELS, Out, command_line, present, work
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json


def compare(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(
            metavar="CHECKPOINT",
            help=f"{MODELS}, initial weights of runs (RUN/initial.json), two to eight; or one run, initialized against "
            "trained.",
        ),
    ],
    cohort: Annotated[
        Path | None, typer.Option(help="Cohort behind the curves.", show_default="the one that is shipped")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """The weights of several checkpoints side by side.

    Scales, ranks and spectra by component and depth, before the band of a cohort of trained models (S1, S2).
    """
    with work(out, overwrite) as keep:
        from seedbed.analysis.compare import analyze, sources
        from seedbed.analysis.provenance import provenance
        from seedbed.analysis.run import versions
        from seedbed.data.progress import spinner
        from seedbed.laws.cohort import read_cohort
        from seedbed.report.compare_page import compare_page
        from seedbed.report.compare_rows import compared_tables

        band = read_cohort(None if cohort is None else str(cohort))
        with spinner("weights of") as tell:
            found = sources(checkpoints)
            files = {one.name: one.files for one in found}
            models = {one.name: one.identity for one in found}
            result = analyze(found, keep({"analysis": "compare", "models": models, "versions": versions()}), tell)
        page = compare_page(result, band, provenance(command_line(), files))
        present(result, page, compared_tables(result.models), out, as_json)
