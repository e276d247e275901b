"""Whatever format a checkpoint is in, its matrices are the same to the bit; what is wrong is said in one line."""

import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from foreign import SMALL, VOCAB, build, save_gguf, save_pickles
from safetensors.torch import load_file, save_file
from torch import Tensor

from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts, part_of
from seedbed.files.atomic import sha256
from seedbed.files.pickles import Pickles
from seedbed.files.safetensors import Tensors
from seedbed.hub import checkpoints
from seedbed.hub.checkpoints import Checkpoint, fingerprint, open_checkpoint

transformers = pytest.importorskip("transformers")
MANY = ["gpt2", "gpt_neox", "phi3", "llama", "qwen3", "olmo2", "gemma2", "mixtral"]


def matrices(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return {
        part.name: part_of(checkpoint.read(fact.name), part)
        for fact in checkpoint.facts
        for part in fact.parts()
        if part.is_matrix
    }


def same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)


def safetensors(model, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def shards(model, folder: Path) -> Path:
    model.save_pretrained(folder, max_shard_size="8KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def lone_file(model, folder: Path) -> Path:
    model.save_pretrained(folder)
    return (folder / "model.safetensors").rename(folder / "weights.safetensors")


def lone_file_in_a_folder(model, folder: Path) -> Path:
    return lone_file(model, folder).parent


def pickle_shards(model, folder: Path) -> Path:
    return save_pickles(model, folder, shards=3)


FORMATS: list[Callable] = [safetensors, shards, lone_file, lone_file_in_a_folder, save_pickles, pickle_shards]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return safetensors(build("gpt2"), tmp_path_factory.mktemp("one") / "gpt2")


@pytest.mark.parametrize("family", MANY)
def test_every_format_has_the_same_matrices(family, tmp_path):
    model = build(family)
    facts = parameter_facts(model)
    own = dict(model.named_parameters())
    wanted = {p.name: part_of(own[f.name].detach(), p) for f in facts for p in f.parts() if p.is_matrix}
    for save in FORMATS:
        opened = open_checkpoint(save(model, tmp_path / save.__name__))
        assert opened.facts == facts
        assert same(matrices(opened), wanted), save.__name__
        if family not in ("mixtral", "gpt_neox"):  # Transformers saves their experts and head under other names
            assert isinstance(opened.tensors, Tensors | Pickles), save.__name__


@pytest.mark.parametrize(
    ("family", "options"),  # what Transformers cannot read off such a file it takes to be the class's default
    [("llama", {}), ("gpt2", {"n_positions": 1024}), ("qwen3", {"head_dim": 128})],
)
def test_gguf_has_the_same_matrices(family, options, tmp_path, foreign_tokenizer_folder):
    model = build(family, **options)
    file = save_gguf(model, foreign_tokenizer_folder, tmp_path / "tiny.gguf")
    own = dict(model.named_parameters())
    wanted = {p.name: part_of(own[f.name].detach(), p) for f in parameter_facts(model) for p in f.parts()}
    for path in (file, tmp_path):
        opened = open_checkpoint(path)
        assert same(matrices(opened), {part: matrix for part, matrix in wanted.items() if matrix.dim() > 1})
    assert fingerprint(opened) == {"tiny.gguf": sha256(file)}


def test_bf16_stays_what_it_is(tmp_path):
    model = build("llama").bfloat16()
    for save in (safetensors, save_pickles):
        opened = open_checkpoint(save(model, tmp_path / save.__name__))
        assert opened.read("lm_head.weight").dtype == torch.bfloat16
        assert torch.equal(opened.read("lm_head.weight"), model.lm_head.weight)


def test_fused_and_transposed_matrices_come_apart(tmp_path):
    phi3, gpt2, neox = build("phi3"), build("gpt2"), build("gpt_neox")
    found = matrices(open_checkpoint(safetensors(phi3, tmp_path / "phi3")))
    fused = phi3.model.layers[1].self_attn.qkv_proj.weight  # four heads of queries, two of keys and values
    for name, rows in (("q", slice(0, 16)), ("k", slice(16, 24)), ("v", slice(24, 32))):
        assert torch.equal(found[f"model.layers.1.self_attn.{name}.weight"], fused[rows])
    both = phi3.model.layers[0].mlp.gate_up_proj.weight
    assert torch.equal(found["model.layers.0.mlp.gate.weight"], both[:24])
    assert torch.equal(found["model.layers.0.mlp.up.weight"], both[24:])
    found = matrices(open_checkpoint(safetensors(gpt2, tmp_path / "gpt2")))
    stored = gpt2.transformer.h[0].attn.c_attn.weight  # [16, 48]
    assert torch.equal(found["transformer.h.0.attn.k.weight"], stored.T[16:32])
    assert torch.equal(found["transformer.h.1.mlp.c_fc.weight"], gpt2.transformer.h[1].mlp.c_fc.weight.T)
    found = matrices(open_checkpoint(safetensors(neox, tmp_path / "neox")))
    name = "gpt_neox.layers.0.attention.query_key_value.weight"  # heads in turn: one matrix
    assert torch.equal(found[name], neox.gpt_neox.layers[0].attention.query_key_value.weight)


def test_experts_one_by_one(tmp_path):
    model = build("mixtral")
    found = matrices(open_checkpoint(safetensors(model, tmp_path / "x")))
    experts = model.model.layers[1].mlp.experts
    for expert in range(3):
        fused = experts.gate_up_proj[expert]
        assert torch.equal(found[f"model.layers.1.mlp.experts.{expert}.gate.weight"], fused[:24])
        assert torch.equal(found[f"model.layers.1.mlp.experts.{expert}.up.weight"], fused[24:])
        assert torch.equal(found[f"model.layers.1.mlp.experts.{expert}.down.weight"], experts.down_proj[expert])


@pytest.mark.parametrize(("family", "tables"), [("gpt2", 1), ("qwen3", 1), ("llama", 2)])
def test_a_tied_head_counts_once(family, tables, tmp_path):
    model = build(family)
    for save in (safetensors, save_pickles):
        found = matrices(open_checkpoint(save(model, tmp_path / save.__name__)))
        assert sum(matrix.shape == (VOCAB, 16) for matrix in found.values()) == tables


def test_a_tied_head_that_is_another_tensor_counts_by_itself(gpt2, tmp_path):
    shutil.copytree(gpt2, tmp_path / "x")
    state = load_file(gpt2 / "model.safetensors")
    table = state["transformer.wte.weight"]
    for head, heads in ((table.clone(), 0), (table + 1, 1)):
        save_file(state | {"lm_head.weight": head}, tmp_path / "x" / "model.safetensors", metadata={"format": "pt"})
        opened = open_checkpoint(tmp_path / "x")
        assert torch.equal(opened.read("transformer.wte.weight"), table)
        assert sum(fact.role == "head" for fact in opened.facts) == heads
        assert not heads or torch.equal(opened.read("lm_head.weight"), head)


def test_only_classes_of_models_are_built(gpt2, tmp_path, monkeypatch):
    """The names of classes come from the checkpoint: no other function of the library runs."""
    shutil.copytree(gpt2, tmp_path / "x")
    known = json.loads((gpt2 / "config.json").read_text())
    monkeypatch.setattr(transformers, "pipeline", lambda *_: pytest.fail("was called"))
    for name in ("pipeline", "TrainingArguments", "logging"):
        (tmp_path / "x" / "config.json").write_text(json.dumps(known | {"architectures": [name]}))
        assert len(open_checkpoint(tmp_path / "x").facts) == 28


def test_fingerprints(gpt2, monkeypatch):
    opened = open_checkpoint(gpt2)
    assert fingerprint(opened) == {"model.safetensors": sha256(gpt2 / "model.safetensors")}
    monkeypatch.setattr(checkpoints, "HASHED", 10)
    state = (gpt2 / "model.safetensors").stat()
    told = f"{state.st_size} bytes, changed at {state.st_mtime_ns} ns"
    assert fingerprint(opened) == {"model.safetensors": told}


def test_a_shard_that_is_missing(tmp_path):
    for save in (shards, pickle_shards):
        folder = save(build("llama"), tmp_path / save.__name__)
        last = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])[-1]
        last.unlink()
        with pytest.raises(InputError, match=rf"{last.name}: missing; give all files"):
            open_checkpoint(folder)


def test_an_index_that_names_a_tensor_that_is_nowhere(tmp_path):
    for save in (shards, pickle_shards):
        folder = save(build("llama"), tmp_path / save.__name__)
        (index,) = folder.glob("*.index.json")
        tree = json.loads(index.read_text())
        tree["weight_map"]["model.layers.7.x"] = next(iter(tree["weight_map"].values()))
        index.write_text(json.dumps(tree))
        with pytest.raises(InputError, match=r"index\.json: names model\.layers\.7\.x, which no file holds"):
            open_checkpoint(folder)


def test_code_in_a_pickle_is_not_run(tmp_path):
    folder = save_pickles(build("gpt2"), tmp_path / "x")
    torch.save(build("gpt2"), folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: a pickle that needs code to be run \(transformers"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "tiny.gguf"])
@pytest.mark.parametrize("content", [b"", b"\x80\x02nothing", b"GGUF" + b"\0" * 7])
def test_damaged_files(name, content, gpt2, tmp_path):
    if name != "tiny.gguf":
        shutil.copy(gpt2 / "config.json", tmp_path / "config.json")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}: (damaged|Transformers cannot)") as caught:
        open_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


def test_gguf_of_another_shape(tmp_path, foreign_tokenizer_folder):
    file = save_gguf(build("gpt2"), foreign_tokenizer_folder, tmp_path / "tiny.gguf")
    with pytest.raises(InputError, match=r"tiny\.gguf: of another shape: transformer\.wpe\.weight; give"):
        open_checkpoint(file)


def test_gguf_alone_and_among_others(gpt2, tmp_path, monkeypatch):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"holds several models \(a\.gguf, b\.gguf\); give one file"):
        open_checkpoint(tmp_path)
    (tmp_path / "b.gguf").unlink()
    save_file({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"neither config\.json"):
        open_checkpoint(tmp_path)
    for library in ("gguf", "accelerate"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, library, None)
            with pytest.raises(InputError, match=rf"reading GGUF needs {library}, .* pip install 'seedbed\[hf\]'"):
                open_checkpoint(tmp_path / "a.gguf")


def test_files_that_are_no_checkpoint(gpt2, tmp_path):
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(InputError, match=r"x\.txt: no file of weights"):
        open_checkpoint(tmp_path / "x.txt")
    shutil.copy(gpt2 / "model.safetensors", tmp_path / "x.safetensors")
    with pytest.raises(InputError, match=r"config\.json, .*, is not beside it"):
        open_checkpoint(tmp_path / "x.safetensors")


def test_configurations_that_cannot_be_used(gpt2, tmp_path):
    shutil.copytree(gpt2, tmp_path / "x")
    known = json.loads((gpt2 / "config.json").read_text())
    for change, message in (
        ({"model_type": "nobody"}, "Transformers cannot build this model"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "the weights are quantised"),
        ({"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}, "its class is code that comes with"),
    ):
        (tmp_path / "x" / "config.json").write_text(json.dumps(known | change))
        with pytest.raises(InputError, match=rf"config\.json: {message}") as caught:
            open_checkpoint(tmp_path / "x")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            '{"a"',
            r"not JSON \(Expecting ':' delimiter: line 1 column 5 \(char 4\)\); take the one that the weights came",
        ),
        ("[]", "not an object of JSON; take the one that the weights came with"),
        (None, "cannot build this model: Validation error for field 'n_layer': .*expected int, got str.*; correct it"),
    ],
)
def test_a_configuration_that_is_damaged(gpt2, tmp_path, content, told):
    shutil.copytree(gpt2, tmp_path / "x")
    known = json.loads((gpt2 / "config.json").read_text())
    (tmp_path / "x" / "config.json").write_text(content or json.dumps(known | {"n_layer": "two"}))
    with pytest.raises(InputError, match=rf"^{tmp_path}/x/config\.json: .*{told}") as caught:
        open_checkpoint(tmp_path / "x")
    assert "\n" not in str(caught.value)


def test_a_damaged_gguf(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(50))
    with pytest.raises(
        InputError, match=r"x\.gguf: Transformers cannot build this model: .*; copy it again, or update "
    ) as caught:
        open_checkpoint(tmp_path / "x.gguf")
    assert "\n" not in str(caught.value)


def test_a_tensor_of_another_shape_and_one_too_many(gpt2, tmp_path):
    shutil.copytree(gpt2, tmp_path / "x")
    state = load_file(gpt2 / "model.safetensors")
    save_pickles(build("gpt2"), tmp_path / "bin")
    bad = {**state, "transformer.wpe.weight": torch.ones(3, 16), "transformer.h.9.x": torch.ones(1)}
    save_file(bad, tmp_path / "x" / "model.safetensors", metadata={"format": "pt"})
    torch.save(bad, tmp_path / "bin" / "pytorch_model.bin")
    for folder in ("x", "bin"):
        with pytest.raises(InputError, match=r"without a place in the model: transformer\.h\.9\.x; of another shape"):
            open_checkpoint(tmp_path / folder)


def test_encoders_have_matrices_too(tmp_path):
    model = transformers.BertForMaskedLM(transformers.BertConfig(**SMALL))
    found = matrices(open_checkpoint(save_pickles(model, tmp_path / "x")))
    assert torch.equal(
        found["bert.encoder.layer.1.output.dense.weight"], model.bert.encoder.layer[1].output.dense.weight
    )


def test_warnings_of_the_library_come_through_each_once_and_as_one_line(gpt2, monkeypatch, capfd):
    real = transformers.AutoConfig.from_pretrained

    def warning(*given, **named):
        for _ in range(2):
            warnings.warn("this configuration\n  is odd", UserWarning, stacklevel=1)
        print("a bar", file=sys.stderr)
        return real(*given, **named)

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", warning)
    with pytest.warns(UserWarning) as caught:
        open_checkpoint(gpt2)
    assert [str(one.message) for one in caught] == ["this configuration is odd"]
    assert capfd.readouterr() == ("", "")


def test_the_terminal_stays_quiet(tmp_path, capfd, foreign_tokenizer_folder):
    experts = safetensors(build("mixtral"), tmp_path / "x")
    file = save_gguf(build("llama"), foreign_tokenizer_folder, tmp_path / "tiny.gguf")
    capfd.readouterr()
    for path in (experts, file):  # both loaded by Transformers
        open_checkpoint(path)
        assert capfd.readouterr() == ("", "")
