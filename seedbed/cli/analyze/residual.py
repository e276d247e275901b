"""seedbed analyze residual: the residual stream through the layers, during and after training."""

from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import MODELS, Data, Out, command_line, documents_option, length_option, present, work
from seedbed.cli.options import Field, OnBad, OnBadPolicy, Overwrite
from seedbed.cli.output import Json

LENGTH = 1024


def residual(
    checkpoints: Annotated[list[Path], typer.Argument(metavar="CHECKPOINT", help=f"{MODELS}; at most 8.")],
    data: Data = None,
    documents: Annotated[int | None, documents_option("64")] = 64,
    length: Annotated[int | None, length_option(LENGTH)] = None,
    field: Field = "text",
    on_bad: OnBad = OnBadPolicy.strict,
    every_checkpoint: Annotated[
        bool,
        typer.Option("--every-checkpoint", help="Of a run all checkpoints, and its weights before the first step."),
    ] = False,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """The residual stream through the layers.

    Its norm and variance by layer, what branches add to it, what epsilons mask, during and after training (S0).
    """
    with work(out, overwrite) as keep:
        from seedbed.analysis.provenance import provenance
        from seedbed.analysis.residual import analyze
        from seedbed.analysis.run import versions
        from seedbed.data.progress import spinner
        from seedbed.hub.models import common_length
        from seedbed.report.residual_page import residual_page

        length = common_length(checkpoints, length, LENGTH)
        # the names of parts say which weights and tokens they are of
        parts = keep({"analysis": "residual", "versions": versions()})
        with spinner("residual stream") as tell:
            options = every_checkpoint, documents, length, field, on_bad.value
            result = analyze(checkpoints, data or [], parts, tell, *options)
        files = {f"{one.model}, {one.source}": {"weights": one.weights_sha256} for one in result.members}
        tables = {"models": result.members, "stream": result.stream, "norms": result.norms}
        page = residual_page(result, provenance(command_line(), files, result.data))
        present(result, page, tables, out, as_json)
