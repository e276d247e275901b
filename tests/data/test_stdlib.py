import ast
from collections import Counter

import pytest

from seedbed.data.stdlib import separate_docstrings, stdlib_records


@pytest.fixture(scope="module")
def documents():
    return list(stdlib_records())


def unit(document) -> str:
    return document["id"].split("/")[0].removesuffix(":doc").removesuffix(".py")


def test_a_few_megabytes_with_a_small_heldout_part(documents):
    sizes = Counter()
    for document in documents:
        sizes[document["split"]] += len(document["text"].encode("utf-8"))
    assert set(sizes) == {"train", "heldout"}
    assert 4_000_000 < sizes.total() <= 6_000_000
    assert 0.04 < sizes["heldout"] / sizes.total() < 0.08


def test_split_by_module_and_each_text_once(documents):
    sides = {}
    for document in documents:
        sides.setdefault(unit(document), set()).add(document["split"])
    assert all(len(splits) == 1 for splits in sides.values())
    assert max(Counter(document["text"] for document in documents).values()) == 1
    assert max(Counter(document["id"] for document in documents).values()) == 1


def test_no_paragraph_of_the_heldout_part_is_in_training(documents):
    def paragraphs(split):
        texts = [document["text"] for document in documents if document["split"] == split]
        return {p.strip() for text in texts for p in text.split("\n\n") if len(p.strip()) > 200}

    assert paragraphs("heldout")
    assert not paragraphs("heldout") & paragraphs("train")


def test_topics_docstrings_and_sources_are_there_without_tests(documents):
    ids = {document["id"] for document in documents}
    assert sum(identity.startswith("topics/") for identity in ids) > 40
    assert sum(identity.endswith(":doc") for identity in ids) > 100
    for identity in ids:
        parts = identity.split("/")
        assert not {"test", "tests", "idle_test", "site-packages", "encodings", "pydoc_data"} & set(parts), identity
        assert not identity.startswith("_sysconfigdata")


def test_sources_parse_and_hold_no_docstring(documents):
    for document in documents:
        if document["id"].endswith(".py"):
            for node in ast.walk(ast.parse(document["text"])):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    assert ast.get_docstring(node) is None, document["id"]


def test_max_bytes_bounds_the_corpus():
    small = list(stdlib_records(max_bytes=1_000_000))
    assert 700_000 < sum(len(document["text"].encode("utf-8")) for document in small) <= 1_000_000
    assert {document["split"] for document in small} == {"train", "heldout"}


def test_separate_docstrings():
    source = (
        '"""Module é."""\nimport os\n\n\x0c\nclass A:\n    """Class."""\n\n    def f(self):\n        """Only\n\n'
        '        this."""\n\n    async def g(self): "one line"; return "é"\n\nx = 1  # kept\n'
    )
    prose, rest = separate_docstrings(source)
    assert prose == "Module é.\n\nClass.\n\nOnly\n\nthis.\n\none line"
    assert rest == (
        'import os\n\n\x0c\nclass A:\n\n    def f(self):\n        ...\n\n    async def g(self): return "é"\n\n'
        "x = 1  # kept\n"
    )
    assert separate_docstrings("def broken(:\n") == ("", "def broken(:\n")
