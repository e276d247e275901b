"""Chat templates: the built-in one, those of tokenizers and files, and what is wrong with one before it is used."""

import re
from collections.abc import Callable
from pathlib import Path

import jinja2
from jinja2 import meta, nodes

from seedbed.data.jinja import environment
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError

CHATML = """\
{{ bos_token }}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {{- raise_exception('chatml has no form for tool_calls; use a template that writes them') }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
            {{- message.content + '<|im_end|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message.content + '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""`<|im_start|>role`, a new line, the content, `<|im_end|>`, a new line; what the assistant says is marked."""

_CONTROL_FORM = re.compile(r"<\|[^<>|\s]+\|>|<｜[^<>｜\s]+｜>|</?s>|<(?:start|end)_of_\w+>")
"""What only a control token looks like; `[INST]` and `<tool_call>` may be plain text."""


def load_template(name: str, tokenizer: Tokenizer, tools: bool = False) -> str:
    """The chat template of a specification: "tokenizer" (its own), "chatml", or a file.

    Raises InputError where there is none, where it is no valid Jinja, where it writes what looks like a control token
    but is none of the tokenizer's, so that it would silently become plain text, and where it never reads the ``tools``
    that records have.
    """
    if name == "chatml":
        template = CHATML
    elif name == "tokenizer":
        if tokenizer.chat_template is None:
            raise InputError("chat_template: the tokenizer has none of its own; use chatml, or name a file")
        template = tokenizer.chat_template
    else:
        try:
            template = Path(name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"chat_template: {name}: not tokenizer, not chatml, nor a file of text: {error}") from None
    check_template(template, f"chat_template: {name}", lambda token: tokenizer.token_id(token) is not None)
    if tools and "tools" not in meta.find_undeclared_variables(environment().parse(template)):
        raise InputError(
            f"chat_template: {name}: never reads tools, so a section's tools would change nothing; leave them out, or "
            "use a template that writes them"
        )
    return template


def check_template(template: str, where: str, is_token: Callable[[str], bool]) -> None:
    """Raise InputError, which begins with ``where``, unless ``template`` is Jinja that writes only known tokens."""
    try:
        tree = environment().parse(template)
    except jinja2.TemplateSyntaxError as error:
        raise InputError(f"{where}: line {error.lineno}: not valid Jinja: {error.message}") from None
    written = [data.data for data in tree.find_all(nodes.TemplateData)]
    written += [const.value for const in tree.find_all(nodes.Const) if isinstance(const.value, str)]
    lacking = [token for token in dict.fromkeys(_CONTROL_FORM.findall("\0".join(written))) if not is_token(token)]
    if lacking:
        names = f"{', '.join(lacking)}, which {'is no token' if len(lacking) == 1 else 'are no tokens'}"
        options = " ".join(f"--special-token '{token}'" for token in lacking)
        raise InputError(
            f"{where}: writes {names} of the tokenizer and would become plain text; train the tokenizer with "
            f"`{options}`, or use another template"
        )
