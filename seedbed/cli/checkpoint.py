"""`seedbed checkpoint`: look after the checkpoints of a run, make new folders from them."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from seedbed.cli.output import Json, console, print_json, table
from seedbed.errors import InputError

app = typer.Typer(help="Verify, list, prune, average and merge checkpoints.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Out = Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to make.")]


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run, all its checkpoints, or one checkpoint.")],
    as_json: Json = False,
) -> None:
    """Compare every file with its hash; exit code 2 where one is damaged or missing."""
    from seedbed.files.atomic import damages

    found = {str(folder): list(damages(folder)) for folder in _folders(path)}
    if as_json:
        print_json([{"checkpoint": name, "damage": damage} for name, damage in found.items()])
    else:
        for name, damage in found.items():
            print(*(f"{name}: {line}" for line in damage or ["whole"]), sep="\n")
    bad = sum(map(bool, found.values()))
    if bad:
        raise InputError(f"{path}: {bad} of {len(found)} checkpoints are damaged; resuming passes over them")


@app.command("list")
def list_(run: Run, as_json: Json = False) -> None:
    """What checkpoints a run has, newest first. "complete" looks at names and sizes; `verify` compares hashes too."""
    rows = [_row(folder) for folder in _folders(run)]
    if as_json:
        print_json(rows)
        return
    forms = {"step": ",", "tokens": ",", "nats_per_token": ".4f", "megabytes": ",.1f", "shards": ""}
    cells = [
        [
            row["checkpoint"],
            *("" if row[key] is None else f"{row[key]:{form}}" for key, form in forms.items()),
            row["damage"] or ("weights only" if row["shards"] is None else "yes"),
        ]
        for row in rows
    ]
    console().print(
        table(str(run), ["checkpoint", "step", "tokens", "held-out nats", "MB", "shards", "complete"], cells)
    )


@app.command()
def prune(
    run: Run,
    keep: Annotated[int, typer.Option(min=1, help="Newest checkpoints to keep, from the newest whole one back.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Remove older checkpoints; under the run's train.keep_best the one with the lowest held-out loss stays."""
    from seedbed.files.lock import folder_lock
    from seedbed.train.checkpoint import newest_checkpoint
    from seedbed.train.retention import prune, surplus
    from seedbed.train.run import read_config

    keep_best = read_config(run).train.keep_best
    with folder_lock(run):
        newest, notes = newest_checkpoint(run)
        if newest is None:
            raise InputError("; ".join(notes) or f"{run}: has no checkpoint yet")
        removed = (surplus if dry_run else prune)(run, keep, newest, keep_best)
    names = [str(path) for path in removed]
    if as_json:
        print_json({"removed": [] if dry_run else names, "would_remove": names if dry_run else []})
    else:
        print(*(f"{'would remove' if dry_run else 'removed'} {name}" for name in names), sep="\n")


@app.command()
def average(
    paths: Annotated[list[Path], typer.Argument(metavar="CHECKPOINT...", help="Two or more checkpoints, or runs.")],
    out: Out,
    as_json: Json = False,
) -> None:
    """The mean of the weights of several checkpoints of one model, for train.init_from and evaluation."""
    from seedbed.train.setup import checkpoint_of
    from seedbed.train.whole import average

    found = [checkpoint_of(path) for path in paths]
    average(found, out)
    _tell(out, found, as_json)


@app.command()
def merge(
    path: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint, or a run: its newest whole one.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Folder to make; without it, in its own place.")
    ] = None,
    as_json: Json = False,
) -> None:
    """A checkpoint with its shards put together: one file of weights, one of the optimizer's state."""
    from seedbed.files.lock import folder_lock
    from seedbed.train.run import run_around
    from seedbed.train.setup import checkpoint_of
    from seedbed.train.whole import merge

    found = checkpoint_of(path)
    run = run_around(out or found)  # nobody may train it meanwhile
    with folder_lock(run) if run else nullcontext():
        merge(found, out or found)
    _tell(out or found, [found], as_json)


def _tell(out: Path, sources: list[Path], as_json: bool) -> None:
    names = [str(path) for path in sources]
    print_json({"checkpoint": str(out), "from": names}) if as_json else print(f"{out}: from {', '.join(names)}")


def _folders(path: Path) -> list[Path]:
    """The checkpoints that ``path``, a run or one of them, stands for, whole or not, newest first."""
    from seedbed.files.steps import step_folders
    from seedbed.train.run import read_config

    if step_folders(path):
        return step_folders(path)
    if any((path / name).exists() for name in ("commit.json", "state.json", "model.safetensors")):
        return [path]
    read_config(path)  # says so where it is no run at all
    raise InputError(f"{path}: has no checkpoint yet; train it first")


def _row(folder: Path) -> dict[str, Any]:
    from seedbed.files.atomic import folder_damage
    from seedbed.train.checkpoint import read_state

    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    damage, state = folder_damage(folder, lambda _: False), {}
    if (folder / "state.json").is_file():  # a mean of weights has none
        try:
            state = read_state(folder)
        except (OSError, ValueError, InputError) as error:
            damage = damage or str(error)
    numbers = {key: state.get(key) for key in ("step", "tokens", "nats_per_token")}
    shards = {"shards": state.get("shards", 1) if state else None}
    return {"checkpoint": folder.name, **numbers, "megabytes": size / 1e6, **shards, "damage": damage}
