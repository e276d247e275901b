"""Local data become the documents, prompts and answers of lm-evaluation-harness's tasks; what does not fit is told."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from seedbed.errors import InputError
from seedbed.eval.local_tasks import load_local, local_names, local_task, missing_local
from seedbed.eval.suites import SUITES

pytest.importorskip("lm_eval")

CHOICES = {"id": "1", "question": "What falls?", "choices": ["stone", "light", "smoke"], "answer": 2}
ARC = ("Question: What falls?\nAnswer:", [" stone", " light", " smoke"], 2)
SUM = {"question": "What is 1+2?", "answer": "1+2=<<1+2=3>>3\n#### 3"}
ASKED = {"question": "Who wrote it", "answers": ["A. Man", "Someone"]}

# task -> a line of its file, and of the first question: the prompt, the answers that are scored, what is right
FORMS: dict[str, tuple[dict[str, Any], str, list[str] | None, Any]] = {
    "arc_easy": (CHOICES, *ARC),
    "arc_challenge": (CHOICES, *ARC),
    "openbookqa": (CHOICES | {"choices": list("wxyz")}, "What falls?", [" w", " x", " y", " z"], 2),
    "hellaswag": (
        CHOICES | {"ctx_a": "[header] A man runs.", "ctx_b": "he", "activity_label": "Running"},
        "Running: A man runs. He",
        [" stone", " light", " smoke"],
        "2",
    ),
    "social_iqa": (CHOICES | {"question": "Bo ran. Why?"}, "Q: Bo ran. Why?\nA:", [" stone", " light", " smoke"], 2),
    "piqa": (CHOICES | {"answer": 1}, "Question: What falls?\nAnswer:", [" stone", " light"], 1),
    "mmlu": (
        CHOICES | {"choices": list("wxyz"), "subject": "virology"},
        "The following are multiple choice questions (with answers) about virology.\n\n"
        "What falls?\nA. w\nB. x\nC. y\nD. z\nAnswer:",
        [" A", " B", " C", " D"],
        2,
    ),
    "gsm8k": (SUM, "Question: What is 1+2?\nAnswer:", None, SUM["answer"]),
    "hendrycks_math500": ({"problem": "$1+2$?", "answer": "3"}, "Problem: $1+2$?\nAnswer:", None, "3"),
    "triviaqa": (ASKED, "Question: Who wrote it?\nAnswer:", None, ["A. Man", "Someone"]),
    "nq_open": (ASKED, "Answer these questions:\n\nQ: Who wrote it?\nA:", None, ["A. Man", "Someone"]),
}


def write(folder: Path, task: str, row: dict[str, Any], split: str | None = None) -> Path:
    files = local_task(task).files
    name = files[split] if split else next(iter(files.values()))
    file = folder / (name if isinstance(name, str) else name[-1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(row) + "\n")
    return file


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """No name is looked up, and nothing is written into the home of its user."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    yield
    assert not any(home.iterdir())


def first(task: str, folder: Path, fewshot: int | None = 0):
    (found,) = load_local(task, folder, fewshot).tasks.values()
    found.set_fewshot_seed(1234)
    found.build_all_requests()
    return found, found.instances


@pytest.mark.parametrize("task", FORMS)
def test_prompts_and_answers_are_those_of_the_harness(tmp_path, task):
    row, prompt, answers, right = FORMS[task]
    write(tmp_path, task, row)
    found, asked = first(task, tmp_path)
    assert [one.args[0] for one in asked] == [prompt] * len(answers or [""])
    if answers is not None:
        assert [one.args[1] for one in asked] == answers
    target = found.doc_to_target(found.eval_docs[0])
    assert target == (int(right) if task == "hellaswag" else right)


def test_winogrande_scores_the_end_of_the_sentence(tmp_path):
    row = {"id": "0", "sentence": "The cup hit the jar because the _ was near.", "option1": "cup", "option2": "jar"}
    write(tmp_path, "winogrande", {**row, "answer": 1})
    found, asked = first("winogrande", tmp_path)
    start = "The cup hit the jar because the"
    assert [one.args for one in asked] == [(f"{start} {word}", " was near.") for word in ("cup", "jar")]
    assert found.doc_to_text(found.eval_docs[0]) == 1
    write(tmp_path, "winogrande", {**row, "answer": 2})
    with pytest.raises(InputError, match=r":1: no document of winogrande: .*\[answer\] is not there; the line is"):
        load_local("winogrande", tmp_path, None)


def test_a_group_has_the_parts_of_its_file(tmp_path):
    file = write(tmp_path, "blimp", {"UID": "causative", "sentence_good": "A b.", "sentence_bad": "B a."})
    with file.open("a") as out:
        out.write(json.dumps({"UID": "wh_island", "sentence_good": "C.", "sentence_bad": "D."}) + "\n")
    found = load_local("blimp", tmp_path, None)
    assert list(found.tasks) == ["blimp_causative", "blimp_wh_island"] and len(found.lacking) == 65
    assert list(found.groups) == ["blimp"] and list(found.groups["blimp"].child_names) == list(found.tasks)
    assert found.files.keys() == {"blimp/blimp_shared.jsonl"}
    write(tmp_path, "blimp", {"UID": "other", "sentence_good": "A b.", "sentence_bad": "B a."})
    with pytest.raises(InputError, match="no line belongs to a part of blimp; see the key UID"):
        load_local("blimp", tmp_path, None)


def test_bbh_shows_its_own_examples(tmp_path):
    write(tmp_path, "bbh", {"task": "navigate", "input": "Turn. Options:\n- Yes\n- No", "target": "No"})
    _, (asked,) = first("bbh", tmp_path, None)
    assert asked.args[0].count("Let's think step by step.") == 4
    assert asked.args[0].endswith("Q: Turn. Options:\n- Yes\n- No\nA: Let's think step by step.\n")
    assert asked.args[1]["max_gen_toks"] == 1024


def test_wikitext_counts_words_and_bytes_of_the_page_as_it_is(tmp_path):
    write(tmp_path, "wikitext", {"page": "A @-@ b c\n"})
    found, (asked,) = first("wikitext", tmp_path)
    assert asked.args == ("A-b c\n",)
    assert found.process_results(found.eval_docs[0], [-3.0])["byte_perplexity"] == (-3.0, 10)


def test_examples_come_from_their_own_file(tmp_path):
    write(tmp_path, "gsm8k", SUM)
    with pytest.raises(InputError, match=r"the 5 examples .*math/gsm8k_train.jsonl .*ask for other examples"):
        load_local("gsm8k", tmp_path, None)
    write(tmp_path, "gsm8k", {**SUM, "question": "What is 2+1?"}, "train")
    _, (asked,) = first("gsm8k", tmp_path, 1)
    assert asked.args[0] == f"Question: What is 2+1?\nAnswer: {SUM['answer']}\n\nQuestion: What is 1+2?\nAnswer:"
    write(tmp_path, "hendrycks_math500", FORMS["hendrycks_math500"][0])
    with pytest.raises(InputError, match="no local file has the 4 examples"):
        load_local("hendrycks_math500", tmp_path, 4)


def test_a_task_without_its_data_names_file_and_layout(tmp_path):
    with pytest.raises(InputError, match=r"mc/arc_easy_test.jsonl .*a JSON object a line with answer, choices, quest"):
        load_local("arc_easy", tmp_path, None)
    with pytest.raises(InputError, match="squad_v2: not among the tasks with local data"):
        missing_local(["arc_easy", "squad_v2"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty; arc_easy needs a JSON object a line with"),
        ("[]\n", ":1: arc_easy needs answer, choices, question; the line has no keys"),
        ('{"question": "a", "choice": ["b"], "answer": 0}\n', ":1: arc_easy needs choices; the line has question, c"),
        ('{"question": "a", "choices": ["b"], "answer": 1}\n', r":1: arc_easy: answer is 1, not the place .* of 1 ch"),
        ('{"question": "a", "choices": ["b"], "answer": "A"}\n', ':1: arc_easy: answer is "A", not the place'),
        ('{"question": "a", "choices": ["b", ""], "answer": 0}\n', ":1: arc_easy: choices is not a list of texts: "),
        ('{"question": "a"\n', ":1: the line ends inside a value .*write the file anew$"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path, text, told):
    write(tmp_path, "arc_easy", CHOICES).write_text(text)
    with pytest.raises(InputError, match=told):
        load_local("arc_easy", tmp_path, None)


def test_the_tasks_of_all_suites_have_local_forms():
    names = local_names()
    assert {task for suite in SUITES.values() for task in suite.tasks} <= set(names)
    assert all(local_task(name).keys for name in names)
    assert len(SUITES["s0"].columns) == 8


@pytest.mark.realdata
@pytest.mark.parametrize("task", ["hellaswag", "social_iqa", "winogrande", "triviaqa", "bbh"])
def test_real_files_fit(real_data, task):
    found = load_local(task, real_data / "evals", None)
    items = sum(len(one.eval_docs) for one in found.tasks.values())
    sizes = {"hellaswag": 1000, "social_iqa": 1954, "winogrande": 1267, "triviaqa": 1000, "bbh": 6511}
    assert items == sizes[task] and not found.lacking
