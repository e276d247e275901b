"""A checkpoint is written, whole or not at all: by one rank where each holds all, by all where they hold shards."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from seedbed.config.load import to_yaml
from seedbed.errors import GuardStop, InputError
from seedbed.facts.table import canonical
from seedbed.files.atomic import atomic_folder, fingerprint
from seedbed.files.safetensors import system_errors
from seedbed.files.steps import standing
from seedbed.init.sharding import own_part
from seedbed.parallel.world import World
from seedbed.train.checkpoint import SHARDED, WHOLE, rng_state
from seedbed.train.run import CONFIG

if TYPE_CHECKING:
    from seedbed.train.loop import Job

_SMALL_FILES = 2**20  # bytes set aside for the texts of a checkpoint


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds: a job as it is after its completed steps, of a sharded model this rank's part."""

    step: int
    path: Path
    parts: dict[str, dict[str, Tensor]]
    """"model" and "optimizer": tensors by canonical name."""
    texts: dict[str, str]
    """Of the small files, by name."""
    tokenizer_dir: Path
    sharded: bool

    def copied(self, stager: DefaultStager) -> "Snapshot":
        """With tensors of its own, in the memory of the CPU, which further steps do not change."""
        parts = stager.stage(self.parts)
        assert isinstance(parts, dict)
        return replace(self, parts=parts)


def open_stager() -> DefaultStager:
    """Makes copies in the memory of the CPU, in the same memory each time; pinned where there is a GPU to copy from."""
    cuda = torch.cuda.is_initialized()
    return DefaultStager(
        StagingOptions(cuda, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=cuda)
    )


def is_sharded(model: nn.Module) -> bool:
    """Whether each rank holds a part only of the model and of its optimizer state."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def snapshot(job: "Job") -> Snapshot:
    """Of ``job`` as it is now; the tensors themselves, not copies."""
    parts = {"model": named_weights(job.model), "optimizer": job.optimizers.state_dict()}
    sharded = is_sharded(job.model)
    state = {
        "format_version": SHARDED if sharded else WHOLE,
        "shards": job.world.size if sharded else 1,
        "step": job.step,
        "tokens": job.tokens,
        "seconds": job.seconds,
        "nats_per_token": job.heldout,
        "loader": job.loader.state(),
        "rng": rng_state(),
        "guard": job.guard.state(),
    }
    texts = {
        "state.json": json.dumps(state, indent=1),
        CONFIG: to_yaml(job.config),
        "receipt.json": json.dumps(job.receipt, indent=1),
    }
    path = job.run_dir / "checkpoints" / f"step_{job.step:08d}"
    return Snapshot(job.step, path, parts, texts, job.tokenizer_dir, sharded)


def check_finite(found: Snapshot) -> None:
    """Raise GuardStop where a weight or the optimizer's state is not finite: every checkpoint is one to go on from."""
    for tensors in found.parts.values():
        for name, tensor in tensors.items():
            local = own_part(tensor)
            if not (local.sum().isfinite() or local.isfinite().all()):  # the sum takes a tenth of the time
                told = standing(found.path.parents[1])
                raise GuardStop(f"step {found.step}: {name} is not finite; nothing was saved, {told}")


def write(found: Snapshot, world: World) -> int:
    """Write a checkpoint; all ranks of ``world`` together, each with its own snapshot. Returns its tensors' bytes.

    Raises InputError where the files cannot be written, of a disk that is too small with the need and the room. Nothing
    is then left behind. All ranks raise the same.
    """
    size = sum(world.gather(_bytes(found)))
    need = _SMALL_FILES + size + sum(file.stat().st_size for file in found.tokenizer_dir.rglob("*"))
    fingerprints: dict[str, tuple[int, str]] = {}
    with ExitStack() as stack:

        def begin() -> Path:
            with _telling(found.path, need):
                if need > shutil.disk_usage(found.path.parents[1]).free:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                folder = stack.enter_context(atomic_folder(found.path, fingerprints))
                for name, text in found.texts.items():
                    (folder / name).write_text(text, encoding="utf-8")
                shutil.copytree(found.tokenizer_dir, folder / "tokenizer")
            return folder

        def write_part() -> dict[str, tuple[int, str]]:
            with _telling(found.path, need):
                return _write_shards(found, folder, world) if found.sharded else _write_whole(found, folder)

        def finish() -> None:
            with _telling(found.path, need):
                stack.close()

        folder = world.by_lead(begin)
        for theirs in world.gather(world.together(write_part)):
            fingerprints |= theirs
        world.by_lead(finish)
    return size


def _write_whole(found: Snapshot, folder: Path) -> dict[str, tuple[int, str]]:
    for part, tensors in found.parts.items():
        file = folder / f"{part}.safetensors"
        save_file(tensors, file)
        shutil.copymode(folder / "state.json", file)  # safetensors lets the owner alone read
    return {}


def _write_shards(found: Snapshot, folder: Path, world: World) -> dict[str, tuple[int, str]]:
    """Write this rank's shards, all ranks together; returns fingerprints of its files by their names in ``folder``."""
    for part, tensors in found.parts.items():
        # folders of their own: the reader takes all files of a folder for one checkpoint
        writer = HuggingFaceStorageWriter(str(folder / part), save_distributed=True)
        save(tensors, storage_writer=writer, process_group=world.control)
    files = folder.glob(f"*/shard-{world.rank + 1:05d}-*.safetensors")
    return {file.relative_to(folder).as_posix(): fingerprint(file) for file in files}


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state of ``model`` under canonical names, each tensor once, laid out as safetensors needs it."""
    weights, seen = {}, set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            weights[canonical(name)] = tensor.detach().contiguous()
    return weights


def _bytes(found: Snapshot) -> int:
    return sum(own_part(tensor).nbytes for tensors in found.parts.values() for tensor in tensors.values())


@contextmanager
def _telling(path: Path, need: int) -> Iterator[None]:
    """Make an error of the disk, met while a checkpoint of ``need`` bytes is written to ``path``, one for people."""
    try:
        with system_errors(path):
            yield
    except CheckpointException as error:  # the same on all ranks: which of them failed, and how
        _, (cause, _) = min(error.failures.items(), key=lambda failure: failure[0])
        with _telling(path, need):
            raise cause from error
    except (OSError, SafetensorError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(path, need) from error
        run_dir = path.parents[1]
        raise InputError(
            f"{path}: cannot be written ({error}); mend that and run the same command again; {standing(run_dir)}"
        ) from error


def _disk_full(path: Path, need: int) -> InputError:
    room = shutil.disk_usage(path.parents[1]).free
    return InputError(
        f"{path}: a checkpoint needs {need / 1e6:,.1f} MB, its disk has {room / 1e6:,.1f} MB free; make room or lower "
        f"train.keep_checkpoints, then run the same command again; {standing(path.parents[1])}"
    )
