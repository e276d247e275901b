"""Which checkpoints of a run stay."""

import json
import warnings
from pathlib import Path

from seedbed.files.atomic import clear_leftovers, remove_folder
from seedbed.files.steps import step_folders


def prune(run_dir: str | Path, keep: int, newest: Path, keep_best: bool) -> list[Path]:
    """Remove what saves that were killed left behind, and the `surplus` of checkpoints; returns those removed.

    Warns of what cannot be removed: too much on the disk is no reason to end a run.
    """
    clear_leftovers(newest.parent)
    removed = []
    for path in surplus(run_dir, keep, newest, keep_best):
        try:
            remove_folder(path)
            removed.append(path)
        except OSError as error:
            warnings.warn(f"{path}: cannot be removed ({error.strerror})", stacklevel=2)
    return removed


def surplus(run_dir: str | Path, keep: int, newest: Path, keep_best: bool) -> list[Path]:
    """The checkpoints of a run beyond the newest ``keep``, without the one of the lowest held-out loss (``keep_best``).

    ``newest`` is known to be whole, and finite as all that are saved. Later ones, which were passed over as damaged,
    neither count nor go.
    """
    paths = step_folders(run_dir)
    paths = paths[paths.index(newest) :]
    spared = best(paths) if keep_best else None
    return [path for path in paths[keep:] if path != spared]


def best(paths: list[Path]) -> Path | None:
    """Of ``paths``, newest first, the one whose weights had the lowest held-out loss, of equal ones the newest; None
    where none was evaluated."""
    losses = [(loss, place) for place, path in enumerate(paths) if (loss := _heldout_loss(path)) is not None]
    return paths[min(losses)[1]] if losses else None


def _heldout_loss(path: Path) -> float | None:
    """Nats per token; None where the weights were not evaluated, or what says so is damaged."""
    try:
        return json.loads((path / "state.json").read_text(encoding="utf-8")).get("nats_per_token")
    except (OSError, ValueError, AttributeError):
        return None
