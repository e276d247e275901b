"""`seedbed tokenizer`: heavy imports wait inside the commands, so that help stays light."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.options import Field, OnBad, OnBadPolicy, Overwrite, report_counts, require_new
from seedbed.cli.output import Json, console, note, print_json, table
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.data.document import Document
    from seedbed.files.jsonl import ReadCounts

app = typer.Typer(help="Train, import and measure tokenizers.", no_args_is_help=True)

Inputs = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Files, folders, patterns or addresses: JSONL, Parquet, text.")
]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder to make.")]


@app.command()
def train(
    files: Inputs,
    vocab_size: Annotated[int, typer.Option(help="Tokens, with the 256 bytes, bos and eos.")],
    out: Out,
    special_token: Annotated[
        list[str] | None, typer.Option(help="A further control token, such as '<|im_start|>'; may be repeated.")
    ] = None,
    chat_template: Annotated[str | None, typer.Option(help="chatml, or a file with a Jinja template.")] = None,
    pad_to: Annotated[int, typer.Option(help="Models round the vocabulary up to a multiple of this.")] = 1,
    max_bytes: Annotated[
        int | None, typer.Option(help="Text to train on; of more, an even sample. Default: 50 million bytes.")
    ] = None,
    max_document_bytes: Annotated[
        int | None, typer.Option(help="Only the start of longer documents. Default: 1 million bytes.")
    ] = None,
    field: Field = "text",
    on_bad: OnBad = OnBadPolicy.strict,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train a byte-level BPE tokenizer on texts."""
    from seedbed.data.bpe import MAX_BYTES, MAX_DOCUMENT_BYTES, train_tokenizer
    from seedbed.files.jsonl import ReadCounts

    require_new(out, overwrite, map(Path, files))
    counts = ReadCounts()
    texts = _texts(_documents(files, field, on_bad, counts))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        tokenizer = train_tokenizer(
            texts,
            vocab_size,
            out,
            special_tokens=special_token or [],
            chat_template=None if chat_template is None else _template(chat_template),
            pad_to=pad_to,
            max_bytes=MAX_BYTES if max_bytes is None else max_bytes,
            max_document_bytes=MAX_DOCUMENT_BYTES if max_document_bytes is None else max_document_bytes,
        )
    for warning in caught:
        note(f"warning: {warning.message}")
    training = json.loads((out / "training.json").read_text(encoding="utf-8"))
    if as_json:
        result = {"tokenizer": str(out), "hash": tokenizer.hash, **training, "padded_vocab_size": tokenizer.padded_size}
        print_json({**result, "skipped": counts.skipped, "repaired": counts.repaired})
        return
    padded = f" (models round up to {tokenizer.padded_size:,})" if tokenizer.padded_size > tokenizer.vocab_size else ""
    print(
        f"{out}: {tokenizer.vocab_size:,} tokens{padded} from {training['documents']:,} documents, "
        f"{training['bytes']:,} bytes"
    )
    if training["documents_left_out"]:
        left_out = f"{training['documents_left_out']:,} documents, {training['bytes_left_out']:,} bytes"
        print(f"left out, above {training['max_bytes']:,} bytes in all: {left_out}")
    if training["documents_cut"]:
        cut = f"{training['documents_cut']:,} documents, by {training['bytes_cut']:,} bytes"
        print(f"cut at {training['max_document_bytes']:,} bytes: {cut}")
    report_counts(counts.skipped, counts.repaired)


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A folder, or a name on the Hugging Face hub.")],
    out: Out,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make a tokenizer folder of any tokenizer that Transformers reads."""
    from seedbed.data.foreign import import_tokenizer

    require_new(out, overwrite, [Path(name)])
    tokenizer = import_tokenizer(name, out)
    facts = {
        "vocab_size": tokenizer.vocab_size,
        "bos_token": tokenizer.bos_token,
        "eos_token": tokenizer.eos_token,
        "lossless": tokenizer.lossless,
        "chat_template": tokenizer.chat_template is not None,
    }
    if as_json:
        print_json({"tokenizer": str(out), "hash": tokenizer.hash, **facts})
    else:
        print(f"{out}: " + ", ".join(f"{key} {value}" for key, value in facts.items()))


@app.command()
def report(
    tokenizer: Annotated[Path, typer.Argument(metavar="TOKENIZER", help="Folder of a tokenizer.")],
    files: Inputs,
    field: Field = "text",
    on_bad: OnBad = OnBadPolicy.strict,
    as_json: Json = False,
) -> None:
    """Bytes and characters a token, by domain and language."""
    from seedbed.data.compression import compression, total
    from seedbed.data.tokenizer import load_tokenizer
    from seedbed.files.jsonl import ReadCounts

    counts = ReadCounts()
    loaded = load_tokenizer(tokenizer)
    rows = compression(loaded, _documents(files, field, on_bad, counts))
    found = [
        {**vars(row), "bytes_per_token": row.bytes_per_token, "chars_per_token": row.chars_per_token}
        for row in [*rows, total(rows)]
    ]
    if as_json:
        result = {"tokenizer": str(tokenizer), "hash": loaded.hash, "rows": found[:-1], "total": found[-1]}
        print_json({**result, "skipped": counts.skipped, "repaired": counts.repaired})
        return
    cells = [[f"{v:.3f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v for v in row.values()]
             for row in found]  # fmt: skip
    columns = [key.replace("_per_", "/").replace("_", " ") for key in found[0]]
    console().print(table(f"{tokenizer}: {loaded.vocab_size:,} tokens", columns, cells, left=2))
    report_counts(counts.skipped, counts.repaired)


def _documents(files: list[str], field: str, on_bad: OnBadPolicy, counts: "ReadCounts") -> Iterator["Document"]:
    """Documents of ``files``. Raises InputError when there is none."""
    from seedbed.data.inputs import list_inputs
    from seedbed.data.records import documents
    from seedbed.data.spec import spec_from

    tree = {"sources": files, "tokenizer": "none", "sections": [{"field": field}], "on_bad": on_bad.value}
    spec = spec_from(tree, "command line")
    found = False
    for file in list_inputs(spec.sources):
        for document in documents(file, spec, counts):
            found = True
            yield document
    if not found:
        why = ", ".join(f"{count} × {reason}" for reason, count in counts.skipped.items()) or "the input is empty"
        raise InputError(f"{files[0]}{' and others' if len(files) > 1 else ''}: no document left ({why})")


def _texts(documents: Iterator["Document"]) -> Iterator[str]:
    from seedbed.data.document import content

    return map(content, documents)


def _template(name: str) -> str:
    """The text of a chat template: the shipped one, or a file's."""
    from seedbed.data.template import CHATML

    if name == "chatml":
        return CHATML
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"--chat-template {name}: neither chatml nor a file of text: {error}") from None
