"""Minimal pairs: sentences read alone, by hand and by an independent sum; means over paradigms; files that are none."""

import json
from pathlib import Path

import pytest
import torch
import zstandard
from scipy import stats
from tiny import quiet

from seedbed.errors import InputError
from seedbed.eval.likelihood import summed_losses
from seedbed.eval.minimal_pairs import minimal_pairs, read_pairs, told
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel, open_model

transformers = pytest.importorskip("transformers")
WORDS = ["stone", "river", "bed", "seed"]


def record(good: str, bad: str, paradigm: str, field: str = "syntax", **others) -> dict:
    return {"sentence_good": good, "sentence_bad": bad, "UID": paradigm, "field": field, **others}


RECORDS = [
    *(record(f"the {word} grows", f"the {word} grow the", "agreement", "morphology") for word in WORDS),
    *(record(f"a {word} falls quickly.", f"a {word} quickly falls the.", "order") for word in WORDS[:3]),
    record("under the blue stones", "under the blue stone", "islands"),
]


def write(file: Path, records: list[dict]) -> Path:
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    return file


@pytest.fixture
def file(tmp_path) -> Path:
    return write(tmp_path / "pairs.jsonl", RECORDS)


@pytest.fixture
def model(foreign_folder) -> LanguageModel:
    return open_model(foreign_folder("llama"))


def run(model, pairs, **options):
    return minimal_pairs(model, pairs, options.pop("parts", Parts(None, 0)), quiet, **options)


def independently(folder: Path, sentence: str) -> float:
    """Log-probability of a sentence behind the begin of text, by Transformers alone."""
    module = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([[0, *transformers.AutoTokenizer.from_pretrained(folder)(sentence).input_ids]])
    with torch.no_grad():
        chosen = module(ids).logits[0, :-1].double().log_softmax(1).gather(1, ids[0, 1:, None])
    return chosen.sum().item()


def test_each_pair_is_judged_as_its_sentences_alone(model, foreign_folder, file):
    found, read = run(model, read_pairs([file]))
    folder = foreign_folder("llama")
    expected = [
        float(independently(folder, one["sentence_good"]) > independently(folder, one["sentence_bad"]))
        for one in RECORDS
    ]
    by_subset = {one.score.subset: one for one in found}
    assert list(by_subset) == ["all", "field: morphology", "field: syntax", "agreement", "islands", "order"]
    assert by_subset["agreement"].items.values == expected[:4]
    assert by_subset["order"].items.values == expected[4:7]
    assert (read.pairs, read.paradigms, read.ties, read.begins) == (8, 3, 0, "<|bos|>")
    assert 0 < sum(expected) < 8  # a model that says something


def test_means_weigh_paradigms_alike(model, file, monkeypatch):
    nats = iter([(1, 2)] * 3 + [(2, 1)] + [(1, 2), (2, 1), (2, 2)] + [(1, 2)])
    sums = [value for pair in nats for value in pair]
    monkeypatch.setattr("seedbed.eval.minimal_pairs.summed_losses", lambda *_, **__: sums)
    found, read = run(model, read_pairs([file]))
    values = {one.score.subset: one.score.value for one in found}
    assert values["agreement"] == 0.75
    assert values["order"] == pytest.approx(0.5)  # right, wrong, equal
    assert values["islands"] == 1
    assert values["field: syntax"] == pytest.approx(0.75)
    assert values["all"] == pytest.approx((0.75 + 0.5 + 1) / 3)
    errors = {one.score.subset: one.score.stderr for one in found}
    assert errors["agreement"] == pytest.approx(stats.sem([1, 1, 1, 0]))
    assert errors["islands"] is None
    assert errors["all"] is None  # a paradigm of one pair
    assert read.ties == 1
    assert "1 pairs of equally likely sentences count as half right." in told(read)


def test_sentences_of_the_same_tokens_are_equal_whatever_batches_round_them_to(model, monkeypatch):
    monkeypatch.setattr("seedbed.eval.minimal_pairs.summed_losses", lambda *_, **__: [1.0, 1.0 + 1e-7])
    found, read = run(model, read_pairs_of([record("the stone", "the stone", "same")]))
    assert (found[0].score.value, read.ties) == (0.5, 1)


def test_all_tokens_of_a_sentence_count(model, foreign_folder, monkeypatch):
    sums = []
    monkeypatch.setattr(
        "seedbed.eval.minimal_pairs.summed_losses", lambda *given: sums.extend(summed_losses(*given)) or sums
    )
    run(model, read_pairs_of(RECORDS[:1]))
    expected = [-independently(foreign_folder("llama"), RECORDS[0][key]) for key in ("sentence_good", "sentence_bad")]
    assert sums == pytest.approx(expected, rel=1e-5)


def read_pairs_of(records):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return read_pairs([write(Path(folder) / "pairs.jsonl", records)])


def test_batches_change_nothing(model, file):
    pairs = read_pairs([file])
    assert run(model, pairs, batch_tokens=1) == run(model, pairs, batch_tokens=10_000)


def test_files(tmp_path, file):
    packed = tmp_path / "folder" / "more.jsonl.zst"
    packed.parent.mkdir()
    packed.write_bytes(zstandard.compress(file.read_bytes()))
    (packed.parent / "paradigms.json").write_text("{}")  # as beside BLiMP's: no pairs
    assert [one[1:] for one in read_pairs([packed.parent])] == [one[1:] for one in read_pairs([file])]
    assert [one.paradigm for one in read_pairs([file], 2)] == ["agreement"] * 2 + ["order"] * 2 + ["islands"]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([{"sentence": "a"}], "pairs.jsonl:1: no field 'sentence_good'; it has 'sentence'"),
        ([[1]], "pairs.jsonl:1: not an object"),
        ([record("a", "b", "x"), record("a", " ", "x")], "pairs.jsonl:2: field 'sentence_bad' holds no text"),
        ([record("a", 7, "x")], "field 'sentence_bad' holds no text"),
        ([record("a", "b", "x"), record("a", "b", "x", "semantics")], "a paradigm belongs to one field"),
        ([], "no pair to read"),
    ],
)
def test_files_that_are_none(tmp_path, records, said):
    with pytest.raises(InputError, match=said):
        read_pairs([write(tmp_path / "pairs.jsonl", records)])


def test_what_cannot_be_read_is_refused(tmp_path, model, file):
    with pytest.raises(InputError, match="given twice"):
        read_pairs([file, file.parent])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="name files of minimal pairs"):
        read_pairs([tmp_path / "empty"])
    with pytest.raises(InputError, match=r"pairs.jsonl:1: a sentence of \d+ tokens; llama reads at most 64"):
        run(model, read_pairs_of([record("stone river " * 60, "stone", "long")]))


@pytest.mark.slow
@pytest.mark.realdata
def test_a_real_model_knows_grammar(real_data, smollm2_model):
    files = sorted((real_data / "evals" / "blimp").glob("*.jsonl"))
    scores, read = run(smollm2_model, read_pairs(files, 20))
    assert (read.pairs, read.paradigms, read.begins) == (200, 10, "<|im_start|>")
    values = {one.score.subset: one.score for one in scores}
    assert values["all"].value == pytest.approx(0.77, abs=0.011)  # two pairs may be as good as even
    assert values["determiner_noun_agreement_2"].value > 0.85
    assert values["all"].stderr == pytest.approx(0.028, abs=0.005)
