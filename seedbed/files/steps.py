"""The folders of a run's checkpoints, by their names alone."""

import re
from pathlib import Path


def step_folders(run_dir: str | Path) -> list[Path]:
    """``RUN/checkpoints/step_XXXXXXXX``, newest first, whole or not."""
    folders = (path for path in (Path(run_dir) / "checkpoints").glob("step_*") if path.is_dir())
    found = [path for path in folders if re.fullmatch(r"step_\d{8,}", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")), reverse=True)


def standing(run_dir: str | Path) -> str:
    """What a stopped run can count on, for its last message."""
    newest = next(iter(step_folders(run_dir)), None)
    return "it has no checkpoint yet" if newest is None else f"the last checkpoint is {newest}"
