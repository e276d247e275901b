"""Matrices with chosen singular values: exact targets, and queries, keys and values as one."""

import math

import pytest
import torch
from cohorts import write
from torch import Tensor

from seedbed.config import Config
from seedbed.init import initialize_
from seedbed.init.apply import draw
from seedbed.init.spectral import orthogonal, shaped_spectrum
from seedbed.laws import Distribution
from seedbed.model import Decoder

RMS = {
    "attn.qkv": (0.04, 0.02, 0.01), "attn.o": (0.01, 0.02, 0.03), "mlp.up": (0.03, 0.03, 0.02),
    "mlp.gate": (0.02, 0.02, 0.02), "mlp.down": (0.01, 0.02, 0.08),
}  # fmt: skip
SHAPES = [(64, 64), (96, 40), (40, 96), (256, 256), (1, 9), (9, 1), (1, 1)]


def gaussian(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def values(matrix: Tensor) -> Tensor:
    return torch.linalg.svdvals(matrix.double())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("decay", [0.0, 2.5, 5.0])
def test_decay_and_norm_of_a_shaped_spectrum(shape, decay):
    raw = gaussian(shape)
    shaped = shaped_spectrum(raw, 0.03, decay)
    assert shaped.shape == shape
    assert shaped.dtype == torch.float32
    norm = torch.linalg.matrix_norm(shaped.double()).item()
    assert norm == pytest.approx(math.sqrt(raw.numel()) * 0.03, rel=1e-5)
    n = min(shape)
    ratio = values(shaped) / values(raw) / torch.exp(-decay * torch.arange(n) / n)  # one factor for all
    assert (ratio / ratio[0] - 1).abs().max() < 1e-3


def test_the_directions_of_a_shaped_spectrum_stay():
    raw = gaussian((48, 32))
    u, s, vh = torch.linalg.svd(raw.double(), full_matrices=False)
    expected = (u * s * torch.exp(-5 * torch.arange(32) / 32)) @ vh
    shaped = shaped_spectrum(raw, 1.0, 5.0).double()
    torch.testing.assert_close(
        shaped / torch.linalg.matrix_norm(shaped), expected / torch.linalg.matrix_norm(expected), atol=1e-7, rtol=0
    )


def test_without_decay_only_the_norm_changes():
    raw = gaussian((20, 30))
    shaped = shaped_spectrum(raw, 1.0, 0.0)
    torch.testing.assert_close(shaped, raw * (math.sqrt(600) / torch.linalg.matrix_norm(raw)))


def test_trailing_dimensions_are_one():
    raw = gaussian((6, 2, 5))
    assert torch.equal(shaped_spectrum(raw, 1.0, 3.0), shaped_spectrum(raw.reshape(6, 10), 1.0, 3.0).reshape(6, 2, 5))
    assert torch.equal(orthogonal(raw), orthogonal(raw.reshape(6, 10)).reshape(6, 2, 5))


@pytest.mark.parametrize("shape", [*SHAPES, (6, 2, 5)])
def test_the_shorter_side_of_an_orthogonal_matrix_is_orthonormal(shape):
    q = orthogonal(gaussian(shape))
    assert q.shape == shape
    matrix = q.flatten(1).double()
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    torch.testing.assert_close(gram, torch.eye(len(gram), dtype=gram.dtype), atol=1e-5, rtol=0)


def test_orthogonal_matrices_have_no_preferred_sign():
    """QR alone fixes signs by its algorithm; the diagonal of R makes the distribution uniform."""
    traces = [orthogonal(gaussian((8, 8), seed)).trace().item() for seed in range(200)]
    assert abs(sum(traces) / 200) < 4 / math.sqrt(200)  # the trace of a uniform one has mean 0 and variance 1


@pytest.mark.parametrize("shape", [(64, 16), (16, 64), (1, 64)])
def test_a_drawn_orthogonal_matrix_has_its_rms(shape):
    drawn = draw(shape, Distribution("orthogonal", 0.5), 0, "w")
    assert drawn.double().square().mean().sqrt().item() == pytest.approx(0.5, rel=1e-5)


def decoder(*overrides: str) -> Decoder:
    size = ["model.vocab_size=64", "model.d_model=32", "model.n_layers=5", "model.attention.n_heads=4"]
    return Decoder(Config.load(None, [*size, *overrides]).model)


@pytest.mark.parametrize("heads", [4, 2])
def test_queries_keys_and_values_are_shaped_as_one(tmp_path, heads):
    model = decoder(f"model.attention.n_kv_heads={heads}")
    path = write(tmp_path / "c.json", RMS)
    report = initialize_(model, "magnitude+spectrum", seed=3, cohort=path, std=0.05)
    law = next(row for row in report.plan.rows if row.name == "layers.1.attn.k.weight")
    whole = model.layers[1].attn.qkv.weight
    assert law.joint is not None and law.joint.shape == tuple(whole.shape) == (32 + 2 * 8 * heads, 32)
    assert law.joint.rows == (32, 32 + 8 * heads)
    assert law.distribution.decay == pytest.approx(5 * 0.75)
    assert torch.equal(whole, draw(law.joint.shape, law.distribution, 3, "layers.1.attn.qkv.weight"))
    rms = whole.detach().double().square().mean().sqrt().item()
    assert rms == pytest.approx(0.05 * 0.02 / 0.01875, rel=1e-5)
    assert "in one draw, layers.1.attn.qkv.weight" in str(report)


def test_realistic_has_the_cohorts_rms_everywhere(tmp_path):
    model = decoder()
    initialize_(model, "realistic", seed=3, cohort=write(tmp_path / "c.json", RMS))
    for layer, z in ((0, 0), (1, 1), (4, 2)):  # depths 0, 1/4 and 1 of the cohort
        block = model.layers[layer]
        up = block.mlp.gate_up.weight[-block.mlp.gate_up.blocks["up"] :]
        for component, weight in (
            ("attn.qkv", block.attn.qkv.weight),
            ("mlp.down", block.mlp.down.weight),
            ("mlp.up", up),
        ):
            rms = weight.detach().double().square().mean().sqrt().item()
            assert rms == pytest.approx(RMS[component][z], rel=1e-5), (layer, component)


def test_separate_projections_get_the_numbers_of_fused_ones(tmp_path):
    """A Llama has q, k and v apart, the decoder fuses them: the same draw under the same names."""
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, num_hidden_layers=5, **size))
    report = initialize_(llama, "magnitude+spectrum", seed=3, cohort=write(tmp_path / "c.json", RMS))
    attention = llama.model.layers[1].self_attn
    whole = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
    row = next(row for row in report.plan.rows if row.name == "model.layers.1.self_attn.v_proj.weight")
    assert row.joint is not None and row.joint.rows == (48, 64)
    assert torch.equal(whole, draw((64, 32), row.distribution, 3, row.joint.name))
    raw = draw((64, 32), Distribution("normal", 1.0), 3, row.joint.name)
    ratio = values(whole.detach()) / values(raw) / torch.exp(-3.75 * torch.arange(32) / 32)
    assert (ratio / ratio[0] - 1).abs().max() < 1e-3


def test_a_fused_conv1d_of_gpt2(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=5, n_head=4, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    report = initialize_(model, "realistic", seed=3, cohort=write(tmp_path / "c.json", RMS))
    whole = model.transformer.h[1].attn.c_attn.weight.detach().T  # [96, 32]
    row = next(row for row in report.plan.rows if row.role in ("attn.q", "attn.qkv") and ".h.1." in row.name)
    shape = row.joint.shape if row.joint else row.shape
    assert shape == (96, 32)
    assert torch.equal(whole, draw(shape, row.distribution, 3, row.joint.name if row.joint else row.name))
    assert whole.double().square().mean().sqrt().item() == pytest.approx(0.02, rel=1e-5)
    down = model.transformer.h[4].mlp.c_proj.weight.detach()
    assert down.double().square().mean().sqrt().item() == pytest.approx(0.08, rel=1e-5)


@pytest.mark.parametrize("law", [Distribution("orthogonal", 0.05), Distribution("spectrum", 0.02, decay=3.0)])
def test_bits_do_not_depend_on_the_number_of_threads(law):
    drawn, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            drawn.append(draw((384, 256), law, 0, "w"))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*drawn)
