"""`seedbed eval`: one folder of results for one model, two, or a run's checkpoints; and one line where it cannot."""

import csv
import json
from pathlib import Path

import pytest
from few_texts import TEXTS, files_in
from tiny import config, quiet, sentences

from seedbed.api import fit

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_store) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name, gamma in (("half", 0.5), ("one", 1.0)):
        options = ["train.steps=4", "train.checkpoint_every=2", "train.keep_checkpoints=5", f"init.gamma={gamma}"]
        fit(config(tiny_store, folder / name, "init.law=gamma", *options), quiet)
    return folder / "half", folder / "one"


@pytest.fixture
def data(tmp_path) -> Path:
    file = tmp_path / "texts.jsonl"
    records = [{"text": text, "lang": "en"} for text in sentences(6, seed=3)]
    records += [{"text": TEXTS[2], "lang": "zh"}, {"text": ""}]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


@pytest.fixture
def pairs(tmp_path) -> Path:
    file = tmp_path / "pairs.jsonl"
    records = [
        {"sentence_good": f"a {word} grows", "sentence_bad": f"grows {word} a", "UID": uid, "field": "syntax"}
        for uid in ("one", "two")
        for word in ("stone", "river", "seed")
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def rows(file: Path) -> list[dict[str, str]]:
    with open(file) as opened:
        return list(csv.DictReader(opened))


def test_two_models_in_a_folder(seedbed, runs, data, pairs, tmp_path):
    out = tmp_path / "out"
    code, text, err = seedbed("eval", *runs, "--data", data, "--pairs", pairs, "--limit", 2, "-o", out)
    assert code == 0, err
    assert "bits per byte ↓" in text and "gain" in text
    assert "text: Left off: " in err and "text: Not read: 1 × empty text." in err
    result = json.loads((out / "result.json").read_text())
    assert [row["name"] for row in result["models"]] == ["half", "one"]
    assert result["read"]["text"][0]["skipped"] == {"empty text": 1}
    assert result["read"]["minimal pairs"][0]["pairs"] == 4
    scores = rows(out / "scores.csv")
    own = {row["model"]: float(row["value"]) for row in scores if (row["subset"], row["unit"]) == ("all", "bits/byte")}
    (gain,) = [
        row for row in rows(out / "differences.csv") if (row["subset"], row["metric"]) == ("all", "bits per byte")
    ]
    assert float(gain["difference"]) == pytest.approx(own["one"] - own["half"], abs=1e-12)
    assert len([row for row in rows(out / "items.csv") if row["metric"] == "accuracy"]) == 8
    told = (out / "report.md").read_text()
    assert "| text | language: en | bits per byte ↓ |" in told
    assert "Standard error over items" in (out / "report.html").read_text()
    assert not (out / "parts.jsonl").exists()
    before = files_in(out)
    assert seedbed("eval", *runs, "--pairs", pairs, "-o", out)[0] == 2
    assert files_in(out) == before


def test_the_course_of_a_run(seedbed, runs, data, tmp_path):
    out = tmp_path / "out"
    code, text, err = seedbed("eval", runs[0], "--checkpoints", "all", "--data", data, "-o", out)
    assert code == 0, err
    assert "Scores by step" in text
    assert [row["step"] for row in rows(out / "models.csv")] == ["2", "4"]
    newest = json.loads(seedbed("eval", runs[0], "--data", data, "--json")[1])
    assert newest["scores"][0]["value"] == float(rows(out / "scores.csv")[-len(newest["scores"])]["value"])


def test_an_interrupted_command_goes_on(seedbed, runs, data, pairs, tmp_path, monkeypatch):
    out, command = tmp_path / "out", ("eval", *runs, "--data", data, "--pairs", pairs)

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("seedbed.eval.questions.minimal_pairs.minimal_pairs", stop)
        code, _, err = seedbed(*command, "-o", out)
    assert (code, "the same command goes on from there" in err) == (130, True)
    code, _, err = seedbed("analyze", "weights", runs[0], "-o", out)
    assert code == 2 and "an interrupted `seedbed eval`" in err
    code, _, err = seedbed(*command, "-o", out)
    assert (code, "goes on; 1 parts" in err) == (0, True)
    seedbed(*command, "-o", tmp_path / "fresh")
    assert rows(out / "items.csv") == rows(tmp_path / "fresh" / "items.csv")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to evaluate"),
        (("--data", "none.jsonl"), "none.jsonl"),
        (("--pairs", "none.jsonl"), "none.jsonl"),
        (("--data", "TEXTS", "--length", 1000), "reads at most 32 tokens"),
        (("--data", "TEXTS", "--stride", 32), "--stride 32: give 1 to 31"),
        (("--data", "TEXTS", "--checkpoints", "1,x"), "--checkpoints 1,x: give all, or steps"),
        (("--data", "TEXTS", "--checkpoints", "3"), "keeps no step 3; it has 2, 4"),
        (("RUN", "--data", "TEXTS"), "given twice"),
        (("OTHER", "--data", "TEXTS", "--checkpoints", "all"), "is of one run"),
        (("--data", "TEXTS", "--device", "gpu"), "'gpu' is not one of"),
    ],
)
def test_wrong_input_is_one_line(seedbed, runs, data, tmp_path, arguments, said):
    places = {"TEXTS": data, "RUN": runs[0], "OTHER": runs[1]}
    out = tmp_path / "out"
    code, text, err = seedbed("eval", runs[0], *(places.get(one, one) for one in arguments), "-o", out)
    assert (code, text) == (2, "")
    assert said in err.splitlines()[-1]
    assert not out.exists()
