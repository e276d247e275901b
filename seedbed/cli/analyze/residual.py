"""seedbed analyze residual: the residual stream through the layers, during and after training."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import Out, command_line, present, work
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json


def residual(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(metavar="CHECKPOINT...", help="Runs, their checkpoints, Hugging Face folders; at most 8."),
    ],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Texts to read: files, folders of them, stores; may be repeated.",
            show_default="what the first run holds out",
        ),
    ] = None,
    every_checkpoint: Annotated[
        bool,
        typer.Option("--every-checkpoint", help="Of a run all checkpoints, and its weights before the first step."),
    ] = False,
    documents: Annotated[int, typer.Option(min=1, help="Texts to read.")] = 64,
    length: Annotated[int, typer.Option(min=2, help="Tokens of a document, at most.")] = 1024,
    out: Out = None,
    as_json: Json = False,
    overwrite: Overwrite = False,
) -> None:
    """Norm and variance of the residual stream by layer, what branches add to it, what epsilons mask (S0)."""
    from seedbed.analysis.residual import analyze
    from seedbed.report.residual_page import residual_page

    # the names of parts say which weights and tokens they are of
    with work(out, overwrite, ["residual", version("seedbed")], "residual stream") as (parts, tell):
        result = analyze(checkpoints, data or [], parts, tell, every_checkpoint, documents, length)
        provenance = {"command": command_line(), "seedbed": version("seedbed")}
        tables = {"models": result.members, "stream": result.stream, "norms": result.norms}
        present(result, residual_page(result, provenance), tables, out, as_json)
