"""Checkpoints of a run: ``RUN/checkpoints/step_XXXXXXXX/``, each whole or not there at all.

========================  ================================================================================
``model.safetensors``     weights under canonical names, a tied tensor once
``optimizer.safetensors`` optimizer state, ``<canonical name>.<key>``
``state.json``            format_version, completed steps, tokens, seconds, held-out loss where it was measured,
                          position of the loader, state of the random generators and of the guard
``config.yaml``           the configuration, ``receipt.json`` how the weights were drawn, ``tokenizer/``
``commit.json``           names, sizes and hashes of the other files; written last
========================  ================================================================================

That is format_version 1. Where ranks hold shards it is 2: in place of the first two are folders, ``model/`` and
``optimizer/``, with a file of each rank, as torch.distributed.checkpoint writes them.

Reading runs no code: safetensors and JSON, no pickle.
"""

import base64
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load

from seedbed.errors import InputError
from seedbed.files.atomic import folder_damage
from seedbed.files.safetensors import Tensors
from seedbed.files.steps import step_folders

WHOLE, SHARDED = READABLE = (1, 2)
"""Values of format_version."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run goes on from, apart from the tensors, which `load_into` reads."""

    path: Path
    step: int  # completed optimizer steps
    tokens: int
    seconds: float
    loader: dict[str, Any]
    rng: dict[str, Any]
    guard: dict[str, Any]  # empty in checkpoints of earlier releases
    receipt: dict[str, Any]


def check_whole(path: Path) -> None:
    """Raise InputError where the checkpoint's folder ``path`` is damaged."""
    damage = folder_damage(path)
    if damage is not None:
        raise InputError(f"{path}: {damage}; give another checkpoint, or the run to take its newest whole one")


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint's folder, found whole before. Raises InputError on a format that this release does not read."""
    state = read_state(path)
    return Checkpoint(
        path=path,
        **{key: state[key] for key in ("step", "tokens", "seconds", "loader", "rng")},
        guard=state.get("guard", {}),
        receipt=json.loads((path / "receipt.json").read_text(encoding="utf-8")),
    )


def load_into(own: Mapping[str, Tensor], files: Sequence[Path], advice: str) -> None:
    """Copy the tensors in ``files``, all those of a folder, into those of the same names; a shard reads its part only.

    Raises InputError, before anything is changed, naming those that are missing, unknown or of another shape.
    """
    folder, found = files[0].parent, Tensors(files)
    problems = [f"{name} is missing" for name in own if name not in found]
    problems += [f"{name} has no place here" for name in found if name not in own]
    problems += [
        f"{name} has shape {list(found.shape(name))} instead of {list(tensor.shape)}"
        for name, tensor in own.items()
        if name in found and found.shape(name) != tuple(tensor.shape)
    ]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise InputError(f"{folder}: {'; '.join(problems[:3])}{more}; {advice}")
    with warnings.catch_warnings():
        # each rank reads for itself, which the library believes to be an oversight
        warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized", UserWarning)
        try:
            load(dict(own), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
        except CheckpointException as error:  # the library wraps whatever it meets, Ctrl-C too
            (cause, _), *_ = error.failures.values()
            raise cause from None


def newest_checkpoint(run_dir: str | Path) -> tuple[Path | None, list[str]]:
    """The newest whole checkpoint of a run, or None; and a line for each newer one that was passed over.

    Raises InputError on a whole checkpoint of a format that this release does not read: going back would lose it.
    """
    notes = []
    for path in step_folders(run_dir):
        damage = folder_damage(path)
        if damage is None:
            read_state(path)
            return path, notes
        notes.append(f"{path}: passed over: {damage}")
    return None, notes


def rng_state() -> dict[str, Any]:
    """State of torch's random generators, on the CPU and on each CUDA device in use, as base64 text."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {"cpu": _to_text(torch.get_rng_state()), "cuda": [_to_text(state) for state in cuda]}


def restore_rng(state: dict[str, Any]) -> None:
    """Set torch's random generators to ``rng_state()``'s result; CUDA devices that are not here are left out."""
    torch.set_rng_state(_to_bytes(state["cpu"]))
    if torch.cuda.is_initialized():
        for device, text in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(_to_bytes(text), device)


def read_state(path: Path) -> dict[str, Any]:
    """``state.json`` of a checkpoint's folder. Raises InputError on a format that this release does not read."""
    file = path / "state.json"
    state = json.loads(file.read_text(encoding="utf-8"))
    version = state.get("format_version")
    if version not in READABLE:
        readable = " and ".join(map(str, READABLE))
        raise InputError(f"{file}: format_version {version}, this release reads {readable}; use the one that wrote it")
    return state


def _to_text(state: Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _to_bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
