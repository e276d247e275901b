"""The configuration: strict, typed, with errors that say where; what is resolved reloads to the same object."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.config import Config
from seedbed.config.load import from_tree, parse_yaml, to_yaml
from seedbed.config.schema import schema
from seedbed.errors import InputError
from seedbed.laws import LAWS, Distribution


def refusal(*overrides: str, path: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        Config.load(path, list(overrides))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("optim.learning_rat=1", ["optim.learning_rat", "unknown key", "'lr'"]),
        ("optim.learnig_rate=1", ["'lr'"]),
        ("mdel.d_model=1", ["mdel", "'model'"]),
        ("model.attention.n_head=4", ["model.attention.n_head", "'n_heads'"]),
        ("train.step=3", ["train.step", "'steps'"]),
        ("optim.lr=fast", ["optim.lr", "number", "'fast'"]),
        ("optim.lr=.nan", ["optim.lr", "number"]),
        ("train.steps=1.5", ["train.steps", "integer", "1.5"]),
        ("train.steps=true", ["train.steps"]),
        ("train.steps=0", ["train.steps", "greater than 0"]),
        ("model.norm_eps='1e-5'", ["model.norm_eps", "number"]),
        ("model.attention.gate=elementwis", ["model.attention.gate", "'elementwise'"]),
        ("optim.schedule.kind=wds", ["optim.schedule.kind", "'wsd'"]),
        ("optim.schedule.warmpu=1", ["optim.schedule.warmpu", "'warmup'"]),
        ("optim.schedule.warmup=2.0", ["optim.schedule.warmup", "share"]),
        ("optim.betas=[0.9]", ["optim.betas"]),
        ("init.law=gama", ["init", "'gama'", "'gamma'"]),
        ("init.gama=1", ["init", "'gama'", "'gamma'"]),
        ("init.gamma=.inf", ["init", "gamma", "finite"]),
        ("init.gamma=big", ["init", "gamma", "'big'"]),
        ("model.attention.n_heads=3", ["n_heads=3", "d_model=128"]),
        ("model.attention.n_kv_heads=3", ["n_kv_heads=3"]),
        ("train.micro_batch_size=7", ["micro_batch_size=7", "batch_size=16"]),
        ("train.eval_every=-2", ["train.eval_every"]),
        ("train=3", ["train", "object"]),
        ("train.steps", ["section.key=value"]),
        ("train.steps.x=1", ["train.steps.x"]),
        ("optim.name=adamw optim.muon.momentum=0.9", ["optim", "muon's options are not read"]),
        ("optim.name=adamw optim.muon.embeddings=muon", ["optim", "muon's options are not read"]),
        ("optim.muon.embeddings=true", ["optim.muon.embeddings", "'adamw' or 'muon'"]),
        ("model.position=learned model.rope_theta=5e5", ["rope_theta is not read"]),
        (
            'model.position=learned model.rope_scaling={"factor":8,"original_max_seq_len":64}',
            ["rope_scaling is not read"],
        ),
        (
            'model.rope_scaling={"factor":8,"original_max_seq_len":64,"low_freq_factor":4}',
            ["model.rope_scaling", "low_freq_factor=4", "high_freq_factor=4"],
        ),
        ("model.norm_placement=sandwich", ["model.norm_placement", "pre | post"]),
        ("model.attention.qk_norm=hole", ["model.attention.qk_norm", "'whole'", "none | head | whole"]),
        ("optim.muon.ns_steps=3", ["optim.muon.ns_steps", "5"]),
        ("optim.betsa=[0.9,0.9] optim.lrr=1", ["and 1 more"]),
        ("model=[1", ["model=[1"]),
        # a name that is a field of another section, or what other tools call one
        ("learning_rat=1", ["'optim.lr'"]),
        ("steps=3", ["'train.steps'"]),
        ("train.lr=1", ["'optim.lr'"]),
        ("optim.steps=3", ["'train.steps'"]),
        ("gamma=0.5", ["'init.gamma'"]),
        ("kind=wsd", ["'model.ffn.kind' or 'optim.schedule.kind'"]),
        ("optim.schedule.decai=0.1", ["'decay'"]),
        # numbers that fp32, 32 bits or the field's meaning cannot hold
        ("optim.eps=.inf", ["optim.eps"]),
        ("train.clip_norm=.inf", ["train.clip_norm"]),
        ("optim.weight_decay=.inf", ["optim.weight_decay"]),
        ("optim.muon.momentum=.nan", ["optim.muon.momentum"]),
        ("optim.lr=1e300", ["optim.lr", "less than"]),
        ("model.norm_eps=1e-60", ["model.norm_eps"]),
        ("model.max_seq_len=1", ["model.max_seq_len", "2"]),
        ("train.steps=100000000000000000000000000", ["train.steps", "less than"]),
        ("model.d_model=2147483648", ["model.d_model", "less than"]),
        ("optim.schedule.warmup=2147483648", ["optim.schedule.warmup"]),
        ("run.dir=''", ["run.dir"]),
        # YAML 1.2: text, where YAML 1.1 has numbers and booleans
        ("train.steps=1:30", ["train.steps", "'1:30'"]),
        ("train.steps=1_000", ["train.steps", "'1_000'"]),
        ("train.steps=0b11", ["train.steps", "'0b11'"]),
        ("model.bias=yes", ["model.bias", "'yes'"]),
        ("train={<<:,steps:3}", ["train"]),
        ("run.dir=&a", ["anchors"]),
        ("run.dir=*a", ["anchors"]),
        ("run.dir=!x", ["tags"]),
        ("run.dir=#x", ["comment", "quotes"]),
        ('run.dir="\\ud800"', ["no character"]),
        ('run.dir="\\0"', ["run.dir"]),
        ("format_version=2", ["format_version"]),
    ],
)
def test_a_wrong_override_is_refused_in_one_line(override, parts):
    overrides = override.split(" ")
    message = refusal(*overrides)
    assert any(f"'{one}'" in message for one in overrides)
    for part in parts:
        assert part in message


def test_the_override_to_blame_is_named():
    fine = ["model.n_layers=2", "model.d_model=64"]
    assert refusal(*fine, "model.attention.n_heads=3").startswith("override 'model.attention.n_heads=3': model: ")
    assert refusal("model.attention.n_heads=4", "model.d_model=63", "model.n_layers=2").startswith(
        "override 'model.d_model=63': model: "
    )


def test_a_wrong_file_is_refused_with_file_and_line(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "c.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    assert "no such configuration file" in refusal(path=str(tmp_path / "none.yaml"))
    assert refusal(path=str(tmp_path)) == f"{tmp_path}: a folder; name the configuration file in it"
    path = write("train:\n  steps: 3\n  steps: 4\n")
    assert refusal(path=path) == f"{path}:3: the key 'steps' stands twice"
    assert refusal(path=write("train: {steps: 3")).startswith(f"{path}:1: ")
    assert "mapping of sections" in refusal(path=write("[1, 2]"))
    assert refusal(path=write("optim: {lr: high}")).startswith(f"{path}: optim.lr: ")
    assert "1: text" in refusal(path=write("1: text")) or "not text" in refusal(path=write("1: text"))
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    assert refusal(path=path) == f"{path}: not UTF-8 at byte 1 of the file; save it as UTF-8"


def test_a_file_that_is_no_configuration_is_refused(tmp_path):
    def refused(text: str, name: str = "c.yaml") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return refusal(path=str(path)).removeprefix(str(path))

    for text in ("[]", "0", "false", "text", '""'):
        assert "mapping of sections" in refused(text)
        assert "mapping of sections" in refused(text, "c.json") or text == "text"
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\n"
    assert refused(bomb).startswith(":1: anchors and aliases")
    assert "deep" in refused("[" * 2000 + "]" * 2000)
    assert "deep" in refused('{"a": ' * 2000 + "1" + "}" * 2000, "c.json")
    assert "deep" in refused("\n".join(" " * i + "a:" for i in range(900)))
    assert "longer than" in refused("#" * 2**21)
    assert refused("train: {steps: " + "9" * 5000 + "}").startswith(":1: ")
    assert "train.steps" in refused("train: {steps: 0x" + "f" * 3000 + "}")
    assert refused('{"train":\n{"steps": 1,\n"steps": 2}}', "c.json") == ":3: the key 'steps' stands twice"
    assert refused('{"train":\n{"steps": 1,}}', "c.json").startswith(":2: ")
    assert refused("train: {steps: 3}", "c.json").startswith(":1: ")
    assert "run.dir" in refused('{"run": {"dir": NaN}}', "c.json")


def test_an_empty_file_or_section_sets_nothing(tmp_path):
    path = tmp_path / "c.yaml"
    for text in ("", "# nothing yet\n", "train:\n", "optim:\n  schedule:\n  muon:\ninit:\nmodel: {ffn: }\n"):
        path.write_text(text)
        assert Config.load(str(path)) == Config()
        assert Config.load(str(path), ["train.steps=7", "init.law=gpt2"]).train.steps == 7


@pytest.mark.parametrize(("told", "read"), [("true", "head"), ("false", "none"), ("whole", "whole")])
def test_the_switch_of_older_configurations_is_read(told, read):
    config = Config.load(None, [f"model.attention.qk_norm={told}"])
    assert config.model.attention.qk_norm == read
    assert f"qk_norm: {read}" in to_yaml(config)


def test_a_section_that_may_be_missing_stays_so(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("model: {rope_scaling: }\n")
    assert Config.load(str(path)) == from_tree(parse_yaml(to_yaml(Config()), "test"), "test") == Config()
    scaled = Config.load(str(path), ["model.rope_scaling.factor=8", "model.rope_scaling.original_max_seq_len=64"])
    assert "model.rope_scaling.original_max_seq_len: is missing" in refusal("model.rope_scaling.factor=8")
    assert scaled.model.rope_scaling is not None
    assert scaled.model.rope_scaling.high_freq_factor == 4.0
    assert from_tree(parse_yaml(to_yaml(scaled), "test"), "test") == scaled


def test_scalars_are_those_of_yaml_1_2(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("train: {steps: 010, batch_size: 0x10, clip_norm: 1e1, init_from: 2020-01-01}\nrun: {dir: no}\n")
    config = Config.load(str(path), ["data.store=a#b:c"])
    assert (config.train.steps, config.train.batch_size, config.train.clip_norm) == (10, 16, 10.0)
    assert (config.train.init_from, config.run.dir, config.data.store) == ("2020-01-01", "no", "a#b:c")


@pytest.mark.parametrize(
    "text", ["no", "010", "08", "1e5", "0o7", "1:30", "1_0", "~", "2020-01-01", "a #b", "<<", "&a"]
)
def test_text_that_looks_like_something_else_is_written_in_quotes(text):
    config = from_tree({"run": {"dir": text}}, "test")
    assert config.run.dir == text
    assert from_tree(parse_yaml(to_yaml(config), "test"), "test") == config


def test_a_comment_does_not_cut_an_override():
    assert "quotes: '\"a #b\"'" in refusal("run.dir=a #b")
    assert "comment" in refusal("optim.betas=[0.9, 0.9] # slow")
    assert Config.load(None, ['run.dir="a #b"']).run.dir == "a #b"


def test_json_and_yaml_have_one_schema(tmp_path):
    tree = {"model": {"norm_eps": 1e-12, "d_model": 64}, "optim": {"betas": [0.8, 0.9]}}
    (tmp_path / "c.json").write_text(json.dumps(tree, indent="\t"), encoding="utf-8")
    (tmp_path / "c.yaml").write_text("model: {norm_eps: 1e-12, d_model: 64}\noptim: {betas: [0.8, 0.9]}\n")
    assert Config.load(str(tmp_path / "c.json")) == Config.load(str(tmp_path / "c.yaml"))
    assert Config.load(str(tmp_path / "c.yaml")).model.norm_eps == 1e-12


def test_overrides_win_over_the_file_and_later_ones_over_earlier(tmp_path):
    (tmp_path / "c.yaml").write_text("optim: {lr: 1.0}\n")
    assert Config.load(str(tmp_path / "c.yaml"), ["optim.lr=2e-3", "optim.lr=3e-3"]).optim.lr == 3e-3


def test_a_tag_does_not_undo_another_override_of_the_call():
    for overrides in (["init.std=0.05", "init.law=gpt2"], ["init.law=gpt2", "init.std=0.05"]):
        assert Config.load("recipes/cpu.yaml", overrides).init.options == {"std": 0.05}


def test_another_law_or_schedule_starts_its_section_afresh(tmp_path):
    (tmp_path / "c.yaml").write_text("init: {law: gamma, gamma: 0.7}\noptim: {schedule: {kind: wsd, decay: 0.5}}\n")
    config = Config.load(str(tmp_path / "c.yaml"), ["init.law=gpt2", "optim.schedule.kind=cosine"])
    assert config.init.options == {"std": 0.02}
    assert config.optim.schedule.kind == "cosine"
    assert Config.load(str(tmp_path / "c.yaml"), ["init.law=gamma"]).init.options == {"gamma": 0.7, "by_role": None}
    # a section without its tag has the default one
    (tmp_path / "c.yaml").write_text("init: {gamma: 0.7}\noptim: {schedule: {decay: 0.5}}\n")
    assert Config.load(str(tmp_path / "c.yaml"), ["init.law=gpt2"]).init.options == {"std": 0.02}
    assert Config.load(str(tmp_path / "c.yaml"), ["optim.schedule.kind=cosine"]).optim.schedule.kind == "cosine"
    same = Config.load(str(tmp_path / "c.yaml"), ["init.law=gamma", "optim.schedule.kind=wsd"])
    assert (same.init.options, same.optim.schedule.warmup) == ({"gamma": 0.7, "by_role": None}, 0.02)
    assert "decay=0.5" in str(same.optim.schedule)


@given(
    law=st.sampled_from(["gamma", "gpt2", "normal", "kaiming", "xavier"]),
    lr=st.floats(1e-12, 1e3),
    warmup=st.one_of(st.integers(0, 10**6), st.floats(0, 1)),
    clip=st.one_of(st.none(), st.floats(1e-6, 1e6)),
    seed=st.integers(0, 2**63 - 1),
    folder=st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)),
)
def test_what_is_resolved_reloads_to_the_same_object(law, lr, warmup, clip, seed, folder):
    tree = {
        "init": {"law": law},
        "optim": {"lr": lr, "schedule": {"kind": "wsd", "warmup": warmup}},
        "train": {"clip_norm": clip},
        "run": {"dir": folder, "seed": seed},
    }
    config = from_tree(tree, "test")
    assert from_tree(parse_yaml(to_yaml(config), "test"), "test") == config
    assert from_tree(json.loads(json.dumps(config.dump())), "test") == config


def test_defaults_that_depend_on_other_fields_are_resolved():
    config = Config.load(None, ["model.d_model=768", "model.attention.n_heads=12"])
    assert (config.model.attention.head_dim, config.model.attention.n_kv_heads) == (64, 12)
    assert config.model.ffn.d_ff == 2048  # 8/3 * 768
    assert Config.load(None, ["model.ffn.kind=gelu"]).model.ffn.d_ff == 512


def test_a_law_of_ones_own_is_checked_like_ours(monkeypatch):
    def tiny(fact, *, std: float) -> Distribution:
        return Distribution("normal", std)

    monkeypatch.setitem(LAWS, "tiny", tiny)
    assert Config.load(None, ["init.law=tiny", "init.std=0.5"]).init.options == {"std": 0.5}
    assert "std" in refusal("init.law=tiny")
    assert any(branch["properties"]["law"]["const"] == "tiny" for branch in schema()["$defs"]["InitConfig"]["oneOf"])


def test_the_schema_accepts_what_the_loader_accepts_and_names_every_option():
    tree = schema()
    assert tree["properties"].keys() == {"format_version", "run", "model", "init", "data", "optim", "train", "parallel"}
    laws = {branch["properties"]["law"]["const"]: branch for branch in tree["$defs"]["InitConfig"]["oneOf"]}
    assert set(laws) == set(LAWS)
    assert set(laws["xavier"]["properties"]) == {"law", "gain", "shape"}
    assert tree["$defs"]["TrainConfig"]["additionalProperties"] is False
    sections = {name: part for name, part in tree["$defs"].items() if name != "InitConfig"} | {"Config": tree}
    bare = [
        f"{n}.{f}"
        for n, part in sections.items()
        for f, about in part["properties"].items()
        if "description" not in about
    ]
    assert not bare
