"""seedbed analyze attention: where the attention of each head goes."""

from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import MODELS, Data, Out, command_line, documents_option, length_option, present, work
from seedbed.cli.options import Field, OnBad, OnBadPolicy, Overwrite
from seedbed.cli.output import Json


def attention(
    checkpoints: Annotated[list[Path], typer.Argument(metavar="CHECKPOINT", help=f"{MODELS}; at most 4.")],
    data: Data = None,
    documents: Annotated[int | None, documents_option("all")] = None,
    length: Annotated[int | None, length_option(512)] = None,
    field: Field = "text",
    on_bad: OnBad = OnBadPolicy.strict,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Where each head attends: sink scores and entropies.

    By layer and head, checkpoints side by side (S0, eq. 5). Scores compare at one --length only.
    """
    with work(out, overwrite) as keep:
        from seedbed.analysis.attention import analyze
        from seedbed.analysis.provenance import provenance
        from seedbed.analysis.run import versions
        from seedbed.data.progress import spinner
        from seedbed.report.attention_page import attention_page

        with spinner("attention") as tell:
            # the names of parts say which weights and tokens they are of
            parts = keep({"analysis": "attention", "versions": versions()})
            result = analyze(checkpoints, data or [], parts, tell, length, documents, field, on_bad.value)
        files = {row.checkpoint: {"weights, configuration and tokenizer": row.sha256} for row in result.models}
        read = {f"{row.checkpoint}: tokens read": row.tokens_sha256 for row in result.models}
        texts = ", ".join(map(str, data or ["what each run holds out"]))
        page = attention_page(result, provenance(command_line(), files, texts, read))
        tables = {name: getattr(result, name) for name in ("models", "layers", "heads", "places", "differences")}
        present(result, page, tables, out, as_json)
