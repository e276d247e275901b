"""Paths in a study, made whole when its file is read: it is the same study from any working directory."""

import os
from pathlib import Path
from typing import Any

PATHS = ("data.store", "train.init_from", "init.checkpoint", "init.cohort")


def whole(values: dict[str, Any]) -> dict[str, Any]:
    """``values`` by dotted path with those of PATHS that are there, seen from the working directory, made absolute.

    What is not there stays as it is: its run says so, and counts it by that name.
    """
    return {path: _whole(value) if path in PATHS else value for path, value in values.items()}


def whole_tree(tree: dict[str, Any]) -> dict[str, Any]:
    """The same of a configuration's sections."""
    return {
        name: {key: _whole(value) if f"{name}.{key}" in PATHS else value for key, value in section.items()}
        if isinstance(section, dict)
        else section
        for name, section in tree.items()
    }


def _whole(value: Any) -> Any:
    return os.path.abspath(value) if isinstance(value, str) and value and Path(value).exists() else value
