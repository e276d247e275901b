"""seedbed analyze attention: where the attention of each head goes."""

from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import Out, command_line, present, work
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json


def attention(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(metavar="CHECKPOINT...", help="Runs, their checkpoints, folders of Hugging Face checkpoints."),
    ],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", help="Texts to read: JSONL, text or Parquet files, folders of them, stores; may be repeated.",
            show_default="what a run holds out",
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            min=2, help="Tokens that a document is cut to. Scores compare at one length only.",
            show_default="512, or what all models can read",
        ),
    ] = None,
    texts: Annotated[
        int | None, typer.Option(min=1, help="Documents to read, in turns from the files.", show_default="all")
    ] = None,
    out: Out = None,
    as_json: Json = False,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Sink score and entropy of every head, on up to four checkpoints side by side (S0, eq. 5)."""
    from seedbed.analysis.attention import analyze, members
    from seedbed.analysis.run import versions
    from seedbed.report.attention_page import attention_page

    length, compared = members(checkpoints, data or [], length, texts)
    with work(out, overwrite, ["attention", versions()], "attention") as (parts, tell):
        result = analyze(length, compared, parts, tell)
    provenance = {"command": command_line(), "data": ", ".join(map(str, data or ["what each run holds out"]))}
    for row in result.models:
        provenance[f"{row.checkpoint}: configuration and parameters, SHA-256"] = row.sha256
        provenance[f"{row.checkpoint}: tokens read, SHA-256"] = row.tokens_sha256
    page = attention_page(result, {**provenance, **versions()})
    tables = {name: getattr(result, name) for name in ("models", "layers", "heads", "places", "differences")}
    present(result, page, tables, out, as_json, provenance=provenance)
