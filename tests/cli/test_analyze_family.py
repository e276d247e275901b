"""All `seedbed analyze` commands: the same options, the same -o and --json, nothing written on wrong input."""

import json
import re
from pathlib import Path

import pytest
from tiny import config, quiet, sentences

from seedbed.api import fit
from seedbed.files.lock import folder_lock

# What each is given in the tests, as words; {model} is what a test may name wrongly.
PAGES = {
    "attention": "{model} --data {texts}",
    "compare": "{step} {model}",
    "dynamics": "{model}",
    "ifd": "{model} --data {records}",
    "residual": "{model} --data {texts}",
    "tokens": "{step} {model} --data {texts}",
    "weights": "{model}",
}
RUN = ["train.steps=4", "model.d_model=16", "train.checkpoint_every=2"]
ORDER = ["--data", "--documents", "--length", "--field", "--on-bad", "--out", "--overwrite", "--json", "--help"]


@pytest.fixture(scope="module")
def places(tmp_path_factory, tiny_store) -> dict[str, Path]:
    """A run of four steps, its first checkpoint, texts and records."""
    folder = tmp_path_factory.mktemp("runs")
    fit(config(tiny_store, folder / "run", *RUN), quiet)
    texts, records = folder / "texts.jsonl", folder / "records.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(3, seed=3)))
    records.write_text("".join(json.dumps({"prompt": "the", "response": "grows " * n}) + "\n" for n in (3, 4, 5)))
    step = folder / "run" / "checkpoints" / "step_00000002"
    return {"model": folder / "run", "step": step, "texts": texts, "records": records}


def words(command: str, places: dict[str, Path], **other: Path) -> list[str]:
    return ["analyze", command, *(word.format(**places | other) for word in PAGES[command].split())]


@pytest.mark.parametrize("command", [*PAGES, "cohort"])
def test_help_is_alike(seedbed, command):
    code, text, _ = seedbed("analyze", command, "--help")
    found = re.findall(r"^  (?:-o, )?(--[a-z-]+)", text.partition("Options:")[2], re.MULTILINE)
    assert code == 0
    assert [name for name in found if name in ORDER] == [name for name in ORDER if name in found]
    assert found[-4:] == ORDER[-4:]
    _, listed, _ = seedbed("analyze", "--help")
    (line,) = [line for line in listed.splitlines() if line.startswith(f"  {command} ")]
    assert not line.endswith("...")


@pytest.mark.parametrize("command", PAGES)
def test_a_folder_and_one_document(seedbed, places, undrawn, tmp_path, command):
    out = tmp_path / "new" / "out"
    code, text, err = seedbed(*words(command, places), "-o", out, "--json")
    assert code == 0, err
    document = json.loads(text)
    assert document.pop("report") == str(out / "report.html")
    assert document == json.loads((out / "result.json").read_text())
    assert {path.name for path in out.iterdir()}.isdisjoint({"parts.jsonl", ".lock"})
    told = document["provenance"]
    assert told["command"].startswith(f"seedbed analyze {command} ")
    assert {"python", "torch"} <= told.keys()
    hashes = [value for value in told.values() if re.fullmatch("SHA-256 [0-9a-f]{64}", value)]
    page = (out / "report.html").read_text()
    assert hashes and all(value in page for value in hashes)
    if "--data" in words(command, places):
        assert told["texts"] in map(str, places.values())

    before = (out / "result.json").read_bytes()
    code, text, err = seedbed(*words(command, places, model=tmp_path / "none"), "-o", out)
    assert (code, text, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {out}: holds a result already") and "--overwrite" in err
    assert (out / "result.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("command", PAGES)
def test_every_figure_is_drawn(seedbed, places, tmp_path, command):
    code, _, err = seedbed(*words(command, places), "-o", tmp_path)
    assert code == 0, err
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn
    for path in (tmp_path / "figures").iterdir():
        assert path.read_bytes().startswith(b"<svg" if path.suffix == ".svg" else b"\x89PNG"), path
        assert path.with_suffix(".png").name in drawn and path.with_suffix(".svg").name in drawn


@pytest.mark.parametrize("command", PAGES)
def test_out_is_checked_before_anything_is_opened(seedbed, places, tmp_path, command):
    file, folder, held = tmp_path / "file", tmp_path / "folder", tmp_path / "held"
    file.write_text("mine")
    folder.mkdir()
    (folder / "mine").write_text("mine")
    given = words(command, places, model=tmp_path / "none")
    with folder_lock(held):
        for out, problem in (
            (file, "is a file; name a folder"),
            (folder, "holds other files"),
            (held, "in use by process"),
        ):
            code, text, err = seedbed(*given, "-o", out)
            assert (code, text, err.count("\n")) == (2, "", 1)
            assert err.startswith(f"error: {out}: {problem}")
    assert [path.name for path in folder.iterdir()] == ["mine"]
    assert file.read_text() == "mine"


@pytest.mark.parametrize("command", PAGES)
def test_a_model_that_is_not_there(seedbed, places, tmp_path, command):
    out, none = tmp_path / "out", tmp_path / "none"
    code, text, err = seedbed(*words(command, places, model=none), "-o", out)
    assert (code, text) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {none}: ")
    assert not out.exists()


@pytest.mark.parametrize("command", [command for command, given in PAGES.items() if "--data" in given])
def test_data_without_a_text(seedbed, places, tmp_path, command):
    out, empty = tmp_path / "out", tmp_path / "empty.jsonl"
    empty.write_text("")
    code, text, err = seedbed(*words(command, places, texts=empty, records=empty), "-o", out)
    assert (code, text) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {empty}: ")
    assert not out.exists()


@pytest.mark.parametrize("command", ["attention", "residual", "tokens"])
def test_records_that_are_left_out_are_counted(seedbed, places, undrawn, tmp_path, command):
    file = tmp_path / "bodies.jsonl"
    file.write_text('{"text": "not this"}\n{not JSON\n' + '{"body": "the seed grows under the blue stone"}\n' * 2)
    given = [*words(command, places, texts=file), "--field", "body", "--json"]
    code, _, err = seedbed(*given)
    assert code == 2 and "bodies.jsonl:1: no field 'body'" in err and "on_bad: skip" in err
    code, text, err = seedbed(*given, "--on-bad", "skip")
    assert code == 0, err
    assert "no field 'body'" in text and "not one JSON value" in text


@pytest.mark.parametrize("kept", [True, False])
def test_an_interruption_says_what_is_kept(seedbed, places, tmp_path, monkeypatch, kept):
    def stop(_path):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    monkeypatch.setattr("seedbed.hub.checkpoints.open_checkpoint", stop)
    code, text, err = seedbed(*words("weights", places), *(["-o", out] if kept else []))
    assert (code, text) == (130, "")
    said = "nothing was finished yet" if kept else "nothing is kept without -o FOLDER"
    assert err.splitlines()[-1].startswith(f"interrupted: {said}")
    assert not out.exists()


def test_parts_are_kept_for_the_analysis_that_they_are_of(seedbed, places, undrawn, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("seedbed.analysis.weights._weight_row", interrupt)
        code, _, err = seedbed(*words("weights", places), "-o", out)
    assert code == 130
    assert err.splitlines()[-1].startswith(f"interrupted: what was finished is kept in {out}, and the same command")
    before = (out / "parts.jsonl").read_bytes()
    code, _, err = seedbed(*words("residual", places), "-o", out)
    assert code == 2
    told = f"error: {out}: keeps what an interrupted `seedbed analyze weights` had finished; finish that"
    assert err.splitlines()[-1].startswith(told)
    assert (out / "parts.jsonl").read_bytes() == before
    code, _, err = seedbed(*words("weights", places), "-o", out)
    assert (code, "goes on" in err) == (0, True)
    (out / "parts.jsonl").write_bytes(before)
    assert seedbed(*words("residual", places), "-o", out, "--overwrite")[0] == 0


def interrupt(*_):
    raise KeyboardInterrupt


def test_two_runs_are_compared_on_what_their_store_holds_out(seedbed, places):
    code, text, err = seedbed("analyze", "tokens", places["step"], places["model"], "--json")
    assert code == 0, err
    assert json.loads(text)["provenance"]["texts"].endswith("/store")
    code, text, err = seedbed("analyze", "residual", places["model"], "--length", 99)
    assert (code, err) == (2, f"error: --length 99: {places['model']} reads at most 32 tokens\n")
