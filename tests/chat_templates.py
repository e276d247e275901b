"""Chat templates of the shapes that are met, and tokenizers that hold their control tokens."""

import json
import re
from pathlib import Path

import tokenizers

from seedbed.data.template import CHATML
from seedbed.data.tokenizer import Tokenizer, load_tokenizer

CHATML_PLAIN = re.sub(r"\{%- (end)?generation %\}", "", CHATML)

LLAMA = """\
{% for m in messages %}
{% if loop.first %}{{ bos_token }}{% endif %}
{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}{{ m['content'] | trim }}<|eot_id|>
{%- endfor %}
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""

MISTRAL = """\
{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% elif m.role ==
'assistant' %} {{ m.content }}{{ eos_token }}{% else %}{{ raise_exception('only user and assistant may speak') }}
{%- endif %}{% endfor %}
"""

# what the assistant thought is kept in the last turn alone
THINKING = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and '</think>' in m.content and not loop.last %}{{ m.content.split('</think>')[1] }}
{%- else %}{{ m.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
"""

# no control token at all
ALPACA = """\
{% for m in messages %}### {{ m.role }}:
{{ m.content }}

{% endfor %}{% if add_generation_prompt %}### assistant:
{% endif %}
"""

# the end of the turn is not marked
MARKED_CONTENT = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}

<|im_end|>
{% endfor %}
"""

# the line end behind the end of the turn is marked too
MARKED_LINE = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>\\n' }}{% endgeneration %}{% else %}
{{- m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}
"""

MARKED_IN_MACRO = """\
{% macro say(m) %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}
{{- '<|im_end|>' }}{% endif %}{% endmacro %}
{% for m in messages %}{{ say(m) }}
{% endfor %}
"""

CONTROL = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]


def chat_tokenizer(
    base: Tokenizer, folder: Path, template: str | None = None, control: list[str] = CONTROL, bos: bool = True
) -> Tokenizer:
    """``base`` with more control tokens, a template of its own, and with or without a begin of text."""
    folder.mkdir(parents=True)
    backend = tokenizers.Tokenizer.from_file(str(base.folder / "tokenizer.json"))
    backend.add_special_tokens(control)
    backend.save(str(folder / "tokenizer.json"))
    config = json.loads((base.folder / "tokenizer_config.json").read_text())
    config.pop("padded_vocab_size", None)
    if not bos:
        del config["bos_token"]
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_tokenizer(folder)
