from hypothesis import given
from hypothesis import strategies as st
from seedbed.data.sources import Document

from seedbed.data.holdout import assign_splits, position


def documents(ids, split=None):
    return [Document(identity, identity, split) for identity in ids]


def test_position_is_pinned():
    """Held-out sets must not move between releases."""
    assert position("a") == 0.2537936105758485
    assert position("文:1") == 0.2845114476222599


IDS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=12, unique=True)


@given(IDS, st.floats(0.001, 0.999))
def test_each_document_once_and_no_split_empty(ids, fraction):
    assigned = list(assign_splits(documents(ids), fraction))
    assert sorted(document.id for _, document in assigned) == sorted(ids)
    sides = {document.id: side for side, document in assigned}
    assert set(sides.values()) == ({"train", "heldout"} if len(ids) > 1 else {"train"})
    natural = {identity: "heldout" if position(identity) < fraction else "train" for identity in ids}
    moved = [identity for identity in ids if sides[identity] != natural[identity]]
    if len(set(natural.values())) == 2:
        assert not moved
    elif len(ids) > 1:  # the one nearest to the other side
        nearest = max if natural[ids[0]] == "heldout" else min
        assert moved == [nearest(ids, key=position)]


@given(IDS)
def test_fraction_zero_holds_nothing_out(ids):
    assert list(assign_splits(documents(ids), 0.0)) == [("train", document) for document in documents(ids)]


def test_own_splits_are_kept_and_fill_both_sides():
    own = [*documents("ab", "heldout"), *documents("cd", "train")]
    assert [side for side, _ in assign_splits(own, 0.9)] == ["heldout", "heldout", "train", "train"]
    mixed = [*documents("ab", "heldout"), *documents(["e"])]
    assert list(assign_splits(mixed, 0.0001))[-1] == ("train", Document("e", "e"))


def test_copies_of_a_text_land_on_one_side():
    copies = [Document(f"{text}{copy}", str(text), None) for copy in range(3) for text in range(200)]
    sides = {}
    for side, document in assign_splits(copies, 0.3):
        assert sides.setdefault(document.text, side) == side
    assert set(sides.values()) == {"train", "heldout"}


def test_share_is_near_the_fraction():
    assigned = assign_splits(documents(map(str, range(20_000))), 0.05)
    assert 850 < sum(side == "heldout" for side, _ in assigned) < 1150
