"""Every field of a specification wrong in turn: the fields are walked, so that a new one cannot be forgotten."""

import copy
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel

from seedbed.data.spec import Spec, load_spec, spec_from
from seedbed.errors import InputError

BASE = {"sources": ["nowhere.jsonl"], "tokenizer": "nowhere"}


class Place(NamedTuple):
    """Where a value stands, and what it may be."""

    path: tuple[str | int, ...]
    kind: Any
    metadata: tuple[Any, ...]
    nullable: bool
    field: tuple[str, str] | None
    """(section, key); None for an item of a list or of a mapping."""


def unwrap(annotation: Any, metadata: tuple[Any, ...] = ()) -> tuple[Any, tuple[Any, ...], bool]:
    """The annotation without Annotated and None, the metadata, and whether None is allowed."""
    nullable = False
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            metadata += tuple(more)
        elif get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation):
            (annotation,) = (a for a in get_args(annotation) if a is not type(None))
            nullable = True
        else:
            return annotation, metadata, nullable


def limits(metadata: tuple[Any, ...]) -> Iterator[Any]:
    for item in metadata:
        yield from getattr(item, "metadata", [item])  # a Field inside Annotated has its own


def walk(
    annotation: Any, metadata: tuple[Any, ...] = (), path: tuple[str | int, ...] = (), field=None
) -> Iterator[Place]:
    kind, metadata, nullable = unwrap(annotation, metadata)
    if path:
        yield Place(path, kind, tuple(limits(metadata)), nullable, field)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, info in kind.model_fields.items():
            yield from walk(info.annotation, tuple(info.metadata), (*path, name), (kind.__name__, name))
    elif get_origin(kind) is list:
        yield from walk(get_args(kind)[0], (), (*path, 0))
    elif get_origin(kind) is dict:
        yield from walk(get_args(kind)[1], (), (*path, "a"))


def example(annotation: Any, metadata: tuple[Any, ...] = ()) -> Any:
    """A value that its field takes; of a section, what it requires."""
    kind, metadata, _ = unwrap(annotation, metadata)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        return {name: example(i.annotation, tuple(i.metadata)) for name, i in fields if i.is_required()}
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if get_origin(kind) in (list, dict):
        return {list: lambda item: [item], dict: lambda item: {"a": item}}[get_origin(kind)](
            example(get_args(kind)[-1])
        )
    return {str: "a", bool: True, int: 3, float: 0.5, Any: 1}[kind]


def with_value(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """A specification with ``value`` at ``path`` and otherwise only what is required."""
    tree: Any = copy.deepcopy(BASE)
    node, annotation = tree, Spec
    for depth, key in enumerate(path):
        kind = unwrap(annotation)[0]
        annotation = get_args(kind)[-1] if get_origin(kind) in (list, dict) else kind.model_fields[key].annotation
        inner = value if depth == len(path) - 1 else example(annotation)
        if isinstance(key, int):
            node[:] = [inner]
        else:
            node[key] = inner
        node = node[key]
    return tree


PLACES = list(walk(Spec))
SECTIONS = [place for place in PLACES if isinstance(place.kind, type) and issubclass(place.kind, BaseModel)]


def wrong_values(place: Place) -> Iterator[tuple[str, Any, str]]:
    """(what is wrong, the value, what the message must say)."""
    kind = get_origin(place.kind) or place.kind
    if kind is Any:
        return
    if not place.nullable:
        yield "null", None, "null"
    if kind is Literal:
        words = get_args(place.kind)
        yield "misspelt", f"{words[-1]}x", f"did you mean '{words[-1]}'?"
        yield "type", 7, "7"
        return
    by_kind: dict[Any, list[Any]] = {
        str: [7, ["a"]], int: ["7", 1.5, True], float: ["0.5", True, float("nan"), float("inf")], bool: ["yes", 1],
        list: [7, {"b": 1}, "a"], dict: [7, ["a"]],
    }  # fmt: skip
    for value in by_kind.get(kind, [7, ["a"], "a"]):
        if not (place.path == ("sources", 0) and isinstance(value, str)):  # a path alone stands for a source
            yield "type", value, "not"
    for limit in place.metadata:
        match limit:
            case Ge(ge=least):
                yield "range", least - 1, str(least)
            case Gt(gt=least):
                yield "range", least, str(least)
            case Le(le=most):
                yield "range", most + 1, f"{most:.20g}"
            case Lt(lt=most):
                yield "range", most, f"{most:.20g}"
            case MinLen(min_length=1):
                yield "empty", kind(), "is empty"
    if kind is str:
        yield "NUL", "a\0b", "NUL"


CASES = [(place, *wrong) for place in PLACES for wrong in wrong_values(place)]


def refused(tree: dict[str, Any]) -> str:
    with pytest.raises(InputError) as error:
        spec_from(tree, "s.yaml")
    message = str(error.value)
    assert message.startswith("s.yaml: ")
    assert len(message.splitlines()) == 1
    return message.removeprefix("s.yaml: ")


def dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


def test_the_walk_knows_every_field_and_gets_each_of_them_wrong():
    schema = Spec.model_json_schema()
    known = {(name, key) for name, part in [("Spec", schema), *schema["$defs"].items()] for key in part["properties"]}
    assert {place.field for place in PLACES} - {None} == known
    assert {case[0].field for case in CASES} - {None} == known


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{dotted(case[0].path)}-{case[1]}-{case[2]!r:.20}")
def test_a_wrong_value_is_refused_with_its_path(case):
    place, _, value, said = case
    message = refused(with_value(place.path, value))
    assert message.startswith(f"{dotted(place.path)}: "), message
    assert said in message, message


@pytest.mark.parametrize("section", [None, *SECTIONS], ids=lambda section: dotted(section.path) if section else "top")
def test_an_unknown_key_is_refused_with_its_path_and_a_misspelt_one_with_what_was_meant(section):
    path, model = (section.path, section.kind) if section else ((), Spec)
    at = (f"{dotted(path)}." if path else "") + "{}: unknown key; "
    value = example(model)
    message = refused(with_value(path, value | {"zzzz": 1}) if path else BASE | {"zzzz": 1})
    assert message.startswith(at.format("zzzz") + "known: "), message
    for name in model.model_fields:
        message = refused(with_value(path, value | {f"{name}x": 1}) if path else BASE | {f"{name}x": 1})
        assert message.startswith(at.format(f"{name}x")), message
        assert f"did you mean '{name}'?" in message, message


REQUIRED = [(part, name) for part in SECTIONS for name, info in part.kind.model_fields.items() if info.is_required()]


@pytest.mark.parametrize(("section", "name"), REQUIRED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_missing_field_is_named_with_what_it_is(section, name):
    value = {key: item for key, item in example(section.kind).items() if key != name}
    message = refused(with_value(section.path, value))
    assert message.startswith(f"{dotted((*section.path, name))}: is missing"), message
    assert section.kind.model_fields[name].description.split("\n")[0] in message


@pytest.mark.parametrize("name", ["sources", "tokenizer"])
def test_what_every_specification_needs(name):
    assert refused({key: value for key, value in BASE.items() if key != name}).startswith(f"{name}: is missing: ")


LAW_AND_WEB = [{"path": "a.jsonl", "domain": "law"}, {"path": "b.jsonl", "domain": "web"}]
BY_ROLE = {"field": "messages", "action": "by_role"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sections": [{"field": "a"}], "outputs": {"x": {"sections": [{"field": "a"}]}}}, "sections and outputs: set"),
        ({"outputs": {"x": {"sections": [{"field": "a"}]}}}, "packing.strategy: simple would tear apart"),
        ({"outputs": {"x": {"numbers": "r"}}, "packing": {"strategy": "none"}}, "outputs: none of them has sections"),
        ({"outputs": {"x": {}}}, "outputs.x: set sections, or numbers"),
        ({"outputs": {"x": {"numbers": "r", "each": True}}}, "outputs.x: each: "),
        ({"outputs": {"X/": {"sections": [{"field": "a"}]}}, "packing": {"strategy": "none"}}, "outputs: 'X/' names"),
        ({"outputs": {"a" * 65: {"sections": [{"field": "a"}]}}, "packing": {"strategy": "none"}}, "outputs: 'aaa"),
        ({"outputs": {"": {"sections": [{"field": "a"}]}}, "packing": {"strategy": "none"}}, "outputs: the key '' is"),
        ({"sections": [{"field": "a", "action": "mask"}]}, "sections: nothing is trained"),
        ({"sections": [{"field": "a", "answer": "b"}]}, "sections.0: roles, answer, tools: train reads none"),
        ({"sections": [BY_ROLE]}, "chat_template: by_role needs one"),
        ({"chat_template": "chatml"}, "chat_template: no section has the action by_role"),
        ({"storage": {"format": "jsonl"}, "packing": {"strategy": "bfd"}}, "storage.format: jsonl is encoded"),
        ({"min_chars": 5, "max_chars": 4}, "max_chars: 4 is below min_chars, 5"),
        ({"mixture": {"weights": {"a": 0}}}, "mixture: weights sum to 0"),
        ({"mixture": {"weights": {}}}, "mixture.weights: is empty"),
        ({"dedup": {"near": {"bands": 64}}}, "dedup.near: bands * rows is 320, more than permutations, 128"),
        ({"filters": {"char_repetion": {"n": 3, "max_share": 1}}}, "filters.char_repetion: unknown key; did you mean"),
        ({"seq_len": 512}, "seq_len: unknown key; did you mean 'packing.seq_len'?"),
        ({"sources": []}, "sources: is empty"),
        ({"dedup": {"alarm": 0.1}}, "dedup: alarm: nothing looks for copies"),
        (
            {"filters": {"quality": {"min_mean_word": 9, "max_mean_word": 8.5}}},
            "filters.quality: max_mean_word: 8.5 is below min_mean_word, 9",
        ),
        ({"filters": {"quality": {}}}, "filters.quality: no limit is set"),
        ({"storage": {"format": "jsonl", "dtype": "uint32"}}, "storage: dtype: jsonl stores no ids"),
        (
            {"sources": LAW_AND_WEB, "mixture": {"weights": {"web": 1, "lwa": 0}}},
            "mixture.weights.lwa: no source has this domain; did you mean 'law'?",
        ),
        ({"sources": [{"path": "a", "domain": "d", "domain_field": "e"}]}, "sources.0: domain and domain_field: set"),
        ({"sources": [{"path": "a", "options": {"anon": True}}]}, "sources.0: options: a path of this machine"),
        ({"sources": "a.jsonl"}, "sources: input should be a valid array, not 'a.jsonl'"),
    ],
)  # fmt: skip
def test_fields_that_do_not_fit_each_other(more, message):
    assert refused(BASE | more).startswith(message)


@pytest.mark.parametrize(
    "address",
    [
        "https://me:hunter2@host/a.jsonl", "sftp://:hunter2@host/a", "ftp://me:hun@ter2@host:21/a", "s3://hunter2:@b/a",
        "filecache::https://me:hunter2@host/a", "zip://*.jsonl::ftp://me:hunter2@host/a.zip",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [lambda address: address, lambda address: {"path": address}])
def test_an_address_with_a_password_is_refused_and_not_repeated(address, form):
    message = refused(BASE | {"sources": ["a.jsonl", form(address)]})
    assert message.startswith("sources.1.path: holds a password, and the store keeps addresses; give user and")
    assert "hun" not in message


@pytest.mark.parametrize(
    "address",
    [
        "a:b@c.jsonl", "/a/b:c@d/e", "sftp://me@host:22/a", "s3://b/a:b@c", "https://host:80/a@b", "abfs://c@account/a",
        "github://owner:repository@main/a.jsonl", "git://folder:branch@a.jsonl", "zip://a@b::https://host:80/c@d.zip",
    ],
)  # fmt: skip
def test_an_at_sign_elsewhere_is_no_password(address):
    assert spec_from(BASE | {"sources": [address]}, "s.yaml").sources[0].path == address


@pytest.mark.parametrize("value", ["hunter2", ["hunter2"]])
def test_options_of_the_wrong_kind_are_not_repeated(value):
    message = refused(BASE | {"sources": [{"path": "s3://b/a", "options": value}]})
    assert message == "sources.0.options: a mapping is needed ({anon: true}), not a value"


@pytest.mark.parametrize(
    "more",
    [
        {"dedup": {"exact": True, "alarm": 0.1}},
        {"dedup": {"near": {}, "alarm": 0.1}},
        {"storage": {"dtype": "uint32"}},
        {"sources": LAW_AND_WEB, "mixture": {"weights": {"web": 1, "law": 0}}},
        {"sources": LAW_AND_WEB, "mixture": {"weights": {"law": 1}}},
        {"sources": [*LAW_AND_WEB, "c.jsonl"], "mixture": {"weights": {"lwa": 1}}},  # c.jsonl may have it
    ],
)
def test_what_fits_is_taken_and_so_is_what_the_header_keeps_of_it(more):
    spec = spec_from(BASE | more, "s.yaml")
    assert spec_from(spec.model_dump(mode="json"), "header") == spec


def test_a_file_is_named_and_its_first_problem_told(tmp_path):
    file = tmp_path / "s.yaml"
    for text, message in (
        (
            "sources: [a]\ntokenizer: t\npacking: {seq_lenn: 3}\nheldout: 2\n",
            "heldout: input should be less than 1, not 2 (and 1 more)",
        ),
        ("[a, b]", "a specification is a mapping"),
        ("", "a specification is a mapping"),
    ):
        file.write_text(text)
        with pytest.raises(InputError) as error:
            load_spec(file)
        assert str(error.value).startswith(f"{file}: {message}")


def test_the_schema_says_what_each_field_is():
    schema = Spec.model_json_schema()
    for name, part in [("Spec", schema), *schema["$defs"].items()]:
        for key, field in part["properties"].items():
            assert field.get("description"), f"{name}.{key}"
    items = schema["properties"]["sources"]["items"]
    assert {"type": "string"} in items["anyOf"]  # a path alone is enough


def test_output_names_have_up_to_64_characters():
    outputs = {"a" * 64: {"sections": [{"field": "a"}]}}
    assert spec_from(BASE | {"outputs": outputs, "packing": {"strategy": "none"}}, "s").outputs is not None
