"""seedbed analyze ifd: what an instruction does for its response, and what training changed about it."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import Data, Out, command_line, present, work
from seedbed.cli.options import OnBad, OnBadPolicy, Overwrite
from seedbed.cli.output import Json
from seedbed.errors import InputError


def ifd(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="[BASE] CHECKPOINT", help="One model, or the one before training and the one after."),
    ],
    data: Data,
    prompt_field: Annotated[
        str | None, typer.Option(help="Key of the instruction: a text, or messages.", show_default="looked for")
    ] = None,
    response_field: Annotated[
        str | None, typer.Option(help="Key of the response: a text, or a message.", show_default="looked for")
    ] = None,
    chat_template: Annotated[
        str | None,
        typer.Option(help="tokenizer, chatml, a file, or none: plain text.", show_default="the tokenizer's, or none"),
    ] = None,
    records: Annotated[int | None, typer.Option(min=1, help="Read so many.", show_default="all")] = None,
    on_bad: OnBad = OnBadPolicy.strict,
    out: Out = None,
    as_json: Json = False,
    overwrite: Overwrite = False,
) -> None:
    """Conditional and unconditional loss of responses, their ratio IFD, and what training changed (S1, appendix A).

    Records have messages (role, content), or prompt and response, or instruction, input and output.
    """
    if len(models) > 2:
        raise InputError(f"{models[2]}: give one model, or two: BASE CHECKPOINT")
    from seedbed.analysis.checkpoints import fingerprint
    from seedbed.analysis.exchanges import Fields, read_exchanges
    from seedbed.analysis.ifd import analyze
    from seedbed.analysis.models import open_model
    from seedbed.analysis.run import versions
    from seedbed.files.atomic import sha256
    from seedbed.report.ifd_page import ifd_page

    *bases, checkpoint = opened = [open_model(path) for path in models]
    weights = {str(path): fingerprint(model) for path, model in zip(models, opened, strict=True)}
    length = min(model.max_length for model in opened)
    fields = Fields(prompt_field, response_field)
    exchanges = read_exchanges(data, checkpoint.tokenizer, length, fields, chat_template, records, on_bad.value)
    texts = {file: sha256(file) for file in exchanges.files if Path(file).is_file()}
    ids = hashlib.sha256(repr([(one.prompt_ids, one.response_ids) for one in exchanges.found]).encode()).hexdigest()
    key = ["ifd", weights, [str(model.module.config) for model in opened], ids, versions()]
    with work(out, overwrite, key, f"ifd of {len(exchanges.found):,} records") as (parts, tell):
        result = analyze(checkpoint, bases[0] if bases else None, exchanges, parts, tell)
        read = {f"{path}: {file}": found for path, files in weights.items() for file, found in files.items()}
        read |= texts
        page = ifd_page(result, {"command": command_line(), **read, **versions()})
        tables = {"records": result.rows, "summaries": result.summaries, "correlations": result.correlations}
        present(result, page, tables, out, as_json, command=command_line())
