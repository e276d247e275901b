"""Seedbed: a language-model pretraining laboratory in which initialization is a measured design choice.

Importing the package imports nothing heavy; the names below load what they need when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seedbed.api import Run, fit, generate, load
    from seedbed.config import Config
    from seedbed.facts.table import parameter_facts
    from seedbed.init import gamma_, initialize_, materialize_

__version__ = "0.1.0"
__all__ = ["Config", "Run", "fit", "gamma_", "generate", "initialize_", "load", "materialize_", "parameter_facts"]

_HOMES = {
    "Config": "seedbed.config",
    "Run": "seedbed.api",
    "fit": "seedbed.api",
    "gamma_": "seedbed.init",
    "generate": "seedbed.api",
    "initialize_": "seedbed.init",
    "load": "seedbed.api",
    "materialize_": "seedbed.init",
    "parameter_facts": "seedbed.facts.table",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in ("laws", "analysis"):
        return import_module(f"seedbed.{name}")
    raise AttributeError(f"module 'seedbed' has no attribute '{name}'")
