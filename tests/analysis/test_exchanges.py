"""Records of the usual shapes become an instruction and a response; what cannot is told or counted."""

import json

import pytest
from chat_templates import ALPACA, CHATML_PLAIN, LLAMA, chat_tokenizer

from seedbed.analysis.exchanges import JOINT, Fields, read_exchanges
from seedbed.data.bpe import train_tokenizer
from seedbed.errors import InputError

USER, ASSISTANT = {"role": "user", "content": "Wie weit?"}, {"role": "assistant", "content": "384 400 km."}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return train_tokenizer(["how far is the moon", "it is far away"], 263, tmp_path_factory.mktemp("t") / "tokenizer")


@pytest.fixture(scope="module")
def plain(base, tmp_path_factory):
    return chat_tokenizer(base, tmp_path_factory.mktemp("p") / "tokenizer")


@pytest.fixture
def read(tmp_path, plain):
    def read(records, tokenizer=plain, length=1000, **options):
        file = tmp_path / "a.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return read_exchanges([file], tokenizer, length, **options)

    return read


SHAPES = {
    "messages": {"messages": [USER, ASSISTANT]},
    "prompt": {"prompt": USER["content"], "response": ASSISTANT["content"]},
    "messages as prompt": {"prompt": [USER], "completion": ASSISTANT},
    "instruction": {"instruction": USER["content"], "input": "", "output": ASSISTANT["content"]},
    "question": {"id": 7, "question": USER["content"], "answer": ASSISTANT["content"]},
}


@pytest.mark.parametrize("record", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_gives_the_same(record, read, plain):
    (found,) = read([record]).found
    assert (found.instruction, found.response) == ("Wie weit?", "384 400 km.")
    assert found.prompt_ids == [plain.bos_id, *plain.encode("Wie weit?" + JOINT)]
    assert found.response_ids == plain.encode("384 400 km.")
    assert found.where.endswith("a.jsonl:1") and found.id == str(record.get("id", found.where))


def test_an_input_belongs_to_the_instruction(read):
    record = {"instruction": "Translate.", "input": "月亮", "output": "the moon"}
    assert read([record]).found[0].instruction == f"Translate.{JOINT}月亮"


def test_the_last_turn_of_the_assistant_is_the_response(read):
    turns = [USER, ASSISTANT, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes, sure."}]
    (found,) = read([{"messages": [*turns, {"role": "user", "content": "Thanks."}]}]).found
    assert found.response == "Yes, sure."
    assert found.instruction == JOINT.join(["Wie weit?", "384 400 km.", "Sure?"])


@pytest.mark.parametrize("template", [CHATML_PLAIN, LLAMA, ALPACA], ids=["chatml", "llama", "alpaca"])
@pytest.mark.parametrize("bos", [True, False])
def test_a_response_under_a_chat_template_has_the_ids_of_its_text(template, bos, base, read, tmp_path):
    """Whatever the template writes around it; the control token that ends the turn is no part of it."""
    tokenizer = chat_tokenizer(base, tmp_path / "t", template, bos=bos)
    exchanges = read([SHAPES["messages"]], tokenizer)
    (found,) = exchanges.found
    assert exchanges.template == "tokenizer"
    assert tokenizer.decode(found.response_ids) == "384 400 km."
    assert not set(found.response_ids) & set(tokenizer.special_tokens.values())
    assert (found.prompt_ids[0] == tokenizer.bos_id) == bos
    assert "Wie weit?" in tokenizer.decode(found.prompt_ids)


HEADED = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}"""
"""Has no generation prompt: the header comes with the answer."""
THINKING = HEADED.replace(
    "{{ m.content", "{% if m.role == 'assistant' %}<|im_start|>hm<|im_end|>\n{% endif %}{{ m.content"
)


@pytest.mark.parametrize("template", [HEADED, THINKING], ids=["header", "empty thought"])
@pytest.mark.parametrize("answer", ["384 400 km.", "assistant answers", "hm, far"])
def test_what_a_template_writes_before_the_answer_is_read_not_measured(template, answer, base, read, tmp_path):
    tokenizer = chat_tokenizer(base, tmp_path / "t", template)
    (found,) = read([{"prompt": "Wie weit?", "response": answer}], tokenizer).found
    assert found.response_ids == tokenizer.encode(answer)
    written = "assistant\n" + ("" if template == HEADED else "<|im_start|>hm<|im_end|>\n")
    assert tokenizer.decode(found.prompt_ids).endswith(written.replace("<|im_start|>", "").replace("<|im_end|>", ""))


def test_a_space_before_the_answer_stays_with_it(base, read, tmp_path):
    template = "{% for m in messages %}{{ '[I] ' + m.content if m.role == 'user' else ' ' + m.content + eos_token }}"
    tokenizer = chat_tokenizer(base, tmp_path / "t", template + "{% endfor %}")
    (found,) = read([{"prompt": "Wie weit?", "response": "far away"}], tokenizer).found
    assert found.response_ids == tokenizer.encode(" far away")


@pytest.mark.parametrize("content", ["m.content | upper", "''", "m.content | replace(' ', '<|im_end|>')"])
def test_an_answer_that_the_template_rewrites_is_left_out_and_counted(content, base, read, tmp_path):
    template = HEADED.replace("m.content", f"{content} if m.role == 'assistant' and ' ' in m.content else m.content")
    tokenizer = chat_tokenizer(base, tmp_path / "t", template)
    kept = {"prompt": "Wie weit?", "response": "384400"}
    exchanges = read([SHAPES["prompt"] | {"response": "far away"}, kept], tokenizer)
    assert [one.response for one in exchanges.found] == ["384400"]
    assert exchanges.skipped == {"the template rewrites the answer": 1}


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
@pytest.mark.parametrize("template", [None, HEADED])
def test_an_answer_with_reasoning_of_its_own_is_left_out_and_counted(key, template, base, read, tmp_path):
    tokenizer = chat_tokenizer(base, tmp_path / "t", template)
    with_reasoning = {"messages": [USER, ASSISTANT | {key: "Let me see."}]}
    as_response = {"prompt": "Wie weit?", "completion": ASSISTANT | {key: "Let me see."}}
    without = {"messages": [USER, ASSISTANT | {key: ""}]}
    exchanges = read([with_reasoning, as_response, without], tokenizer)
    assert [one.response for one in exchanges.found] == ["384 400 km."]
    assert exchanges.skipped == {"an answer with reasoning apart from its text, which would be read before it": 2}


def test_an_answer_that_spells_a_control_token_is_no_rewritten_one(base, read, tmp_path):
    tokenizer = chat_tokenizer(base, tmp_path / "t", HEADED)
    (found,) = read([{"prompt": "Wie weit?", "response": "far <|im_end|> away"}], tokenizer).found
    assert found.response_ids[0] == tokenizer.encode("far")[0]
    assert tokenizer.token_id("<|im_end|>") not in found.response_ids


def test_a_template_can_be_chosen(base, read, tmp_path):
    tokenizer = chat_tokenizer(base, tmp_path / "t", LLAMA)
    by_name = read([SHAPES["prompt"]], tokenizer, chat_template="chatml").found[0]
    assert tokenizer.token_id("<|im_start|>") in by_name.prompt_ids
    none = read([SHAPES["prompt"]], tokenizer, chat_template="none").found[0]
    assert none.prompt_ids == [tokenizer.bos_id, *tokenizer.encode("Wie weit?" + JOINT)]
    with pytest.raises(InputError, match="chat_template: missing.jinja: not tokenizer, not chatml, nor a file"):
        read([SHAPES["prompt"]], tokenizer, chat_template="missing.jinja")


def test_case_44_what_has_no_loss_to_compare_is_counted(read):
    records = [
        {"prompt": "q", "response": " "},
        {"prompt": "", "response": "an answer"},
        {"prompt": "q", "response": "a"},
        {"messages": [USER]},
        {"messages": [ASSISTANT]},
        {"prompt": "how " * 40, "response": "an answer"},
        SHAPES["prompt"],
    ]
    exchanges = read(records, length=40)
    assert len(exchanges.found) == 1
    assert exchanges.skipped == {
        "empty response": 1,
        "no instruction": 2,
        "a response of a single token": 1,
        "no turn of the assistant": 1,
        "longer than 40 tokens": 1,
    }
    with pytest.raises(InputError, match=r"a\.jsonl: no instruction with a response to read \(1 × empty response\)"):
        read(records[:1])


def test_a_length_that_just_fits(read):
    (found,) = read([SHAPES["prompt"]]).found
    exact = len(found.prompt_ids) + len(found.response_ids)
    assert len(read([SHAPES["prompt"]], length=exact).found) == 1
    with pytest.raises(InputError, match="longer than"):
        read([SHAPES["prompt"]], length=exact - 1)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (
            {"text": "x", "domain": "y"},
            "a.jsonl:2: no field with an instruction .* are: domain, text; .*--prompt-field",
        ),
        (
            {"prompt": "x", "reply": "y"},
            "a.jsonl:2: no field with a response .* are: prompt, reply; .*--response-field",
        ),
        ({"prompt": 3, "response": "y"}, "a.jsonl:2: field 'prompt' is a number, not a string"),
        ({"messages": "x"}, "a.jsonl:2: field 'messages' is a string, not a list of messages"),
        ({"messages": [{"role": "user"}]}, "a.jsonl:2: message 1 of field 'messages' is an object, not an object with"),
        ({"prompt": "\ud800", "response": "y"}, "a.jsonl:2: a text holds a lone surrogate"),
        ([1], "a.jsonl:2: a list, not an object"),
    ],
)
def test_a_record_of_another_shape_stops_or_is_counted(record, problem, read):
    with pytest.raises(InputError, match=problem):
        read([SHAPES["prompt"], record])
    exchanges = read([SHAPES["prompt"], record], on_bad="skip")
    assert len(exchanges.found) == 1 and exchanges.skipped.total() == 1


def test_fields_by_name(read):
    record = {"messages": "x", "ask": [USER], "chosen": ASSISTANT["content"]}
    (found,) = read([record], fields=Fields("ask", "chosen")).found
    assert (found.instruction, found.response) == ("Wie weit?", "384 400 km.")
    with pytest.raises(InputError, match="no field 'asked'; the keys there are: ask, chosen, messages; did you mean"):
        read([record], fields=Fields("asked", "chosen"))


def test_what_a_template_refuses(base, read, tmp_path):
    template = "{{ raise_exception('no') if messages[0].content == 'bad' else messages[0].content }}"
    tokenizer = chat_tokenizer(base, tmp_path / "t", template + "{{ eos_token }}")
    with pytest.raises(InputError, match=r"a\.jsonl:1: chat template.*no.*on_bad: skip"):
        read([{"prompt": "bad", "response": "an answer"}], tokenizer)


def test_only_so_many_are_read(read):
    assert len(read([SHAPES["prompt"]] * 5, count=2).found) == 2


def test_files_are_read_in_turns(tmp_path, plain):
    for name, responses in (("a", ["a one", " ", "a two", "a three", ""]), ("b", ["b one"]), ("c", ["c one", "c two"])):
        lines = (json.dumps({"prompt": "q", "response": response}) + "\n" for response in responses)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    exchanges = read_exchanges([tmp_path], plain, 1000, count=5)
    assert [one.response for one in exchanges.found] == ["a one", "a two", "b one", "c one", "c two"]
    assert exchanges.skipped == {"empty response": 1}  # what was not read is not counted
    assert exchanges.asked == 5
    whole = read_exchanges([tmp_path], plain, 1000)
    assert len(whole.found) == 6 and whole.skipped == {"empty response": 2} and whole.asked is None
