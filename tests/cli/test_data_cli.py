"""`seedbed tokenizer` and `seedbed data`, as a person calls them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a café, 床前明月光 \U0001f600", "more words, more words"]


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS) + '\n{"text": ""}\n')
    return file


@pytest.fixture
def tokenizer(seedbed, corpus, tmp_path):
    assert seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")[0] == 0
    return tmp_path / "t"


@pytest.fixture
def prepare(corpus, tokenizer, tmp_path):
    return ("data", "prepare", corpus, "--tokenizer", tokenizer, "-o", tmp_path / "s", "--workers", 1)


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


def test_summaries_for_people_say_where_and_what(seedbed, prepare, tmp_path):
    _, out, err = seedbed(*prepare)
    assert str(tmp_path / "s") in out
    assert re.search(r"empty text +1 ", out)
    assert "writing: 2/2 shards" in err
    _, out, err = seedbed(*prepare)
    assert f"{tmp_path / 's'}: is there already, whole, of the same request; nothing was done" in err
    code, out, _ = seedbed("data", "inspect", tmp_path / "s", "--bins", 1)
    assert code == 0
    assert "═══ train bin 0: " in out
    assert "┌ a, " in out
    assert "└ " in out
    assert "«<|bos|>»" in out
    for heading in ("left out", "domains in training", "train: length of documents", "train: fill of bins"):
        assert heading in out


EVIL = (
    "\x1b[31mred\x1b[0m \x07\x9b5n \u202eturned\u202c \u2066x \x00 [bold]no[/bold] [link=a]b :smile: 中\u3000文\r\n\t"
)


@pytest.mark.parametrize("colour", [False, True])
def test_a_text_cannot_speak_to_the_terminal(seedbed, corpus, tokenizer, tmp_path, monkeypatch, colour):
    """Control characters, changes of direction and rich's markup are shown, in text, domains and languages."""
    rows = [{"text": EVIL, "domain": f"[red]d\x1b[2J{i}", "lang": "[/]\u202e"} for i in range(3)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    mixture = {"weights": {row["domain"]: 1 for row in rows}}
    spec = {"sources": [str(corpus)], "tokenizer": str(tokenizer), "heldout": 0, "mixture": mixture}
    (tmp_path / "s.json").write_text(json.dumps(spec))
    assert seedbed("data", "prepare", "--spec", tmp_path / "s.json", "-o", tmp_path / "s", "--workers", 1)[0] == 0
    if colour:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.delenv("NO_COLOR", raising=False)
    code, out, _ = seedbed("data", "inspect", tmp_path / "s")
    assert code == 0
    assert ("\x1b[" in out) == colour
    text = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert all(character.isprintable() or character in "\n\u3000" for character in text), ascii(text)
    for shown in (
        r"\x1b[31mred\x1b[0m \x07\x9b5n \u202eturned\u202c \u2066x",
        "[bold]no[/bold] [link=a]b :smile: 中",
        r"\r",
    ):
        assert shown in text
    tables = [line for line in text.splitlines() if line.startswith(r"[red]d\x1b[2J0 ")]
    assert len(tables) == 2  # of the mixture, and of the domains
    assert r"[/]\u202e" in text


def test_colour_and_marks(seedbed, prepare, tmp_path, monkeypatch):
    """Colours where the terminal has them; marks instead under NO_COLOR and in a pipe."""
    assert seedbed(*prepare)[0] == 0
    inspect = ("data", "inspect", tmp_path / "s")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "⟦masked: only read⟧" in seedbed(*inspect)[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = seedbed(*inspect)[1]
    assert "⟦" not in out
    assert "\x1b[2;7m<|bos|>" in out  # masked, and a control token
    assert "\x1b[32m" in out
    monkeypatch.setenv("NO_COLOR", "1")
    out = seedbed(*inspect)[1]
    assert "⟦«<|bos|>»⟧" in re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert "\x1b[32m" not in out


def test_which_bins_and_outputs_are_shown(seedbed, prepare, corpus, tokenizer, tmp_path):
    assert seedbed(*prepare, "--seq-len", 8, "--heldout", 0.5)[0] == 0
    inspect = ("data", "inspect", tmp_path / "s")
    told = json.loads(seedbed(*inspect, "--bins", 2, "--first", 3, "--split", "heldout", "--json")[1])
    assert (told["split"], [one["number"] for one in told["bins"]]) == ("heldout", [3, 4])
    rows = [{"q": "the cat", "a": "sat", "b": "sad", "r": [0.5, i]} for i in range(4)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "sources": [str(corpus)],
        "tokenizer": str(tokenizer),
        "heldout": 0,
        "packing": {"strategy": "none", "seq_len": 16},
        "outputs": {
            "good": {"sections": [{"field": "q", "action": "mask"}, {"field": "a"}]},
            "bad": {"sections": [{"field": "q", "action": "mask"}, {"field": "b"}]},
            "rewards": {"numbers": "r"},
        },
    }
    (tmp_path / "o.yaml").write_text(json.dumps(spec))
    assert seedbed("data", "prepare", "--spec", tmp_path / "o.yaml", "-o", tmp_path / "o", "--workers", 1)[0] == 0
    code, out, _ = seedbed("data", "inspect", tmp_path / "o", "--record", 2)
    assert code == 0
    for shown in ("═══ train record 2", "┌ good: a, ", "⟦«<|bos|>»the cat⟧sat«<|eos|>»", "rewards 1: 2"):
        assert shown in out
    told = json.loads(seedbed("data", "inspect", tmp_path / "o", "--output", "rewards", "--bins", 2, "--json")[1])
    assert told["records"] == [{"number": i, "outputs": {"rewards": [0.5, i]}} for i in range(2)]
    for arguments, problem in (
        ((tmp_path / "o", "--output", "god"), "--output god: its outputs are good, bad, rewards"),
        ((tmp_path / "s", "--output", "good"), "--output good: its records have one output, without a name"),
        ((tmp_path / "o", "--record", 4), "--first 4: train has 4 records, numbered from 0"),
        ((tmp_path / "s", "--split", "test"), "--split test: a store has train and heldout"),
    ):
        code, out, err = seedbed("data", "inspect", *arguments)
        assert (code, out) == (2, "")
        assert problem in err.splitlines()[-1]


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
        ((*prepare, "--set", "tokenizer.x=1"), "--set tokenizer.x=1: tokenizer is a value, not a section"),
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
        ("seq-len", spec.packing.seq_len), ("packing", spec.packing.strategy), ("storage", spec.storage.format),
        ("heldout", spec.heldout), ("on-bad", spec.on_bad), ("field", spec.texts()["text"][0].field),
    ):  # fmt: skip
        assert re.search(rf"--{option} [^-]*Default: {default}\.", text), option


def test_the_schema_of_a_specification(seedbed):
    schema = json.loads(seedbed("data", "schema")[1])
    assert schema["properties"]["on_bad"]["enum"] == ["strict", "skip"]
    assert "description" in schema["$defs"]["Packing"]["properties"]["strategy"]


def test_overwrite_and_damage(seedbed, prepare, tmp_path):
    assert seedbed(*prepare)[0] == 0
    code, _, err = seedbed(*prepare, "--seq-len", 8)
    assert code == 2
    assert "packing.seq_len was 256, asked is 8; choose another name or pass --overwrite" in err
    assert seedbed(*prepare, "--overwrite", "--seq-len", 8)[0] == 0
    shard = tmp_path / "s" / "train" / "00000" / "tokens.bin"
    raw = shard.read_bytes()
    shard.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    code, out, err = seedbed("data", "inspect", tmp_path / "s")
    assert (code, out) == (2, "")
    assert "train/00000/tokens.bin changed" in err


def test_overwrite_spares_what_is_not_its_own(seedbed, corpus, prepare, tmp_path):
    """Folders of people, of the other kind, and those that hold an input, by whatever name."""
    assert seedbed(*prepare)[0] == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    inside = tmp_path / "s" / "b.jsonl"
    inside.write_text(corpus.read_text())
    make = ("data", "prepare", corpus, "--tokenizer", tmp_path / "t", "--overwrite", "--workers", 1, "-o")
    train = ("tokenizer", "train", corpus, "--vocab-size", 262, "--overwrite", "-o")
    before = files_in(tmp_path)
    for arguments, problem in (
        ((*make, tmp_path / "mine"), "is not a store made here"),
        ((*make, tmp_path / "t"), f"holds the input {tmp_path / 't'}"),
        ((*make, tmp_path / "link"), f"holds the input {tmp_path / 't'}"),
        ((*make, tmp_path), f"holds the input {corpus}"),
        ((*make, tmp_path / "s"), "holds b.jsonl"),
        (("data", "prepare", inside, *make[3:], tmp_path / "s"), f"holds the input {inside}"),
        ((*train, tmp_path / "s"), "is not a folder made here with a tokenizer.json"),
        ((*train, tmp_path / "mine"), "is not a folder made here with a tokenizer.json"),
        ((*train, tmp_path), f"holds the input {corpus}"),
    ):
        code, out, err = seedbed(*arguments)
        assert (code, out) == (2, "")
        assert problem in err.splitlines()[-1], err
    assert files_in(tmp_path) == before
    inside.unlink()
    assert seedbed(*make, tmp_path / "s")[0] == 0
    assert seedbed(*train, tmp_path / "t")[0] == 0


def test_quickstart_spares_folders_it_did_not_make(seedbed, tmp_path):
    """Refused before any work, also where only the second of its folders is somebody's."""
    for name in ("store", "tokenizer"):
        folder = tmp_path / name / name
        folder.mkdir(parents=True)
        (folder / "mine").write_text("x")
        code, _, err = seedbed("quickstart", "--dir", tmp_path / name)
        assert code == 2
        assert f"{folder}: is not a {'store' if name == 'store' else 'folder'} made here" in err
        assert [path.name for path in (tmp_path / name).rglob("*")] == [name, "mine"]


def test_no_frames_where_stderr_is_a_pipe(seedbed, corpus, tmp_path):
    _, _, err = seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    assert re.fullmatch(r"training the tokenizer: 4 documents, \d+ bytes \(\d+ s\)\n", err)
    corpus.write_text('{"text": "a"}\n7\n')
    _, _, err = seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "u")
    assert re.fullmatch(r"error: .*a\.jsonl:2: .*\n", err)


@pytest.fixture
def disk(tmp_path):
    """A folder, and the beginning of a shell command that puts a disk of so many bytes there."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["unshare", "-rm", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*mount, f"mount -t tmpfs tmpfs {place}"], check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")

    def run(size: str, script: str) -> str:
        command = f"mount -t tmpfs -o size={size} tmpfs {place} && {script}"
        done = subprocess.run([*mount, command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return place, run


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_full_disk(seedbed, corpus, prepare, disk, tmp_path, workers):
    """One line names the place and what to do; what was finished stays, and the same command finishes with room."""
    place, run = disk
    files = [tmp_path / f"{i}.jsonl" for i in range(6)]
    for file in files:
        file.write_text(
            "".join(json.dumps({"text": f"{file.name} {i} {text}" * 40}) + "\n" for i in range(9) for text in TEXTS)
        )
    arguments = ("data", "prepare", *files, *prepare[3:5], "--set", "storage.shard_tokens=20000", "--workers", workers)
    assert seedbed(*arguments, "-o", tmp_path / "whole")[0] == 0
    command = " ".join(
        [sys.executable, "-c", "'from seedbed.cli import main; main()'", *map(str, arguments), "-o", f"{place}/s"]
    )
    clean, after = place / "s" / "work" / "clean", f"mount -o remount,size=50m {place} && {command} > /dev/null"
    told = run("700k", f"! {command} && ls -a {clean} > {tmp_path}/left && {after} && cp -r {place}/s {tmp_path}/s")
    lines = told.splitlines()
    (problem,) = [line for line in lines if line.startswith("error: ")]
    assert re.fullmatch(
        rf"error: {place}/s/.*: No space left on device; make room, and run the same command again", problem
    )
    left = (tmp_path / "left").read_text()
    assert ".partial-" not in left
    assert "00000" in left
    made = {name: content for name, content in files_in(tmp_path / "s").items() if name.name != ".lock"}
    whole = {name: content for name, content in files_in(tmp_path / "whole").items() if name.name != ".lock"}
    assert {p.relative_to(tmp_path / "s"): c for p, c in made.items()} == {
        p.relative_to(tmp_path / "whole"): c for p, c in whole.items()
    }


def test_a_tokenizer_on_a_full_disk(tmp_path):
    """A limit on the size of files stands in for it; what was written so far is removed again."""
    code = (
        "import resource; from seedbed.data.bpe import train_tokenizer\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"try: train_tokenizer(['text'], 258, {str(tmp_path / 'new')!r})\n"
        "except OSError as error: print(error.filename)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path / 'new'}\n", done.stderr
    assert list(tmp_path.iterdir()) == []


def test_bad_records_stop_or_are_counted_and_kept_with_the_reason(seedbed, corpus, prepare, tmp_path):
    """Lines that are no JSON, records without a text, texts that are left out or rejected, conversations in the way."""
    lines = ['{"text": "the cat sat on the mat"}', "{oops", '{"txt": 1}', '{"text": 7}', '{"text": " "}',
             '{"text": "%s"}' % ("spam " * 40), '{"text": "abc"}', '{"text": "the dog"} {}']  # fmt: skip
    corpus.write_text("\n".join(lines) + "\n")
    filters = ("--set", "filters.word_repetition={n: 2, max_share: 0.5}", "--set", "min_chars=5", "--heldout", 0)
    code, out, err = seedbed(*prepare, *filters)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {corpus}:2: not JSON: ")
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
    assert "spam" in str(rejects[4]["record"])
    header = json.loads(out)["header"]
    assert header["skipped"] == Counter(reasons.values())
    assert header["streams"]["train"]["documents"] == 1


@pytest.mark.parametrize(("number", "code", "workers"), [(signal.SIGINT, 130, 2), (signal.SIGTERM, 143, 1)])
def test_a_signal_keeps_what_was_finished_and_says_what_to_do(
    seedbed, corpus, prepare, tmp_path, number, code, workers
):
    corpus.write_text("".join(json.dumps({"text": f"{i} {text}" * 20}) + "\n" for i in range(20000) for text in TEXTS))
    command = [sys.executable, "-c", "from seedbed.cli import main; main()", *map(str, prepare[:-1]), str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list((tmp_path / "s").glob("work/clean/.partial-*")):
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert err.splitlines()[-1].startswith("interrupted")
    assert "what was finished is kept, and the same command goes on from there" in err.splitlines()[-1]
    assert (tmp_path / "s" / "request.json").is_file()
    code, _, err = seedbed("data", "inspect", tmp_path / "s")
    assert code == 2
    assert "a store that was not finished; run the same `seedbed data prepare` again" in err
    corpus.write_text(json.dumps({"text": TEXTS[0]}) + "\n")
    assert seedbed(*prepare, "--heldout", 0)[0] == 0


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
