"""From a base and the overrides of an arm to its configuration."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from seedbed.config import Config
from seedbed.config.load import with_values
from seedbed.errors import InputError

RULE = {"times", "width_power"}
"""Keys of a value that scales with the width."""


def configuration(tree: Mapping[str, Any], base: str, layers: Sequence[Mapping[str, Any]], where: str) -> Config:
    """The ``tree`` of the file ``base`` with the overrides of each layer, later ones winning; values that scale with
    the width come last.

    Raises InputError, beginning with ``where``, as loading a configuration does, and where a path is part of another.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        values |= layer
    for path in values:
        if inner := next((other for other in values if other.startswith(f"{path}.")), None):
            raise InputError(f"{where}: {inner} is part of {path}, which is set too; set each field by its own path")
    scaled = {path: value for path, value in values.items() if isinstance(value, dict) and RULE & value.keys()}
    plain = {path: value for path, value in values.items() if path not in scaled}
    config = _with(tree, plain, base, where)
    if not scaled:
        return config
    at_width = {path: _power(path, rule, config.model.d_model, where) for path, rule in scaled.items()}
    return _with(tree, plain | at_width, base, where)


def _with(tree: Mapping[str, Any], values: Mapping[str, Any], base: str, where: str) -> Config:
    told = [
        (tuple(path.split(".")), value, f"override '{path}={json.dumps(value, ensure_ascii=False)}'")
        for path, value in values.items()
    ]
    try:
        return with_values(deepcopy(dict(tree)), deepcopy(told), base)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _power(path: str, rule: dict[str, Any], width: int, where: str) -> float:
    """times * d_model^width_power, to six digits."""
    if set(rule) != RULE or not all(type(number) in (int, float) for number in rule.values()):
        raise InputError(
            f"{where}: {path}: write {{times: NUMBER, width_power: NUMBER}}, the value times * d_model^power"
        )
    times, power = rule["times"], rule["width_power"]
    try:
        return float(f"{times * float(width) ** power:.6g}")
    except OverflowError:
        raise InputError(f"{where}: {path}: {times} * {width}^{power} is too large a number") from None
