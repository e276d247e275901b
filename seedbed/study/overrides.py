"""From a base and the overrides of an arm to its configuration."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from seedbed.config import Config
from seedbed.errors import InputError


def configuration(base: str | None, layers: Sequence[Mapping[str, Any]], where: str) -> Config:
    """The base with the overrides of each layer, later ones winning; values that scale with the width come last.

    Raises InputError, beginning with ``where``, as loading a configuration does, and where a path is part of another.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        values |= layer
    for path in values:
        if inner := next((other for other in values if other.startswith(f"{path}.")), None):
            raise InputError(f"{where}: {inner} is part of {path}, which is set too; set each field by its own path")
    scaled = {path: value for path, value in values.items() if isinstance(value, dict) and "width_power" in value}
    plain = [_override(path, value) for path, value in values.items() if path not in scaled]
    config = _load(base, plain, where)
    if not scaled:
        return config
    width = config.model.d_model
    return _load(base, [*plain, *(_override(p, _power(p, of, width, where)) for p, of in scaled.items())], where)


def _load(base: str | None, overrides: list[str], where: str) -> Config:
    try:
        return Config.load(base, overrides)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _override(path: str, value: Any) -> str:
    return f"{path}={json.dumps(value, ensure_ascii=False)}"


def _power(path: str, rule: dict[str, Any], width: int, where: str) -> float:
    """times * d_model^width_power, to six digits."""
    times, power = rule.get("times"), rule["width_power"]
    if set(rule) != {"times", "width_power"} or not all(type(number) in (int, float) for number in (times, power)):
        raise InputError(
            f"{where}: {path}: write {{times: NUMBER, width_power: NUMBER}}, the value times * d_model^power"
        )
    try:
        return float(f"{times * float(width) ** power:.6g}")
    except OverflowError:
        raise InputError(f"{where}: {path}: {times} * {width}^{power} is too large a number") from None
