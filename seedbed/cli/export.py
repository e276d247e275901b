"""`seedbed export`: a run becomes a checkpoint of Transformers."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.output import Json, console, note, print_json, table


class Dtype(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run (its newest whole checkpoint), or a checkpoint.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to make.")],
    dtype: Annotated[
        Dtype | None, typer.Option(help="Type of the weights that are written. Default: that of the checkpoint.")
    ] = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Ship the class even where Transformers has one that does the same.")
    ] = False,
    shard_size: Annotated[str, typer.Option(help="Largest file of weights, such as 500MB or 5GB.")] = "5GB",
    as_json: Json = False,
) -> None:
    """Write a checkpoint that Transformers loads, once what is written says what the run says."""
    from seedbed.hub.exporting import export

    found = export(run, out, note, dtype=dtype, shipped=shipped, shard_size=shard_size)
    if as_json:
        print_json(asdict(found))
        return
    cells = [[str(case), f"{case.difference:.2g}", f"{case.largest:.3g}"] for case in found.parity]
    console().print(table("logits against the run", ["case", "largest difference", "largest logit"], cells), end="\n\n")
    files = "1 file" if len(found.files) == 1 else f"{len(found.files)} files"
    print(f"{found.folder}: {found.architecture}, {found.parameters:,} parameters in {found.dtype}, {files}")
    ends = ", ".join(map(str, found.end_ids))
    print(f"generation ends at token {ends}; {found.suppressed} outputs that stand for no token are never taken")
    if found.shipped:
        print("its class comes with it: load it with trust_remote_code=True")
