"""Bytes of tensors: those that are there, and those that come and go meanwhile."""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def tensor_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of ``tensors`` on this rank; of what is sharded its own part."""
    own = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors if tensor is not None)
    return sum(tensor.numel() * tensor.element_size() for tensor in own)


class Allocated(Protocol):
    """Bytes of tensors since counting began, on one device."""

    @property
    def now(self) -> int: ...
    @property
    def peak(self) -> int:
        """The most there was since counting began, or since ``forget``."""
        ...

    def forget(self) -> None:
        """From here on another peak."""
        ...


@contextmanager
def allocated(device: torch.device) -> Iterator[Allocated]:
    """Counts, while it is open, what is allocated on ``device``: by CUDA's allocator, or on a CPU by operators.

    What lives only inside of an operator is not seen on a CPU, nor is what compiled code makes.
    """
    if device.type == "cuda":
        yield _OnCuda(device)
    else:
        with _OnCpu() as counted:
            yield counted


class _OnCuda:
    def __init__(self, device: torch.device):
        self._device = device
        self._before = torch.cuda.memory_allocated(device)
        self.forget()

    @property
    def now(self) -> int:
        return torch.cuda.memory_allocated(self._device) - self._before

    @property
    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self._device) - self._before

    def forget(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)


class _OnCpu(TorchDispatchMode):
    """Adds the storage of each operator's results, and takes it off when nothing holds it any more."""

    def __init__(self):
        super().__init__()
        self.now, self.peak = 0, 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def forget(self) -> None:
        self.peak = self.now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(storage) for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if id(storage) not in given and id(storage) not in self._alive:
                self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        size, key = storage.nbytes(), id(storage)

        def gone(_: Any) -> None:
            self.now -= size
            del self._alive[key]

        self._alive[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    leaves = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
    own = [leaf.to_local() if isinstance(leaf, DTensor) else leaf for leaf in leaves]
    return [tensor.untyped_storage() for tensor in own]
