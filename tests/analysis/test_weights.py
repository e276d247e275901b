import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from seedbed.analysis.resources import meta_facts
from seedbed.analysis.weights import affordable, component_table, weight_rows
from seedbed.config import Config
from seedbed.config.model import ModelConfig
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.files.safetensors import Tensors
from seedbed.measure.spectra import matrix_stats
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
