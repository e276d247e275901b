"""The folders of a run's checkpoints: by their names, and the newest that looks whole."""

import re
from pathlib import Path

from seedbed.files.atomic import folder_damage


def step_folders(run_dir: str | Path) -> list[Path]:
    """``RUN/checkpoints/step_XXXXXXXX``, newest first, whole or not."""
    folders = (path for path in (Path(run_dir) / "checkpoints").glob("step_*") if path.is_dir())
    found = [path for path in folders if re.fullmatch(r"step_\d{8,}", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")), reverse=True)


def standing(run_dir: str | Path) -> str:
    """What a stopped run can count on, for its last message: hashes are not compared, names and sizes are."""
    folders = step_folders(run_dir)
    newest = next((path for path in folders if folder_damage(path, lambda _: False) is None), None)
    if newest is None:
        return "it has no whole checkpoint" if folders else "it has no checkpoint yet"
    return f"the last checkpoint is {newest}"
