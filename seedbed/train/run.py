"""The folder of a run: what it was started with, and whether it may go on."""

import json
import shutil
from pathlib import Path
from typing import Any

from seedbed.config import Config
from seedbed.config.load import from_tree, parse_file, to_yaml
from seedbed.config.tree import FORMAT_VERSION
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, write_atomic
from seedbed.files.safetensors import WEIGHTS

CONFIG, RECEIPT = "config.yaml", "receipt.json"
IMPORTED = "imported"
"""Key of the receipt of a run whose weights another library trained."""

# What may change between the parts of one run; everything else would make it another run.
# Where it runs and where its data lies may change too: the loader refuses a store with other content.
RESUMABLE = {
    "run.dir",
    "data.store",
    "data.prefetch",
    "train.device",
    "train.compile",
    "train.micro_batch_size",
    "train.steps",
    "train.guard.nonfinite",
    "train.guard.spike",
    "train.guard.window",
    "train.guard.threshold",
    "train.guard.max_skips",
    "train.guard.max_rollbacks",
    "train.log_every",
    "train.gradients_every",
    "train.weights_every",
    "train.eval_every",
    "train.eval_sequences",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.keep_best",
    "train.async_checkpoints",
    "train.tensorboard",
    "parallel.strategy",
    "parallel.recompute",
    "parallel.offload",
    "parallel.reduce_each_pass",
    "parallel.timeout_s",
}


def read_config(folder: str | Path) -> Config:
    """The configuration of a run or a checkpoint. Raises InputError where there is none, or of another version."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise InputError(f"{folder}: not a run or checkpoint ({CONFIG} is missing)")
    try:
        tree = parse_file(path)
    except InputError as error:
        raise InputError(f"{error}; the file is damaged: copy the folder again") from None
    version = tree.get("format_version") if isinstance(tree, dict) else None
    if version != FORMAT_VERSION:
        raise InputError(
            f"{path}: format_version {version}, this release reads {FORMAT_VERSION}; use the one that wrote it"
        )
    return from_tree(tree, str(path))


def write_config(folder: str | Path, config: Config) -> None:
    write_atomic(Path(folder) / CONFIG, to_yaml(config))


def folder_conflict(run_dir: Path, config: Config, fresh: bool) -> None:
    """Raise InputError where ``run_dir`` holds something that is no run, a checkpoint for example, or lies among those
    of a run; or, unless it is to start over (``fresh``), where it holds another run (with the difference).
    """
    run = run_around(run_dir)
    if run is not None or any((run_dir / name).exists() for name in (COMMIT, WEIGHTS, "state.json")):
        raise InputError(
            f"run.dir={run_dir}: is a checkpoint, or lies among those of a run; to start from its weights choose "
            f"another run.dir and set train.init_from={run_dir}; to go on from it set run.dir={run or 'RUN'}, the run "
            "that has it as RUN/checkpoints/step_N"
        )
    if not run_dir.exists():
        return
    if not run_dir.is_dir():
        raise InputError(f"run.dir={run_dir}: is a file; choose another folder")
    if not (run_dir / CONFIG).exists():
        others = [entry.name for entry in run_dir.iterdir() if not entry.name.startswith((".lock", ".partial-"))]
        if others:
            raise InputError(
                f"run.dir={run_dir}: not a run and not empty ({others[0]} is there); choose another folder"
            )
        return
    if fresh:
        return
    if is_imported(run_dir):
        raise InputError(
            f"run.dir={run_dir}: was imported, there is no training to go on with; to train it choose another run.dir "
            f"and set train.init_from={run_dir}"
        )
    before, after = flat(read_config(run_dir).dump()), flat(config.dump())
    changed = [key for key in before | after if before.get(key) != after.get(key) and key not in RESUMABLE]
    if changed:
        difference = ", ".join(f"{key} is {before.get(key)!r} there, {after.get(key)!r} here" for key in changed[:4])
        more = f" (and {len(changed) - 4} more)" if len(changed) > 4 else ""
        raise InputError(
            f"run.dir={run_dir}: holds another run: {difference}{more}; choose another run.dir, or start over with "
            "--fresh"
        )


def is_imported(run_dir: Path) -> bool:
    """Whether the run in ``run_dir`` was never trained here: its receipt says where its weights came from."""
    try:
        return IMPORTED in json.loads((run_dir / RECEIPT).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):  # a run that was interrupted before it had a receipt
        return False


def run_around(path: Path) -> Path | None:
    """The run among whose checkpoints ``path`` lies, if it does."""
    place = path.resolve()
    runs = (folder.parent for folder in (place, *place.parents) if folder.name == "checkpoints")
    return next((run for run in runs if (run / CONFIG).is_file() and (run / RECEIPT).is_file()), None)


def clear(run_dir: Path) -> None:
    """Remove the run in ``run_dir``, which this process holds and which folder_conflict found to be one."""
    for entry in run_dir.iterdir():
        if entry.name != ".lock":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration's values by their dotted paths."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
