"""Models asked the same questions: one by one, compared on what they share, and along a run."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from tiny import config, quiet

from seedbed.config.load import to_yaml
from seedbed.errors import InputError
from seedbed.eval.evaluation import Answer, Source, checkpoints_of, compare, evaluate
from seedbed.eval.perplexity import BITS, NATS
from seedbed.eval.scores import Items, scored
from seedbed.files.atomic import COMMIT
from seedbed.files.parts import Parts


@dataclass(frozen=True)
class Read:
    model: str


@pytest.fixture(autouse=True)
def no_models(monkeypatch):
    """What is opened is a name with its weights; only how answers are put together is looked at."""
    monkeypatch.setattr("seedbed.eval.evaluation.identity", lambda model: model.weights)
    monkeypatch.setattr("seedbed.eval.evaluation.fingerprint", lambda model: {"weights": model.weights})


def source(name: str, weights: str | None = None, step: int | None = None, tokenizer: str = "t") -> Source:
    model = SimpleNamespace(name=name, weights=weights or name, tokenizer=SimpleNamespace(hash=tokenizer))
    return Source(name, step, lambda: model)  # pyright: ignore[reportArgumentType]


def items(values, subset="all", metric="accuracy", ids="abcd", weights=None) -> Items:
    return Items("task", subset, metric, list(ids[: len(values)]), values, weights)


def question(values):
    """A question that each model answers with ``values`` of its name."""

    def ask(model, parts, tell, which):
        tell("batch 1 of 1")
        found = parts.get(f"{which} batch", lambda: values[model.name])
        if found is None:
            raise InputError(f"{model.name}: not finite")
        one = items(found)
        return Answer([scored(model.name, one, "share", "higher")], Read(model.name), [f"{len(found)} items."], [])

    return ask


def run(sources, values, **options):
    parts = options.pop("parts", Parts(None, 0))
    return evaluate("title", sources, {"task": question(values)}, parts, options.pop("tell", quiet), **options)


def test_two_models_side_by_side():
    values = {"a": [0.0, 0.0, 1.0, 1.0], "b": [1.0, 1.0, 1.0, 1.0]}
    told = []
    result, rows = run([source("a"), source("b")], values, tell=told.append)
    assert [(one.model, one.value) for one in result.scores] == [("a", 0.5), ("b", 1.0)]
    (gain,) = result.differences
    assert (gain.difference, gain.only_a, gain.only_b) == (0.5, 0, 2)
    assert result.told == {"task": ["4 items."]}  # the same of both: once
    assert [(row.model, row.item, row.value) for row in rows][3:5] == [("a", "d", 1.0), ("b", "a", 1.0)]
    assert "b (2 of 2): task, batch 1 of 1" in told


def test_what_differs_is_told_of_each():
    result, _ = run([source("a"), source("b")], {"a": [0.0, 1.0], "b": [1.0, 1.0, 0.0]})
    assert result.told == {"task": ["a: 2 items.", "b: 3 items."]}
    assert [one.items for one in result.differences] == [2]
    assert result.problems == ["task, all, accuracy: 1 items of one model alone."]


def test_the_same_weights_are_not_compared():
    with pytest.raises(InputError, match="b: has the same weights as a; give two models"):
        run([source("a", "w"), source("b", "w")], {"a": [1.0], "b": [1.0]})


def test_metrics_a_token_need_one_tokenizer():
    one = scored("a", items([1.0, 2.0], metric=NATS), "nats/token", "lower")
    other = scored("a", items([1.0, 0.0]), "share", "higher")
    answer = Answer([one, other], None, [], [])
    found, told = compare(answer, answer, same_tokenizer=True)
    assert ([pair.metric for pair in found], told) == ([NATS, "accuracy"], [])
    found, told = compare(answer, answer, same_tokenizer=False)
    assert [pair.metric for pair in found] == ["accuracy"]
    assert told == ["Not compared, since the tokenizers differ: nats per token and perplexity."]
    found, told = compare(Answer([replace_subset(other)], None, [], []), answer, same_tokenizer=True)
    assert (found, told) == ([], ["task, domain: x: one model alone has items."])


def test_bits_a_byte_of_different_parts_of_documents_are_told():
    """Two tokenizers cut the same document to as many tokens, which are not as many bytes."""
    bits = scored("a", items([1.0, 2.0], metric=BITS, weights=[30.0, 40.0]), "bits/byte", "lower")
    other = scored("b", items([1.5, 2.0], metric=BITS, weights=[30.0, 25.0]), "bits/byte", "lower")
    found, told = compare(*(Answer([one], None, [], []) for one in (bits, other)), same_tokenizer=False)
    assert [pair.metric for pair in found] == [BITS]
    assert told[0].startswith("task: of 1 of 2 documents the models read parts of other lengths")
    assert compare(Answer([bits], None, [], []), Answer([bits], None, [], []), same_tokenizer=True)[1] == []


def replace_subset(one):
    return one._replace(items=replace(one.items, subset="domain: x"))


def test_a_course_passes_over_what_cannot_be_scored():
    steps = [source(f"step {n}", step=n) for n in (1, 2, 3)]
    values = {"step 1": [1.0, 0.0], "step 2": None, "step 3": [1.0, 1.0]}
    result, _ = run(steps, values, course=True)
    assert [(row.name, row.step) for row in result.models] == [("step 1", 1), ("step 3", 3)]
    assert result.problems == ["step 2 passed over: step 2: not finite"]
    assert not result.differences
    with pytest.raises(InputError, match="no checkpoint could be scored: step 2 passed over"):
        run(steps[1:2], values, course=True)
    with pytest.raises(InputError, match="not finite"):
        run(steps[1:2], values)


def test_what_a_model_answered_is_kept_for_it(tmp_path):
    values = {"a": [1.0, 0.0], "b": [1.0, 1.0]}

    def stop(said):
        if said.startswith("b") and "opening" not in said:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([source("a"), source("b")], values, parts=Parts(tmp_path, "key"), tell=stop)
    wrong = {"a": None, "b": [1.0, 1.0]}  # a is not asked again
    result, _ = run([source("a"), source("b")], wrong, parts=Parts(tmp_path, "key"))
    assert [one.value for one in result.scores] == [0.5, 1.0]


def test_checkpoints_of_a_run(tmp_path):
    run_dir = tmp_path / "run"
    for step in (10, 1, 2):
        (run_dir / "checkpoints" / f"step_{step:08d}").mkdir(parents=True)
    (run_dir / "config.yaml").write_text(to_yaml(config(tmp_path, run_dir)))
    assert [step for step, _ in checkpoints_of(run_dir, None)] == [1, 2, 10]
    assert checkpoints_of(run_dir, [10, 1, 10]) == [
        (1, run_dir / "checkpoints" / "step_00000001"),
        (10, run_dir / "checkpoints" / "step_00000010"),
    ]
    with pytest.raises(InputError, match="keeps no step 7; it has 1, 2, 10"):
        checkpoints_of(run_dir, [1, 7])
    (run_dir / "checkpoints" / "step_00000001" / COMMIT).touch()
    with pytest.raises(InputError, match="is a checkpoint"):
        checkpoints_of(run_dir / "checkpoints" / "step_00000001", None)
    with pytest.raises(InputError, match="not a run"):
        checkpoints_of(tmp_path, None)
