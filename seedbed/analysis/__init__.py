"""One question a file, over checkpoints, runs and data; results are plain rows.

Its modules are imported when they are first used.
"""

from importlib import import_module
from typing import Any

_MODULES = (
    "attention", "compare", "dynamics", "ifd", "preflight", "residual", "run", "tokens", "weights",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"seedbed.analysis.{name}")
    raise AttributeError(f"module 'seedbed.analysis' has no attribute '{name}'")
