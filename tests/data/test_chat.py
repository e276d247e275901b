import re

import pytest
from chat_templates import (
    ALPACA,
    CHATML_PLAIN,
    LLAMA,
    MARKED_CONTENT,
    MARKED_IN_MACRO,
    MARKED_LINE,
    MISTRAL,
    THINKING,
    chat_tokenizer,
)

from seedbed.data.chat import Chat, Span
from seedbed.data.document import Conversation
from seedbed.data.template import CHATML, load_template
from seedbed.errors import InputError

QUESTION, ANSWER = {"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "It is 4."}
TWO_TURNS = [QUESTION, ANSWER, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]


@pytest.fixture(scope="module")
def chat_tok(tokenizer, tmp_path_factory):
    return chat_tokenizer(tokenizer, tmp_path_factory.mktemp("chat") / "tokenizer", template=LLAMA)


@pytest.fixture(scope="module")
def foreign(chat_tok):
    """The same folder as Transformers reads it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(chat_tok.folder))


def render(messages, template, tokenizer, roles=("assistant",)) -> list[Span]:
    return Chat(template, tokenizer).render(Conversation(messages, list(roles)), "a.jsonl:7")


def text(spans) -> str:
    return "".join(span.text for span in spans)


def trained(spans) -> list[str]:
    """What is trained, one string for each stretch."""
    marked = "".join(span.text if span.trained else "\0" for span in spans)
    return [piece for piece in marked.split("\0") if piece]


def controls(spans) -> list[str]:
    return [span.text for span in spans if span.control]


@pytest.mark.parametrize("template", [CHATML, CHATML_PLAIN, MARKED_IN_MACRO], ids=["marked", "prefixes", "macro"])
def test_both_answers_and_their_ends_are_trained(template, chat_tok):
    assert trained(render(TWO_TURNS, template, chat_tok)) == ["It is 4.<|im_end|>", "Yes.<|im_end|>"]


def test_marks_and_prefixes_give_the_same_spans(chat_tok):
    system = {"role": "system", "content": "Be brief."}
    for messages in (TWO_TURNS, [system, *TWO_TURNS], [ANSWER], [QUESTION, ANSWER, ANSWER], [system]):
        assert render(messages, CHATML, chat_tok) == render(messages, CHATML_PLAIN, chat_tok)


def test_the_spans_of_llama(chat_tok):
    user, header = [("<|start_header_id|>", 0, 1), ("user", 0, 0)], [("<|start_header_id|>", 0, 1), ("assistant", 0, 0)]
    end = ("<|end_header_id|>", 0, 1)
    expected = [*user, end, ("\n\nWhat is 2+2?", 0, 0), ("<|eot_id|>", 0, 1)]
    expected += [*header, end, ("\n\n", 0, 0), ("It is 4.", 1, 0), ("<|eot_id|>", 1, 1)]
    assert render(TWO_TURNS[:2], LLAMA, chat_tok) == expected  # the template's begin of text is not among them


def test_the_spans_of_mistral(chat_tok):
    spans = render(TWO_TURNS, MISTRAL, chat_tok)
    assert text(spans) == "[INST] What is 2+2? [/INST] It is 4.<|eos|>[INST] Sure? [/INST] Yes.<|eos|>"
    assert trained(spans) == [" It is 4.<|eos|>", " Yes.<|eos|>"]
    assert controls(spans) == ["<|eos|>"] * 2


def test_what_a_template_refuses_is_named(chat_tok):
    with pytest.raises(InputError, match=r"^a\.jsonl:7: .*only user and assistant may speak"):
        render([{"role": "system", "content": "x"}, *TWO_TURNS], MISTRAL, chat_tok)
    with pytest.raises(InputError, match="first 2 messages: .*no form for tool_calls"):
        render([QUESTION, {**ANSWER, "tool_calls": [{"name": "f"}]}], CHATML, chat_tok)
    with pytest.raises(InputError, match=r"^a\.jsonl:7: .*content"):
        render([QUESTION, {"role": "assistant", "content": None}], CHATML, chat_tok)


def test_thinking_that_is_stripped_from_earlier_turns_is_refused(chat_tok):
    thought = {"role": "assistant", "content": "<think>hm</think>It is 4."}
    assert trained(render([QUESTION, thought], THINKING, chat_tok)) == ["<think>hm</think>It is 4.<|im_end|>"]
    assert trained(render(TWO_TURNS, THINKING, chat_tok)) == ["It is 4.<|im_end|>", "Yes.<|im_end|>"]
    with pytest.raises(InputError, match=r"^a\.jsonl:7: message 2: .*strips thinking.*generation"):
        render([QUESTION, thought, *TWO_TURNS[2:]], THINKING, chat_tok)


def test_a_template_that_drops_turns_is_refused(chat_tok):
    last = "{% set messages = messages[-2:] %}" + CHATML_PLAIN
    with pytest.raises(InputError, match="message 2: .*drops turns"):
        render(TWO_TURNS, last, chat_tok)


def test_a_prompt_that_no_answer_follows_is_refused(chat_tok):
    for prompt in ("<|im_start|>assistant\\n<think>\\n", "<|im_start|>user"):
        template = CHATML_PLAIN.replace("'<|im_start|>assistant\\n'", f"'{prompt}'")
        with pytest.raises(InputError, match="message 2: .*otherwise in the prompt"):
            render(TWO_TURNS, template, chat_tok)
    forgets = "{% if not add_generation_prompt %}" + CHATML_PLAIN.rstrip() + "{% endif %}"
    with pytest.raises(InputError, match="message 4: .*otherwise in the prompt"):
        render(TWO_TURNS, forgets, chat_tok)


def test_an_end_without_control_token_gets_the_end_of_text(chat_tok):
    spans = render(TWO_TURNS, ALPACA, chat_tok)
    assert text(spans).endswith("### assistant:\nYes.\n\n<|eos|>")
    assert trained(spans) == ["It is 4.\n\n", "Yes.\n\n<|eos|>"]
    middle = Chat(ALPACA, chat_tok).render(Conversation(TWO_TURNS, ["assistant"]), "", last=False)
    assert middle == spans[:-1]


def test_the_end_is_not_trained_behind_a_question(chat_tok):
    assert render([ANSWER, QUESTION], ALPACA, chat_tok)[-1] == ("<|eos|>", False, True)


def test_an_end_of_turn_outside_the_marks_is_trained(chat_tok):
    spans = render(TWO_TURNS, MARKED_CONTENT, chat_tok)
    assert trained(spans) == ["It is 4.\n<|im_end|>", "Yes.\n<|im_end|>"]


def test_what_follows_a_marked_end_of_turn_is_not_trained(chat_tok):
    spans = render(TWO_TURNS, MARKED_LINE, chat_tok)
    assert trained(spans) == ["It is 4.<|im_end|>\n", "Yes.<|im_end|>\n"]


def test_marks_side_by_side_are_one_stretch_of_text(chat_tok):
    template = "<|im_start|>{% generation %}a{% endgeneration %}{% generation %}b{% endgeneration %}<|im_end|>"
    assert render([ANSWER], template, chat_tok)[1:] == [("ab", True, False), ("<|im_end|>", True, True)]


def test_a_stretch_goes_on_behind_a_control_token_inside_it(chat_tok):
    template = CHATML_PLAIN.replace("message.content + '<|im_end|>'", "'<|eot_id|>' + message.content")
    assert trained(render(TWO_TURNS, template, chat_tok)) == [
        "<|eot_id|>It is 4.\n<|im_start|>",
        "<|eot_id|>Yes.\n<|eos|>",
    ]


def test_the_language_of_templates(chat_tok, foreign):
    """Scopes, loop controls, white space around blocks and JSON, against Transformers."""
    template = """\
{% set ns = namespace(n=0) %}{% set x = 'out' %}
{% for m in messages %}
    {% generation %}{% set x = 'in' %}{% set ns.n = ns.n + 1 %}{{ x }}{% endgeneration %}
    {{ x }} {{ ns.n }} {{ m | tojson }} {{ m | tojson(indent=2) }}
    {% if loop.index == 2 %}{% break %}{% endif %}

{% endfor %}
{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ pad_token }}
"""
    messages = [{**message, "name": None, "thinking": "<b> é"} for message in TWO_TURNS]
    theirs = foreign.apply_chat_template(messages, chat_template=template, tokenize=False)
    assert text(render(messages, template, chat_tok)) == theirs + "<|eos|>"


def test_other_roles_are_trained_from_their_content_on(chat_tok):
    messages = [QUESTION, ANSWER, QUESTION, {"role": "tool", "content": "tool"}, ANSWER]
    for template, end in ((CHATML, "<|im_end|>"), (LLAMA, "<|eot_id|>")):
        assert trained(render(messages, template, chat_tok, ["tool"])) == [f"tool{end}"]
        both = render(messages, template, chat_tok, ["assistant", "tool"])
        assert trained(both) == [f"It is 4.{end}", f"tool{end}", f"It is 4.{end}"]


def test_roles_that_never_occur_train_nothing(chat_tok):
    for template in (CHATML, CHATML_PLAIN, LLAMA, ALPACA):
        assert not trained(render([QUESTION], template, chat_tok))
        assert not trained(render(TWO_TURNS, template, chat_tok, ["model"]))


def test_an_empty_answer_is_its_end(chat_tok):
    messages = [QUESTION, {"role": "assistant", "content": ""}]
    for template in (CHATML, CHATML_PLAIN):
        assert trained(render(messages, template, chat_tok)) == ["<|im_end|>"]


MESSAGE_TEMPLATES = {"marked": CHATML, "prefixes": CHATML_PLAIN, "llama": LLAMA, "mistral": MISTRAL}
LITERALS = [
    "<|im_end|>",
    "<|eos|>",
    "<|bos|>",
    "a<|im_start|>assistant\nb<|im_end|>",
    "<|<|eos|>eos|>",
    "<|im_end|>" * 3,
]


@pytest.mark.parametrize("name", MESSAGE_TEMPLATES)
@pytest.mark.parametrize("literal", LITERALS)
def test_a_control_token_in_a_message_is_text(name, literal, chat_tok):
    def said(word):
        return [{"role": "user", "content": f"say {word}"}, {"role": "assistant", "content": f"{word} it is"}]

    template = MESSAGE_TEMPLATES[name]
    plain, spans = render(said("X"), template, chat_tok), render(said(literal), template, chat_tok)
    assert spans == [span._replace(text=span.text.replace("X", literal)) for span in plain]


def test_a_control_token_in_a_name_a_role_or_an_argument_is_text(chat_tok):
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}|{{ m.name }}|{{ m.tool_calls | tojson }}|"
        "{{ m.tool_calls | tojson(ensure_ascii=True) }}<|im_end|>{% endfor %}"
    )
    message = {"role": "<|eos|>", "name": "<|im_end|>", "tool_calls": [{"<|bos|>": ["<|eos|>", 1, None, True]}]}
    spans = render([message], template, chat_tok)
    assert controls(spans) == ["<|im_start|>", "<|im_end|>"]
    call = '[{"<|bos|>": ["<|eos|>", 1, null, true]}]'
    assert text(spans) == f"<|im_start|><|eos|>|<|im_end|>|{call}|{call}<|im_end|>"


def test_tokens_that_overlap_or_have_one_character(tokenizer, tmp_path):
    tok = chat_tokenizer(tokenizer, tmp_path / "t", control=["<s>", "<<s>>", "<s>>", ">>", "¤", "<|im_end|>"])
    content = "<<s>> <s>> ¤¤ <<s>¤"
    template = "¤{% for m in messages %}{{ m.content }}<<s>>¤<s>>{% endfor %}"
    spans = render([{"role": "assistant", "content": content}], template, tok)
    written = [("<<s>>", True, True), ("¤", True, True), ("<s>>", True, True)]
    assert spans == [("¤", False, True), (content, True, False), *written]


def test_noncharacters_in_a_message_are_kept(chat_tok):
    content = "\ufdd0<|im_end|>\ufdd1 \\ufdd2 \ufdd3"
    spans = render([QUESTION, {"role": "assistant", "content": content}], CHATML, chat_tok)
    assert spans[-3:-1] == [(content, True, False), ("<|im_end|>", True, True)]
    every = "".join(map(chr, range(0xFDD0, 0xFDF0)))
    with pytest.raises(InputError, match=r"a\.jsonl:7: .*U\+FDD0"):
        render([{"role": "user", "content": every}], CHATML, chat_tok)


def test_one_begin_of_text_at_most(chat_tok):
    for template in ("{{ bos_token }}{{ bos_token }}x", "x{{ bos_token }}", "{{ bos_token }}x{{ bos_token }}"):
        with pytest.raises(InputError, match=r"a\.jsonl:7: .*<\|bos\|> twice, or not at the start"):
            render(TWO_TURNS, template, chat_tok)


def test_a_begin_of_text_that_opens_turns(chat_tok, monkeypatch):
    """As in SmolLM2-Instruct: ids are those of the text that Transformers renders, the first token once."""
    monkeypatch.setattr(chat_tok, "bos_token", "<|im_start|>")
    template = CHATML_PLAIN.replace("{{ bos_token }}\n", "")
    spans = render(TWO_TURNS, template, chat_tok)
    assert trained(spans) == ["It is 4.<|im_end|>", "Yes.<|im_end|>"]
    assert controls(spans).count("<|im_start|>") == 3  # the first one is prepended by whoever encodes
    assert text(spans).startswith("user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n")
    with pytest.raises(InputError, match=r"<\|im_start\|> twice, or not at the start"):
        render(TWO_TURNS, f"x{template}", chat_tok)
    with pytest.raises(InputError, match=r"<\|im_start\|> twice, or not at the start"):
        render(TWO_TURNS, CHATML, chat_tok)  # writes bos_token, and then <|im_start|> for the first turn


def test_a_tokenizer_whose_begin_is_its_end(chat_tok, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(chat_tok, "bos_token", "<|eos|>")
    assert trained(render(TWO_TURNS, MISTRAL, chat_tok)) == [" It is 4.<|eos|>", " Yes.<|eos|>"]


def test_a_template_sees_no_begin_of_text_where_there_is_none(tokenizer, tmp_path):
    tok = chat_tokenizer(tokenizer, tmp_path / "t", bos=False)
    assert text(render([QUESTION], "{{ bos_token }}{% if bos_token is defined %}?{% endif %}x", tok)) == "x<|eos|>"


def test_names_of_the_reasoning_are_one(chat_tok):
    template = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.content }}{% endfor %}"
    for name in ("reasoning", "thinking", "reasoning_content"):
        message = {"role": "assistant", name: "hm", "content": "4"}
        assert text(render([message], template, chat_tok)) == "hm|hm|4<|eos|>"


def test_the_date_is_no_input(chat_tok):
    guarded = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}2024{% endif %}"
    assert text(render([QUESTION], guarded, chat_tok)) == "2024<|eos|>"
    with pytest.raises(InputError, match="strftime_now"):
        render([QUESTION], "{{ strftime_now('%Y') }}", chat_tok)


def test_templates_by_name(chat_tok, tokenizer, tmp_path):
    assert load_template("chatml", chat_tok) == CHATML
    assert load_template("tokenizer", chat_tok) == LLAMA
    file = tmp_path / "mine.jinja"
    file.write_text("{{ messages }}é", encoding="utf-8")
    assert load_template(str(file), tokenizer) == "{{ messages }}é"


def test_templates_that_are_none(tokenizer, tmp_path):
    with pytest.raises(InputError, match="the tokenizer has none of its own; use chatml"):
        load_template("tokenizer", tokenizer)
    for wrong in ("chatlm", str(tmp_path)):
        with pytest.raises(InputError, match=f"{re.escape(wrong)}: not tokenizer, not chatml, nor a file"):
            load_template(wrong, tokenizer)
    file = tmp_path / "broken.jinja"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="nor a file"):
        load_template(str(file), tokenizer)
    file.write_text("{% for m in messages %}\n{{ m.content }\n{% endfor %}")
    with pytest.raises(InputError, match=r"broken\.jinja: line 2: not valid Jinja"):
        load_template(str(file), tokenizer)


@pytest.mark.parametrize("written", ["<|im_end|>", "{{ '<|im_end|>' + '' }}", "{% set x = '<|im_end|>' %}{{ x }}"])
def test_a_control_token_that_the_tokenizer_lacks(written, tokenizer, chat_tok, tmp_path):
    file = tmp_path / "t.jinja"
    file.write_text(f"[INST] <b> {written}")
    with pytest.raises(InputError, match=r"writes <\|im_end\|>, .*--special-token '<\|im_end\|>'"):
        load_template(str(file), tokenizer)
    assert load_template(str(file), chat_tok) == f"[INST] <b> {written}"
