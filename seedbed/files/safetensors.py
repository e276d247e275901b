"""The weights of a checkpoint in safetensors files, read tensor by tensor; reading runs no code."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from seedbed.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The files with the weights of the checkpoint in ``folder``: those its index names, or the single one.

    Raises InputError when there are none, saying so of pickles, which are never read.
    """
    if (folder / INDEX).is_file():
        try:
            names = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
            return [folder / name for name in sorted(set(names))]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{folder / INDEX}: damaged, it has no weight_map; copy the checkpoint again") from None
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    told = f"{pickles[0]} is a pickle, which can run code and is not read; save it as safetensors" if pickles else ""
    raise InputError(f"{folder}: neither {WEIGHTS} nor {INDEX}; {told or 'give the folder of a whole checkpoint'}")


def spellings(name: str, prefix: str) -> tuple[str, ...]:
    """``name`` as checkpoints may have it: with or without the ``prefix`` of a Transformers base model."""
    return name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")


class Tensors(Mapping[str, "Tensor"]):
    """The tensors in ``files`` by name, each read when it is asked for and not kept.

    Raises InputError naming a file that is missing or damaged, and a tensor that stands in two of them.
    """

    def __init__(self, files: Sequence[Path]):
        self._files: dict[str, Path] = {}
        self._open = {}
        for file in files:
            try:
                self._open[file] = safe_open(file, framework="pt")
            except FileNotFoundError:
                raise InputError(f"{file}: missing; give all files of the checkpoint") from None
            except SafetensorError as error:
                raise _damaged(file, error) from None
            for name in self._open[file].keys():  # noqa: SIM118 (not a dict: it has no other iterator)
                if name in self._files:
                    raise InputError(f"{name}: in {self._files[name]} and in {file}; give one checkpoint")
                self._files[name] = file

    def __getitem__(self, name: str) -> "Tensor":
        file = self._files[name]
        try:
            return self._open[file].get_tensor(name)
        except SafetensorError as error:
            raise _damaged(file, error) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor, without reading it."""
        return tuple(self._open[self._files[name]].get_slice(name).get_shape())


def _damaged(file: Path, error: SafetensorError) -> InputError:
    return InputError(f"{file}: damaged ({error}); copy it again or use another checkpoint")
