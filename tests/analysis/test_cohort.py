"""Cohorts: what is measured of which matrix, and what happens at common depths."""

import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import config, quiet

from seedbed.analysis.cohort import Measured, Values, measure, pool
from seedbed.api import fit
from seedbed.errors import InputError
from seedbed.files.safetensors import Tensors
from seedbed.hub.checkpoints import open_checkpoint
from seedbed.laws.cohort import GRID, Member


def ranks(matrix: torch.Tensor) -> Values:
    """RMS, effective rank and its share by numpy, apart from the code that is tested."""
    values = np.linalg.svd(matrix.double().numpy(), compute_uv=False)
    p = values / values.sum()
    rank = math.exp(-(p * np.log(p)).sum())
    return Values(math.sqrt((values**2).sum() / matrix.numel()), rank, rank / len(values))


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    """A run of one step: two layers, SwiGLU, a gate."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=2", "model.attention.gate=headwise"), quiet)
    return folder


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=16, n_layer=3, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("models") / "llama"
    transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(folder, max_shard_size="8KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def edited(folder: Path, out: Path, edit) -> Path:
    """A copy of a single-file checkpoint whose tensors ``edit`` changed."""
    shutil.copytree(folder, out)
    state = load_file(out / "model.safetensors")
    save_file(edit(state), out / "model.safetensors", metadata={"format": "pt"})
    return out


def test_the_matrices_of_a_gpt2(gpt2):
    measured = measure(gpt2, quiet)
    member = measured.member
    assert (member.name, member.layers, member.width, member.left_out) == ("gpt2", 3, 16, ())
    assert member.parameters == 64 * 16 + 16 * 16 + 3 * (12 * 16**2 + 13 * 16) + 2 * 16  # tied head counted once
    state = load_file(gpt2 / "model.safetensors")
    names = {"attn.qkv": "attn.c_attn", "attn.o": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}
    assert set(measured.curves) == set(names)
    for component, name in names.items():
        assert list(measured.curves[component]) == [0.0, 0.5, 1.0]
        for layer, z in enumerate((0.0, 0.5, 1.0)):
            expected = ranks(state[f"transformer.h.{layer}.{name}.weight"].T)
            assert measured.curves[component][z] == pytest.approx(expected, rel=1e-9)


def test_the_matrices_of_a_sharded_bf16_llama(llama):
    measured = measure(llama, quiet)
    assert set(measured.curves) == {"attn.qkv", "attn.o", "mlp.gate", "mlp.up", "mlp.down"}
    assert len(measured.member.sha256) == len(list(llama.glob("*.safetensors")))
    state = {name: tensor for file in llama.glob("*.safetensors") for name, tensor in load_file(file).items()}
    joined = torch.cat([state[f"model.layers.1.self_attn.{x}_proj.weight"] for x in "qkv"])  # [32, 16]
    assert measured.curves["attn.qkv"][0.5] == pytest.approx(ranks(joined.double()), rel=1e-9)
    gate = state["model.layers.2.mlp.gate_proj.weight"]
    assert measured.curves["mlp.gate"][1.0] == pytest.approx(ranks(gate.double()), rel=1e-9)


def test_experts_that_are_saved_apart_count_as_their_mean(tmp_path):
    """Transformers stacks experts and saves them one by one under names of older releases."""
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=3,
    )  # fmt: skip
    transformers.MixtralForCausalLM(config).save_pretrained(tmp_path)
    measured = measure(tmp_path, quiet)
    state = load_file(tmp_path / "model.safetensors")
    experts = [ranks(state[f"model.layers.1.block_sparse_moe.experts.{i}.w2.weight"]) for i in range(3)]
    expected = Values(*(sum(values) / 3 for values in zip(*experts, strict=True)))
    assert measured.curves["mlp.down"][1.0] == pytest.approx(expected, rel=1e-9)
    assert measured.member.parameters == sum(tensor.numel() for tensor in state.values())


def test_a_run_and_its_checkpoint_are_the_same_weights(run):
    folder = run / "checkpoints" / "step_00000002"
    whole, step = measure(run, quiet), measure(folder, quiet)
    assert whole.curves == step.curves
    assert (whole.member.name, step.member.name) == ("run", "step_00000002")
    state = load_file(folder / "model.safetensors")
    fused = state["layers.1.attn.qkv.weight"]  # three times 32 rows and the gate's two
    assert fused.shape == (98, 32)
    assert whole.curves["attn.qkv"][1.0] == pytest.approx(ranks(fused[:96]), rel=1e-9)
    assert whole.curves["attn.gate"][1.0] == pytest.approx(ranks(fused[96:]), rel=1e-9)
    with pytest.raises(InputError, match="run and step_00000002 are the same weights"):
        pool([whole, step], "", "")


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name.removeprefix("transformer."),  # as the first GPT-2 checkpoints were saved
        lambda name: name,
    ],
)
def test_names_with_and_without_the_prefix_of_the_base_model(gpt2, tmp_path, rename):
    def edit(state):
        mask = {"transformer.h.0.attn.bias": torch.ones(1, 1, 16, 16)}  # a buffer of older releases
        return {rename(name): tensor for name, tensor in (state | mask).items()}

    folder = edited(gpt2, tmp_path / "x", edit)
    assert measure(folder, quiet).curves == measure(gpt2, quiet).curves
    assert isinstance(open_checkpoint(folder).tensors, Tensors)  # read one by one, not loaded by Transformers


def test_a_base_model_reads_a_checkpoint_with_a_head(gpt2, tmp_path):
    folder = edited(gpt2, tmp_path / "x", dict)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["GPT2Model"]}))
    assert measure(folder, quiet).curves == measure(gpt2, quiet).curves
    assert isinstance(open_checkpoint(folder).tensors, Tensors)


def changed(name: str, value):
    return lambda state: {**state, f"transformer.h.1.{name}.weight": value(state[f"transformer.h.1.{name}.weight"])}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda w: w.index_fill(0, torch.tensor(3), torch.nan), "NaN or infinite"),
        (torch.zeros_like, "all entries are zero"),
        (lambda w: w.to(torch.int8), "not floating point but int8"),
    ],
)
def test_a_matrix_without_an_honest_number_is_left_out_with_the_reason(gpt2, tmp_path, value, reason):
    measured = measure(edited(gpt2, tmp_path / "x", changed("mlp.c_fc", value)), quiet)
    assert list(measured.curves["mlp.up"]) == [0.0, 1.0]
    (line,) = measured.member.left_out
    assert line.startswith("transformer.h.1.mlp.c_fc.weight: ") and reason in line
    assert {c: v for c, v in measured.curves.items() if c != "mlp.up"} == {
        c: v for c, v in measure(gpt2, quiet).curves.items() if c != "mlp.up"
    }


def test_nothing_to_measure_is_an_error(gpt2, tmp_path):
    folder = edited(gpt2, tmp_path / "x", lambda s: {n: t.fill_(torch.nan) for n, t in s.items()})
    with pytest.raises(InputError, match=r"x: no matrix could be measured; .*attn.qkv.*NaN"):
        measure(folder, quiet)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: {n: t for n, t in s.items() if "h.1.mlp.c_fc.w" not in n}, r"missing: transformer\.h\.1\.mlp\.c_fc"),
        (lambda s: s | {"transformer.h.7.x": torch.ones(1)}, r"without a place in the model: transformer\.h\.7\.x"),
        (changed("attn.c_proj", lambda w: w[:4].clone()), r"another shape: transformer\.h\.1\.attn\.c_proj\.weight"),
    ],
)
def test_tensors_that_do_not_fit_are_named(gpt2, tmp_path, edit, message):
    with pytest.raises(InputError, match=message) as caught:
        measure(edited(gpt2, tmp_path / "x", edit), quiet)
    assert str(caught.value).count("transformer") == 1  # nothing else is blamed


def test_what_is_no_checkpoint(tmp_path, gpt2):
    with pytest.raises(InputError, match="no such folder"):
        measure(tmp_path / "none", quiet)
    with pytest.raises(InputError, match=r"neither config\.json"):
        measure(tmp_path, quiet)
    shutil.copy(gpt2 / "config.json", tmp_path / "config.json")
    with pytest.raises(InputError, match=r"neither model\.safetensors"):
        measure(tmp_path, quiet)
    shutil.copy(gpt2 / "model.safetensors", tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="Transformers cannot build this model"):
        measure(tmp_path, quiet)


def test_without_transformers_the_error_says_what_to_install(gpt2, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'seedbed\[hf\]'"):
        measure(gpt2, quiet)
    assert measure(run, quiet).member.layers == 2


def test_one_layer_has_no_trend(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=16)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no trend over depth"):
        measure(tmp_path, quiet)


def made(name: str, **curves: dict[float, float]) -> Measured:
    """A checkpoint with given RMS; effective rank and its share are 10 and 100 times that."""
    member = Member(name=name, layers=3, width=8, parameters=1, sha256=(name,), left_out=())
    told = {c: {z: Values(x, 10 * x, 100 * x) for z, x in curve.items()} for c, curve in curves.items()}
    return Measured(member, told)


def test_the_same_files_count_once_in_any_order_and_whatever_the_configuration_says():
    found = []
    for name, layers, sha256 in (("a", 3, ("x", "y")), ("b", 2, ("y", "x")), ("c", 3, ("x", "z"))):
        one = made(name, up={0.0: 1.0, 1.0: 1.0})
        found.append(replace(one, member=one.member.model_copy(update={"layers": layers, "sha256": sha256})))
    a, b, c = found
    with pytest.raises(InputError, match="a and b are the same weights"):
        pool([a, b], "", "")
    assert len(pool([a, c], "", "").members) == 2


def test_checkpoints_of_different_depth_meet_at_common_depths():
    a = made("a", up={0.0: 1.0, 0.5: 2.0, 1.0: 1.0})  # three layers
    b = made("b", up={0.0: 3.0, 1.0: 5.0}, down={0.0: 1.0, 1.0: 2.0})  # two
    cohort = pool([a, b], "made up", "a command")
    up = cohort.components["up"]
    quarter, half = GRID.index(0.25), GRID.index(0.5)
    assert (up.rms.mean[quarter], up.rms.mean[half]) == ((1.5 + 3.5) / 2, (2 + 4) / 2)
    assert up.rms.std is not None
    assert up.rms.std[quarter] == pytest.approx(2 / math.sqrt(2), rel=1e-5)  # of a sample of two
    assert up.entropy_rank.mean[half] == 30
    assert up.rank_share.mean[half] == 300
    assert (up.checkpoints, cohort.components["down"].checkpoints) == (2, 1)
    assert cohort.components["down"].rms.std is None
    assert (cohort.note, [m.name for m in cohort.members]) == ("made up", ["a", "b"])
    assert cohort.command == "a command"


def test_a_component_of_some_layers_is_constant_beyond_them():
    curve = pool([made("a", up={0.25: 1.0, 0.75: 3.0})], "", "").components["up"].rms.mean
    assert (curve[0], curve[6], curve[12], curve[-1]) == (1.0, 1.0, 2.0, 3.0)
