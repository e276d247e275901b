"""`seedbed data inspect`: what a store holds, in numbers and bin by bin."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.options import report_counts
from seedbed.cli.output import Json, console, print_json, table
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.data.store import Store


def inspect(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder made by `seedbed data prepare`.")],
    bins: Annotated[int, typer.Option(min=0, help="Bins to show.")] = 1,
    split: Annotated[str, typer.Option(help="train or heldout.")] = "train",
    as_json: Json = False,
) -> None:
    """Check a store against its hashes; print its counts and first bins, document by document."""
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
    print_header(opened.header)
    for number, pieces in enumerate(shown):
        for piece in pieces:
            kind = "padding" if piece["padding"] else "document" if piece["starts"] else "document, continued"
            print(f"--- {split} bin {number}: {kind}, {piece['tokens']} tokens")
            print(piece["text"])


def _decode_bins(store: "Store", split: str, bins: int) -> list[list[dict[str, Any]]]:
    """For each of the first bins its pieces of documents, in order."""
    part, tokenizer = store.split("heldout" if split == "heldout" else "train"), store.tokenizer()
    shown = []
    for index in range(min(bins, len(part))):
        segments, real = part.segments(index)
        ids, _ = part.tokens(index)
        ends = [*segments["offset"][1:].tolist(), real]
        pieces = [
            {
                "starts": int(segment["position"]) == 0,
                "padding": False,
                "tokens": end - int(segment["offset"]),
                "text": tokenizer.decode(ids[int(segment["offset"]) : end].tolist()),
            }
            for segment, end in zip(segments, ends, strict=True)
        ]
        if real < part.seq_len:
            pieces.append({"starts": False, "padding": True, "tokens": part.seq_len - real, "text": ""})
        shown.append(pieces)
    return shown


def print_header(header: dict[str, Any]) -> None:
    """The counts of a store, for people."""
    print(
        f"{header['seq_len']} tokens a bin, packing {header['packing']}, position ids {header['position_ids']}; stored "
        f"as {header['storage']}, {header['dtype']}; vocabulary {header['vocab_size']:,}, tokenizer "
        f"{header['tokenizer_hash'][:12]}"
    )
    columns = ["stream", "documents", "bytes", "tokens", "predicted", "bins", "fill", "cut tokens"]
    rows = [
        [
            name,
            *(f"{stream[key]:,}" for key in ("documents", "bytes", "tokens", "predicted", "bins")),
            f"{stream['tokens'] / max(stream['tokens'] + stream['padding'], 1):.2%}",
            f"{stream['cut_tokens']:,}",
        ]
        for name, stream in header["streams"].items()
    ]
    console().print(table("", columns, rows))
    report_counts(header["skipped"], header["repaired"])
