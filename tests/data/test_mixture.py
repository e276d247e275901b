from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.mixture import DomainShare, mix, shortfalls, unnamed
from seedbed.data.sections import Mixture
from seedbed.errors import InputError

NAMES = ["en", "law", "zh"]
EXACT = 1e-12


def run(documents, mixture, names=NAMES):
    """``documents`` are (domain, tokens, order)."""
    domain, tokens, order = zip(*documents, strict=True)
    index = np.array([names.index(name) for name in domain])
    return mix(np.array(tokens), index, np.array(order, np.uint64), names, mixture)


@st.composite
def mixtures(draw):
    document = st.tuples(st.sampled_from(NAMES), st.integers(1, 50), st.integers(0, 2**64 - 1))
    documents = draw(st.lists(document, min_size=1, max_size=40))
    there = sorted({name for name, _, _ in documents})
    weights = draw(st.dictionaries(st.sampled_from(there), st.floats(0.001, 10), min_size=1))
    tokens = draw(st.none() | st.integers(1, 5000))
    return documents, Mixture(weights=weights, tokens=tokens, max_epochs=draw(st.floats(0.1, 5) | st.integers(1, 4)))


def goals(documents, mixture):
    """Of each weighted domain (tokens there, goal, cap), exactly."""
    there = Counter()
    for name, tokens, _ in documents:
        there[name] += tokens
    weights = {name: Fraction(weight) for name, weight in mixture.weights.items()}
    shares = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    caps = {name: Fraction(mixture.max_epochs) * there[name] for name in shares}
    total = mixture.tokens or min(caps[name] / shares[name] for name in shares)
    return {name: (there[name], min(shares[name] * total, caps[name]), caps[name]) for name in shares}


@given(mixtures())
def test_goals_are_met_within_a_document_and_caps_hold(case):
    documents, mixture = case
    indices, shares = run(documents, mixture)
    taken = Counter(indices.tolist())
    assert [share.domain for share in shares] == NAMES
    expected = goals(documents, mixture)
    for share in shares:
        mine = {i: document for i, document in enumerate(documents) if document[0] == share.domain}
        times = {i: taken[i] for i in mine}
        assert share.tokens == sum(times[i] * mine[i][1] for i in mine)
        assert share.documents == sum(times.values())
        assert share.available == sum(tokens for _, tokens, _ in mine.values())
        assert share.epochs == (share.tokens / share.available if mine else 0)
        if share.domain not in expected:
            assert share.weight == share.tokens == 0
            continue
        there, goal, cap = expected[share.domain]
        by_order = sorted(mine, key=lambda i: mine[i][2])
        passes = int(min(goal, int(cap)) // there)
        further = [i for i in by_order if times[i] > passes]
        assert all(times[i] == passes + (i in further) for i in mine)
        assert further == by_order[: len(further)]
        assert share.tokens <= cap
        last = mine[further[-1]][1] if further else 0
        assert share.tokens - last < goal or not further
        if share.tokens < goal:  # less than a token is missing, or the next document would pass the cap
            following = next(i for i in by_order if i not in further) if share.tokens + 1 <= goal else None
            assert following is None or share.tokens + mine[following][1] > cap


@given(mixtures())
def test_passes_come_one_after_another_in_the_order_of_indices(case):
    indices, _ = run(*case)
    times = Counter(indices.tolist())
    expected = [i for p in range(max(times.values(), default=0)) for i in sorted(times) if times[i] > p]
    assert indices.tolist() == expected
    assert indices.dtype == np.int64


@given(mixtures(), st.sampled_from([0.25, 3.0, 1024.0]))
def test_only_the_ratio_of_weights_counts(case, factor):
    documents, mixture = case
    scaled = Mixture(**{**mixture.model_dump(), "weights": {k: v * factor for k, v in mixture.weights.items()}})
    np.testing.assert_array_equal(run(documents, mixture)[0], run(documents, scaled)[0])


@given(mixtures(), st.randoms(use_true_random=False))
def test_which_documents_are_taken_does_not_depend_on_their_places(case, random):
    documents, mixture = case
    documents = [(name, tokens, i * 977 % 41) for i, (name, tokens, _) in enumerate(documents)]  # orders are distinct
    shuffled = random.sample(documents, len(documents))
    ours, theirs = (Counter(rows[i] for i in run(rows, mixture)[0]) for rows in (documents, shuffled))
    assert ours == theirs


def documents(domain, count, tokens=10):
    return [(domain, tokens, i) for i in range(count)]


@pytest.mark.parametrize("weights", [(0.1, 0.7, 0.2), (1, 7, 2), (1e-9, 7e-9, 2e-9)])
def test_every_document_once_where_weights_are_the_sizes(weights):
    """Rounded sums would miss a document, or take one too many."""
    corpus = [*documents("en", 10), *documents("law", 70), *documents("zh", 20)]
    indices, _ = run(corpus, Mixture(weights=dict(zip(NAMES, weights, strict=True))))
    assert indices.tolist() == list(range(100))


def test_extreme_weights_over_equal_sets():
    corpus = [*documents("en", 20), *documents("zh", 20)]
    mixture = Mixture(weights={"en": 0.001, "zh": 0.999})
    indices, (en, law, zh) = run(corpus, mixture)
    assert zh == DomainShare("zh", pytest.approx(0.999, abs=EXACT), 200, 200, 20, 1.0)
    assert en == DomainShare("en", pytest.approx(0.001, abs=EXACT), 200, 10, 1, 0.05)  # a document, for 0.2 tokens
    assert law == DomainShare("law", 0.0, 0, 0, 0, 0.0)
    assert indices.tolist() == [0, *range(20, 40)]
    assert shortfalls([en, law, zh], mixture) == []


def test_tokens_beyond_the_cap_are_a_stated_shortfall():
    corpus = [*documents("en", 20), *documents("zh", 20)]
    mixture = Mixture(weights={"en": 0.001, "zh": 0.999}, tokens=1_000_000, max_epochs=4)
    indices, shares = run(corpus, mixture)
    assert [(share.domain, share.epochs) for share in shares] == [("en", 4.0), ("law", 0.0), ("zh", 4.0)]
    assert indices.max() < 40 and len(indices) == 160
    (line,) = shortfalls(shares, mixture)
    assert "1,600 tokens of 1,000,000" in line and "en, zh would need more than 4 epochs" in line
    (line,) = shortfalls(shares, Mixture(weights=mixture.weights, tokens=1_000, max_epochs=4))
    assert "; zh would need" in line  # of en 1 token was wanted


def test_parts_of_an_epoch():
    corpus = documents("en", 4)
    for epochs, taken in [(0.5, [0, 1]), (2.5, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]), (0.6, [0, 1]), (1.2, [0, 1, 2, 3])]:
        indices, _ = run(corpus, Mixture(weights={"en": 1}, max_epochs=epochs))
        assert indices.tolist() == taken, epochs
    indices, _ = run(corpus, Mixture(weights={"en": 1}, tokens=21))  # the last document overshoots
    assert indices.tolist() == [0, 1, 2]
    indices, _ = run(corpus, Mixture(weights={"en": 1}, tokens=61, max_epochs=2))
    assert indices.tolist() == [0, 1, 2, 3, 0, 1, 2]
    for tokens in (20, 40):  # and does not where none is missing
        indices, _ = run(corpus, Mixture(weights={"en": 1}, tokens=tokens, max_epochs=2))
        assert indices.tolist() == [0, 1, 2, 3][: tokens // 10]


def test_order_decides_and_ties_go_to_the_earlier():
    corpus = [("en", 10, 2**64 - 1), ("en", 10, 2**63), ("en", 10, 5), ("en", 10, 2**63)]
    mixture = Mixture(weights={"en": 1}, max_epochs=0.5)
    assert run(corpus, mixture)[0].tolist() == [1, 2]


def test_a_domain_that_cannot_give_one_document_is_reported():
    corpus = [("law", 10, 0), *documents("en", 10)]
    mixture = Mixture(weights={"law": 1, "en": 1}, max_epochs=0.5)
    _, shares = run(corpus, mixture)
    assert shares[1] == DomainShare("law", 0.5, 10, 0, 0, 0.0)
    (line,) = shortfalls(shares, mixture)
    assert "nothing is taken of law" in line and "0.5 epochs" in line


def test_a_domain_without_weight_is_counted_and_left_out():
    corpus = [*documents("en", 2), *documents("zh", 3), *documents("law", 4)]
    indices, shares = run(corpus, Mixture(weights={"zh": 3, "law": 0}))
    assert indices.tolist() == [2, 3, 4]
    assert shares[0] == DomainShare("en", 0.0, 20, 0, 0, 0.0)
    assert shares[1] == DomainShare("law", 0.0, 40, 0, 0, 0.0)
    indices, _ = run(corpus[:2], Mixture(weights={"en": 1, "zh": 0}))  # zh is known, but has nothing to leave out
    assert indices.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ({"zh": 3, "law": 0}, ["domain 'en' (1,234 documents) is not in mixture.weights and is left out"]),
        ({"zh": 3}, ["domains 'en' (1,234 documents), 'law' (1 document) are not in mixture.weights and are left out"]),
        ({"en": 1, "law": 1}, []),  # zh has no document
    ],
)
def test_what_a_mixture_leaves_out_is_named(weights, named):
    found = unnamed(NAMES, np.repeat([0, 1], [1234, 1]), Mixture(weights=weights))
    assert found == [f"{line}; give a weight, 0 to hold out only" for line in named]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (
            {"en": 1, "lwa": 1},
            "mixture.weights.lwa: no such domain, did you mean 'law'?; domains with documents: en, law",
        ),
        ({"en": 1, "web": 0}, "mixture.weights.web: no such domain; domains with documents: en, law"),
        ({"zh": 1}, "mixture.weights.zh: none of its documents is left to train; domains with documents: en, law"),
    ],
)
def test_a_weight_of_a_domain_that_is_not_there(weights, words):
    with pytest.raises(InputError) as error:
        run([*documents("en", 2), *documents("law", 2)], Mixture(weights=weights))
    assert str(error.value) == words


def test_many_domains_are_not_all_listed():
    names = [f"d{i:03}" for i in range(500)]
    with pytest.raises(InputError, match="d018, d019 and 480 more"):
        run([(name, 1, 0) for name in names], Mixture(weights={"x": 1}), names)


def test_narrow_types_do_not_overflow():
    tokens, domain = np.full(1000, 60_000, np.uint16), np.zeros(1000, np.int8)
    _, shares = mix(tokens, domain, np.zeros(1000, np.uint64), ["en"], Mixture(weights={"en": 1}, max_epochs=99.5))
    assert shares == [DomainShare("en", 1.0, 60_000_000, 5_970_000_000, 99_500, 99.5)]


def test_a_million_documents_of_ten_thousand_domains():
    count = 1_000_000
    names = [str(i) for i in range(10_000)]
    order = np.arange(count, dtype=np.uint64) * np.uint64(11400714819323198485)
    mixture = Mixture(weights=dict.fromkeys(names, 1), max_epochs=2.5)
    indices, shares = mix(np.full(count, 100), np.arange(count) % 10_000, order, names, mixture)
    assert len(indices) == 2_500_000
    assert {share.epochs for share in shares} == {2.5}
