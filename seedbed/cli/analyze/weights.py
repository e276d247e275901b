"""seedbed analyze weights: every measure of every matrix of a checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import MODEL, Out, command_line, present, work
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json


def weights(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help=f"{MODEL[0].upper()}{MODEL[1:]}.")],
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Scale, rank and row cosines of every matrix.

    By component and depth, beside Gaussian matrices of the same shapes, with spectra and densities (S0, S1, S2).
    """
    with work(out, overwrite) as keep:
        from seedbed.analysis.provenance import provenance
        from seedbed.analysis.run import versions
        from seedbed.analysis.weights import analyze
        from seedbed.data.progress import spinner
        from seedbed.hub.checkpoints import fingerprint, open_checkpoint
        from seedbed.hub.identity import identity
        from seedbed.report.weights_page import weights_page

        with spinner(f"weights of {checkpoint}") as tell:
            opened = open_checkpoint(checkpoint)
            files = fingerprint(opened)
            key = {"analysis": "weights", "model": identity(opened), "versions": versions()}
            result = analyze(opened, keep(key), tell)
        tables = {
            "matrices": result.matrices,
            "components": result.components,
            "profiles": result.profiles,
            "spectra": result.singular_values,
        }
        page = weights_page(result, provenance(command_line(), {str(checkpoint): files}))
        present(result, page, tables, out, as_json)
