"""Conversations, from raw records to what a model learns."""

import io
import json

import numpy as np
import pytest
import torch
import zstandard
from chat_templates import CHATML_PLAIN, chat_tokenizer
from raw_records import chatml, prepared, same, targets
from tiny import config, quiet
from torch.nn import functional as F

from seedbed.api import fit
from seedbed.data.chat import Chat
from seedbed.data.document import Conversation, Encoded
from seedbed.data.split import IGNORED
from seedbed.data.template import CHATML, load_template
from seedbed.errors import InputError
from seedbed.train import loop
from seedbed.train.setup import resolve, start

CHAT = {"sections": [{"field": "messages", "action": "by_role"}], "chat_template": "chatml"}
PROMPT = {"sections": [{"field": "prompt", "action": "mask"}, {"field": "answer"}]}
SHOW_TOOLS = "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
WITH_TOOLS, WITH_TOOLS_PLAIN = (SHOW_TOOLS + t.replace("{{ bos_token }}\n", "") for t in (CHATML, CHATML_PLAIN))

pytestmark = pytest.mark.usefixtures("no_flush")


@pytest.fixture
def template(tmp_path):
    """The file of a template that reads tools."""
    (tmp_path / "tools.jinja").write_text(WITH_TOOLS)
    return str(tmp_path / "tools.jinja")


def talk(number: int) -> list[dict[str, str]]:
    """A conversation of one to three turns, each longer than the one before."""
    turns = [(f"question {i} <|im_end|>", f"answer {number} " + "床前 " * i) for i in range(1 + number % 3)]
    return [
        message
        for question, answer in turns
        for message in ({"role": "user", "content": question}, {"role": "assistant", "content": answer})
    ]


def answers(messages) -> list[int]:
    return [i for i, message in enumerate(messages) if message["role"] == "assistant"]


def documents(split) -> list[Encoded]:
    """The documents of a split in order, put together again from the pieces in its bins; what was cut off lacks."""
    found: list[tuple[list[int], list[bool]]] = []
    for index in range(len(split)):
        segments, real = split.segments(index)
        ids, trained = split.tokens(index)
        for segment, end in zip(segments, [*segments["offset"][1:].tolist(), real], strict=True):
            if segment["position"] == 0:
                found.append(([], []))
            piece = slice(int(segment["offset"]), end)
            assert segment["position"] == len(found[-1][0])
            found[-1][0].extend(ids[piece].tolist())
            found[-1][1].extend(trained[piece].tolist())
    return [Encoded(np.array(ids), np.array(trained)) for ids, trained in found]


def learned(split) -> list[int]:
    """All targets of a split's windows, sorted."""
    batch = split.windows(range(len(split)))
    return sorted(batch.targets[batch.targets != IGNORED].tolist())


# packing and storage


@pytest.mark.parametrize("storage", ["bin", "hdf5"])
@pytest.mark.parametrize("strategy", ["none", "simple", "bfd", "bfd_split"])
def test_answers_alone_are_learned_whatever_the_packing(strategy, storage, chat_tok, tmp_path):
    raw = [talk(i) for i in range(12)]
    seq_len = 24 if strategy in ("simple", "bfd_split") else 200  # the first go on in further bins
    packing = {"strategy": strategy, "seq_len": seq_len}
    records = [{"messages": messages} for messages in raw]
    store = prepared(tmp_path / "s", chat_tok, records, **CHAT, packing=packing, storage={"format": storage})
    expected = [chatml(chat_tok, messages, answers(messages)) for messages in raw]
    split, stream = store.split("train"), store.header["streams"]["train"]
    assert learned(split) == sorted(target for one in expected for target in targets(one))
    assert stream["predicted"] == len(learned(split)) and stream["cut_tokens"] == 0
    if strategy in ("none", "simple"):
        found = documents(split)
        assert [same(*pair) for pair in zip(found, expected, strict=True)] == [True] * 12
        assert [int((ids == chat_tok.bos_id).sum()) for ids, _ in found] == [1] * 12


def test_all_storages_give_the_same_batches(chat_tok, tmp_path):
    records = [{"messages": talk(i)} for i in range(12)]
    batches = []
    for form in ("bin", "hdf5", "jsonl"):
        storage = {"format": form, "shard_tokens": 100}
        store = prepared(tmp_path / form, chat_tok, records, **CHAT, packing={"seq_len": 16}, storage=storage)
        batches.append(store.split("train").windows(range(len(store.split("train")))))
    for batch in batches[1:]:
        assert all(torch.equal(*pair) for pair in zip(batches[0], batch, strict=True))


# tools


def shown(tools, *messages) -> list[dict]:
    """The messages with the tools as the template writes them: in front, under a role of their own."""
    head = [{"role": "tools", "content": json.dumps(tools, ensure_ascii=False)}] if tools else []
    return [*head, *messages]


TOOLS = [{"name": "f", "description": "a <|im_end|> 床 \ufdd0", "parameters": {"x": [1, None]}}]


@pytest.mark.parametrize("value", [TOOLS, json.dumps(TOOLS), None, [], "", "[]", "null"])
@pytest.mark.parametrize("storage", ["bin", "jsonl"])
def test_tools_reach_the_template(value, storage, chat_tok, tmp_path, template):
    sections = [{"field": "messages", "action": "by_role", "tools": "tools"}]
    spec = {"sections": sections, "chat_template": template, "storage": {"format": storage}}
    store = prepared(tmp_path / "s", chat_tok, [{"messages": talk(1), "tools": value}], **spec)
    messages = shown(TOOLS if value in (TOOLS, json.dumps(TOOLS)) else None, *talk(1))
    (found,) = documents(store.split("train"))
    assert same(found, chatml(chat_tok, messages, answers(messages)))


@pytest.mark.parametrize("source", [WITH_TOOLS, WITH_TOOLS_PLAIN], ids=["marked", "prefixes"])
def test_tools_are_rendered_as_transformers_does(source, chat_tok):
    from transformers import AutoTokenizer

    tools = [{"name": "f", "description": "a ab 床"}]
    theirs = AutoTokenizer.from_pretrained(str(chat_tok.folder)).apply_chat_template(
        talk(1)[2:], tools=tools, chat_template=source, tokenize=False
    )
    spans = Chat(source, chat_tok).render(Conversation(talk(1)[2:], ["assistant"], tools=tools), "a:1")
    assert "".join(span.text for span in spans) == theirs
    assert [span.text for span in spans if span.trained and not span.control] == [talk(1)[3]["content"]]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ('[{"name": ', "field 'tools' is text that is no JSON: Expecting value"),
        ({"name": "f"}, "field 'tools' is an object, not a list of tool definitions, or its JSON text"),
        ('{"name": "f"}', "field 'tools' is an object, not a list"),
        (7, "field 'tools' is a number, not a list"),
        (["[" * 100_000], None),
        ("[" * 100_000, "field 'tools' is nested too deep"),
    ],
)
def test_bad_tools(value, told, chat_tok, tmp_path, template):
    sections = [{"field": "messages", "action": "by_role", "tools": "tools"}]
    spec = {"sections": sections, "chat_template": template}
    records = [{"messages": talk(0), "tools": None}, {"messages": talk(0), "tools": value}]
    if told is None:
        assert prepared(tmp_path / "s", chat_tok, records, **spec).header["records"]["train"] == 2
        return
    with pytest.raises(InputError) as error:
        prepared(tmp_path / "s", chat_tok, records, **spec)
    assert str(error.value).startswith(f"{tmp_path}/s.jsonl:2: {told}")
    store = prepared(tmp_path / "s", chat_tok, records, **spec, on_bad="skip")
    assert sum(store.header["skipped"].values()) == 1 and store.header["records"]["train"] == 1


def test_a_misspelt_key_of_tools_is_no_empty_list(chat_tok, tmp_path, template):
    sections = [{"field": "messages", "action": "by_role", "tools": "tool"}]
    with pytest.raises(InputError, match=r":1: no field 'tool'; .*did you mean 'tools'"):
        prepared(
            tmp_path / "s", chat_tok, [{"messages": talk(0), "tools": []}], sections=sections, chat_template=template
        )


def test_tools_that_no_template_reads_are_refused(chat_tok, tmp_path):
    with pytest.raises(InputError, match="chat_template: chatml: never reads tools"):
        load_template("chatml", chat_tok, tools=True)
    file = tmp_path / "own.jinja"
    file.write_text("{% macro f(tools) %}{{ tools }}{% endmacro %}{{ f(messages) }}")  # a name of its own
    with pytest.raises(InputError, match="never reads tools"):
        load_template(str(file), chat_tok, tools=True)
    sections = [{"field": "messages", "action": "by_role", "tools": "tools"}]
    with pytest.raises(InputError, match="never reads tools"):
        prepared(tmp_path / "s", chat_tok, [{}], sections=sections, chat_template="chatml")
    assert not (tmp_path / "s").exists()


# what is trained


@pytest.mark.parametrize("marked", [True, False])
def test_answers_in_the_prompt_are_only_read(marked, chat_tok, tmp_path):
    (tmp_path / "t.jinja").write_text(CHATML if marked else CHATML_PLAIN)
    sections = [{"field": "prompt", "answer": "answer", "action": "by_role"}]
    record = {"prompt": talk(1)[:3], "answer": "yes"}
    spec = {"sections": sections, "chat_template": str(tmp_path / "t.jinja")}
    (found,) = documents(prepared(tmp_path / "s", chat_tok, [record], **spec).split("train"))
    assert same(found, chatml(chat_tok, [*talk(1)[:3], {"role": "assistant", "content": "yes"}], [3]))


def test_a_trained_first_token_that_nothing_precedes_teaches_nothing(tokenizer, tmp_path):
    tok = chat_tokenizer(tokenizer, tmp_path / "t", bos=False)
    sections = [{"field": "a"}, {"field": "b", "action": "mask"}]
    records = [{"a": "xy", "b": "z"}, {"a": "x", "b": "z"}]
    assert len(tok.encode("x")) == 1 < len(tok.encode("xy"))
    with pytest.raises(InputError, match=r"s\.jsonl:2: no token is predicted"):
        prepared(tmp_path / "s", tok, records, sections=sections)
    store = prepared(tmp_path / "s", tok, records, sections=sections, on_bad="skip")
    assert store.header["streams"]["train"]["predicted"] == 1


@pytest.mark.parametrize("strategy", ["none", "simple", "bfd", "bfd_split"])
def test_bins_that_teach_nothing_are_told(strategy, chat_tok, tmp_path):
    """A long prompt fills bins of its own, or pushes the answer out of the only one."""
    records = [{"prompt": "~" * n, "answer": "" if n == 5 else "床"} for n in (5, 100, 40, 3, 3)]  # 5: one target
    packing = {"strategy": strategy, "seq_len": 16}
    store = prepared(tmp_path / "s", chat_tok, records, **PROMPT, packing=packing, storage={"shard_tokens": 50})
    split, stream = store.split("train"), store.header["streams"]["train"]
    idle = int((split.windows(range(len(split))).targets == IGNORED).all(1).sum())
    assert stream["bins_without_targets"] == idle > 0
    (warning,) = store.header["warnings"]
    assert warning.startswith(f"train: {idle} of {len(split)} bins have no token to predict")
    wide = {"strategy": strategy, "seq_len": 128}
    store = prepared(tmp_path / "w", chat_tok, records, **PROMPT, packing=wide)
    assert (store.header["streams"]["train"]["bins_without_targets"], store.header["warnings"]) == (0, [])


def test_bins_of_outputs_that_are_only_read_are_no_trouble(chat_tok, tmp_path):
    outputs = {name: {"sections": [{"field": name, "action": "mask"}]} for name in ("prompt", "answer")}
    outputs["answer"] = {"sections": [{"field": "answer"}]}
    store = prepared(
        tmp_path / "s", chat_tok, [{"prompt": "a", "answer": "b"}], outputs=outputs, packing={"strategy": "none"}
    )
    assert store.header["warnings"] == []
    assert store.header["streams"]["train/prompt"]["bins_without_targets"] == 1
    assert store.header["streams"]["train/answer"]["bins_without_targets"] == 0


# training


def test_the_loss_is_the_mean_over_what_is_trained(chat_tok, tmp_path, monkeypatch):
    """By hand: each conversation alone, its answers' tokens alone, all of equal weight."""
    monkeypatch.setattr("seedbed.api.write_page", lambda *args, **kwargs: None)
    raw = [talk(i) for i in range(6)]
    records = [{"messages": messages} for messages in raw]
    store = prepared(tmp_path / "s", chat_tok, records, **CHAT, packing={"strategy": "bfd", "seq_len": 200})
    bins = len(store.split("train"))
    assert 1 < bins < 6
    sizes = ["model.max_seq_len=200", f"train.batch_size={bins}", "train.micro_batch_size=1", "train.steps=2"]
    asked = config(tmp_path / "s", tmp_path / "r", *sizes, "train.eval_every=-1")
    row, _ = [row for row in fit(asked, quiet).metrics if row["kind"] == "train"]
    job = start(*_resolved(asked, tmp_path / "other"))
    losses = []
    for messages in raw:
        ids, trained = chatml(chat_tok, messages, answers(messages))
        logits = job.model(torch.from_numpy(ids)[None])[0, :-1]
        losses.append(
            F.cross_entropy(logits, torch.from_numpy(ids[1:]), reduction="none")[torch.from_numpy(trained[1:])]
        )
    assert row["tokens"] == len(torch.cat(losses))
    assert row["loss"] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5)


def _resolved(asked, run_dir):
    resolved, store = resolve(asked)
    return resolved, run_dir, store


def test_answers_of_11_and_101_tokens_weigh_by_their_tokens(chat_tok, tmp_path, monkeypatch):
    """Accumulation 2x1 is 1x2, and a mean of means would be another gradient."""
    records = [{"prompt": "~" * 7, "answer": "~" * n} for n in (10, 100)]  # and the end of text
    prepared(tmp_path / "s", chat_tok, records, **PROMPT, packing={"strategy": "none", "seq_len": 128})
    gradients = []
    for micro in (1, 2):
        sizes = ["model.max_seq_len=128", "train.batch_size=2", f"train.micro_batch_size={micro}"]
        asked = config(tmp_path / "s", tmp_path / "r", *sizes, "train.eval_every=-1", "train.clip_norm=null")
        job = start(*_resolved(asked, tmp_path / "r"))
        job.model.double()
        batch = job.loader.next_batch()
        assert sorted((batch.targets != IGNORED).sum(1).tolist()) == [11, 101]
        job.loader.position = 0
        monkeypatch.setattr(job.optimizers, "step", lambda: None)
        monkeypatch.setattr(job.optimizers, "zero_grad", lambda: None)
        row = loop.train_step(job)
        gradients.append({name: p.grad.clone() for name, p in job.model.named_parameters()})
        assert row["tokens"] == 112
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-9, atol=1e-12)
    job.model.zero_grad()
    parts = [F.cross_entropy(job.model(batch.ids[i : i + 1])[0], batch.targets[i]) for i in range(2)]
    (sum(parts) / 2).backward()
    assert not torch.allclose(job.model.embed.weight.grad, gradients[0]["embed.weight"], rtol=1e-2)


# real conversations


@pytest.mark.realdata
def test_real_conversations(chat_tok, tmp_path, real_data):
    """All rows, in every packing that keeps all tokens and every storage that can hold it."""
    lines = (real_data / "evals" / "sft" / "sft_small.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    records[7]["messages"][-1]["content"] += "<|im_end|><|eos|><|bos|>"  # no row has any of its own
    raw = [record["messages"] for record in records]
    expected = [chatml(chat_tok, messages, answers(messages)) for messages in raw]
    end, turns = chat_tok.special_tokens["<|im_end|>"], sum(map(len, raw))
    batches = {}
    for strategy, form in [("simple", "bin"), ("simple", "hdf5"), ("simple", "jsonl"), ("bfd_split", "bin")]:
        packing, out = {"strategy": strategy, "seq_len": 512}, tmp_path / f"{strategy}_{form}"
        store = prepared(out, chat_tok, records, **CHAT, packing=packing, storage={"format": form})
        split = store.split("train")
        batch = batches[strategy, form] = split.windows(range(len(split)))
        assert learned(split) == sorted(target for one in expected for target in targets(one))
        kept = batch.ids[batch.doc_ids >= 0]
        assert [int((kept == i).sum()) for i in (chat_tok.bos_id, end, chat_tok.eos_id)] == [len(raw), turns, 0]
        if strategy == "simple":
            found = documents(split)
            assert [same(*pair) for pair in zip(found, expected, strict=True)] == [True] * len(raw)
            for (ids, trained), messages in zip(found, raw, strict=True):
                assert chat_tok.decode(ids[trained]) == "".join(messages[i]["content"] for i in answers(messages))
    for form in ("hdf5", "jsonl"):
        pairs = zip(batches["simple", "bin"], batches["simple", form], strict=True)
        assert all(torch.equal(*pair) for pair in pairs)


@pytest.mark.realdata
def test_real_conversations_that_are_cut(chat_tok, tmp_path, real_data):
    lines = (real_data / "evals" / "sft" / "sft_small.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    expected = [chatml(chat_tok, r["messages"], answers(r["messages"])) for r in records]
    cut = [Encoded(ids[:512], trained[:512]) for ids, trained in expected]
    for strategy in ("bfd", "none"):
        packing = {"strategy": strategy, "seq_len": 512}
        store = prepared(tmp_path / strategy, chat_tok, records, **CHAT, packing=packing)
        stream = store.header["streams"]["train"]
        assert learned(store.split("train")) == sorted(target for one in cut for target in targets(one))
        assert stream["cut_tokens"] == sum(len(one.ids) for one in expected) - sum(len(one.ids) for one in cut)
        assert stream["tokens"] == sum(len(one.ids) for one in cut)
    idle = sum(not one.predicts() for one in cut)
    assert stream["bins_without_targets"] == idle


@pytest.mark.realdata
def test_real_tools(chat_tok, tmp_path, real_data, template):
    with open(real_data / "evals" / "sft" / "tool_calls.jsonl.zst", "rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8").readlines()
    records = [json.loads(line) for line in lines]
    roles = ["assistant", "tool_call"]
    sections = [{"field": "messages", "action": "by_role", "roles": roles, "tools": "tools"}]
    store = prepared(tmp_path / "s", chat_tok, records, sections=sections, chat_template=template)
    found = documents(store.split("train"))
    assert len(found) == len(records) == 600
    for document, record in zip(found, records, strict=True):
        messages = shown(json.loads(record["tools"]), *record["messages"])
        trained = [i for i, message in enumerate(messages) if message["role"] in roles]
        assert same(document, chatml(chat_tok, messages, trained))
