"""The JSON Schema of the configuration, with the options of every law."""

import inspect
from typing import Any

from seedbed.config.options import options_model
from seedbed.config.tree import Config
from seedbed.laws import find_law, known_laws


def schema() -> dict[str, Any]:
    """JSON Schema of Config. Laws registered by the user are in it too."""
    tree = Config.model_json_schema()
    branches = []
    for name in known_laws():
        law = find_law(name)
        options = options_model(law).model_json_schema()
        branches.append(
            {
                "type": "object",
                "description": inspect.getdoc(law) or "",
                "properties": {"law": {"const": name}, **options["properties"]},
                "required": ["law", *options.get("required", [])],
                "additionalProperties": False,
            }
        )
    default = next(branch for branch in branches if branch["properties"]["law"]["const"] == "gamma")
    default["required"] = [name for name in default["required"] if name != "law"]  # the law of a section without one
    tree["$defs"]["InitConfig"] = {"title": "InitConfig", "oneOf": branches}
    return tree
