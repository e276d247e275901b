"""Options that several commands share."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from seedbed.errors import InputError


class OnBadPolicy(StrEnum):
    strict = "strict"
    skip = "skip"


class DeviceName(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


Device = Annotated[DeviceName, typer.Option("--device", help="Where models run; auto takes a GPU where there is one.")]
Field = Annotated[str, typer.Option(help="Key of the text in each line's object.")]
OnBad = Annotated[OnBadPolicy, typer.Option(help="A line without a usable text: stop, or count it and go on.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def require_new(out: Path, overwrite: bool, inputs: Iterable[Path]) -> None:
    """Raise InputError when ``out`` exists and may not be replaced, or when one of ``inputs`` is it or lies in it."""
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; choose another name or pass --overwrite")
    if out.exists():
        place = out.resolve()
        for path in inputs:
            if path.resolve().is_relative_to(place):
                raise InputError(f"{out}: holds the input {path}, which would be lost; choose another name")


def report_counts(skipped: Mapping[str, int], repaired: Mapping[str, int]) -> None:
    """Print what reading left out and what it mended."""
    for title, counts in (("skipped", skipped), ("repaired", repaired)):
        if counts:
            print(f"{title}: " + ", ".join(f"{count:,} × {reason}" for reason, count in counts.items()))


def device_of(name: DeviceName) -> str:
    """Where a model is put. Raises InputError where CUDA is asked for and cannot be used."""
    from seedbed.parallel.world import pick_device

    return str(pick_device(name.value, "--device "))
