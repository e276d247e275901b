"""A study's file has what each scale of it changes, and the command line chooses one: ``size=cpu``."""

from collections.abc import Sequence
from typing import Any

from seedbed.config.options import suggest
from seedbed.errors import InputError


def at_scale(tree: dict[str, Any], where: str, overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The study ``tree`` at the scale that ``overrides`` name, and the other overrides.

    ``scales: {cpu: {...}}`` has what a scale changes: sections are merged, values replaced. Raises InputError, which
    begins with ``where``, the study's file, where no scale is chosen, or one that is not there.
    """
    scales: Any = tree.pop("scales", None)
    chosen = scale_of(overrides)
    rest = [override for override in overrides if scale_of([override]) is None]
    if scales is None:
        if chosen is not None:
            raise InputError(f"{where}: override 'size={chosen}': the study has one scale; leave it out")
        return tree, rest
    if not isinstance(scales, dict) or not scales or not all(isinstance(of, dict) for of in scales.values()):
        raise InputError(f"{where}: scales: a mapping of names to what each changes")
    if chosen is None:
        raise InputError(
            f"{where}: has the scales {', '.join(scales)}; choose one, for example size={next(iter(scales))}"
        )
    if chosen not in scales:
        raise InputError(f"{where}: override 'size={chosen}': no such scale; {suggest(chosen, list(scales))}")
    return _merged(tree, scales[chosen]), rest


def scale_of(overrides: Sequence[str]) -> str | None:
    """The scale that ``overrides`` choose, the last where there are several."""
    split = [[part.strip() for part in override.split("=", 1)] for override in overrides]
    return next((pair[1] for pair in reversed(split) if len(pair) == 2 and pair[0] == "size"), None)


def _merged(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Values of ``changes`` in place of those of ``tree``, mappings merged; axes and sizes are replaced whole."""
    result = dict(tree)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and key not in ("axes", "sizes", "budget", "grid"):
            value = _merged(old, value)
        result[key] = value
    return result
