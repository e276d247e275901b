"""Checkpoints of a run: ``RUN/checkpoints/step_XXXXXXXX/``, each whole or not there at all.

========================  ================================================================================
``model.safetensors``     weights under canonical names, a tied tensor once
``optimizer.safetensors`` optimizer state, ``<canonical name>.<key>``
``state.json``            format_version, completed steps, tokens, seconds, position of the loader,
                          state of the random generators and of the guard
``config.yaml``           the configuration, ``receipt.json`` how the weights were drawn, ``tokenizer/``
``commit.json``           names, sizes and hashes of the other files; written last
========================  ================================================================================

Reading runs no code: safetensors and JSON, no pickle.
"""

import base64
import errno
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seedbed.config.load import to_yaml
from seedbed.errors import GuardStop, InputError
from seedbed.facts.table import canonical
from seedbed.files.atomic import atomic_folder, clear_leftovers, folder_damage
from seedbed.files.steps import step_folders
from seedbed.init.sharding import read_whole
from seedbed.train.run import CONFIG

if TYPE_CHECKING:
    from seedbed.train.loop import Job

FORMAT_VERSION = 1
READABLE = (1,)
_SMALL_FILES = 2**20  # bytes set aside for the texts of a checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """What a run goes on from, apart from the weights, which stand in ``path / "model.safetensors"``."""

    path: Path
    step: int  # completed optimizer steps
    tokens: int
    seconds: float
    loader: dict[str, Any]
    rng: dict[str, Any]
    guard: dict[str, Any]  # empty in checkpoints of earlier releases
    receipt: dict[str, Any]
    optimizer: dict[str, Tensor]


def save_checkpoint(job: "Job") -> Path:
    """Write ``job`` as it is after its completed steps; returns the checkpoint's folder.

    Raises GuardStop where a weight or the optimizer's state is not finite, so that every checkpoint is one to go on
    from; and InputError, naming the need and the room, when the disk is too small. Nothing is then left behind.
    """
    path = job.run_dir / "checkpoints" / f"step_{job.step:08d}"
    weights = {name: read_whole(tensor) for name, tensor in _weights(job.model).items()}
    optimizer = {name: read_whole(tensor) for name, tensor in job.optimizers.state_dict().items()}
    return job.world.by_lead(lambda: _write(job, path, weights, optimizer))


def _write(job: "Job", path: Path, weights: dict[str, Tensor], optimizer: dict[str, Tensor]) -> Path:
    for name, tensor in (*weights.items(), *optimizer.items()):
        if not torch.isfinite(tensor).all():
            raise GuardStop(f"step {job.step}: {name} is not finite; nothing was saved, {standing(job.run_dir)}")
    tensors = [*weights.values(), *optimizer.values()]
    need = _SMALL_FILES + sum(tensor.nbytes for tensor in tensors)
    need += sum(file.stat().st_size for file in job.tokenizer_dir.rglob("*"))
    if need > shutil.disk_usage(job.run_dir).free:
        raise _disk_full(path, need)
    state = {
        "format_version": FORMAT_VERSION,
        "step": job.step,
        "tokens": job.tokens,
        "seconds": job.seconds,
        "loader": job.loader.state(),
        "rng": rng_state(),
        "guard": job.guard.state(),
    }
    try:
        with atomic_folder(path) as folder:
            (folder / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
            for name, content in (("model", weights), ("optimizer", optimizer)):
                file = folder / f"{name}.safetensors"
                save_file(content, file)
                shutil.copymode(folder / "state.json", file)  # safetensors lets the owner alone read
            (folder / CONFIG).write_text(to_yaml(job.config), encoding="utf-8")
            (folder / "receipt.json").write_text(json.dumps(job.receipt, indent=1), encoding="utf-8")
            shutil.copytree(job.tokenizer_dir, folder / "tokenizer")
    except (OSError, SafetensorError) as error:
        if not _is_disk_full(error):
            raise
        raise _disk_full(path, need) from error
    return path


def check_whole(path: Path) -> None:
    """Raise InputError where the checkpoint's folder ``path`` is damaged."""
    damage = folder_damage(path)
    if damage is not None:
        raise InputError(f"{path}: {damage}; give another checkpoint, or the run to take its newest whole one")


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint's folder, found whole before. Raises InputError on a format that this release does not read."""
    state = _read_state(path)
    return Checkpoint(
        path=path,
        **{key: state[key] for key in ("step", "tokens", "seconds", "loader", "rng")},
        guard=state.get("guard", {}),
        receipt=json.loads((path / "receipt.json").read_text(encoding="utf-8")),
        optimizer=load_file(path / "optimizer.safetensors"),
    )


def read_weights(path: Path) -> dict[str, Tensor]:
    """All weights of a checkpoint's folder, found whole before, by canonical name."""
    return load_file(path / "model.safetensors")


def newest_checkpoint(run_dir: str | Path) -> tuple[Path | None, list[str]]:
    """The newest whole checkpoint of a run, or None; and a line for each newer one that was passed over.

    Raises InputError on a whole checkpoint of a format that this release does not read: going back would lose it.
    """
    notes = []
    for path in step_folders(run_dir):
        damage = folder_damage(path)
        if damage is None:
            _read_state(path)
            return path, notes
        notes.append(f"{path}: passed over: {damage}")
    return None, notes


def standing(run_dir: str | Path) -> str:
    """What a stopped run can count on, for its last message."""
    newest = next(iter(step_folders(run_dir)), None)
    return "it has no checkpoint yet" if newest is None else f"the last checkpoint is {newest}"


def prune(run_dir: str | Path, keep: int, newest: Path) -> list[Path]:
    """Remove what saves that were killed left behind, and all but ``keep`` checkpoints; returns those removed.

    ``newest`` is the one just written, so it is whole and finite. Later ones, which a resumption passed over as
    damaged, neither count nor go.
    """
    clear_leftovers(newest.parent)
    paths = step_folders(run_dir)
    old = paths[paths.index(newest) + keep :]
    for path in old:
        shutil.rmtree(path)
    return old


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


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """The state of ``model`` under canonical names, each tensor once, laid out as safetensors needs it."""
    weights, seen = {}, set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            weights[canonical(name)] = tensor.detach().contiguous()
    return weights


def _read_state(path: Path) -> dict[str, Any]:
    file = path / "state.json"
    state = json.loads(file.read_text(encoding="utf-8"))
    version = state.get("format_version")
    if version not in READABLE:
        readable = " and ".join(map(str, READABLE))
        raise InputError(f"{file}: format_version {version}, this release reads {readable}; use the one that wrote it")
    return state


def _is_disk_full(error: OSError | SafetensorError) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    # safetensors tells the number of the system's error in its message only
    return re.search(rf"\(os error ({errno.ENOSPC}|{errno.EDQUOT})\)", str(error)) is not None


def _disk_full(path: Path, need: int) -> InputError:
    room = shutil.disk_usage(path.parents[1]).free
    return InputError(
        f"{path}: a checkpoint needs {need / 1e6:,.1f} MB, its disk has {room / 1e6:,.1f} MB free; make room or lower "
        f"train.keep_checkpoints, then run the same command again; {standing(path.parents[1])}"
    )


def _to_text(state: Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _to_bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
