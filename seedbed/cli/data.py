"""`seedbed data`: heavy imports wait inside the commands, so that help stays light."""

import signal
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.inspect import inspect
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json, note, print_json, visible
from seedbed.cli.store_text import show_header
from seedbed.errors import InputError, SignalStop

if TYPE_CHECKING:
    from seedbed.data.spec import Spec

app = typer.Typer(help="Prepare and inspect token stores.", no_args_is_help=True)
app.command()(inspect)


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE...]",
        help="Files, folders, patterns or addresses of text, in place of the specification's sources.",
        show_default=False,
    ),
]


@app.command()
def prepare(
    out: Annotated[Path, typer.Option("-o", "--out", help="Store to make.")],
    files: Sources = None,
    spec: Annotated[Path | None, typer.Option(help="Specification, YAML or JSON (see `seedbed data schema`).")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Folder made by `seedbed tokenizer train`.")] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens of a bin. Default: 256.")] = None,
    packing: Annotated[str | None, typer.Option(help="simple, bfd, bfd_split or none. Default: simple.")] = None,
    heldout: Annotated[
        float | None, typer.Option(help="Share of the documents that is held out. Default: 0.05.")
    ] = None,
    field: Annotated[str | None, typer.Option(help="Key of the text in each record. Default: text.")] = None,
    on_bad: Annotated[
        str | None, typer.Option(help="A bad record: strict stops, skip counts it and goes on. Default: strict.")
    ] = None,
    keep_rejects: Annotated[
        bool, typer.Option("--keep-rejects", help="Keep what is left out, with the reason, in STORE/rejects.jsonl.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other field, as storage.format=hdf5; may be repeated."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Shards worked on at a time. Default: one a core.")] = None,
    engine: Annotated[EngineName, typer.Option(help="Processes of this machine, or a Ray cluster.")] = EngineName.local,
    overwrite: Overwrite = False,
    keep_work: Annotated[bool, typer.Option("--keep-work", help="Keep the stages' files in STORE/work.")] = False,
    as_json: Json = False,
) -> None:
    """Turn text or conversations into a token store, by options or a specification.

    Interrupted or killed, the same command goes on with what is not done; where the store is whole, it does nothing.
    """
    from seedbed.data.prepare import prepare

    options = {
        "FILE": ("sources", files or None),
        "--tokenizer": ("tokenizer", tokenizer),
        "--seq-len": ("packing.seq_len", seq_len),
        "--packing": ("packing.strategy", packing),
        "--heldout": ("heldout", heldout),
        "--field": ("sections", None if field is None else [{"field": field}]),
        "--on-bad": ("on_bad", on_bad),
        "--keep-rejects": ("keep_rejects", keep_rejects or None),
    }
    asked = _specification(spec, options, settings or [])
    previous = signal.signal(signal.SIGTERM, _stop)
    try:
        header = prepare(asked, out, workers=workers, engine=engine.value, overwrite=overwrite, keep_work=keep_work)
    finally:
        signal.signal(signal.SIGTERM, previous)
    for warning in header["warnings"]:
        note(f"warning: {visible(warning)}")
    if as_json:
        print_json({"store": str(out), "header": header})
    else:
        print(f"{out}: a token store; look into it with `seedbed data inspect {out}`")
        show_header(header)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a specification."""
    from seedbed.data.spec import Spec

    print_json(Spec.model_json_schema())


def _stop(signum: int, _frame: FrameType | None) -> None:
    raise SignalStop(signum, "what was finished is kept, and the same command goes on from there")


def _specification(file: Path | None, options: dict[str, tuple[str, Any]], settings: list[str]) -> "Spec":
    """The specification of a file, with what the options (path, value; None: not given) and settings say instead."""
    from seedbed.config.load import parse_override, section_at
    from seedbed.data.spec import read_tree, spec_from

    tree = {} if file is None else read_tree(file)
    given = [(tuple(path.split(".")), value, name) for name, (path, value) in options.items() if value is not None]
    parsed = [parse_override(setting) for setting in settings]
    given += [(path, value, f"--set {'.'.join(path)}") for path, value in parsed]  # not the value: it may be a secret
    for path, value, name in given:
        section_at(tree, path, name)[path[-1]] = value
    where = str(file or "data prepare")
    for key, how in (("sources", "FILE..."), ("tokenizer", "--tokenizer DIR")):
        if key not in tree:
            raise InputError(f"{where}: no {key}; set it with {how}, or in a --spec file")
    return spec_from(tree, where, {path: name for path, _, name in given})
