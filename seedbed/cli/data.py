"""`seedbed data`: heavy imports wait inside the commands, so that help stays light."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.options import Field, Files, OnBad, OnBadPolicy, Overwrite, report_counts, require_new
from seedbed.cli.output import Json, print_json
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.data.store import Store

app = typer.Typer(help="Prepare and inspect token stores.", no_args_is_help=True)


@app.command()
def prepare(
    files: Files,
    tokenizer: Annotated[Path, typer.Option(help="Folder made by `seedbed tokenizer train`.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Store to make.")],
    seq_len: Annotated[int, typer.Option(help="Tokens a sequence.")] = 256,
    heldout: Annotated[float, typer.Option(help="Share of the documents that is held out.")] = 0.05,
    field: Field = "text",
    on_bad: OnBad = OnBadPolicy.strict,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Encode the texts of JSONL files into a token store with a held-out split."""
    from seedbed.data import store
    from seedbed.data.sources import read_documents
    from seedbed.data.tokenizer import load_tokenizer
    from seedbed.files.jsonl import ReadCounts

    require_new(out, overwrite, [*files, tokenizer])
    counts = ReadCounts()
    documents = read_documents(files, field, on_bad.value, counts)
    header = store.prepare(documents, load_tokenizer(tokenizer), out, seq_len, heldout, counts=counts)
    if as_json:
        print_json({"store": str(out), "header": header})
    else:
        print(f"{out}: a token store; look into it with `seedbed data inspect {out}`")
        _print_header(header)


@app.command()
def inspect(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder made by `seedbed data prepare`.")],
    bins: Annotated[int, typer.Option(min=0, help="Sequences to show.")] = 1,
    split: Annotated[str, typer.Option(help="train or heldout.")] = "train",
    as_json: Json = False,
) -> None:
    """Check a store against its hashes; print its counts and first sequences, document by document."""
    from seedbed.data.store import SPLITS, Store
    from seedbed.files.atomic import folder_damage

    if split not in SPLITS:
        raise InputError(f"--split {split}: a store has {' and '.join(SPLITS)}")
    opened = Store(store)
    if damage := folder_damage(store):
        raise InputError(f"{store}: {damage}; make the store again with `seedbed data prepare`")
    shown = _decode_bins(opened, split, bins)
    if as_json:
        print_json({"store": str(store), "header": opened.header, "split": split, "bins": shown})
        return
    print(f"{store}: every file is as it was written")
    _print_header(opened.header)
    for number, pieces in enumerate(shown):
        for piece in pieces:
            kind = "padding" if piece["padding"] else "document" if piece["starts"] else "document, continued"
            print(f"--- {split} bin {number}: {kind}, {piece['tokens']} tokens")
            print(piece["text"])


def _decode_bins(store: "Store", split: str, bins: int) -> list[list[dict[str, Any]]]:
    """For each of the first bins its pieces of documents, in order."""
    part, tokenizer = store.split("heldout" if split == "heldout" else "train"), store.tokenizer()
    count = min(bins, len(part))
    batch = part.windows(range(count))
    shown = []
    for row in range(count):
        ids, doc_ids = batch.ids[row].tolist(), batch.doc_ids[row].tolist()
        pieces = []
        for document in dict.fromkeys(doc_ids):
            start = doc_ids.index(document)
            tokens = ids[start : start + doc_ids.count(document)]
            padding = document < 0
            starts = tokens[0] == tokenizer.bos_id and not padding
            text = "" if padding else tokenizer.decode(tokens)
            pieces.append({"starts": starts, "padding": padding, "tokens": len(tokens), "text": text})
        shown.append(pieces)
    return shown


def _print_header(header: dict[str, Any]) -> None:
    print(
        f"{header['seq_len']} tokens a bin, packing {header['packing']}; vocabulary {header['vocab_size']:,} as "
        f"{header['dtype']}, tokenizer {header['tokenizer_hash'][:12]}"
    )
    for name, part in header["splits"].items():
        print(
            f"{name}: {part['documents']:,} documents ({part['documents_split']:,} go on in another bin), "
            f"{part['tokens']:,} tokens, {part['bytes']:,} bytes, {part['bins']:,} bins, {part['padding']} padding"
        )
    report_counts(header["skipped"], header["repaired"])
