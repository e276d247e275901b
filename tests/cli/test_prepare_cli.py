"""`seedbed data prepare`: options, specifications, bad input."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

from few_texts import TEXTS


def test_from_text_to_inspected_store(seedbed, corpus, tmp_path):
    code, out, _ = seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t", "--json")
    trained = json.loads(out)
    assert code == 0
    assert (trained["vocab_size"], trained["documents"]) == (262, 4)
    assert trained["skipped"] == {"blank line": 1, "empty text": 1}
    arguments = (
        "data",
        "prepare",
        corpus,
        "--tokenizer",
        tmp_path / "t",
        "-o",
        tmp_path / "s",
        "--seq-len",
        16,
        "--workers",
        1,
    )
    code, out, _ = seedbed(*arguments, "--heldout", 0.3, "--json")
    header = json.loads(out)["header"]
    train = header["streams"]["train"]
    assert (code, header["seq_len"], header["skipped"]) == (0, 16, {"blank line": 1, "empty text": 1})
    assert header["streams"]["heldout"]["documents"] >= 1
    code, out, _ = seedbed("data", "inspect", tmp_path / "s", "--bins", 1000, "--json")
    told = json.loads(out)
    assert code == 0
    assert [one["number"] for one in told["bins"]] == list(range(train["bins"]))
    segments = [segment for one in told["bins"] for segment in one["segments"]]
    assert sum(segment["position"] == 0 for segment in segments) == train["documents"]
    assert sum(one["padding"] for one in told["bins"]) == train["padding"]
    assert (
        sum(run["tokens"] for segment in segments for run in segment["runs"] if run["predicted"]) == train["predicted"]
    )
    text = "".join(run["text"] for segment in segments for run in segment["runs"] if not run["control"])
    assert any(line in text for line in TEXTS)
    assert sum(told["survey"]["train"]["lengths"]) == train["documents"]
    assert sum(told["survey"]["train"]["fill"]) == train["bins"]


def test_wrong_input_exits_2_with_one_line_and_changes_nothing(seedbed, corpus, prepare, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"content": "x"}\n')
    (tmp_path / "s.yaml").write_text("sources: [nowhere.jsonl]\ntokenizer: nowhere\npackings: {}\n")
    (tmp_path / "e.yaml").write_text("packing:\n")
    given = ("data", "prepare", "-o", tmp_path / "s")
    new = ("-o", tmp_path / "u")
    before = sorted(tmp_path.rglob("*"))
    for arguments, problem in (
        (("tokenizer", "train", bad, "--vocab-size", 300, *new), f"{bad}:1: no field 'text'"),
        (("tokenizer", "train", corpus, "--vocab-size", 9, *new), "at least 258"),
        (("tokenizer", "train", corpus, "--vocab-size", 300, "-o", tmp_path / "t"), "exists already"),
        ((*prepare[:2], bad, *prepare[3:]), f"{bad}:1: no field 'text'"),
        ((*prepare, "--seq-len", 1), "--seq-len: packing.seq_len: input should be greater than or equal to 2, not 1"),
        ((*prepare, "--packing", "bdf"), "--packing: packing.strategy: unknown value 'bdf'; did you mean 'bfd'?"),
        ((*prepare, "--set", "packing.seq_lem=9"), "packing.seq_lem: unknown key; did you mean 'seq_len'?"),
        ((*prepare, "--set", "dedup.exact"), "override 'dedup.exact': write section.key=value"),
        ((*prepare, "--set", "on_bad.x=1"), "on_bad: input should be 'strict' or 'skip'"),
        ((*prepare, "--set", "tokenizer.x=1"), "--set tokenizer.x: tokenizer is a value, not a section"),
        (
            (*prepare, "--set", "sources=[s3://me:key@b/a]"),
            "error: --set sources: sources.0.path: holds a password, and",
        ),
        ((*given, "--spec", tmp_path / "s.yaml"), "packings: unknown key; did you mean 'packing'?"),
        (
            (*given, corpus, "--spec", tmp_path / "e.yaml"),
            f"{tmp_path / 'e.yaml'}: no tokenizer; set it with --tokenizer",
        ),
        ((*given, "--tokenizer", "t"), "data prepare: no sources; set it with FILE..."),
        ((*given, "--spec", tmp_path / "none.yaml"), "no such configuration file"),
        (("data", "prepare", corpus, "--tokenizer", tmp_path, *new), "not a tokenizer folder"),
        ((*prepare[:2], tmp_path / "none.jsonl", *prepare[3:]), "none.jsonl: no such file"),
        (("data", "inspect", tmp_path / "t"), "no token store"),
    ):
        code, out, err = seedbed(*arguments)
        assert code == 2, err
        assert out == ""
        assert problem in err.splitlines()[-1], err
    assert sorted(tmp_path.rglob("*")) == before


def test_options_stand_in_for_fields_and_files_for_sources(seedbed, corpus, prepare, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"body": "the log"}\n' * 3)
    (tmp_path / "s.yaml").write_text(f"sources: [nowhere.jsonl]\ntokenizer: {tmp_path / 't'}\npacking:\nheldout: 0.5\n")
    arguments = (
        "data",
        "prepare",
        other,
        "--spec",
        tmp_path / "s.yaml",
        "-o",
        tmp_path / "s",
        "--field",
        "body",
        "--workers",
        1,
    )
    more = (
        "--heldout",
        0,
        "--set",
        "dedup.exact=true",
        "--packing",
        "bfd",
        "--set",
        "packing.seq_len=8",
        "--keep-rejects",
    )
    code, out, err = seedbed(*arguments, *more, "--json")
    assert code == 0, err
    header = json.loads(out)["header"]
    assert header["spec"]["sources"][0]["path"] == str(other)
    assert (header["packing"], header["seq_len"], header["duplicates"]["exact"]) == ("bfd", 8, 2)
    assert (tmp_path / "s" / "duplicates.jsonl").read_text().count("\n") == 2


def test_defaults_in_the_help_are_those_of_the_specification(seedbed):
    from seedbed.data.spec import Spec

    text = " ".join(seedbed("data", "prepare", "--help")[1].split())
    spec = Spec(sources=["a"], tokenizer="t")  # pyright: ignore
    for option, default in (
        ("seq-len", spec.packing.seq_len), ("packing", spec.packing.strategy),
        ("heldout", spec.heldout), ("on-bad", spec.on_bad), ("field", spec.texts()["text"][0].field),
    ):  # fmt: skip
        assert re.search(rf"--{option} [^-]*Default: {default}\.", text), option


def test_the_schema_of_a_specification(seedbed):
    schema = json.loads(seedbed("data", "schema")[1])
    assert schema["properties"]["on_bad"]["enum"] == ["strict", "skip"]
    assert "description" in schema["$defs"]["Packing"]["properties"]["strategy"]


def test_bad_records_stop_or_are_counted_and_kept_with_the_reason(seedbed, corpus, prepare, tmp_path):
    """Lines that are no JSON, records without a text, texts that are left out or rejected, conversations in the way."""
    lines = ['{"text": "the cat sat on the mat"}', "{oops", '{"txt": 1}', '{"text": 7}', '{"text": " "}',
             '{"text": "%s"}' % ("spam " * 40), '{"text": "abc"}', '{"text": "the dog"} {}']  # fmt: skip
    corpus.write_text("\n".join(lines) + "\n")
    filters = ("--set", "filters.word_repetition={n: 2, max_share: 0.5}", "--set", "min_chars=5", "--heldout", 0)
    code, out, err = seedbed(*prepare, *filters)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {corpus}:2: not JSON: ")
    assert err.endswith(" (or leave such lines out with on_bad: skip)\n")
    assert not (tmp_path / "s").exists()
    code, out, _ = seedbed(*prepare, *filters, "--on-bad", "skip", "--keep-rejects", "--json")
    reasons = {
        2: "not one JSON value", 3: "no field 'text'", 4: "'text' is not a string",
        5: "'text' has fewer than 5 characters", 6: "words repeat", 7: "'text' has fewer than 5 characters",
        8: "not one JSON value",
    }  # fmt: skip
    rejects = [json.loads(line) for line in (tmp_path / "s" / "rejects.jsonl").read_text().splitlines()]
    assert {reject["where"]: reject["reason"] for reject in rejects} == {f"{corpus}:{i}": r for i, r in reasons.items()}
    assert [reject["record"] for reject in rejects][:3] == ["{oops", {"txt": 1}, {"text": 7}]
    assert [reject["record"] for reject in rejects if reject["reason"] == "words repeat"] == [
        {"id": f"{corpus}:6", "domain": "a", "lang": "", "texts": {"text": ["spam " * 40]}}
    ]
    header = json.loads(out)["header"]
    assert header["skipped"] == Counter(reasons.values())
    assert header["streams"]["train"]["documents"] == 1


def test_a_pipe_as_input_is_named_so(seedbed, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    code, _, err = seedbed("tokenizer", "train", tmp_path / "pipe", "--vocab-size", 262, "-o", tmp_path / "t")
    assert code == 2
    assert "pipe: not a regular file" in err


def test_command_modules_import_nothing_heavy():
    code = (
        "import sys, seedbed.cli.data, seedbed.cli.tokenizer; "
        "print([m for m in ('torch', 'numpy', 'tokenizers', 'zstandard') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
