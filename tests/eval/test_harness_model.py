"""A model in memory answers lm-evaluation-harness as the harness's own class answers for its folder."""

import random
import shutil
from pathlib import Path

import pytest
import torch
from foreign import LENGTH, mark_beginnings
from tiny import config, sentences
from torch.nn import functional as F

from seedbed.api import fit
from seedbed.errors import GuardStop, InputError
from seedbed.hub.exporting import export
from seedbed.hub.models import LanguageModel, open_model

pytest.importorskip("lm_eval")
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from seedbed.eval.harness_model import HarnessModel


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sentences(60, seed=1)


@pytest.fixture(params=["llama", "gpt2", "llama, texts begin with a token"])
def folder(request, foreign_folder, tmp_path):
    family, *begins = request.param.split(",")
    found = foreign_folder(family)
    return mark_beginnings(shutil.copytree(found, tmp_path / "marked")) if begins else found


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=4", "optim.lr=0.02"), lambda _: None)
    return folder


@pytest.fixture(scope="module")
def ours(run) -> LanguageModel:
    return open_model(run)


def instances(kind: str, arguments: list) -> list[Instance]:
    return [Instance(kind, {}, args, place) for place, args in enumerate(arguments)]


def pairs(texts: list[str]) -> list[tuple[str, str]]:
    """Contexts of several lengths, empty, ending in space, too long, alike but for the last token."""
    rng = random.Random(0)
    found = [(" ".join(rng.sample(texts, rng.randint(1, 2))), " " + rng.choice(texts)[:20]) for _ in range(12)]
    found += [("Question: a?\nAnswer:", f" {letter}") for letter in "ABCD"]
    return [*found, ("", texts[0][:30]), (texts[1] + "  ", "x y"), (" ".join(texts), " the end")]


def theirs(folder) -> HFLM:
    return HFLM(str(folder), device="cpu", dtype="float32", batch_size=4)


def close(a: list[tuple[float, bool]], b: list[tuple[float, bool]]) -> None:
    assert [best for _, best in a] == [best for _, best in b]
    assert [nats for nats, _ in a] == pytest.approx([nats for nats, _ in b], rel=1e-6, abs=1e-6)


def test_log_likelihoods_are_those_of_the_harness(folder, texts):
    model = HarnessModel(open_model(folder), 300)
    asked = instances("loglikelihood", pairs(texts))
    close(model.loglikelihood(asked), theirs(folder).loglikelihood(asked, disable_tqdm=True))
    assert model.cuts.prompts >= 1 and model.cuts.tokens > 0
    assert model.max_length == LENGTH


def test_whole_texts_are_read_in_the_windows_of_the_harness(folder, texts):
    model = HarnessModel(open_model(folder), 300)
    asked = instances("loglikelihood_rolling", [(texts[0],), (" ".join(texts[:9]),), ("a",)])
    assert model.loglikelihood_rolling(asked) == pytest.approx(
        theirs(folder).loglikelihood_rolling(asked, disable_tqdm=True), rel=1e-6
    )


def test_answers_are_those_of_the_harness(folder, texts):
    model = HarnessModel(open_model(folder), 200)
    greedy = {"until": ["e", "\n"], "do_sample": False, "temperature": 0.0, "max_gen_toks": 12}
    more = {"until": [], "do_sample": False, "max_gen_toks": 20}
    prompts = [*texts[:5], " ".join(texts[:9])]
    asked = instances("generate_until", [(text, options) for options in (greedy, more) for text in prompts])
    assert model.generate_until(asked) == theirs(folder).generate_until(asked, disable_tqdm=True)
    lengths = [len(model.tok_encode(prompt)) for prompt in prompts]
    rooms = [LENGTH - 12, LENGTH - 20]
    assert model.cuts.prompts == sum(length > room for length in lengths for room in rooms) > 0
    assert model.cuts.tokens == sum(max(length - room, 0) for length in lengths for room in rooms)


def test_a_run_scores_in_memory_as_its_export_does(run, ours, texts, tmp_path):
    export(run, tmp_path / "exported", lambda _: None)
    lm = HFLM(str(tmp_path / "exported"), device="cpu", dtype="float32", batch_size=4, trust_remote_code=True)
    model = HarnessModel(ours, 200)
    assert model.tok_encode("a b")[0] == ours.tokenizer.bos_id  # as the run was trained
    asked = instances("loglikelihood", pairs(texts))
    close(model.loglikelihood(asked), lm.loglikelihood(asked, disable_tqdm=True))
    asked = instances("loglikelihood_rolling", [(texts[0],), ("a",)])
    found = model.loglikelihood_rolling(asked)
    assert found == pytest.approx(lm.loglikelihood_rolling(asked, disable_tqdm=True), rel=1e-6)
    asked = instances("generate_until", [(text, {"until": ["e"], "max_gen_toks": 12}) for text in texts[:5]])
    assert model.generate_until(asked) == lm.generate_until(asked, disable_tqdm=True)


def test_log_likelihood_by_hand(ours, texts):
    model = HarnessModel(ours, 100)
    words = texts[0].split(" ")
    context, continuation = " ".join(words[:3]), " " + " ".join(words[3:5])
    ids = ours.tokenizer.start + ours.tokenizer.encode(context + continuation)
    start = len(ours.tokenizer.start) + len(ours.tokenizer.encode(context))
    with torch.no_grad():
        logits = ours.module(torch.tensor([ids]))[0]  # [T, V]
    nats = -F.cross_entropy(logits[start - 1 : -1], torch.tensor(ids[start:]), reduction="sum")
    ((found, best),) = model.loglikelihood(instances("loglikelihood", [(context, continuation)]))
    assert found == pytest.approx(float(nats), rel=1e-6)
    assert best == bool((logits[start - 1 : -1].argmax(1) == torch.tensor(ids[start:])).all())


@pytest.mark.parametrize("name", ["ours", "llama"])
def test_a_batch_of_one_is_a_batch_of_eight(name, ours, foreign_folder, texts):
    model = ours if name == "ours" else open_model(foreign_folder(name))
    asked = {
        "loglikelihood": pairs(texts),
        "loglikelihood_rolling": [(text,) for text in (*texts[:7], " ".join(texts[:9]))],
        "generate_until": [(text, {"until": ["."], "max_gen_toks": 8}) for text in texts[:8]],
    }
    for kind, arguments in asked.items():
        one, eight = (
            getattr(HarnessModel(model, tokens), kind)(instances(kind, arguments))
            for tokens in (1, 8 * model.max_length)
        )
        if kind == "loglikelihood":
            close(one, eight)
        else:
            assert one == (eight if kind == "generate_until" else pytest.approx(eight, rel=1e-6))


def test_one_forward_serves_all_that_differ_in_the_last_token(ours, monkeypatch):
    model, rows = HarnessModel(ours, 1000), []
    logits = LanguageModel.logits
    monkeypatch.setattr(
        LanguageModel, "logits", lambda self, ids, *rest: rows.append(len(ids)) or logits(self, ids, *rest)
    )
    found = model.loglikelihood(instances("loglikelihood", [("Answer:", f" {letter}") for letter in "ABCD"]))
    assert rows == [1] and len({nats for nats, _ in found}) == 4


def test_an_answer_that_is_as_long_as_the_model_reads_leaves_half_for_the_prompt(ours, texts):
    model = HarnessModel(ours, 100)
    asked = instances("generate_until", [(" ".join(texts), {"until": [], "max_gen_toks": 256})])
    model.generate_until(asked)
    assert model.cuts.answers == {256: ours.max_length // 2}
    with pytest.raises(InputError, match="an answer to score has"):
        model.loglikelihood(instances("loglikelihood", [("a", " ".join(texts))]))


def test_a_model_with_broken_weights_is_not_scored(foreign_folder):
    model = open_model(foreign_folder("llama"))
    with torch.no_grad():
        next(model.module.parameters()).fill_(torch.nan)
    with pytest.raises(GuardStop, match="not finite"):
        HarnessModel(model, 100).loglikelihood(instances("loglikelihood", [("a", " b")]))
