"""New folders from checkpoints, tensor by tensor: shards put together, weights averaged."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, atomic_folder, require_replaceable, sha256
from seedbed.files.safetensors import Tensors, part_files, weight_files, write_tensors
from seedbed.train.checkpoint import WHOLE, check_whole, read_state
from seedbed.train.run import CONFIG, flat, read_config

AVERAGE, TOKENIZER = "average.json", "tokenizer/tokenizer.json"


def merge(checkpoint: Path, out: Path) -> None:
    """Write the checkpoint's folder as one rank would have written it, format_version 1; a run can go on from it.

    Raises InputError where it is damaged, or ``out`` holds something else.
    """
    check_whole(checkpoint)
    if not (checkpoint / "state.json").is_file():
        raise InputError(f"{checkpoint}: has weights alone, in one file already; name a checkpoint of a run")
    require_replaceable(out, "state.json")
    state = read_state(checkpoint) | {"format_version": WHOLE, "shards": 1}
    with atomic_folder(out) as folder:
        tensors = ("model", "optimizer", "*.safetensors")
        shutil.copytree(checkpoint, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*tensors, COMMIT))
        (folder / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
        for part in ("model", "optimizer"):
            found = Tensors(part_files(checkpoint, part))
            write_tensors(folder / f"{part}.safetensors", found.likes(), found.__getitem__)


def average(checkpoints: Sequence[Path], out: Path) -> None:
    """Write the mean of the weights of checkpoints' folders, with the configuration and tokenizer of the first: what
    train.init_from and evaluation take, but no state to resume from. ``average.json`` says what went in.

    Sums are made in fp64. Raises InputError where there are fewer than two, where one is damaged or of another model
    or tokenizer than the first, or ``out`` holds something else.
    """
    if len(checkpoints) < 2:
        raise InputError(f"{', '.join(map(str, checkpoints))}: a mean needs two checkpoints at least; name more")
    for path in checkpoints:
        check_whole(path)
    require_replaceable(out, AVERAGE)
    first, weights = checkpoints[0], [Tensors(weight_files(path)) for path in checkpoints]
    for path, theirs in zip(checkpoints, weights, strict=True):
        _check_alike(first, path, weights[0], theirs)

    def mean(name: str) -> Tensor:
        total = torch.zeros(weights[0].shape(name), dtype=torch.float64)
        for one in weights:
            total += one[name]
        return (total / len(weights)).to(weights[0][name].dtype)

    sources = [{"checkpoint": str(path), "sha256": sha256(path / COMMIT)} for path in checkpoints]
    with atomic_folder(out) as folder:
        (folder / AVERAGE).write_text(json.dumps({"format_version": 1, "mean_of": sources}, indent=1), encoding="utf-8")
        shutil.copy(first / CONFIG, folder)
        shutil.copytree(first / "tokenizer", folder / "tokenizer")
        write_tensors(folder / "model.safetensors", weights[0].likes(), mean)


def _check_alike(first: Path, path: Path, own: Tensors, theirs: Tensors) -> None:
    """Raise InputError where the weights of ``path`` mean something else than those of ``first``."""
    mine, other = (flat(read_config(one).dump()["model"], "model.") for one in (first, path))
    reason = next((key for key in mine | other if mine.get(key) != other.get(key)), None)
    if reason is not None:
        reason = f"{reason} ({other.get(reason)!r} instead of {mine.get(reason)!r})"
    elif sha256(path / TOKENIZER) != sha256(first / TOKENIZER):
        reason = "tokenizer"
    elif {(n, theirs.shape(n), theirs.dtype(n)) for n in theirs} != {(n, own.shape(n), own.dtype(n)) for n in own}:
        reason = "shapes or types of tensors"
    if reason is not None:
        raise InputError(f"{path}: has another {reason} than {first}; average checkpoints of one kind of run")
