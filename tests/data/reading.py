"""Records as documents, and what is said of those that are none."""

import pytest

from seedbed.data.inputs import list_inputs
from seedbed.data.records import documents
from seedbed.data.spec import spec_from
from seedbed.errors import InputError
from seedbed.files.jsonl import ReadCounts

CHAT = {"sections": [{"field": "messages", "action": "by_role"}], "chat_template": "chatml"}
ANSWERED = {
    "sections": [{"field": "q", "action": "by_role", "roles": ["assistant", "tool"], "answer": "a"}],
    "chat_template": "chatml",
}
USER, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}


def read(path, counts=None, source=None, **fields):
    """Documents of one source under a specification with ``fields``."""
    spec = spec_from({"sources": [{"path": str(path)} | (source or {})], "tokenizer": "t"} | fields, "spec.yaml")
    counts = ReadCounts() if counts is None else counts
    return [document for file in list_inputs(spec.sources) for document in documents(file, spec, counts)]


def refused(read_records, problem, *records, reason=None, **fields):
    """The records are refused at the last one under "strict", and only it is left out and counted under "skip"."""
    with pytest.raises(InputError) as caught:
        read_records(*records, **fields)
    message = str(caught.value)
    assert f"web.1.jsonl:{len(records)}: {problem}" in message
    assert "\n" not in message
    kept = []
    counts = ReadCounts(keep=kept.append)
    assert len(read_records(*records, counts=counts, on_bad="skip", **fields)) == len(records) - 1
    assert sum(counts.skipped.values()) == 1
    assert reason is None or counts.skipped == {reason: 1}
    assert [(reject["record"], reject["where"].rpartition(":")[2]) for reject in kept] == [
        (records[-1], str(len(records)))
    ]


def texts(found):
    return [document.texts["text"][0][0].text for document in found]
