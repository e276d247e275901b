"""Law options: checked against the keyword arguments of the law's function."""

import inspect
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticCustomError

from seedbed.laws import Law, find_law, known_laws

# What other tools call our fields: not accepted, but the right name is suggested.
ELSEWHERE = {
    "learning_rate": "lr", "max_lr": "lr", "max_steps": "steps", "num_steps": "steps", "hidden_size": "d_model",
    "n_embd": "d_model", "dim": "d_model", "num_hidden_layers": "n_layers", "n_layer": "n_layers",
    "num_layers": "n_layers", "num_attention_heads": "n_heads", "n_head": "n_heads", "num_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads", "intermediate_size": "d_ff", "tie_word_embeddings": "tied",
    "rms_norm_eps": "norm_eps", "eps": "norm_eps", "grad_clip": "clip_norm", "context_length": "max_seq_len",
}  # fmt: skip


def close_name(word: str, known: list[str]) -> str | None:
    """The known word that is close to ``word``, or what other tools call one; None where there is none."""
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    elsewhere = get_close_matches(word, [name for name, ours in ELSEWHERE.items() if ours in known], n=1, cutoff=0.8)
    return (close or [ELSEWHERE[name] for name in elsewhere] or [None])[0]


def suggest(word: str, known: list[str]) -> str:
    """``"did you mean 'x'?"`` where a known word is close, else the list of known words."""
    close = close_name(word, known)
    return f"did you mean '{close}'?" if close else f"known: {', '.join(known) or 'none'}"


@cache
def options_model(law: Law) -> type[BaseModel]:
    """A strict pydantic model of a law's options, made from its signature."""
    parameters = inspect.signature(law, eval_str=True).parameters.values()
    fields: dict[str, Any] = {
        p.name: (
            Any if p.annotation is p.empty else p.annotation,
            ... if p.default is p.empty else p.default,
        )
        for p in parameters
        if p.kind is p.KEYWORD_ONLY
    }
    return create_model(
        "options", __config__=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False), **fields
    )  # a float option that is not finite is refused for every law


def law_options(law: str, options: dict[str, Any]) -> dict[str, Any]:
    """All options of ``law``, defaults filled in.

    Raises pydantic errors whose messages name the law or the option, with a suggestion.
    """
    known = known_laws()
    if law not in known:
        raise PydanticCustomError("law", "unknown law '{law}'; {hint}", {"law": law, "hint": suggest(law, known)})
    return checked_options(find_law(law), law, options)


def checked_options(function: Law, law: str, options: dict[str, Any]) -> dict[str, Any]:
    """:func:`law_options` of a law that is given as a function; ``law`` is what messages call it."""
    try:
        return options_model(function).model_validate(options).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            hint = suggest(name, list(options_model(function).model_fields))
            if name in inspect.signature(function).parameters:
                hint = "options are keyword-only: def law(fact, *, option)"
            problem = f"law '{law}' has no option '{name}'; {hint}"
        elif first["type"] == "missing":
            problem = f"law '{law}' needs option '{name}'"
        else:
            problem = f"option '{name}' of law '{law}': {first['msg']}, not {first['input']!r}"
        raise PydanticCustomError("law_option", "{problem}", {"problem": problem}) from None
