"""Stores of several outputs a record, from raw records to records read back."""

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_records import chatml, prepared, same, targets, text
from tiny import config

from seedbed import cli
from seedbed.data.spec import spec_from
from seedbed.data.split import IGNORED
from seedbed.errors import InputError

NONE = {"packing": {"strategy": "none", "seq_len": 64}}
PAIRS = {
    "chat_template": "chatml",
    "outputs": {
        name: {"sections": [{"field": "prompt", "answer": name, "action": "by_role"}]}
        for name in ("chosen", "rejected")
    },
    **NONE,
}
GROUPS = {
    "chat_template": "chatml",
    "outputs": {
        "prompt": {"sections": [{"field": "prompt", "action": "by_role", "roles": []}]},
        "responses": {"sections": [{"field": "responses"}], "each": True},
        "whole": {"sections": [{"field": "prompt", "answer": "responses", "action": "by_role"}], "each": True},
        "rewards": {"numbers": "rewards"},
        "label": {"numbers": "label"},
    },
    **NONE,
}

pytestmark = pytest.mark.usefixtures("no_flush")


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def reply(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def pair(number: int, **fields) -> dict:
    return {"prompt": [user(f"question {number}")], "chosen": f"yes {number}", "rejected": f"no {number}", **fields}


def is_group(tokenizer, found: dict, record: dict) -> bool:
    """Whether a record read from a store of GROUPS is the raw one, by the tokenizer alone."""
    prompt, responses = record["prompt"], record["responses"]
    messages = [user(prompt)] if isinstance(prompt, str) else prompt
    return (
        list(found) == list(GROUPS["outputs"])
        and [same(one, chatml(tokenizer, messages, ())) for one in found["prompt"]] == [True]
        and [same(*both) for both in zip(found["responses"], [text(tokenizer, r) for r in responses], strict=True)]
        == [True] * len(responses)
        and [
            same(one, chatml(tokenizer, [*messages, reply(response)], [len(messages)]))
            for one, response in zip(found["whole"], responses, strict=True)
        ]
        == [True] * len(responses)
        and found["rewards"] == record["rewards"]
        and found["label"] == [float(record["label"])]
    )


WORDS = st.text(st.sampled_from("ab 床\n<|>😀"), max_size=12).map(lambda words: f"x{words}")
RECORDS = st.lists(
    st.lists(st.tuples(WORDS, st.floats(-10, 10)), min_size=1, max_size=4).flatmap(
        lambda answers: st.fixed_dictionaries(
            {
                "prompt": st.one_of(
                    WORDS, st.lists(st.sampled_from([user("a b"), reply("b")]), min_size=1, max_size=3)
                ),
                "responses": st.just([answer for answer, _ in answers]),
                "rewards": st.just([reward for _, reward in answers]),
                "label": st.booleans(),
                "split": st.sampled_from(["train", "heldout"]),
            }
        )
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("form", ["bin", "hdf5"])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=RECORDS)
def test_records_of_every_kind_are_the_raw_ones(form, records, chat_tok, tmp_path):
    records[0]["split"] = "train"
    wide = GROUPS | {"packing": {"strategy": "none", "seq_len": 192}}
    storage = {"format": form, "shard_tokens": 2 * 192}
    store = prepared(tmp_path / "s", chat_tok, records, **wide, storage=storage)
    for split in ("train", "heldout"):
        raw = [record for record in records if record["split"] == split]
        assert store.header["records"][split] == len(raw)
        assert all(is_group(chat_tok, store.record(split, i), record) for i, record in enumerate(raw))
        for index in (-1, len(raw)):
            with pytest.raises(IndexError):
                store.record(split, index)


def test_the_windows_of_an_output_are_its_sequences(chat_tok, tmp_path):
    store = prepared(tmp_path / "s", chat_tok, [pair(i) for i in range(5)], **PAIRS)
    for output in ("chosen", "rejected"):
        batch = store.streams[f"train/{output}"].windows(range(5))
        for i, row in enumerate(batch.targets):
            (sequence,) = store.record("train", i)[output]
            assert row[row != IGNORED].tolist() == targets(sequence)
            assert batch.ids[i, : len(sequence.ids)].tolist() == sequence.ids.tolist()


def test_outputs_of_records_that_a_mixture_repeats_stay_together(chat_tok, tmp_path):
    records = [pair(i, n=[i] * (1 + i % 3), domain="few" if i < 3 else "many") for i in range(20)]
    outputs = PAIRS["outputs"] | {"n": {"numbers": "n"}}
    mixture = {"weights": {"few": 1, "many": 1}, "max_epochs": 4}
    store = prepared(tmp_path / "s", chat_tok, records, **PAIRS | {"outputs": outputs, "mixture": mixture})
    read = Counter()
    for i in range(store.header["records"]["train"]):
        found = store.record("train", i)
        n = found["n"][0]
        read[n] += 1
        assert found["n"] == records[int(n)]["n"]
        for output in ("chosen", "rejected"):
            messages = [*records[int(n)]["prompt"], reply(records[int(n)][output])]
            assert same(found[output][0], chatml(chat_tok, messages, [1]))
    assert [read[n] for n in range(3)] == [4, 4, 4] and len(read) == 3 + 12


def test_reading_a_record_opens_no_file(chat_tok, tmp_path, monkeypatch):
    store = prepared(tmp_path / "s", chat_tok, [pair(i, n=[i, i + 1]) for i in range(50)], **PAIRS | {
        "outputs": PAIRS["outputs"] | {"n": {"numbers": "n"}}
    })  # fmt: skip
    monkeypatch.setattr("seedbed.data.store.read_array", None)
    monkeypatch.setattr("builtins.open", None)
    assert [store.record("train", i)["n"] for i in range(50)] == [[i, i + 1] for i in range(50)]


def test_only_the_answer_behind_a_prompt_is_trained(chat_tok, tmp_path):
    """The prompt has an answer of its own, which both outputs share: no preference is about that."""
    prompt = [user("a"), reply("b"), user("c")]
    found = prepared(tmp_path / "s", chat_tok, [pair(0) | {"prompt": prompt}], **PAIRS).record("train", 0)
    for output, answer in (("chosen", "yes 0"), ("rejected", "no 0")):
        end = chat_tok.special_tokens["<|im_end|>"]
        assert targets(found[output][0]) == [*chat_tok.encode(answer), end]


# what is left out


def refused(chat_tok, tmp_path, record: dict, told: str, **spec) -> None:
    """As the third record: strict stops there, skip counts it and keeps the others."""
    records = [pair(0), pair(1), record, pair(3)]
    with pytest.raises(InputError) as error:
        prepared(tmp_path / "s", chat_tok, records, **spec)
    assert str(error.value).startswith(f"{tmp_path}/s.jsonl:3: {told}")
    store = prepared(tmp_path / "s", chat_tok, records, **spec, on_bad="skip", keep_rejects=True)
    assert store.header["records"]["train"] == 3
    ((reason, count),) = store.header["skipped"].items()
    assert (reason.startswith(told), count) == (True, 1)
    (reject,) = map(json.loads, (tmp_path / "s" / "rejects.jsonl").read_text().splitlines())
    assert reject["where"].endswith("s.jsonl:3") and reject["reason"] == reason
    chosen = [targets(store.record("train", i)["chosen"][0])[:-1] for i in range(3)]
    assert [chat_tok.decode(ids) for ids in chosen] == ["yes 0", "yes 1", "yes 3"]


@pytest.mark.parametrize("output", ["chosen", "rejected"])
def test_an_output_in_which_nothing_is_predicted_is_named(output, chat_tok, tmp_path):
    record = pair(2) | {output: [user("no answer")]}
    refused(chat_tok, tmp_path, record, f"output {output!r}: no token is predicted", **PAIRS)


def test_each_item_of_a_list_needs_a_target(chat_tok, tmp_path):
    spec = PAIRS | {"outputs": PAIRS["outputs"] | {
        "more": {"sections": [{"field": "more", "action": "by_role"}], "each": True}
    }}  # fmt: skip
    record = pair(2, more=[[user("a"), reply("b")], [user("a")]])
    others = {"more": [[user("a"), reply("b")]]}
    with pytest.raises(InputError, match=r":2: output 'more': no token is predicted"):
        prepared(tmp_path / "s", chat_tok, [pair(0) | others, record], **spec)


def test_a_record_with_a_sequence_longer_than_a_bin_is_left_out_whole(chat_tok, tmp_path):
    """Pairs that are cut at different places would compare other things."""
    empty = len(chatml(chat_tok, [user("question 2"), reply("")], ()).ids)
    fits = pair(2) | {"rejected": "~" * (64 - empty)}
    longer = pair(4) | {"rejected": "~" * (64 - empty + 1)}
    assert len(chatml(chat_tok, [*fits["prompt"], reply(fits["rejected"])], ()).ids) == 64
    records = [pair(0), longer, fits, pair(6)]
    store = prepared(tmp_path / "s", chat_tok, records, **PAIRS, keep_rejects=True)
    assert store.header["skipped"] == {"longer than packing.seq_len": 1}
    assert store.header["records"]["train"] == 3
    assert [stream["cut_tokens"] for stream in store.header["streams"].values()] == [0] * 4
    assert same(
        store.record("train", 1)["rejected"][0], chatml(chat_tok, [*fits["prompt"], reply(fits["rejected"])], [1])
    )
    (reject,) = map(json.loads, (tmp_path / "s" / "rejects.jsonl").read_text().splitlines())
    assert reject["where"].endswith(":2") and reject["reason"] == "longer than packing.seq_len"
    assert reject["record"]["texts"].keys() == {"chosen", "rejected"}
    assert reject["record"]["texts"]["rejected"][0].endswith("\n" + longer["rejected"])
    with pytest.raises(InputError, match=r"t\.jsonl: no document left \(1 × longer than packing\.seq_len\)"):
        prepared(tmp_path / "t", chat_tok, [longer], **PAIRS)


def test_longer_bins_take_in_what_was_too_long_though_the_work_is_kept(chat_tok, tmp_path):
    records = [pair(0), pair(1) | {"rejected": "~" * 90}]
    for seq_len, kept in ((64, 1), (128, 2), (64, 1)):
        packing = {"packing": {"strategy": "none", "seq_len": seq_len}}
        store = prepared(tmp_path / "s", chat_tok, records, keep_work=True, **PAIRS | packing)
        assert store.header["records"]["train"] == kept


def test_a_prompt_longer_than_a_bin_takes_its_responses_with_it(chat_tok, tmp_path):
    records = [
        {"prompt": prompt, "responses": ["a"], "rewards": [1], "label": True} for prompt in ("b", "\n" * 90 + "b")
    ]
    store = prepared(tmp_path / "s", chat_tok, records, **GROUPS)
    assert store.header["skipped"] == {"longer than packing.seq_len": 1}
    assert is_group(chat_tok, store.record("train", 0), records[0])


def test_short_answers_equal_rewards_and_groups_of_one_are_kept(chat_tok, tmp_path):
    """What a method cannot use is for the method to drop: the store says what is there."""
    end = chat_tok.special_tokens["<|im_end|>"]
    store = prepared(tmp_path / "s", chat_tok, [pair(0) | {"rejected": "x"}, pair(1) | {"rejected": ""}], **PAIRS)
    assert [targets(store.record("train", i)["rejected"][0]) for i in (0, 1)] == [[*chat_tok.encode("x"), end], [end]]
    records = [{"prompt": "p", "responses": list("ab")[:n], "rewards": [0.5] * n, "label": False} for n in (1, 2)]
    store = prepared(tmp_path / "t", chat_tok, records, **GROUPS)
    assert [store.record("train", i)["rewards"] for i in (0, 1)] == [[0.5], [0.5, 0.5]]
    store = prepared(tmp_path / "u", chat_tok, [*records, records[1] | {"responses": ["a", ""]}], **GROUPS)
    assert store.header["skipped"] == {"empty text": 1}


def test_filters_see_each_sequence_alone(chat_tok, tmp_path):
    """Both outputs hold the prompt: that is no repetition."""
    spec = PAIRS | {"filters": {"char_repetition": {"n": 8, "max_share": 0.2}}}
    spam = pair(1) | {"rejected": "spam " * 8}
    store = prepared(tmp_path / "s", chat_tok, [pair(0), spam], **spec)
    assert store.header["records"]["train"] == 1 and sum(store.header["skipped"].values()) == 1


# specifications


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sections": [{"field": "a", "action": "mask"}]}, "sections: nothing is trained"),
        (
            {"sections": [{"field": "a", "action": "by_role", "roles": []}], "chat_template": "chatml"},
            "nothing is trained",
        ),
        ({"sections": [{"field": "a", "answer": "b"}]}, "train reads none of them; set action by_role"),
        ({"sections": [{"field": "a"}, {"field": "b", "action": "mask", "tools": "c"}]}, "mask reads none of them"),
        ({"sections": [{"field": "a", "roles": ["user"]}]}, "roles, answer, tools: train reads none of them"),
        ({"outputs": {"records": {"sections": [{"field": "a"}]}}, **NONE}, "'records' names a folder"),
    ],
)
def test_specifications_that_would_mean_nothing(change, problem):
    with pytest.raises(InputError, match=problem):
        spec_from({"sources": ["a"], "tokenizer": "t"} | change, "spec")


def test_training_refuses_a_store_of_several_outputs(chat_tok, tmp_path, monkeypatch, capsys):
    prepared(tmp_path / "s", chat_tok, [pair(0)], **PAIRS)
    file = tmp_path / "run.yaml"
    file.write_text(config(tmp_path / "s", tmp_path / "r", "model.max_seq_len=64").model_dump_json())
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["seedbed", "train", str(file)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    assert line == (
        f"error: {tmp_path}/s: its records have several outputs (chosen, rejected); training reads only one"
    )
    assert not (tmp_path / "r").exists()


# real preferences


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["dpo_en", "dpo_zh"])
def test_real_preferences(name, chat_tok, tmp_path, real_data):
    file = real_data / "evals" / "preference" / f"{name}.jsonl"
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    seq_len = 4096
    spec = PAIRS | {"packing": {"strategy": "none", "seq_len": seq_len}, "heldout": 0.1}
    store = prepared(tmp_path / "s", chat_tok, [r | {"n": i} for i, r in enumerate(records)], **spec | {
        "outputs": PAIRS["outputs"] | {"n": {"numbers": "n"}}
    })  # fmt: skip
    expected = {}
    for i, record in enumerate(records):
        both = {
            output: chatml(chat_tok, [*record["prompt"], reply(record[output])], [len(record["prompt"])])
            for output in ("chosen", "rejected")
        }
        if max(len(one.ids) for one in both.values()) <= seq_len:
            expected[i] = both
    assert store.header["skipped"].get("longer than packing.seq_len", 0) == len(records) - len(expected)
    assert 100 < len(expected) < 300
    seen = []
    for split in ("train", "heldout"):
        assert store.header["records"][split] > 0
        for index in range(store.header["records"][split]):
            found = store.record(split, index)
            number = int(found["n"][0])
            seen.append(number)
            assert all(same(found[output][0], one) for output, one in expected[number].items())
    assert sorted(seen) == sorted(expected)


@pytest.mark.realdata
def test_real_labels(chat_tok, tmp_path, real_data):
    file = real_data / "evals" / "preference" / "kto_en.jsonl"
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    outputs = {
        "completion": {"sections": [{"field": "prompt", "answer": "completion", "action": "by_role"}]},
        "label": {"numbers": "label"},
    }
    packing = {"strategy": "none", "seq_len": 20_000}
    store = prepared(tmp_path / "s", chat_tok, records, outputs=outputs, packing=packing, chat_template="chatml")
    assert store.header["records"]["train"] == len(records) == 300
    for i, record in enumerate(records):
        found = store.record("train", i)
        messages = [*record["prompt"], reply(record["completion"])]
        assert found["label"] == [1.0 if record["label"] else 0.0]
        assert same(found["completion"][0], chatml(chat_tok, messages, [len(messages) - 1]))
