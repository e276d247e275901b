"""The tensors of a checkpoint in safetensors files, one by one; reading runs no code."""

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError, safe_open

from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, listed

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SHARDING = "DCP_SHARDING_INFO"  # where torch.distributed.checkpoint says which part of a tensor a file has


def weight_files(folder: Path) -> list[Path]:
    """The files with the weights of the checkpoint in ``folder``: those its index names, its shards, or the single one.

    Raises InputError when there are none, saying so of pickles, which are never read.
    """
    if (folder / INDEX).is_file():
        return [folder / name for name in sorted(set(index_of(folder / INDEX).values()))]
    if files := part_files(folder, "model"):
        return files
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    told = f"{pickles[0]} is a pickle, which can run code and is not read; save it as safetensors" if pickles else ""
    raise InputError(f"{folder}: neither {WEIGHTS} nor {INDEX}; {told or 'give the folder of a whole checkpoint'}")


def index_of(file: Path) -> dict[str, str]:
    """Which file each tensor is in, by the index of a sharded checkpoint. Raises InputError where it is damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["weight_map"]
        if found and all(isinstance(name, str) for name in found.values()):
            return found
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InputError(f"{file}: damaged, it has no weight_map; copy the checkpoint again")


def part_files(folder: Path, part: str) -> list[Path]:
    """The files of a part ("model", "optimizer") of a checkpoint of ours: ``PART.safetensors``, or those in ``PART/``,
    with any that its commit lists and that are gone; none where it has no such part."""
    whole = folder / f"{part}.safetensors"
    if whole.is_file():
        return [whole]
    files = set((folder / part).glob("*.safetensors"))
    if (folder / COMMIT).is_file():
        files |= {folder / name for name in listed(folder) if name.startswith(f"{part}/")}
    return sorted(files)


def spellings(name: str, prefix: str) -> tuple[str, ...]:
    """``name`` as checkpoints may have it: with or without the ``prefix`` of a Transformers base model."""
    return name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")


class Like(NamedTuple):
    """What a tensor in a file is like."""

    dtype: str
    """As the format spells it ("F32", "BF16")."""
    shape: tuple[int, ...]


class _Piece(NamedTuple):
    """Where all of a tensor lies, or one of its shards."""

    file: Path
    start: tuple[int, ...] | None
    """Index in the whole tensor of the shard's first entry."""
    shape: tuple[int, ...]


class Tensors(Mapping[str, "Tensor"]):
    """The tensors in ``files`` by name, each read when it is asked for and not kept; shards are put together.

    Raises InputError naming a file that is missing or damaged, a tensor that stands in two of them, and one with a gap
    between its shards. That its last shards are missing the files cannot tell: `part_files` names them all.
    """

    def __init__(self, files: Sequence[Path]):
        self._pieces: dict[str, list[_Piece]] = {}
        self._open = {}
        for file in files:
            try:
                opened = self._open[file] = safe_open(file, framework="pt")
                starts = json.loads((opened.metadata() or {}).get(_SHARDING, "{}"))
            except FileNotFoundError:
                raise InputError(f"{file}: missing; give all files of the checkpoint") from None
            except OSError as error:  # a folder; the library's own errors carry no number
                raise InputError(f"{file}: cannot be read ({error}); give all files of the checkpoint") from None
            except (SafetensorError, ValueError) as error:
                raise _damaged(file, error) from None
            for name in opened.keys():  # noqa: SIM118 (not a dict: it has no other iterator)
                start = tuple(starts[name]["saved_offsets"]) if name in starts else None
                pieces = self._pieces.setdefault(name, [])
                if pieces and (start is None or pieces[0].start is None):
                    raise InputError(f"{name}: in {pieces[0].file} and in {file}; give one checkpoint")
                pieces.append(_Piece(file, start, tuple(opened.get_slice(name).get_shape())))
        for name, pieces in self._pieces.items():
            if sum(math.prod(piece.shape) for piece in pieces) != math.prod(self.shape(name)):
                raise InputError(f"{pieces[0].file.parent}: shards of {name} are missing; give all files")

    def __getitem__(self, name: str) -> "Tensor":
        pieces = self._pieces[name]
        if len(pieces) == 1:
            return self._read(pieces[0], name)
        import torch

        whole = torch.empty(self.shape(name), dtype=self._read(pieces[0], name).dtype)
        for piece in pieces:
            assert piece.start is not None
            place = tuple(slice(at, at + size) for at, size in zip(piece.start, piece.shape, strict=True))
            whole[place] = self._read(piece, name)
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor, without reading it."""
        ends = [
            [at + n for at, n in zip(p.start or [0] * len(p.shape), p.shape, strict=True)] for p in self._pieces[name]
        ]
        return tuple(map(max, zip(*ends, strict=True)))

    def dtype(self, name: str) -> str:
        """Of a tensor, as the format spells it ("F32", "BF16"), without reading it."""
        return self._open[self._pieces[name][0].file].get_slice(name).get_dtype()

    def likes(self) -> dict[str, Like]:
        """Type and shape of each tensor, without reading it."""
        return {name: Like(self.dtype(name), self.shape(name)) for name in self}

    def _read(self, piece: _Piece, name: str) -> "Tensor":
        try:
            return self._open[piece.file].get_tensor(name)
        except SafetensorError as error:
            raise _damaged(piece.file, error) from None


def write_tensors(file: Path, like: Mapping[str, Like], make: Callable[[str], "Tensor"]) -> None:
    """Write ``make(name)`` for all names of ``like``, one after another: never two in memory.

    The library's own writer wants all of them at once.
    """
    import torch

    size = {name: math.prod(shape) * _item_bytes(dtype) for name, (dtype, shape) in like.items()}
    names = sorted(like, key=lambda name: (-_item_bytes(like[name].dtype), name))  # so that each is aligned
    header: dict[str, dict[str, Any]] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        place = [end, end + size[name]]
        header[name] = {"dtype": like[name].dtype, "shape": like[name].shape, "data_offsets": place}
        end += size[name]
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            out.write(make(name).contiguous().flatten().view(torch.uint8).numpy().data)


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """Make errors of the system that safetensors meets while it writes to ``path``, such as a full disk, OSErrors: it
    tells their number in its message only."""
    try:
        yield
    except SafetensorError as error:
        if (found := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error


def _item_bytes(dtype: str) -> int:
    """Of an entry of the type that the format spells ``dtype``: F32, BF16, I64, F8_E4M3; BOOL has no number."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) // 8 if bits else 1


def _damaged(file: Path, error: SafetensorError | ValueError) -> InputError:
    return InputError(f"{file}: damaged ({error}); copy it again or use another checkpoint")
