"""The newest checkpoint of a run that may train, and remove its checkpoints, while it is looked at."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from seedbed.errors import InputError
from seedbed.files.atomic import listed
from seedbed.files.safetensors import weight_files
from seedbed.files.steps import step_folders
from seedbed.train.setup import checkpoint_of

ReadT = TypeVar("ReadT")


def of_newest(path: str | Path, read: Callable[[Path], ReadT]) -> ReadT:
    """What ``read`` makes of the checkpoint's folder that ``path``, a run or a checkpoint, stands for; where the run
    removed it meanwhile, of the newest one then.

    Raises InputError where there is none, what ``read`` raises, and InputError where the second one has gone too.
    """
    path = Path(path)
    for _ in range(2):
        seen = [path, *step_folders(path)]
        try:
            return read(checkpoint_of(path))
        except (InputError, OSError):
            if all(folder.exists() for folder in seen):
                raise
    raise InputError(
        f"{path}: it removes checkpoints while it trains; name a checkpoint that stays, RUN/checkpoints/step_X, or "
        "raise train.keep_checkpoints"
    )


def weights_of(folder: Path) -> dict[Path, str]:
    """The files with the weights of our checkpoint in ``folder``, each with its SHA-256, by its list."""
    known = listed(folder)
    return {file: known[file.relative_to(folder).as_posix()][1] for file in weight_files(folder)}
