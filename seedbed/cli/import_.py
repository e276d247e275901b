"""`seedbed import`: a checkpoint of Transformers becomes a run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.output import Json, console, note, print_json, table


def import_(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of a Hugging Face checkpoint, or a file of weights (GGUF).")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="RUN", help="Folder of the run to make.")],
    as_json: Json = False,
) -> None:
    """Make a run of GPT-2, Llama, Qwen3, OLMo 2, Mistral or an export of ours, once both models say the same."""
    from seedbed.hub.importing import import_checkpoint

    found = import_checkpoint(path, out, note)
    if as_json:
        print_json(asdict(found))
        return
    types = ", ".join(f"{count:,} {dtype}" for dtype, count in found.dtypes.items())
    cells = [[str(case), f"{case.difference:.2g}", f"{case.largest:.3g}"] for case in found.parity]
    console().print(
        table("logits against Transformers", ["case", "largest difference", "largest logit"], cells), end="\n\n"
    )
    print(f"{found.run}: {found.parameters:,} parameters of {found.family} from {found.source} ({types})")
    print(*(f"note: {line}" for line in found.notes), sep="\n", end="\n" if found.notes else "")
