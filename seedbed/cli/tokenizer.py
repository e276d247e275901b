"""`seedbed tokenizer`: heavy imports wait inside the commands, so that help stays light."""

import json
import warnings
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.options import Field, Files, OnBad, OnBadPolicy, Overwrite, report_counts, require_new
from seedbed.cli.output import Json, note, print_json

app = typer.Typer(help="Train tokenizers.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Train tokenizers."""


@app.command()
def train(
    files: Files,
    vocab_size: Annotated[int, typer.Option(help="Tokens, with the 256 bytes, bos and eos.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder to make.")],
    field: Field = "text",
    on_bad: OnBad = OnBadPolicy.strict,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train a byte-level BPE tokenizer on the texts of JSONL files (plain, .gz, .zst)."""
    from seedbed.data.sources import read_documents
    from seedbed.data.tokenizer import train_tokenizer
    from seedbed.files.jsonl import ReadCounts

    require_new(out, overwrite, files)
    counts = ReadCounts()
    texts = (document.text for document in read_documents(files, field, on_bad.value, counts))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        tokenizer = train_tokenizer(texts, vocab_size, out)
    for warning in caught:
        note(f"warning: {warning.message}")
    training = json.loads((out / "training.json").read_text(encoding="utf-8"))
    if as_json:
        result = {"tokenizer": str(out), "hash": tokenizer.hash, **training}
        print_json({**result, "skipped": counts.skipped, "repaired": counts.repaired})
        return
    print(
        f"{out}: {tokenizer.vocab_size:,} tokens from {training['documents']:,} documents, {training['bytes']:,} bytes"
    )
    report_counts(counts.skipped, counts.repaired)
