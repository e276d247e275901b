import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seedbed.train import objective
from seedbed.train.objective import chunked_cross_entropy, cross_entropy_and_z, token_losses


def example(n=23, d=8, v=37, masked=0.3, dtype=torch.float64, seed=0):
    """hidden [n, d], head [v, d], targets [n] of which a share is masked."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, d, dtype=dtype, generator=generator)
    head = torch.randn(v, d, dtype=dtype, generator=generator)
    targets = torch.randint(0, v, (n,), generator=generator)
    targets[torch.rand(n, generator=generator) < masked] = -100
    return hidden.requires_grad_(), head.requires_grad_(), targets


def plain(hidden, head, targets, scale=1.0):
    return F.cross_entropy(F.linear(hidden, head).float(), targets, reduction="sum") * scale


def gradients(loss, *inputs):
    return torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("chunk", [1, 5, 23, 100, None])
@pytest.mark.parametrize("masked", [0.0, 0.3])
def test_loss_and_gradients_equal_the_plain_loss_in_fp64(chunk, masked):
    hidden, head, targets = example(masked=masked)
    ours = chunked_cross_entropy(hidden, head, targets, 0.125, chunk)
    theirs = F.cross_entropy(F.linear(hidden, head), targets, reduction="sum") * 0.125
    torch.testing.assert_close(ours, theirs)
    for got, expected in zip(gradients(ours * 3, hidden, head), gradients(theirs * 3, hidden, head), strict=True):
        torch.testing.assert_close(got, expected)


def test_gradients_equal_finite_differences():
    hidden, head, targets = example(n=3, d=2, v=4)
    both = gradients(chunked_cross_entropy(hidden, head, targets), hidden, head)
    for tensor, gradient in zip((hidden, head), both, strict=True):
        for index in torch.cartesian_prod(*(torch.arange(size) for size in tensor.shape)):
            step = torch.zeros_like(tensor)
            step[tuple(index)] = 1e-6
            moved = ([x.detach() + sign * step if x is tensor else x for x in (hidden, head)] for sign in (1, -1))
            up, down = (chunked_cross_entropy(h, w, targets) for h, w in moved)
            assert gradient[tuple(index)].item() == pytest.approx((up - down).item() / 2e-6, abs=1e-7)


def test_fp32_agrees_to_1e_5_at_a_real_width():
    hidden, head, targets = example(n=300, d=64, v=1000, dtype=torch.float32)
    ours, theirs = (loss(hidden, head, targets, 1 / 210) for loss in (chunked_cross_entropy, plain))
    assert abs(ours.item() - theirs.item()) <= 1e-5 * theirs.item()
    for got, expected in zip(gradients(ours, hidden, head), gradients(theirs, hidden, head), strict=True):
        assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()


@settings(max_examples=40)
@given(
    n=st.integers(0, 30), v=st.integers(1, 30), chunk=st.integers(1, 40), masked=st.floats(0, 1), seed=st.integers(0, 9)
)
def test_chunks_and_masks_change_nothing(n, v, chunk, masked, seed):
    hidden, head, targets = example(n=n, v=v, masked=masked, seed=seed)
    ours = chunked_cross_entropy(hidden, head, targets, chunk_tokens=chunk)
    theirs = F.cross_entropy(F.linear(hidden, head), targets, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    for got, expected in zip(gradients(ours, hidden, head), gradients(theirs, hidden, head), strict=True):
        torch.testing.assert_close(got, expected)


def test_all_targets_masked_give_zero_loss_and_zero_gradients():
    hidden, head, targets = example(masked=1.1)
    loss = chunked_cross_entropy(hidden, head, targets, 0.5)
    assert loss.item() == 0
    for gradient in gradients(loss, hidden, head):
        assert gradient.count_nonzero() == 0
    assert not token_losses(hidden, head, targets).any()


def test_a_masked_row_is_never_looked_at():
    hidden, head, targets = example()
    with torch.no_grad():
        hidden[targets == -100] = float("nan")
    loss = chunked_cross_entropy(hidden, head, targets)
    grad_hidden, grad_head = gradients(loss, hidden, head)
    assert torch.isfinite(loss)
    assert torch.isfinite(grad_head).all()
    assert not grad_hidden[targets == -100].any()


def test_masked_micro_batches_add_nothing_and_accumulation_equals_one_batch():
    """Case 23: samples of 11 and 101 tokens, one sum divided by the global count."""
    hidden, head, targets = example(n=112, masked=0)
    whole = gradients(chunked_cross_entropy(hidden, head, targets, 1 / 112), hidden, head)
    parts = [slice(0, 11), slice(11, 112)]
    losses = [chunked_cross_entropy(hidden[part], head, targets[part], 1 / 112) for part in parts]
    losses.append(chunked_cross_entropy(hidden, head, torch.full_like(targets, -100), 1 / 112))
    for got, expected in zip(gradients(sum(losses), hidden, head), whole, strict=True):
        torch.testing.assert_close(got, expected)


def test_extreme_logits_stay_finite():
    """Where exp would overflow, and where the target's probability underflows to zero in fp32."""
    head = torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
    hidden = torch.tensor([[300.0], [-5000.0]], requires_grad=True)
    targets = torch.tensor([1, 0])
    loss = chunked_cross_entropy(hidden, head, targets)
    assert loss.item() == pytest.approx(600 + 10_000)
    assert all(torch.isfinite(gradient).all() for gradient in gradients(loss, hidden, head))


def test_a_head_tied_to_the_embedding_gets_both_gradients():
    embed = nn.Embedding(37, 8, dtype=torch.float64)
    ids, targets = torch.arange(20), torch.arange(1, 21)
    results = []
    for loss in (chunked_cross_entropy, lambda h, w, t: F.cross_entropy(F.linear(h, w), t, reduction="sum")):
        embed.weight.grad = None
        loss(embed(ids).tanh(), embed.weight, targets).backward()
        results.append(embed.weight.grad)
    torch.testing.assert_close(*results)


def test_a_weight_used_twice_gets_the_sum():
    hidden, head, targets = example()
    (once,) = gradients(chunked_cross_entropy(hidden, head, targets), head)
    both = chunked_cross_entropy(hidden, head, targets) + chunked_cross_entropy(hidden, head, targets, 2.0)
    torch.testing.assert_close(gradients(both, head)[0], 3 * once)


@pytest.mark.parametrize("frozen", ["hidden", "head"])
def test_only_the_gradients_that_are_wanted_are_made(frozen):
    hidden, head, targets = example()
    full = gradients(chunked_cross_entropy(hidden, head, targets), hidden, head)
    (hidden if frozen == "hidden" else head).requires_grad_(False)
    loss = chunked_cross_entropy(hidden, head, targets)
    (wanted,) = gradients(loss, head if frozen == "hidden" else hidden)
    torch.testing.assert_close(wanted, full[1] if frozen == "hidden" else full[0])


def test_evaluation_makes_no_gradients(monkeypatch):
    hidden, head, targets = example()
    expected = plain(hidden, head, targets)
    made = []
    sweep = objective._sweep
    monkeypatch.setattr(objective, "_sweep", lambda *args: made.append(sweep(*args)) or made[-1])
    with torch.no_grad():
        loss = chunked_cross_entropy(hidden, head, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected.double(), atol=1e-5, rtol=1e-5)
    token_losses(hidden, head, targets)
    assert [result[2:] for result in made] == [(None, None)] * 2


@pytest.mark.parametrize("chunk", [4, None])
def test_token_losses_keep_the_shape_and_zero_the_masked(chunk):
    hidden, head, targets = example(n=24)
    losses = token_losses(hidden.view(4, 6, 8), head, targets.view(4, 6), chunk)
    expected = F.cross_entropy(F.linear(hidden, head), targets, reduction="none")
    assert not losses.requires_grad
    torch.testing.assert_close(losses, expected.detach().view(4, 6))
    assert not losses[targets.view(4, 6) == -100].any()


def test_leading_dimensions_do_not_matter():
    hidden, head, targets = example(n=24)
    flat = gradients(chunked_cross_entropy(hidden, head, targets), hidden)[0]
    batch = gradients(chunked_cross_entropy(hidden.view(4, 6, 8), head, targets.view(4, 6)), hidden)[0]
    assert torch.equal(flat, batch)


def test_autocast_multiplies_in_bf16_and_sums_in_fp32():
    hidden, head, targets = example(n=64, d=32, v=200, masked=0.1, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        ours = chunked_cross_entropy(hidden, head, targets, 1 / 58, 16)
        theirs = plain(hidden, head, targets, 1 / 58)  # bf16 logits, fp32 softmax
        losses = token_losses(hidden, head, targets)
    assert ours.dtype == losses.dtype == torch.float32
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    assert losses.sum().item() / 58 == pytest.approx(theirs.item(), rel=1e-5)
    exact = plain(hidden, head, targets, 1 / 58)
    assert ours.item() != pytest.approx(exact.item(), rel=1e-6)  # the products really were bf16
    for got, expected in zip(gradients(ours, hidden, head), gradients(theirs, hidden, head), strict=True):
        assert got.dtype == torch.float32
        assert (got - expected).abs().max() <= 0.01 * expected.abs().max()


def test_bf16_weights_sum_their_chunks_in_fp32():
    """1,000 chunks of one token: a bf16 sum would stop growing."""
    hidden = torch.ones(1000, 1, dtype=torch.bfloat16)
    head = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    loss = chunked_cross_entropy(hidden, head, torch.zeros(1000, dtype=torch.int64), chunk_tokens=1)
    loss.backward()
    assert loss.item() == pytest.approx(1000 * 0.693147, rel=1e-4)
    assert head.grad is not None
    assert head.grad.dtype == torch.bfloat16
    assert head.grad.flatten().tolist() == [-500.0, 500.0]


def test_a_second_backward_is_refused():
    hidden, head, targets = example()
    loss = chunked_cross_entropy(hidden, head, targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward ran already"):
        loss.backward()


def test_a_target_outside_the_vocabulary_is_an_error():
    hidden, head, targets = example(masked=0)
    targets[3] = 37
    with pytest.raises((RuntimeError, IndexError), match="index 37 is out of bounds"):
        chunked_cross_entropy(hidden, head, targets)


def test_no_tensor_is_as_large_as_the_logits():
    """Every tensor that any operation makes, forward and backward, at a vocabulary where a chunk has 128 tokens."""
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else (out,):
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes())
            return out

    tokens, width, vocab = 1024, 8, 40_000
    hidden, head = torch.randn(tokens, width, requires_grad=True), torch.randn(vocab, width, requires_grad=True)
    with Watch():
        chunked_cross_entropy(hidden, head, torch.randint(vocab, (tokens,))).backward()
    assert largest == 4 * 128 * vocab  # the logits of all tokens would be eight times that


@pytest.mark.parametrize("chunk", [5, None])
def test_z_loss_and_its_gradients_equal_autograd_in_fp64(chunk):
    hidden, head, targets = example()
    loss, z = cross_entropy_and_z(hidden, head, targets, 0.125, 0.3, chunk)
    logits = F.linear(hidden, head)[targets != -100]
    penalty = 0.3 * 0.125 * logits.logsumexp(1).square().sum()
    plain_loss = F.cross_entropy(logits, targets[targets != -100], reduction="sum") * 0.125
    torch.testing.assert_close(z, penalty)
    torch.testing.assert_close(loss - z, plain_loss)
    assert not z.requires_grad
    both = gradients(loss * 3, hidden, head), gradients((plain_loss + penalty) * 3, hidden, head)
    for got, expected in zip(*both, strict=True):
        torch.testing.assert_close(got, expected)


def test_z_loss_of_nothing_is_nothing_and_without_gradients_it_is_the_same():
    hidden, head, targets = example()
    loss, z = cross_entropy_and_z(hidden, head, targets, 1.0, 0.3)
    with torch.no_grad():
        again = cross_entropy_and_z(hidden, head, targets, 1.0, 0.3)
    torch.testing.assert_close(again, (loss.detach(), z))
    none = cross_entropy_and_z(hidden, head, torch.full_like(targets, -100), 1.0, 0.3)
    assert [one.item() for one in none] == [0, 0]
    off = cross_entropy_and_z(hidden, head, targets, 1.0, 0.0)
    assert torch.equal(off[0], chunked_cross_entropy(hidden, head, targets))
    assert off[1] == 0


def test_z_loss_under_autocast_stays_in_fp32():
    hidden, head, targets = example(n=64, d=32, v=200, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, z = cross_entropy_and_z(hidden, head, targets, 1 / 64, 1e-2, 16)
        expected = 1e-2 / 64 * F.linear(hidden, head)[targets != -100].float().logsumexp(1).square().sum()
    assert loss.dtype == z.dtype == torch.float32
    assert z.item() == pytest.approx(expected.item(), rel=1e-5)
