"""A small study on the tests' store, and outcomes of runs that were never made: losses by a formula, with noise of the
seed and of the run."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seedbed.study.outcome import Outcome
from seedbed.study.plan import Plan, Trial
from seedbed.study.spec import spec_from

GRID = [4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2]
BEST_RATE = 1.6e-2
LAYERS = 4
Loss = Callable[[Trial, float], float]
"""Loss of a trial after a share of its tokens, without noise."""


def made_plan(store: Path, **changes: Any) -> Plan:
    """Gamma at three values and two sizes, tuned, three seeds, two shares; ``changes`` replace fields, and
    None leaves one out."""
    tree: dict[str, Any] = {
        "name": "made",
        "question": "Which gamma?",
        "set": {
            "data.store": str(store), "model.max_seq_len": 32, "train.batch_size": 2, "optim.name": "adamw",
            "model.tied": True, "optim.schedule.kind": "wsd", "train.eval_sequences": 4,
        },
        "axes": {"gamma": {"init.gamma": [0.5, 0.75, 1.0]}},
        "sizes": {"widths": [16, 32], "layers": 2, "head_dim": 8},
        "tune": {"grid": {"optim.lr": GRID}, "seed": 100},
        "seeds": [0, 1, 2],
        "budget": {"tokens": 64 * 400},
        "shares": [0.5, 1.0],
        "compare": {"axis": "gamma", "baseline": "0.5"},
        "optimum": "gamma",
        "observe": ["residual", "masking", "sink", "weights", "profiles", "token_losses"],
    }  # fmt: skip
    return Plan(spec_from({key: value for key, value in (tree | changes).items() if value is not None}, "made"))


def law(trial: Trial, done: float) -> float:
    """Falls with parameters and tokens; a parabola over ln rate; gamma has its best at 0.9, the deeper the more
    tokens per parameter there are."""
    gamma = trial.config.init.options.get("gamma", 0.7)
    seen = trial.tokens * done / trial.parameters
    rate = math.log(trial.config.optim.lr / BEST_RATE)
    size = 5 * trial.parameters**-0.1
    return 2 + size + 2 * seen**-0.3 + 0.03 * rate**2 + 0.15 * (gamma - 0.9) ** 2 * math.log(seen) / 4


def outcome_of(trial: Trial, loss: Loss = law, noise: float = 0.01) -> Outcome:
    """The outcome of a finished run of ``trial``, everything that its study observes included."""
    rng = random.Random(trial.seed)
    # of what tests change, not of its key, which every new field of the configuration changes
    own = random.Random(f"{trial.name} {trial.config.optim.weight_decay}")
    shift = rng.gauss(0, 2 * noise) + own.gauss(0, noise)
    points = [place / 8 for place in range(1, 9)]
    curve = [(int(trial.tokens * at), loss(trial, at) + shift) for at in points]
    look = {"residual": _residual(own), "masking": _masking(own), "sink": _sink(own), "weights": _weights(own)}
    look["profiles"] = _profiles(own)
    look["token_losses"] = [[abs(rng.gauss(4, 2)) + own.gauss(0, 0.1) for _ in range(20)] for _ in range(10)]
    return Outcome(
        key=trial.key, status="finished", nats_per_token=curve[-1][1], bits_per_byte=curve[-1][1] / 1.47,
        steps=trial.config.train.steps, tokens=trial.tokens * 127 // 128, curve=curve,
        gradient_norms=[(tokens, 0.1 + 0.1 * at + own.random() / 20, 2 * own.random()) for tokens, at in
                        zip([tokens for tokens, _ in curve], points, strict=True)],
        weights=[(int(trial.tokens * at), _weights(own)) for at in (0, 0.25, 0.5, 0.75, 1)],
        before=look, after=look, train_s=30.0, wall_s=33.0, peak_mb=500.0,
        branched=None if trial.trunk is None else trial.trunk[0], versions={"torch": "2.13.0", "python": "3.11.7"},
    )  # fmt: skip


def carried_out(plan: Plan, make: Callable[[Trial], Outcome] = outcome_of) -> dict[str, Outcome]:
    """Outcomes of all runs of ``plan``, tuning walk included."""
    outcomes: dict[str, Outcome] = {}
    while ready := plan.ready(outcomes):
        outcomes |= {trial.key: make(trial) for trial in ready}
    return outcomes


def _residual(rng: random.Random) -> dict[str, Any]:
    layers = [{"layer": at, "attn": rng.random(), "mlp": rng.random(), "flow": 2.0 * at + 1} for at in range(LAYERS)]
    return {"flow": 20 * rng.random() + 5, "embed_rms": 0.4, "layers": layers}


def _masking(rng: random.Random) -> dict[str, float]:
    return {f"layers.{at}.{norm}": rng.random() * 1e-3 for at in range(LAYERS) for norm in ("attn_norm", "mlp_norm")}


def _sink(rng: random.Random) -> dict[str, Any]:
    return {"mean": rng.random() / 5, "largest_layer": 0.3, "share_above": 0.1, "uniform": 0.04, "length": 128}


def _profiles(rng: random.Random) -> list[dict[str, Any]]:
    values = {
        "rms": 0.1,
        "stable_rank": 4.0,
        "entropy_rank": 9.0,
        "rank_share": 0.6,
        "condition": 80.0,
        "row_cosine": 0.2,
    }
    return [
        {"role": role, "layer": at, "depth": at / (LAYERS - 1)}
        | {name: value * (0.8 + (at + rng.random()) / 3) for name, value in values.items()}
        for role in ("attn.q", "attn.o", "mlp.up", "mlp.down")
        for at in range(LAYERS)
    ]


def scores(trial: Trial) -> dict[str, Any]:
    """What the model of a trial is said to have answered."""
    own = random.Random(f"{trial.name} scores")
    given = {"task": "text", "items": 40, "stderr": 0.1, "model": "made", "better": "lower"}
    found = [
        given | {"subset": subset, "metric": metric, "unit": unit, "value": value + own.gauss(0, 0.02)}
        for subset, hard in (("all", 0.0), ("domain: books", 0.2), ("domain: code", -0.3))
        for metric, unit, value in (("bits per byte", "bits/byte", 2.2 + hard), ("perplexity", "", 30 + 20 * hard))
    ]
    pairs = given | {"task": "minimal pairs", "metric": "accuracy", "unit": "share", "better": "higher"}
    found += [pairs | {"subset": subset, "value": 0.55 + own.gauss(0, 0.02)} for subset in ("all", "field: syntax")]
    return {"scores": found, "told": ["Document-wise: of each document its first 32 tokens."]}


def _weights(rng: random.Random) -> list[dict[str, Any]]:
    values = {"rms": 0.1, "stable_rank": 4.0, "entropy_rank": 9.0, "row_cosine": 0.2}
    beside = {"gaussian_stable_rank": 6.0, "gaussian_row_cosine": 0.15}
    return [
        {"role": role, **{name: value * (0.8 + rng.random() / 3) for name, value in values.items()}, **beside}
        for role in ("embed", "attn.q", "attn.o", "mlp.up", "mlp.down")
    ]
