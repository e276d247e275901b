"""However a batch is divided among passes and ranks, the run is the same."""

import pytest
import torch
from ranks import on_ranks
from trainings import Results, Trained, arm, results

OPTIMIZERS = ("adamw", "muon")
EXACT = {
    f"{optimizer} γ={gamma}": (f"optim.name={optimizer}", f"init.gamma={gamma}", "train.precision=fp64")
    for optimizer in OPTIMIZERS
    for gamma in (0.5, 1.0)
}
OTHER = ("model.tied=true", "model.position=learned", "model.norm=layernorm", "model.bias=true")
EXACT["muon, another model"] = ("train.precision=fp64", *OTHER, "train.clip_norm=null", "train.z_loss=1e-3")
OLMO2 = (
    "model.norm_placement=post", "model.attention.qk_norm=whole",
    "model.rope_scaling={factor: 8, original_max_seq_len: 16}",
)  # fmt: skip
EXACT["muon embeddings"] = ("train.precision=fp64", "model.tied=true", *OLMO2, "optim.muon.embeddings=muon")
ROUNDED = {f"{optimizer} fp32": (f"optim.name={optimizer}", "init.gamma=1.0") for optimizer in OPTIMIZERS}
ARMS = EXACT | ROUNDED
STRATEGIES = ("ddp", "fsdp")
VARIANTS = {
    " accumulated": ("train.micro_batch_size=2",),
    " block": ("parallel.recompute=block",),
    " selective": ("parallel.recompute=selective", "train.micro_batch_size=2"),
    " offloaded": ("parallel.offload=true",),
    " summed each pass": ("parallel.reduce_each_pass=true", "train.micro_batch_size=2"),
}
OF_FSDP = (" offloaded", " summed each pass")
VARIED_BY = [(s, variant) for s in STRATEGIES for variant in VARIANTS if s == "fsdp" or variant not in OF_FSDP]
VARIED = "muon γ=1.0"
"""The arm that the variants are tried on."""
UNEVEN = {
    f"{passes} passes {strategy}": (f"parallel.strategy={strategy}", f"train.micro_batch_size={4 // passes}")
    for strategy in STRATEGIES
    for passes in (1, 2, 4)
}


@pytest.fixture(scope="module")
def alone(tiny_store) -> Results:
    return results(tiny_store, {name: arm("ddp", *overrides) for name, overrides in ARMS.items()}, UNEVEN)


@pytest.fixture(scope="module")
def two(tiny_store) -> list[Results]:
    arms = {f"{name} {s}": arm(s, *overrides) for name, overrides in ARMS.items() for s in STRATEGIES}
    arms |= {f"{VARIED} {s}{variant}": arm(s, *ARMS[VARIED], *VARIANTS[variant]) for s, variant in VARIED_BY}
    return on_ranks(2, results, tiny_store, arms, UNEVEN)


@pytest.fixture(scope="module")
def four(tiny_store) -> list[Results]:
    return on_ranks(4, results, tiny_store, {f"{name} fsdp": arm("fsdp", *more) for name, more in ARMS.items()}, UNEVEN)


def check(ranks: list[Trained], reference: Trained, exact: bool) -> None:
    """Each rank saw the same losses, equal to those of one rank; together they read its samples in its order."""
    for trained in ranks:
        assert trained.losses == pytest.approx(reference.losses, abs=1e-9 if exact else 1e-5, rel=0)
        assert trained.norms == pytest.approx(reference.norms, rel=1e-9 if exact else 1e-4)
        assert trained.losses == ranks[0].losses
        assert trained.drawn == reference.drawn
    for step, samples in enumerate(reference.samples):
        assert [sample for trained in ranks for sample in trained.samples[step]] == samples


def test_something_is_learned(alone):
    assert all(trained.losses[-1] < trained.losses[0] - 0.1 for trained in alone.trained.values())
    assert len({tuple(trained.losses) for trained in alone.trained.values()}) == len(ARMS)


def test_four_accumulated_passes(tiny_store, alone):
    found = results(tiny_store, {n: arm("ddp", "train.micro_batch_size=2", *more) for n, more in ARMS.items()}, {})
    for name in ARMS:
        check([found.trained[name]], alone.trained[name], name in EXACT)


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_ranks(two, alone, strategy, name):
    check([one.trained[f"{name} {strategy}"] for one in two], alone.trained[name], name in EXACT)


@pytest.mark.parametrize(("strategy", "variant"), VARIED_BY)
def test_two_ranks_that_compute_activations_again_accumulate_or_offload(two, alone, strategy, variant):
    check([one.trained[f"{VARIED} {strategy}{variant}"] for one in two], alone.trained[VARIED], True)


@pytest.mark.parametrize("name", ARMS)
def test_four_ranks(four, alone, name):
    check([one.trained[f"{name} fsdp"] for one in four], alone.trained[name], name in EXACT)


def test_rows_of_unequal_token_counts_weigh_by_their_tokens(alone, two, four):
    """Also one with nothing to predict, which is a pass or a rank of its own in some of these."""
    wanted = alone.uneven["1 passes ddp"]
    assert all(value.isfinite().all() for value in wanted.values())
    for ranks in ([alone], two, four):
        for one in ranks:
            for name, found in one.uneven.items():
                for parameter, value in found.items():
                    torch.testing.assert_close(value, wanted[parameter], rtol=0, atol=1e-9, msg=f"{name} {parameter}")
