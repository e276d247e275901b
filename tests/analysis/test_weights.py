import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign import build
from safetensors.torch import load_file, save_file

from seedbed.analysis.resources import meta_facts
from seedbed.analysis.weights import affordable, analyze, component_table, weight_rows
from seedbed.config import Config
from seedbed.config.model import ModelConfig
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.files.parts import Parts
from seedbed.files.safetensors import Tensors
from seedbed.hub.checkpoints import Checkpoint
from seedbed.measure.spectra import gaussian_stats, matrix_stats
from seedbed.model.decoder import Decoder


@pytest.fixture
def model() -> Decoder:
    config = ModelConfig.model_validate(
        {
            "vocab_size": 40,
            "d_model": 16,
            "n_layers": 2,
            "attention": {"n_heads": 4, "n_kv_heads": 2, "gate": "elementwise"},
            "tied": True,
        }
    )
    model = Decoder(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1, generator=generator)
    return model


def test_fused_matrices_are_measured_by_block(model):
    rows = weight_rows(model.state_dict().items(), parameter_facts(model))
    blocks = ["attn.q", "attn.k", "attn.v", "attn.gate", "attn.o", "mlp.gate", "mlp.up", "mlp.down"]
    assert [row.role for row in rows] == ["embed", *blocks, *blocks]
    assert [row.layer for row in rows] == [None, *[0] * 8, *[1] * 8]
    by_name = {row.name: row for row in rows}
    qkv = model.layers[1].attn.qkv.weight
    assert by_name["layers.1.attn.q.weight"].stats == matrix_stats(qkv[:16])
    assert by_name["layers.1.attn.k.weight"].stats == matrix_stats(qkv[16:24])
    assert by_name["layers.1.attn.v.weight"].stats == matrix_stats(qkv[24:32])
    assert by_name["layers.1.attn.gate.weight"].stats == matrix_stats(qkv[32:])


def test_checkpoint_file_gives_the_same_rows(model, tmp_path):
    save_file({name: parameter.detach() for name, parameter in model.named_parameters()}, tmp_path / "m.safetensors")
    facts = parameter_facts(model)
    rows = weight_rows(Tensors([tmp_path / "m.safetensors"]).items(), facts)
    assert rows == weight_rows(model.named_parameters(), facts)


def test_component_table_means_and_medians(model):
    rows = weight_rows(model.state_dict().items(), parameter_facts(model))
    table = {row.role: row for row in component_table(rows)}
    assert list(table) == [
        "embed", "attn.q", "attn.k", "attn.v", "attn.o", "attn.gate", "mlp.gate", "mlp.up", "mlp.down",
    ]  # fmt: skip
    two = [row.stats for row in rows if row.role == "attn.o"]
    assert table["attn.o"].matrices == 2
    assert table["attn.o"].stable_rank == pytest.approx((two[0].stable_rank + two[1].stable_rank) / 2)
    assert table["attn.o"].condition == pytest.approx((two[0].condition + two[1].condition) / 2)


def square(name: str, layer: int) -> ParameterFact:
    return ParameterFact(name, "attn.o", (4, 4), d_in=4, d_out=4, layer=layer, n_layers=4)


def test_case_49_rows_say_what_is_wrong_and_stay_out_of_means():
    bad = torch.ones(4, 4)
    bad[0, 0] = math.nan
    state = {
        "a": torch.eye(4).bfloat16(),
        "b": bad,
        "c": torch.zeros(4, 4),
        "d": torch.diag(torch.tensor([9.0, 1, 1, 3])),
    }
    rows = weight_rows(state.items(), [square(name, layer) for layer, name in enumerate(state)])
    assert [row.stats.problem for row in rows] == [
        None, "1 of 16 entries are NaN or infinite", "all entries are zero", None,
    ]  # fmt: skip
    assert rows[1].gaussian is None
    (component,) = component_table(rows)
    assert component.matrices == 4
    assert component.problems == (
        "b: 1 of 16 entries are NaN or infinite", "c: all entries are zero",
    )  # fmt: skip
    assert component.condition == pytest.approx((1 + 9) / 2)
    assert component.stable_rank == pytest.approx((4 + 92 / 81) / 2)


def test_median_of_condition_stands_beside_a_mean_that_diverges():
    state = {"a": torch.eye(4), "b": torch.diag(torch.tensor([2.0, 1, 1, 1])), "c": torch.ones(4, 4)}
    (component,) = component_table(weight_rows(state.items(), [square(name, 0) for name in state]))
    assert component.condition == math.inf
    assert component.condition_median == pytest.approx(2)


def test_nothing_to_average_is_none():
    rows = weight_rows([("a", torch.zeros(4, 4))], [square("a", 0)])
    (component,) = component_table(rows)
    assert component.stable_rank is None
    assert component.std == 0


def test_what_would_take_too_long_is_a_choice_of_evenly_spaced_layers():
    def table(rows: int) -> ParameterFact:
        return ParameterFact("embed", "embed", (rows, 4), d_in=4, d_out=4, layer=None, n_layers=9)

    def found(rows: int, budget: float) -> list[int | None]:
        return [fact.layer for fact in affordable([table(rows), *(square("x", i) for i in range(9))], budget)]

    assert found(4, 9 * 64) == [None, *range(9)]
    assert found(4, 5 * 64) == [None, 0, 2, 4, 6, 8]
    assert found(4, 64) == [None, 0, 8]
    assert found(1000, 9 * 64) == [*range(9)]
    assert found(1000, 1) == [0, 8]


def test_models_to_half_a_billion_parameters_are_measured_whole():
    recipes = Path(__file__).parents[2] / "recipes"
    whole = {}
    for name in ("cpu", "dense-12x768", "gpt2-medium", "dense-24x1024", "astrai-1.2b"):
        model = Config.load(str(recipes / f"{name}.yaml")).model
        facts = meta_facts(model.model_copy(update={"vocab_size": model.vocab_size or 100_000}))
        whole[name] = affordable(facts) == [fact for fact in facts if fact.is_matrix]
    assert list(whole.values()) == [True] * 4 + [False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.update(extra=torch.ones(2, 2)), "extra: the model has no such parameter"),
        (lambda state: state.pop("layers.1.attn.o.weight"), "layers.1.attn.o.weight: missing"),
        (lambda state: state.update({"embed.weight": torch.ones(39, 16)}), r"shape \(39, 16\) in the weights"),
    ],
)
def test_weights_of_another_model_are_refused(model, change, message):
    state = dict(model.state_dict())
    change(state)
    with pytest.raises(InputError, match=message):
        weight_rows(state.items(), parameter_facts(model))


def named(rows) -> dict:
    return {row.name: row for row in rows}


def test_everything_is_measured_of_a_model_in_memory(model):
    result = analyze(model)
    blocks = ["attn.q", "attn.k", "attn.v", "attn.qkv", "attn.gate", "attn.o", "mlp.gate", "mlp.up", "mlp.down"]
    assert [row.role for row in result.matrices] == ["embed", *blocks, *blocks]
    assert (result.name, result.layers, result.files, result.problems) == ("Decoder", 2, {}, [])
    assert result.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert [row.depth for row in result.matrices] == [None, *[0.0] * 9, *[1.0] * 9]
    qkv = model.layers[1].attn.qkv.weight.detach().double()
    whole = named(result.matrices)["layers.1.attn.qkv.weight"]  # without the gate's rows, as S2 measures it
    assert (whole.rows, whole.columns, whole.frobenius) == (32, 16, pytest.approx(float(qkv[:32].norm())))
    values = np.linalg.svd(qkv[16:24].numpy(), compute_uv=False)
    assert named(result.spectra)["layers.1.attn.k.weight"].values == pytest.approx(values.tolist(), rel=1e-9)
    assert len(result.singular_values) == sum(min(row.rows, row.columns) for row in result.matrices)
    first = next(one for one in result.singular_values if one.name == "layers.1.attn.k.weight")
    assert (first.index, first.layer, first.sigma) == (1, 1, pytest.approx(values[0]))


def test_ratios_are_to_a_gaussian_matrix_of_that_shape(model):
    for row in analyze(model).matrices:
        gaussian = gaussian_stats(row.rows, row.columns)
        assert row.gaussian_stable_rank == gaussian.stable_rank
        assert row.ratio_stable_rank == row.stable_rank / gaussian.stable_rank
        assert row.ratio_condition == row.condition / gaussian.condition
        assert row.ratio_er99 == row.er99 / gaussian.er99


def test_a_component_at_a_layer_is_the_mean_over_its_experts():
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=3,
    )  # fmt: skip
    torch.manual_seed(0)
    module = transformers.MixtralForCausalLM(config)
    result = analyze(module)
    down = [row for row in result.matrices if row.role == "mlp.down"]
    assert [(row.layer, row.rows, row.columns) for row in down] == [(layer, 16, 24) for layer in (0, 0, 0, 1, 1, 1)]
    profile = next(row for row in result.profiles if (row.role, row.layer) == ("mlp.down", 1))
    assert (profile.matrices, profile.depth) == (3, 1.0)
    assert profile.stable_rank == pytest.approx(sum(row.stable_rank for row in down[3:]) / 3)
    assert profile.rank_share == pytest.approx(sum(row.entropy_rank for row in down[3:]) / 3 / 16)
    attention = module.model.layers[0].self_attn
    joined = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])  # [32, 16]
    whole = next(row for row in result.matrices if row.role == "attn.qkv")
    assert whole.stable_rank == pytest.approx(matrix_stats(joined).stable_rank)


def test_conv1d_is_transposed_and_a_tied_head_is_counted_once():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=16)
    result = analyze(transformers.GPT2LMHeadModel(config))
    shapes = {row.role: (row.rows, row.columns) for row in result.matrices}
    assert shapes == {
        "embed": (64, 16), "pos": (16, 16), "attn.q": (16, 16), "attn.k": (16, 16), "attn.v": (16, 16),
        "attn.qkv": (48, 16), "attn.o": (16, 16), "mlp.up": (64, 16), "mlp.down": (16, 64),
    }  # fmt: skip


def test_case_49_a_problem_is_a_reason_and_no_number(model):
    with torch.no_grad():
        model.layers[0].mlp.down.weight[3, 3] = math.nan
        model.layers[1].attn.o.weight.zero_()
    result = analyze(model.bfloat16())
    assert result.problems == [
        f"layers.0.mlp.down.weight: 1 of {16 * model.layers[0].mlp.down.weight.shape[1]} entries are NaN or infinite",
        "layers.1.attn.o.weight: all entries are zero",
    ]
    broken = named(result.matrices)["layers.0.mlp.down.weight"]
    numbers = {
        k: v for k, v in vars(broken).items() if k not in ("name", "role", "layer", "depth", "joint", "rows", "columns")
    }
    assert {k for k, v in numbers.items() if v is not None} == {"problem"}
    zero = named(result.matrices)["layers.1.attn.o.weight"]
    assert (zero.std, zero.stable_rank, zero.ratio_stable_rank, zero.condition) == (0, None, None, None)
    assert not {broken.name, zero.name} & {one.name for one in result.spectra}
    down = next(row for row in result.components if row.role == "mlp.down")
    assert down.stable_rank == named(result.matrices)["layers.1.mlp.down.weight"].stable_rank


def test_a_model_without_a_finite_matrix_is_refused(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.inf)
    with pytest.raises(InputError, match=r"Decoder: no matrix could be measured; embed.weight: 640 of 640 entries"):
        analyze(model)


def test_densities_are_of_all_matrices_of_a_component(model):
    rows = {row.role: row for row in analyze(model).densities}
    outputs = torch.stack([layer.attn.o.weight.detach() for layer in model.layers]).double()
    assert rows["attn.o"].entries == outputs.numel()
    area = np.trapezoid(rows["attn.o"].density, rows["attn.o"].at)
    assert area == pytest.approx(1, abs=0.01)


def test_layers_of_unlike_scale_have_the_density_of_one():
    """Pooled as they are they would have a peak and heavy tails; a matrix of equal entries has no shape."""
    torch.manual_seed(0)
    layer = torch.randn(64, 64)
    one, three = (torch.nn.ModuleList(torch.nn.Linear(64, 64, bias=False) for _ in range(n)) for n in (1, 3))
    with torch.no_grad():
        one[0].weight.copy_(layer)
        for linear, weight in zip(three, (layer, 100 * layer + 5, torch.ones_like(layer)), strict=True):
            linear.weight.copy_(weight)
    (alone,), (pooled,) = analyze(one).densities, analyze(three).densities
    assert (alone.entries, pooled.entries) == (64 * 64, 2 * 64 * 64)
    at = np.linspace(-3, 3, 13)
    curves = [np.interp(at, row.at, row.density) for row in (alone, pooled)]
    assert curves[0] == pytest.approx(curves[1], abs=0.02)
    assert curves[1] == pytest.approx(np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi), abs=0.03)


def test_cosines_of_first_middle_and_last_layer_show_blocks():
    config = ModelConfig.model_validate(
        {"vocab_size": 40, "d_model": 16, "n_layers": 5, "attention": {"n_heads": 4}, "max_seq_len": 8}
    )
    model = Decoder(config)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
        directions = torch.eye(16)[:2]
        model.layers[2].attn.qkv.weight[:16] = directions[torch.arange(16) % 2]  # two directions, in turns
    maps = analyze(model).cosines
    assert [(one.role, one.layer) for one in maps] == [
        (role, layer) for layer in (0, 2, 4) for role in ("attn.q", "mlp.up")
    ]
    condensed = np.array(next(one for one in maps if (one.role, one.layer) == ("attn.q", 2)).cosines)
    assert np.array_equal(condensed, np.kron(np.eye(2), np.ones((8, 8))))


class Reading(dict):
    """Tensors by name that remember which were read."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.read: list[str] = []

    def __getitem__(self, name):
        self.read.append(name)
        return super().__getitem__(name)


def test_interrupted_it_goes_on_and_reads_each_parameter_once(model, tmp_path):
    facts = parameter_facts(model)
    tensors = Reading({name: parameter.detach() for name, parameter in model.named_parameters()})
    checkpoint = Checkpoint("x", facts, [], tensors, {fact.name: fact.name for fact in facts})
    whole = analyze(checkpoint)
    matrices = [fact.name for fact in facts if fact.is_matrix]
    assert tensors.read == matrices  # one after another, fused ones for all of their blocks

    def stop_at(text: str) -> None:
        if text.startswith("8 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyze(checkpoint, Parts(tmp_path, "key"), stop_at)
    tensors.read.clear()
    told: list[str] = []
    assert analyze(checkpoint, Parts(tmp_path, "key"), told.append) == whole
    assert tensors.read == [
        name for name in matrices if name not in ("embed.weight", "layers.0.attn.qkv.weight", "layers.0.attn.o.weight")
    ]
    assert told[-1] == "19 of 19 (17 matrices and 2 joint)"


def test_queries_in_fp8_beside_keys_in_fp32():
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_attention_heads=2))
    whole = analyze(llama)
    queries = llama.model.layers[0].self_attn.q_proj
    queries.weight = torch.nn.Parameter(torch.eye(8).to(torch.float8_e4m3fn), requires_grad=False)
    rows = {row.role: row for row in analyze(llama).matrices}
    assert rows["attn.q"].stable_rank == 8
    assert rows["attn.qkv"].rows == 24 and rows["attn.qkv"].problem is None
    assert len(rows) == len(whole.matrices)


def test_parts_are_of_the_same_cut(model, tmp_path):
    """Another configuration may cut the same fused tensor, and name its blocks alike, at other rows."""
    fused = next(fact for fact in parameter_facts(model) if fact.name == "layers.0.attn.qkv.weight")
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    for end in (16, 24):
        q, k, *others = fused.blocks
        cut = replace(q, rows=(0, end), shape=(end, 16)), replace(k, rows=(end, 32), shape=(32 - end, 16))
        facts = [replace(fused, blocks=(*cut, *others))]
        checkpoint = Checkpoint("x", facts, [], tensors, {fused.name: fused.name})
        assert analyze(checkpoint, Parts(tmp_path, "key")) == analyze(checkpoint)


def test_queries_in_int8_beside_keys_in_fp32(tmp_path):
    """Without a remark on quantisation in the configuration: the rows say so, and have no number."""
    build("llama").save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    whole = {row.role: row for row in analyze(tmp_path).matrices}
    state |= {name: tensor.to(torch.int8) for name, tensor in state.items() if "q_proj" in name}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    result = analyze(tmp_path)
    rows = {row.role: row for row in result.matrices}
    assert all("not floating point but int8" in (rows[role].problem or "") for role in ("attn.q", "attn.qkv"))
    assert (rows["attn.q"].std, rows["attn.qkv"].std) == (None, None)
    assert rows["attn.k"] == whole["attn.k"]
    assert len(result.problems) == 4
    save_file({name: tensor.to(torch.int8) for name, tensor in state.items()}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="no matrix could be measured; .*not floating point but int8"):
        analyze(tmp_path)


def test_a_model_without_weights_is_refused(model):
    with pytest.raises(InputError, match=r"Decoder: has no weights \(on the meta device\)"):
        analyze(model.to("meta"))
