"""The Jinja of chat templates.

Jinja alone renders, not Transformers: it is a dependency already and loads ten times faster. The tests hold ids and
mask against those of Transformers.
"""

import json
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """`{% generation %}`…`{% endgeneration %}`: as in Transformers, but marks in the text, which survive macros."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        start, end = (nodes.Output([nodes.Name(name, "load")]) for name in ("generation_start", "generation_end"))
        return [node.set_lineno(line) for node in (start, nodes.Scope(body), end)]


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    """As templates expect it: Jinja's own would escape for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment() -> ImmutableSandboxedEnvironment:
    """Chat templates as Transformers reads them, but for the one function that tells the date (strftime_now).

    It is left out on purpose: a store must not change from day to day, and templates that use it have a fixed date
    for where it is missing. The names `generation_start` and `generation_end` hold the marks.
    """
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise_exception
    return made
