"""Values of a record that are not what the specification needs: what is wrong, in words."""

import math
from difflib import get_close_matches
from typing import Any

from seedbed.data.document import SplitName

_KINDS = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}


class LeftOut(Exception):
    """A record that the specification leaves out; the argument is the reason."""


class BadRecord(Exception):
    """A record that is none; the arguments are the reason to count it under, and what is wrong with it."""


def field_of(record: dict[str, Any], key: str, set_by: str = "sections, --field") -> Any:
    """The value at ``key``, which the specification has under ``set_by``.

    Raises BadRecord that names the keys there are, and the one that was probably meant.
    """
    if key not in record:
        close = get_close_matches(key, [other for other in record if other.isprintable()], n=1)
        todo = f"did you mean {close[0]!r}? Name" if close else "name"
        problem = f"no field {key!r}; the keys there are: {keys_of(record)}; {todo} the right one ({set_by})"
        raise BadRecord(f"no field {key!r}", problem)
    return record[key]


def keys_of(record: dict[str, Any]) -> str:
    keys = sorted(key if key.isprintable() else repr(key) for key in record)
    return (", ".join(keys[:12]) or "none") + (", …" if len(keys) > 12 else "")


def wrong_type(field: str, place: str, value: Any, wanted: str) -> BadRecord:
    """What to raise for a ``value`` of ``field``; ``place`` says where in it ("item 3 of field 'responses'")."""
    return BadRecord(f"{field!r} is not {wanted}", f"{place} is {kind(value)}, not {wanted}")


def kind(value: Any) -> str:
    """What a value is, in JSON's words."""
    if value is None:
        return "null"
    if value in ([], {}):
        return "an empty list" if value == [] else "an empty object"
    return _KINDS.get(type(value), f"of type {type(value).__name__}")


def number(field: str, place: str, value: Any) -> float:
    """A finite number; a label of true is 1, false 0. Raises BadRecord."""
    if not isinstance(value, int | float):
        raise wrong_type(field, place, value, "a number")
    try:
        as_float = float(value)
    except OverflowError:  # an integer of hundreds of digits
        as_float = math.inf
    if not math.isfinite(as_float):
        raise BadRecord(f"{field!r} is not finite", f"{place} is {as_float}, which is not finite")
    return as_float


def name_of(
    record: dict[str, Any], key: str | None, default: str, set_by: str, types: tuple[type, ...] = (str,)
) -> str:
    """The text or number at ``key``, which must be there; without a key that at ``default``, "" where nothing is.

    null, NaN and "" are nothing: so tables fill up what lacks a value. Raises BadRecord.
    """
    value = record.get(default) if key is None else field_of(record, key, set_by)
    missing = value is None or value == "" or value != value
    field, wanted = key or default, "a string or a number" if len(types) > 1 else "a string"
    if missing and key is not None:
        problem = f"field {field!r} is empty; the specification names it ({set_by}), so that each record needs it"
        raise BadRecord(f"{field!r} is empty", problem)
    if not missing and type(value) not in types:
        raise wrong_type(field, f"field {field!r} ({set_by})", value, wanted)
    return "" if missing else str(value)


def split_of(record: dict[str, Any], field: str | None) -> SplitName | None:
    """The split that a record names in ``field``, null for none. Raises BadRecord."""
    if field is None:
        return None
    value = field_of(record, field, "sources.split_field")
    if value is None or value in ("train", "heldout"):
        return value
    told = repr(value) if isinstance(value, str) else kind(value)
    problem = f"field {field!r} is {told}; write train or heldout, or null where the text is to decide"
    raise BadRecord(f"{field!r} is not train or heldout", problem)
