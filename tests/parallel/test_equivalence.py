"""However a batch is divided among passes and ranks, the run is the same."""

import pytest
from ranks import on_ranks
from trainings import Trained, arm, trainings

OPTIMIZERS = ("adamw", "muon")
GAMMAS = (0.5, 1.0)
EXACT = {
    f"{optimizer} γ={gamma}": (f"optim.name={optimizer}", f"init.gamma={gamma}", "train.precision=fp64")
    for optimizer in OPTIMIZERS
    for gamma in GAMMAS
}
ROUNDED = {f"{optimizer} fp32": (f"optim.name={optimizer}", "init.gamma=1.0") for optimizer in OPTIMIZERS}
ARMS = EXACT | ROUNDED


@pytest.fixture(scope="module")
def alone(tiny_store) -> dict[str, Trained]:
    return trainings(tiny_store, {name: arm("ddp", *overrides) for name, overrides in ARMS.items()})


def check(found: list[dict[str, Trained]], alone: dict[str, Trained], suffix: str = "") -> None:
    """Each rank saw the same losses, equal to those of one rank; together they read its samples in its order."""
    for name, reference in alone.items():
        ranks = [one[name + suffix] for one in found]
        bound = 1e-9 if name in EXACT else 1e-5
        for trained in ranks:
            assert trained.losses == pytest.approx(reference.losses, abs=bound, rel=0), name
            assert trained.norms == pytest.approx(reference.norms, rel=1e-9 if name in EXACT else 1e-4), name
            assert trained.losses == ranks[0].losses
            assert trained.drawn == reference.drawn
        for step, samples in enumerate(reference.samples):
            assert [sample for trained in ranks for sample in trained.samples[step]] == samples


def test_something_is_learned(alone):
    assert all(trained.losses[-1] < trained.losses[0] - 0.1 for trained in alone.values())
    assert len({tuple(trained.losses) for trained in alone.values()}) == len(ARMS)


def test_four_accumulated_passes(tiny_store, alone):
    arms = {name: arm("ddp", "train.micro_batch_size=2", *overrides) for name, overrides in ARMS.items()}
    check([trainings(tiny_store, arms)], alone)


def test_two_ranks(tiny_store, alone):
    """DDP and FSDP, each in one pass, in two accumulated ones, and computing activations again."""
    variants = {
        "": (),
        " accumulated": ("train.micro_batch_size=2",),
        " block": ("parallel.recompute=block",),
        " selective": ("parallel.recompute=selective", "train.micro_batch_size=2"),
    }
    arms = {
        f"{name} {strategy}{variant}": arm(strategy, *more, *overrides)
        for name, overrides in ARMS.items()
        for strategy in ("ddp", "fsdp")
        for variant, more in variants.items()
    }
    found = on_ranks(2, trainings, tiny_store, arms)
    for strategy in ("ddp", "fsdp"):
        for variant in variants:
            check(found, alone, f" {strategy}{variant}")


def test_four_ranks(tiny_store, alone):
    arms = {f"{name} {s}": arm(s, *overrides) for name, overrides in ARMS.items() for s in ("ddp", "fsdp")}
    found = on_ranks(4, trainings, tiny_store, arms)
    for strategy in ("ddp", "fsdp"):
        check(found, alone, f" {strategy}")
