"""seedbed analyze dynamics: how the weights of runs move over their checkpoints."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import Out, command_line, present, work
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json


class Over(StrEnum):
    step = "step"
    tokens = "tokens"


def dynamics(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, at most 8.")],
    over: Annotated[Over, typer.Option(help="What the figures have along the axis.")] = Over.step,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """How the weights of runs move over their checkpoints.

    Rank, alignment of rows and scale of each component, side by side. Step 0 and what a run recorded by itself
    (train.weights_every) are among the points (S0).
    """
    with work(out, overwrite) as keep:
        from seedbed.analysis.dynamics import analyze
        from seedbed.analysis.provenance import provenance
        from seedbed.analysis.run import versions
        from seedbed.data.progress import spinner
        from seedbed.report.dynamics_page import dynamics_page

        # the names of parts say which weights they are of
        with spinner("dynamics") as tell:
            result = analyze(runs, keep({"analysis": "dynamics", "versions": versions()}), tell)
        files = {run.path: {"weights of its checkpoints": run.weights_sha256} for run in result.runs}
        tables = {"rows": result.rows, "turns": result.turns, "runs": result.runs, "references": result.references}
        page = dynamics_page(result, provenance(command_line(), files), over.value)
        present(result, page, tables, out, as_json)
