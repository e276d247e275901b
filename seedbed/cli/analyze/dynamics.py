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
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, eight at most.")],
    over: Annotated[Over, typer.Option(help="What the figures have along the axis.")] = Over.step,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Rank, alignment of rows and scale of each component over the checkpoints of runs, side by side.

    Step 0 and what a run recorded by itself (train.weights_every) are among the points.
    """
    from seedbed.analysis.dynamics import analyze
    from seedbed.analysis.run import versions
    from seedbed.report.dynamics_page import dynamics_page

    with work(out, overwrite, {"analysis": "dynamics", **versions()}, "dynamics") as (parts, tell):
        result = analyze(runs, parts, tell)
        page = dynamics_page(result, command_line(), over.value)
    tables = {"rows": result.rows, "turns": result.turns, "runs": result.runs, "references": result.references}
    present(result, page, tables, out, as_json)
