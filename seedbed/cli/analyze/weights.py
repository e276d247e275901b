"""seedbed analyze weights: every measure of every matrix of a checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import Out, command_line, present, work
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json


def weights(
    checkpoint: Annotated[Path, typer.Argument(help="A run, one of its checkpoints, or a Hugging Face checkpoint.")],
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Spectra, ranks, scales and row cosines of every matrix, by component and depth, beside Gaussian matrices."""
    from seedbed.analysis.checkpoints import fingerprint, open_checkpoint
    from seedbed.analysis.run import versions
    from seedbed.analysis.weights import analyze
    from seedbed.report.weights_page import weights_page

    opened = open_checkpoint(checkpoint)
    key = {"analysis": "weights", "files": fingerprint(opened), "versions": versions()}
    with work(out, overwrite, key, f"{checkpoint}") as (parts, tell):
        result = analyze(opened, parts, tell)
    page = weights_page(result, {"command": command_line(), **versions()})
    tables = {
        "matrices": result.matrices,
        "components": result.components,
        "profiles": result.profiles,
        "spectra": result.singular_values,
    }
    present(result, page, tables, out, as_json)
