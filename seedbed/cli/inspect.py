"""`seedbed data inspect`: what a store holds, counted, and bin by bin."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.bin_text import show_bin, show_legend, show_record
from seedbed.cli.output import Json, print_json, visible
from seedbed.cli.store_text import show_survey
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.data.document import SplitName
    from seedbed.data.store import Store


def inspect(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder made by `seedbed data prepare`.")],
    bins: Annotated[int, typer.Option(min=0, help="Bins to show; of a store of several outputs, records.")] = 1,
    first: Annotated[int, typer.Option("--first", "--record", min=0, help="Number of the first of them.")] = 0,
    split: Annotated[str, typer.Option(help="train or heldout.")] = "train",
    output: Annotated[
        str | None, typer.Option(help="Of a store of several outputs: this one. Default: all of them.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a store against its hashes; show what it holds in numbers, and some bins, document by document."""
    from seedbed.data.look import look_at_bin, look_at_record
    from seedbed.data.store import SPLITS, Store
    from seedbed.data.survey import survey

    if split not in SPLITS:
        raise InputError(f"--split {split}: a store has {' and '.join(SPLITS)}")
    side: SplitName = "heldout" if split == "heldout" else "train"
    opened = Store(store)
    header, outputs = opened.header, _outputs(opened, output)
    count = header["records"][side] if outputs else len(opened.split(side))
    what = "records" if outputs else "bins"
    if first and first >= count:
        raise InputError(f"--first {first}: {split} has {count:,} {what}, numbered from 0")
    _verify(store)
    numbers = range(first, min(first + bins, count))
    records = [look_at_record(opened, side, number, outputs) for number in numbers] if outputs else []
    tokenizer = opened.tokenizer()
    found = [look_at_bin(opened.split(side), i, tokenizer, header["groups"]) for i in numbers] if not outputs else []
    surveys = {name: survey(store, name, header) for name in header["streams"]}
    if as_json:
        told = {"store": str(store), "header": header, "survey": surveys, "split": split}
        print_json(told | {what: [asdict(one) for one in [*records, *found]]})
        return
    print(f"{visible(str(store))}: every file is as it was written")
    show_survey(header, surveys, split)
    if numbers:
        show_legend()
    for record in records:
        show_record(split, record)
    for one in found:
        show_bin(split, one)


def _outputs(store: "Store", asked: str | None) -> list[str]:
    """The outputs to show; none for a store whose records are one sequence. Raises InputError for an unknown one."""
    known = list(store.header["spec"]["outputs"] or {})
    if asked is None:
        return known
    if asked not in known:
        told = f"its outputs are {', '.join(known)}" if known else "its records have one output, without a name"
        raise InputError(f"--output {asked}: {told}")
    return [asked]


def _verify(store: Path) -> None:
    """Compare every file with its hash. Raises InputError for the first that differs."""
    from seedbed.data.progress import spinner
    from seedbed.files.atomic import folder_damage

    files = 0
    with spinner("comparing hashes:") as show:

        def hashed(_: str) -> bool:
            nonlocal files
            files += 1
            show(f"{files:,} files")
            return True

        damage = folder_damage(store, hashed)
    if damage:
        raise InputError(f"{store}: {damage}; make the store again with `seedbed data prepare`")
