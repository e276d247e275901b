"""Stores that are damaged on purpose."""

import json
from pathlib import Path
from typing import Any

import pytest

from seedbed.data.store import Store
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, sha256


def recommit(store: Path, name: str) -> None:
    """List a changed file as if it had been written so."""
    listing = json.loads((store / COMMIT).read_text())
    listing["files"][name] = {"bytes": (store / name).stat().st_size, "sha256": sha256(store / name)}
    (store / COMMIT).write_text(json.dumps(listing))


def edit_header(store: Path, path: str, value: Any) -> None:
    """Set the field at ``path``, or remove it where the value is ...; the header is then listed as it is."""
    header = json.loads((store / "header.json").read_text())
    *above, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    place = header
    for key in above:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    (store / "header.json").write_text(json.dumps(header))
    recommit(store, "header.json")


def refusal(store: Path) -> str:
    with pytest.raises(InputError) as caught:
        Store(store)
    assert str(caught.value).startswith(str(store))
    assert "\n" not in str(caught.value)
    return str(caught.value)
