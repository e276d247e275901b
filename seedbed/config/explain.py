"""What pydantic found wrong with a configuration, in one line: where, what, and what was probably meant."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from seedbed.config.options import ELSEWHERE, close_name, options_model, suggest
from seedbed.config.tree import Config, InitConfig
from seedbed.laws import find_law, known_laws


def explain(
    error: ValidationError, where: str, origin: dict[tuple[str, ...], str], tree: type[BaseModel] = Config
) -> str:
    """One line for the first problem with a ``tree``, with the count of the others."""
    problems = error.errors()
    first = problems[0]
    places = [[str(part) for part in problem["loc"] if not _is_branch(part, problem["loc"])] for problem in problems]
    loc = places[0]
    source = _source(loc, first["type"], first["msg"], where, origin)
    dotted = ".".join(loc)
    kind, message = first["type"], first["msg"]
    if kind == "extra_forbidden":
        message = f"unknown key; {_key_hint(loc[-1], first['loc'], tree)}"
    elif kind == "value_error":
        message = message.removeprefix("Value error, ")
    elif kind == "literal_error" and isinstance(first["input"], str):
        words = re.findall(r"'([^']*)'", str(first.get("ctx", {}).get("expected", "")))
        message = f"unknown value {_show(first['input'])}; {suggest(first['input'], words)}"
        if len(words) > 1:
            message += f" ({' | '.join(words)})"
    elif kind == "union_tag_invalid":
        context = first.get("ctx", {})
        tag, words = str(context.get("tag")), re.findall(r"'([^']*)'", str(context.get("expected_tags")))
        dotted, message = dotted + ".kind", f"unknown value '{tag}'; {suggest(tag, words)} ({' | '.join(words)})"
    elif loc and str(first["loc"][-1]).startswith("constrained-"):
        message = f"write a whole number of steps (10) or a share of the run (0.02), not {_show(first['input'])}"
    elif kind == "missing":
        message = _missing(first["loc"], tree)
    elif kind in ("too_short", "string_too_short") and not first["input"]:
        message = "is empty; it needs one at least" if kind == "too_short" else "is empty"
    elif kind not in ("law", "law_option"):
        message = f"{message[0].lower()}{message[1:]}, not {_show(first['input'])}"
    if loc and loc[-1] == "[key]":  # so pydantic calls a key of a mapping, behind the key itself
        dotted, message = ".".join(loc[:-2]), f"the key {_show(first['input'])} {message}"
    others = len({tuple(place) for place in places}) - 1
    more = f" (and {others} more)" if others else ""
    return " ".join(f"{source}: {dotted + ': ' if dotted else ''}{message}{more}".splitlines())


def section(model: type[BaseModel], key: str, kind: str | None = None) -> type[BaseModel] | None:
    """The model of the section ``key`` of ``model`` (of its alternatives the one of this ``kind``), or None."""
    if key not in model.model_fields:
        return None
    options = list(_models(model.model_fields[key].annotation))
    named = [a for a in options[1:] if kind in get_args(a.model_fields["kind"].annotation)]
    return (named or options or [None])[0]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that an annotation names, also inside lists, mappings and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _show(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _source(loc: list[str], kind: str, message: str, where: str, origin: dict[tuple[str, ...], str]) -> str:
    """The last override that set the place or something in it; of a section whose fields do not fit each other, one
    that set a field which the message names."""
    for key in reversed(origin):
        shared = min(len(key), len(loc))
        if list(key[:shared]) == loc[:shared] and (kind != "value_error" or len(key) <= len(loc) or key[-1] in message):
            return origin[key]
    return where


def _is_branch(part: Any, loc: tuple[Any, ...]) -> bool:
    """Pydantic puts the branch of a union ('wsd', 'constrained-float') into the path; a reader's path has none."""
    index = loc.index(part)
    if index < len(loc) - 1:
        return index > 0 and loc[:index] == ("optim", "schedule")
    return index > 0 and part in ("int", "float", "constrained-int", "constrained-float", "tuple")


def _key_hint(key: str, loc: tuple[Any, ...], tree: type[BaseModel]) -> str:
    """A known key of the same section, or the path of a field elsewhere with the name that was meant."""
    known, paths = _known_keys(loc[:-1], tree), _paths(tree)
    exact = [path for path in paths if path.rpartition(".")[2] == key]
    if not exact and close_name(key, known) is None:
        meant = get_close_matches(key, [path.rpartition(".")[2] for path in paths], n=1, cutoff=0.8)
        if tree is Config:
            meant += [ELSEWHERE[name] for name in get_close_matches(key, ELSEWHERE, n=1, cutoff=0.8)]
        exact = [path for path in paths if meant and path.rpartition(".")[2] == meant[0]]
    return f"did you mean '{' or '.join(exact)}'?".replace(" or ", "' or '") if exact else suggest(key, known)


def _missing(loc: tuple[Any, ...], tree: type[BaseModel]) -> str:
    """What to say of a key that is not there: what it is for, in the words of its field."""
    field = _model_at(loc[:-1], tree).model_fields.get(str(loc[-1]))
    meaning = " ".join((field.description or "").split()) if field else ""
    return f"is missing: {meaning}" if meaning else "is missing"


def _known_keys(loc: tuple[Any, ...], model: type[BaseModel]) -> list[str]:
    return list(_model_at(loc, model).model_fields)


def _model_at(loc: tuple[Any, ...], model: type[BaseModel]) -> type[BaseModel]:
    """The section that a path leads to, or the one around what it leads to."""
    for index, key in enumerate(loc):
        inner = section(model, str(key), str(loc[index + 1]) if index + 1 < len(loc) else None)
        model = inner or model  # not a key: the branch of a union, which has been chosen already
    return model


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted paths of all fields that are not sections; the options of every law among them."""
    if model is InitConfig:
        names = ["law", *(option for law in known_laws() for option in options_model(find_law(law)).model_fields)]
        return [prefix + name for name in dict.fromkeys(names)]
    paths = []
    for key in model.model_fields:
        kinds = ("constant", "cosine", "wsd") if key == "schedule" else (None,)
        for inner in (section(model, key, kind) for kind in kinds):
            paths += [prefix + key] if inner is None else _paths(inner, f"{prefix}{key}.")
    return list(dict.fromkeys(paths))
