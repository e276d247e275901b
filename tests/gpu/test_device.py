"""One GPU computes what the CPU does, within the rounding of its types."""

import pytest
import torch
from short_runs import job, losses
from tiny import config, quiet
from torch.nn import functional as F

from seedbed.api import fit
from seedbed.config import Config
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.model.attention import attend, document_mask, segments
from seedbed.optim.muon import orthogonalize
from seedbed.train.loop import train_step
from seedbed.train.metrics import read_metrics
from seedbed.train.objective import chunked_cross_entropy

OPTIMIZERS = ("adamw", "muon")
DOCUMENTS = torch.tensor([[0] * 20 + [1] * 44, [2] * 64, [3] * 20 + [4] * 30 + [5] * 14])  # [3, 64]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_fp32_steps_are_the_cpus(device, tiny_store):
    """With AdamW, whose products are all fp32: Muon iterates in bf16 on CUDA."""
    override = "optim.name=adamw"
    assert losses(tiny_store, device, override) == pytest.approx(losses(tiny_store, "cpu", override), abs=1e-4)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_bf16_steps_are_near_fp32(optimizer, device, tiny_store):
    override = f"optim.name={optimizer}"
    found = losses(tiny_store, device, override, "train.precision=bf16")
    exact = losses(tiny_store, "cpu", override)
    assert found == pytest.approx(exact, abs=0.03)
    assert found != exact  # bf16 was on
    assert found[-1] < found[0] - 0.02


@pytest.mark.parametrize("shape", [(64, 64), (48, 200), (200, 48)])
def test_muons_update_is_orthogonal(shape, device):
    """Singular values of a product of two Gaussian matrices, most of them small, end near 1; the direction is the
    CPU's."""
    matrix = normal(shape[0], shape[0]) @ normal(*shape, seed=1)
    update = orthogonalize(matrix.to(device)).float().cpu()
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    large = values >= 2e-3 * matrix.norm()
    along = (left.T @ update @ right.T).diagonal()[large]
    assert along.min() > 0.7
    assert along.max() < 1.2
    reference = orthogonalize(matrix)
    assert (update - reference).norm() < 0.1 * reference.norm()


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_a_mask_of_documents_is_the_cpus_slices(kv_heads, device):
    """Outputs and gradients of the dense mask on the device, and of one slice a document on the CPU."""

    def out_and_grads(where: str, visible: object) -> list[torch.Tensor]:
        q, k, v = (
            normal(3, heads, 64, 16, seed=seed).to(where).requires_grad_()
            for seed, heads in enumerate((4, kv_heads, kv_heads))
        )
        out = attend(q, k, v, visible)  # pyright: ignore[reportArgumentType]
        grads = torch.autograd.grad((out * normal(*out.shape, seed=9).to(where)).sum(), (q, k, v))
        return [tensor.detach().cpu() for tensor in (out, *grads)]

    masked = out_and_grads(device, document_mask(DOCUMENTS.to(device)))
    sliced = out_and_grads("cpu", segments(DOCUMENTS))
    for one, other in zip(masked, sliced, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [24, 4])
def test_attention_never_holds_all_scores(kv_heads, gpu):
    """Scores of one head take 8 MiB in bf16, the mask as much; those of all 24 heads would take 192."""
    length = 2048
    q, k, v = (
        torch.randn(1, heads, length, 64, device=gpu, dtype=torch.bfloat16, requires_grad=True)
        for heads in (24, kv_heads, kv_heads)
    )
    mask = document_mask(torch.zeros(1, length, dtype=torch.int64, device=gpu))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attend(q, k, v, mask).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 100 * 2**20


def test_the_chunked_loss_is_the_plain_one(device):
    hidden, weight, targets = normal(100, 32), normal(300, 32, seed=1) / 6, torch.arange(100) % 300
    targets[::7] = -100
    found, plain = ((hidden.to(where).requires_grad_(), weight.to(where).requires_grad_()) for where in (device, "cpu"))
    loss = chunked_cross_entropy(*found, targets.to(device), scale=0.01, chunk_tokens=16)
    reference = 0.01 * F.cross_entropy(plain[0] @ plain[1].T, targets, reduction="sum", ignore_index=-100)
    loss.backward()
    reference.backward()
    assert loss.item() == pytest.approx(reference.item(), rel=1e-5)
    for one, other in zip(found, plain, strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["block", "selective"])
def test_computing_again_changes_nothing(kind, device, tiny_store):
    plain = losses(tiny_store, device)
    assert losses(tiny_store, device, f"parallel.recompute={kind}") == pytest.approx(plain, abs=1e-4)


def test_less_is_kept_where_it_is_computed_again(gpu):
    """Measured on the GPU after a forward pass."""
    shape = ["model.vocab_size=64", "model.d_model=256", "model.n_layers=8", "model.max_seq_len=512"]
    chosen = Config.load(None, shape).model
    from seedbed.parallel.wrap import recompute

    kept = {}
    for kind in ("none", "selective", "block"):
        model = Decoder(chosen)
        initialize_(model)
        model.to(gpu)
        recompute(model.layers, kind)
        before = torch.cuda.memory_allocated()
        hidden = model(torch.zeros(4, 512, dtype=torch.int64, device=gpu), hidden=True)
        kept[kind] = torch.cuda.memory_allocated() - before
        del hidden
    assert kept["block"] < 0.25 * kept["none"]
    assert kept["block"] < kept["selective"] < kept["none"]


def test_compiled_steps_are_the_eager_ones(gpu, tiny_store):
    assert losses(tiny_store, gpu, "train.compile=true") == pytest.approx(losses(tiny_store, gpu), abs=1e-2)


def test_the_update_is_fused_and_on_the_device(device, tiny_store):
    running = job(tiny_store, device, "optim.name=adamw")
    train_step(running)
    (adamw,) = running.optimizers.optimizers
    assert all(group["fused"] for group in adamw.param_groups)
    assert {tensor.device.type for tensor in running.optimizers.state_dict().values()} == {device}


def test_batches_wait_in_pinned_memory(gpu, tiny_store):
    """Else copies to the GPU would not go on beside its work."""
    assert job(tiny_store, gpu).loader.next_batch().ids.is_pinned()


@pytest.mark.parametrize("first", ["device", "cpu"])
def test_a_run_goes_on_elsewhere(first, device, tiny_store, tmp_path):
    """Half of a run on the device and half on the CPU, in either order, has the losses of one on the CPU."""

    def run(name: str, where: str, steps: int) -> list[float]:
        schedule = ["optim.schedule.kind=constant", "optim.schedule.warmup=0", "optim.lr=1e-3", "optim.name=adamw"]
        fit(config(tiny_store, tmp_path / name, *schedule, f"train.steps={steps}", f"train.device={where}"), quiet)
        return [row["loss"] for row in read_metrics(tmp_path / name) if row["kind"] == "train"]

    places = (device, "cpu") if first == "device" else ("cpu", device)
    run("moved", places[0], 3)
    assert run("moved", places[1], 6) == pytest.approx(run("stayed", "cpu", 6), abs=1e-4)
