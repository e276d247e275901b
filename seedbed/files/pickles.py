"""The tensors of a checkpoint in PyTorch's own files (`pytorch_model.bin`), one by one; reading runs no code."""

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seedbed.errors import InputError
from seedbed.files.safetensors import index_of

if TYPE_CHECKING:
    from torch import Tensor

PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"


def pickle_files(folder: Path) -> list[Path]:
    """The shards that the index of the checkpoint in ``folder`` names, or the single file; none where it has neither.

    Raises InputError for a damaged index.
    """
    if (folder / PICKLE_INDEX).is_file():
        return [folder / name for name in sorted(set(index_of(folder / PICKLE_INDEX).values()))]
    return [folder / PICKLE] if (folder / PICKLE).is_file() else []


class Pickles(Mapping[str, "Tensor"]):
    """The tensors in ``files`` by name, as `seedbed.files.safetensors.Tensors` has them, for looking at weights alone.

    Files are mapped into memory, so that what was read last is all that needs room; files of PyTorch before 1.6, which
    cannot be mapped, are held whole. Raises InputError naming a file that is missing or damaged, holds anything but
    tensors, or would have to run code; and a tensor that stands in two of them.
    """

    def __init__(self, files: Sequence[Path]):
        self._tensors: dict[str, Tensor] = {}
        places: dict[str, Path] = {}
        for file in files:
            for name, tensor in _load(file).items():
                if name in places:
                    raise InputError(f"{name}: in {places[name]} and in {file}; give one checkpoint")
                self._tensors[name], places[name] = tensor, file

    def __getitem__(self, name: str) -> "Tensor":
        return self._tensors[name].detach().clone()

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor, without reading it."""
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> str:
        """Of a tensor, as safetensors spells it ("F32", "BF16"), without reading it."""
        dtype = self._tensors[name].dtype
        if str(dtype) == "torch.bool":
            return "BOOL"
        kind = "BF" if "bfloat" in str(dtype) else "F" if dtype.is_floating_point else "I" if dtype.is_signed else "U"
        return f"{kind}{8 * dtype.itemsize}"


def _load(file: Path) -> dict[str, "Tensor"]:
    from pickle import UnpicklingError

    import torch

    if not file.is_file():
        raise InputError(f"{file}: missing; give all files of the checkpoint")
    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except UnpicklingError as error:
        needed = re.search(r"GLOBAL (\S+)", str(error))
        if needed is None:
            raise _damaged(file, error) from None
        raise InputError(
            f"{file}: a pickle that needs code to be run ({needed[1]}), which is not done; save the state dict of the "
            "model as safetensors"
        ) from None
    except Exception as error:  # a cut file makes it raise almost anything
        raise _damaged(file, error) from None
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in found.items()
    ):
        raise InputError(f"{file}: holds something other than tensors by name; save the state dict of the model alone")
    return found


def _damaged(file: Path, error: Exception) -> InputError:
    reason = (str(error) or repr(error)).splitlines()[0].partition(". ")[0]
    return InputError(f"{file}: damaged ({reason}); copy it again or use another checkpoint")
