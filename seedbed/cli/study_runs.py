"""Where the runs of a study lie: in its folder, or in one that studies share."""

from pathlib import Path

from seedbed.errors import InputError


def check_runs(folder: Path, runs: Path | None) -> None:
    """Raise InputError, before anything is written, where the study's runs lie elsewhere, or are not there."""
    place = folder / "runs"
    if runs is not None and (place.is_symlink() or place.exists()) and place.resolve() != runs.resolve():
        raise InputError(f"--runs {runs}: {place} has the study's runs; leave --runs out, or choose another -o")
    if runs is None and place.is_symlink() and not place.exists():
        raise InputError(
            f"{place}: the runs it links to, {place.readlink()}, are not there; bring them back, or remove the link"
        )
    if runs is not None and runs.is_file():
        raise InputError(f"--runs {runs}: is a file; name a folder")


def runs_of(folder: Path, runs: Path | None) -> Path:
    """The folder of the runs. One that is shared is linked from the study's, so that `report` finds it there."""
    place = folder / "runs"
    (runs or place).mkdir(parents=True, exist_ok=True)
    if runs is not None and not place.exists():
        place.symlink_to(runs.resolve())
    return place
