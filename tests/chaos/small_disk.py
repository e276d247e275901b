"""Run by a test where a small disk is mounted: the disk fills up, is read-only, has room. DISK COPY COMMAND..."""

import shutil
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(1, str(Path(__file__).parents[1]))
    from disturbed import ends_with
    from promises import newest

    disk, copy, *training = sys.argv[1:]
    run, keep = Path(disk), "train.keep_checkpoints=99"

    said = ends_with(2, [*training, keep], run)
    assert "a checkpoint needs" in said, said
    assert "make room" in said, said
    assert f"the last checkpoint is {run}/checkpoints/step_{newest(run):08d}" in said, said
    assert newest(run) > 0
    assert not list(run.rglob(".partial-*"))

    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    said = ends_with(2, training, run)  # pyright: ignore
    assert "Read-only file system; choose a place that can be written" in said, said
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before

    subprocess.run(["mount", "-o", "remount,rw,size=50m", disk], check=True)
    ends_with(0, [*training, keep], run)
    shutil.copytree(run, copy)
