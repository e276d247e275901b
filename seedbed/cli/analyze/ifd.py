"""seedbed analyze ifd: what an instruction does for its response, and what training changed about it."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import MODELS, Out, command_line, present, work
from seedbed.cli.options import OnBad, OnBadPolicy, Overwrite
from seedbed.cli.output import Json
from seedbed.errors import InputError


def ifd(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="[BASE] CHECKPOINT", help=f"{MODELS}: one model, or the one before training and the one after."
        ),
    ],
    data: Annotated[
        list[Path],
        typer.Option("--data", help="Records to read: JSONL or Parquet files, folders of them; may be repeated."),
    ],
    records: Annotated[
        int | None, typer.Option(min=1, help="Records to read, in turns from the files.", show_default="all")
    ] = None,
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
    on_bad: OnBad = OnBadPolicy.strict,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """How much an instruction helps to predict its response.

    Conditional and unconditional loss of responses, their ratio IFD, and what training changed (S1, appendix A).
    Records have messages (role, content), or prompt and response, or instruction, input and output.
    """
    if len(models) > 2:
        raise InputError(f"{models[2]}: give one model, or two: BASE CHECKPOINT")
    with work(out, overwrite) as keep:
        from seedbed.analysis.exchanges import Fields, read_exchanges
        from seedbed.analysis.ifd import analyze
        from seedbed.analysis.provenance import provenance
        from seedbed.analysis.run import versions
        from seedbed.data.progress import spinner
        from seedbed.files.atomic import sha256
        from seedbed.hub.checkpoints import fingerprint
        from seedbed.hub.identity import identity
        from seedbed.hub.models import open_model
        from seedbed.report.ifd_page import ifd_page

        with spinner("ifd") as tell:
            *bases, checkpoint = opened = [open_model(path) for path in models]
            identities = [identity(model) for model in opened]
            if len(identities) > len(set(identities)):
                raise InputError(f"{models[0]} and {models[1]}: are the same weights; give two models")
            files = {str(path): fingerprint(model) for path, model in zip(models, opened, strict=True)}
            length = min(model.max_length for model in opened)
            fields = Fields(prompt_field, response_field)
            exchanges = read_exchanges(data, checkpoint.tokenizer, length, fields, chat_template, records, on_bad.value)
            texts = {file: sha256(file) for file in exchanges.files if Path(file).is_file()}
            ids = repr([(one.prompt_ids, one.response_ids) for one in exchanges.found]).encode()
            read = hashlib.sha256(ids).hexdigest()
            key = {"analysis": "ifd", "models": identities, "ids": read, "versions": versions()}
            result = analyze(checkpoint, bases[0] if bases else None, exchanges, keep(key), tell)
        told = provenance(command_line(), files, ", ".join(map(str, data)), texts)
        tables = {"records": result.rows, "summaries": result.summaries, "correlations": result.correlations}
        present(result, ifd_page(result, told), tables, out, as_json)
