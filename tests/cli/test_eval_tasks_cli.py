"""seedbed eval --tasks and --suite: scores, the table of a suite, and what is refused before a model is opened."""

import json
from pathlib import Path

import pytest
from tiny import sentences

pytest.importorskip("lm_eval")
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """All of S2's tasks, three items each."""
    folder, texts = tmp_path_factory.mktemp("data"), sentences(20, seed=3)

    def write(name: str, rows: list[dict]) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    chosen = [{"question": text[:20], "choices": ["stone", "river", "bed"], "answer": 0} for text in texts[:3]]
    write("mc/arc_easy_test.jsonl", chosen)
    write("mc/arc_challenge_test.jsonl", chosen)
    blank = [
        {"sentence": f"The _ is {text[:9]}.", "option1": "cup", "option2": "jar", "answer": 1} for text in texts[:3]
    ]
    write("mc/winogrande_dev.jsonl", blank)
    pairs = [{"UID": "causative", "sentence_good": text[:20], "sentence_bad": text[9:30]} for text in texts[:3]]
    write("blimp/blimp.jsonl", pairs)
    write("text/wikitext_test.jsonl", [{"page": text} for text in texts[:3]])
    return folder


def test_a_suite_of_two_models_has_the_table_of_its_source(seedbed, foreign_folder, data, tmp_path):
    models = [foreign_folder(family) for family in ("llama", "qwen3")]
    options = ("--suite", "s2", "--task-data", data, "--device", "cpu", "--limit", 2)
    code, out, err = seedbed("eval", *models, *options, "-o", tmp_path / "o")
    assert code == 0, err
    head, *rows = [line for line in out.splitlines() if line.strip()][1:]
    assert out.startswith("S2, table 3") and head.split()[:3] == ["benchmark", "metric", "llama"] and "gain" in head
    assert [row.split()[0] for row in rows[:5]] == ["WikiText", "BLiMP", "ARC-C", "ARC-E", "WinoG"]
    assert "arc_easy: only the first 2 items: 2 of 3." in err
    found = json.loads((tmp_path / "o" / "result.json").read_text())
    (first, _) = found["read"]["tasks"]
    assert [task["task"] for task in first["tasks"]] == ["wikitext", "blimp", "arc_challenge", "arc_easy", "winogrande"]
    assert first["tasks"][3]["files"].keys() == {"mc/arc_easy_test.jsonl"}
    assert {row["metric"] for row in found["differences"] if row["task"] == "arc_easy"} == {"acc", "acc_norm"}
    page = (tmp_path / "o" / "report.html").read_text()
    assert "S2 (section 3.2) names the benchmarks" in page and "exp of the summed loss / the words" in page


def test_json_has_the_scores_and_nothing_else_on_stdout(seedbed, foreign_folder, data):
    options = ("--tasks", "arc_easy,arc_easy", "--tasks", "piqa,winogrande", "--task-data", data, "--device", "cpu")
    code, _, err = seedbed("eval", foreign_folder("llama"), *options, "--json")
    assert code == 2 and "mc/piqa_valid.jsonl" in err and "a JSON object a line with answer, choices, question" in err
    options = ("--tasks", "arc_easy,winogrande", "--task-data", data, "--device", "cpu", "--fewshot", 0)
    code, out, _ = seedbed("eval", foreign_folder("llama"), *options, "--json")
    scores = json.loads(out)["scores"]
    assert code == 0 and [(row["task"], row["metric"], row["items"]) for row in scores] == [
        ("arc_easy", "acc", 3), ("arc_easy", "acc_norm", 3), ("winogrande", "acc", 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--suite", "s3"), "--suite s3: there are s0 and s2"),
        (("--fewshot", 3), "--fewshot: is for tasks; name them with --tasks or --suite"),
        (("--tasks", "squad_v2", "--task-data", "."), "squad_v2: not among the tasks with local data"),
        (("--tasks", "arc_easy", "--task-data", "nowhere"), "nowhere: no such folder"),
        (("--tasks", "gsm8k", "--task-data", "."), "gsm8k: its items are looked for in"),
    ],
)
def test_what_is_refused(seedbed, options, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = seedbed("eval", "no-such-model", *options, "--device", "cpu")
    assert (code, out) == (2, "") and told in err and len(err.splitlines()) == 1
