"""seedbed generate MODEL PROMPT…, or a file of prompts to a file of answers"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.analyze.present import MODEL, interruptible
from seedbed.cli.generation_options import (
    MinP,
    Penalty,
    Seed,
    Stop,
    Temperature,
    Template,
    Tokens,
    TopK,
    TopP,
)
from seedbed.cli.options import Device, DeviceName, Overwrite, device_of, require_new
from seedbed.cli.output import Json, note, print_json, visible
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.files.parts import Parts


class Long(StrEnum):
    drop = "drop"
    cut = "cut"


def generate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL[0].upper() + MODEL[1:])],
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROMPT]...", help="Texts to continue; none starts a document.", show_default=False),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", help="JSONL with prompt or messages; other keys are kept.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="JSONL of the answers, in order.", show_default=False)
    ] = None,
    max_new_tokens: Tokens = 100,
    temperature: Temperature = 0.8,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Penalty = 1.0,
    stop: Stop = None,
    seed: Seed = 0,
    samples: Annotated[int, typer.Option("--n", min=1, help="Answers to each prompt.")] = 1,
    batch_size: Annotated[int, typer.Option("--batch", min=1, help="Prompts that are continued together.")] = 8,
    too_long: Annotated[
        Long,
        typer.Option(help="A prompt that the model cannot read: leave it out, or cut its beginning; both are counted."),
    ] = Long.drop,
    chat_template: Template = "tokenizer",
    device: Device = DeviceName.auto,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Continue texts, or answer conversations, with a model.

    With -o, what is finished is kept in OUT.parts: the same command goes on after an interruption.
    """
    from seedbed.serve.options import Options

    options = Options(max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, tuple(stop or ()))
    if source is not None and prompts:
        raise InputError(f"--input {source}: give a file or prompts, not both")
    with _kept(out, overwrite, [] if source is None else [source]) as keep:
        from seedbed.hub.identity import identity
        from seedbed.hub.models import open_model
        from seedbed.serve.requests import answer, counts, key, read_rows, requests

        rows = [{"prompt": text} for text in prompts or [""]] if source is None else read_rows(source)
        opened = open_model(model, device_of(device))
        asked = requests(opened, rows, options, chat_template, too_long.value)
        others = {"seed": seed, "samples": samples, "template": chat_template, "too_long": too_long.value}
        parts = keep(key("" if out is None else identity(opened), rows, options, **others))
        if source is None and not all(request.ids for request in asked):
            raise InputError(
                f"prompt: {max(r.tokens for r in asked)} tokens with the start token, the model reads at most "
                f"{opened.max_length - 1}; shorten it, or pass --too-long cut"
            )
        written = answer(opened, asked, options, seed, samples, batch_size, parts, note)
        if out is not None:
            from seedbed.files.atomic import write_atomic

            write_atomic(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in written))
    found = counts(asked, written)
    if as_json:
        print_json({**asdict(found), "out": None if out is None else str(out), "written": written})
    elif out is not None:
        print(found)
    else:
        _show(written)
        if source is not None:
            note(str(found))


def _show(rows: list[dict[str, Any]]) -> None:
    """Each prompt with its answer; several are told apart by a line with their number."""
    safe = visible if sys.stdout.isatty() else str
    for number, row in enumerate(rows, start=1):
        if len(rows) > 1:
            print(f"--- {number}, seed {row['seed']}, {row['finish_reason']}")
        print(safe(row.get("prompt", "") + (row["text"] or "")))


@contextmanager
def _kept(out: Path | None, overwrite: bool, inputs: list[Path]) -> Iterator[Any]:
    """Hold the folder of what is finished; yields what opens it for a key. It goes when the answers are written.

    Raises InputError where ``out`` exists or answers of other options are kept; SignalStop for Ctrl-C.
    """
    from seedbed.files.lock import folder_lock
    from seedbed.files.parts import FILE, Parts

    if out is None:
        with interruptible(lambda: "nothing is kept without -o FILE"):
            yield lambda key: Parts(None, key)
        return
    folder = out.with_name(f"{out.name}.parts")

    def keep(key: Any) -> "Parts":
        parts = Parts(folder, key)
        if len(parts):
            note(f"{folder}: goes on; {len(parts):,} answers are there")
        elif (folder / FILE).exists() and not overwrite:
            raise InputError(
                f"{folder}: keeps answers of another model, input or options; finish that, remove it, or pass "
                "--overwrite"
            )
        return parts

    def kept() -> str:
        if not (folder / FILE).exists():
            return "nothing was finished yet"
        return f"what was finished is kept in {folder}, and the same command goes on from there"

    require_new(out, overwrite, inputs)
    with interruptible(kept), folder_lock(folder):
        require_new(out, overwrite, inputs)  # another process may have come to its end meanwhile
        yield keep
        for name in (FILE, ".lock"):
            (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # gone already, or somebody put a file there
        folder.rmdir()
