"""Tasks from start to end: scores are the harness's, nothing is lost on the way, and a reader is told what was cut."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from foreign import LENGTH
from tiny import sentences

from seedbed.errors import InputError
from seedbed.eval.harness import Asked, TaskResult, harness, load_tasks
from seedbed.eval.paired import paired
from seedbed.files.parts import Parts
from seedbed.hub.models import open_model

pytest.importorskip("lm_eval")
TASKS = ("arc_easy", "mmlu", "blimp", "triviaqa", "wikitext")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A few items of each of TASKS; parts of groups differ in size."""
    folder, texts = tmp_path_factory.mktemp("data"), sentences(60, seed=2)
    words = " ".join(texts).split()

    def write(name: str, rows: list[dict]) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    chosen = [
        {"question": texts[n][:30], "choices": words[4 * n : 4 * n + 4], "answer": n % 4, "subject": subject}
        for n, subject in enumerate(["virology"] * 6 + ["anatomy"] * 3)
    ]
    write("mc/arc_easy_test.jsonl", chosen)
    write("mc/mmlu_test.jsonl", chosen)
    pairs = [("causative", n) for n in range(5)] + [("wh_island", n) for n in range(8)]
    write(
        "blimp/blimp.jsonl",
        [{"UID": u, "sentence_good": texts[n][:40], "sentence_bad": texts[n + 20][:40]} for u, n in pairs],
    )
    write("qa/triviaqa_dev.jsonl", [{"question": text[:20], "answers": ["a", "The"]} for text in texts[:4]])
    write("text/wikitext_test.jsonl", [{"page": " ".join(texts[n : n + 3])} for n in range(0, 12, 3)])
    return folder


@pytest.fixture(scope="module")
def folder(foreign_folder) -> Path:
    return foreign_folder("llama")


@pytest.fixture(scope="module")
def results(folder, data) -> list[TaskResult]:
    asked = Asked(TASKS, data)
    return harness(open_model(folder), load_tasks(asked), asked, Parts(None, {}), lambda _: None)


def score(results: list[TaskResult], task: str, metric: str, subset: str = "all"):
    (found,) = (
        one
        for result in results
        for one in result.scored
        if (one.score.task, one.score.metric, one.score.subset) == (task, metric, subset)
    )
    return found


def test_scores_and_errors_are_those_of_the_harness_on_the_saved_folder(results, folder, data):
    """lm_eval.evaluator with its own class for a Transformers folder, on the same tasks."""
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM

    loaded = load_tasks(Asked(TASKS, data))
    for one in loaded:
        for task in one.tasks.values():
            task.set_fewshot_seed(1234)
            if one.name == "triviaqa":  # the harness's class gives up where a model reads no more than an answer
                task.set_config("generation_kwargs", {"max_gen_toks": LENGTH // 2}, update=True)
    tasks = {name: task for one in loaded for name, task in one.tasks.items()}
    groups = {name: group for one in loaded for name, group in one.groups.items()}
    theirs = evaluate(
        HFLM(str(folder), device="cpu", dtype="float32", batch_size=3),
        {"tasks": tasks, "groups": groups},
        bootstrap_iters=10,
    )["results"]
    seen = 0
    for name, found in theirs.items():
        for key, value in found.items():
            if "," not in key or "_stderr" in key:
                continue
            task = next(one for one in TASKS if name.startswith(one))
            ours = score(results, task, key.removesuffix(",none"), "all" if name == task else name)
            assert ours.score.value == pytest.approx(value, rel=1e-6, abs=1e-6), (name, key)
            error = found[key.replace(",", "_stderr,", 1)]
            if error != "N/A":  # the harness has none for perplexities
                # of a mean weighted by size the harness pools variances, which are equal for parts that are
                assert ours.score.stderr == pytest.approx(error, rel=1e-2 if name == "mmlu" else 1e-6), (name, key)
            seen += 1
    assert seen == sum(len(result.scored) for result in results) == 2 + 3 + 3 + 1 + 3


def test_items_carry_the_score(results):
    arc = score(results, "arc_easy", "acc")
    assert len(arc.items.ids) == arc.score.items == 9 and arc.items.ids[0].startswith("arc_easy/0/")
    assert arc.score.value == sum(arc.items.values) / 9
    parts = {name: score(results, "blimp", "acc", f"blimp_{name}").score.value for name in ("causative", "wh_island")}
    assert score(results, "blimp", "acc").score.value == pytest.approx(sum(parts.values()) / 2)
    pooled = score(results, "mmlu", "acc")
    assert pooled.score.value == sum(pooled.items.values) / 9  # by size, not a mean of two means
    assert set(pooled.items.strata or []) == {"mmlu_virology", "mmlu_anatomy"}
    words = score(results, "wikitext", "word_perplexity")
    assert (words.score.unit, words.score.better, words.items.scale) == ("", "lower", "exp")
    assert score(results, "wikitext", "bits_per_byte").score.unit == "bits/byte"


def test_what_a_reader_has_to_know(results):
    told = {result.task: result for result in results}
    assert (told["arc_easy"].version, told["arc_easy"].fewshot, told["arc_easy"].of) == ("1.0", 0, 9)
    assert told["mmlu"].version == "2" and told["mmlu"].notes[0].startswith("2 of 57 parts: the files have nothing of")
    assert told["blimp"].notes == ["2 of 67 parts: the files have nothing of blimp_adjunct_island and 64 more"]
    assert any(note.endswith("tokens were cut off in front") for note in told["mmlu"].notes)
    short = f"answers end after {LENGTH // 2} tokens, not 256: the model reads {LENGTH} in all"
    assert short in told["triviaqa"].notes
    assert set(told["arc_easy"].files) == {"mc/arc_easy_test.jsonl"}


def test_a_limit_is_told_and_takes_the_first(folder, data, results):
    asked = Asked(("arc_easy", "mmlu"), data, limit=2)
    few = harness(open_model(folder), load_tasks(asked), asked, Parts(None, {}), lambda _: None)
    assert few[0].notes == ["only the first 2 items: 2 of 9"]
    assert few[1].notes[0] == "only the first 2 items of each part: 4 of 9"
    all_items, first = score(results, "arc_easy", "acc").items, score(few, "arc_easy", "acc").items
    assert first.ids == all_items.ids[:2] and first.values == all_items.values[:2]
    with pytest.raises(InputError, match="scored on other items"):
        paired(all_items, first)


def test_an_interrupted_evaluation_goes_on(folder, data, tmp_path, results):
    asked, model = Asked(("arc_easy", "triviaqa"), data), open_model(folder)
    told: list[str] = []

    def stop(state: str) -> None:
        told.append(state)
        if state.startswith("triviaqa") and len(told) < 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        harness(model, load_tasks(asked), asked, Parts(tmp_path, {"x": 1}), stop)
    assert any(state.startswith("arc_easy") for state in told)
    told += [""] * 5
    again = len(told)
    found = harness(model, load_tasks(asked), asked, Parts(tmp_path, {"x": 1}), stop)
    assert {state.split(":")[0] for state in told[again:]} == {"triviaqa"}
    assert found == [result for result in results if result.task in asked.tasks]


def test_the_terminal_has_progress_alone(folder, data, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    model = open_model(folder)
    capsys.readouterr()
    asked = Asked(TASKS, data, limit=2)
    harness(model, load_tasks(asked), asked, Parts(None, {}), lambda state: print(state, file=sys.stderr))
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines()
    assert all(line.split(":")[0] in TASKS for line in err.splitlines())
    assert not any(tmp_path.iterdir())


def test_chat_puts_prompts_into_the_template(foreign_folder, data, tmp_path):
    import shutil

    folder = shutil.copytree(foreign_folder("llama"), tmp_path / "chat")
    asked = Asked(("arc_easy",), data, limit=1, chat=True)
    with pytest.raises(InputError, match="has no chat template; leave --chat out"):
        harness(open_model(folder), load_tasks(asked), asked, Parts(None, {}), lambda _: None)
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
    )
    (folder / "chat_template.jinja").write_text(template)
    loaded = load_tasks(asked)
    harness(open_model(folder), loaded, asked, Parts(None, {}), lambda _: None)
    context, _ = loaded[0].tasks["arc_easy"].instances[0].args
    assert context.startswith("user:Question: ") and context.endswith("\nAnswer:;A:")


def test_tasks_by_name_when_nothing_local_is_given(monkeypatch, tmp_path, data):
    """The harness's own index, here of one YAML file."""
    from lm_eval import tasks

    file = tmp_path / "mine.yaml"
    file.write_text(
        f"task: mine\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}/mc/none.jsonl}}}}\n"
        "test_split: test\noutput_type: multiple_choice\ndoc_to_text: question\ndoc_to_choice: choices\n"
        "doc_to_target: answer\n"
    )
    manager = tasks.TaskManager(include_path=tmp_path, include_defaults=False)
    monkeypatch.setattr(tasks, "TaskManager", lambda: manager)
    with pytest.raises(InputError, match="knows no mime; did you mean mine"):
        load_tasks(Asked(("mime",)))
    with pytest.raises(InputError, match="mine: lm-evaluation-harness cannot load it: .*give them with --task-data"):
        load_tasks(Asked(("mine",)))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    file.write_text(
        file.read_text()
        .replace("none", "arc_easy_test")
        .replace("{test:", "{test: ")
        .replace("dataset_kwargs: {", f"dataset_kwargs: {{cache_dir: {tmp_path}/cache, ")
    )
    (loaded,) = load_tasks(Asked(("mine",), fewshot=None))
    assert len(loaded.tasks["mine"].eval_docs) == 9 and loaded.tasks["mine"].config.num_fewshot == 0
    with pytest.raises(InputError, match="no such folder; --task-data names"):
        load_tasks(replace(Asked(("mine",)), data=tmp_path / "nowhere"))
