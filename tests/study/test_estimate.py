"""What a study takes: what is left, what runs take beside their steps, what cannot branch off."""

from dataclasses import replace
from pathlib import Path

import pytest
import studies

from seedbed.measure.table import Rows
from seedbed.study.estimate import Speed, estimate
from seedbed.study.outcome import Outcome

SPEED = Rows([Speed("base", 1e-9, 5.0, "")])


def test_runs_take_their_steps_and_what_is_beside_them(tiny_store, tmp_path):
    plan = studies.plan(tiny_store, shares=[0.5, 1.0])
    found = estimate(plan, {}, SPEED, tmp_path)
    assert (found.comparison.runs, found.from_start) == (4, 0)
    assert found.comparison.seconds == pytest.approx(4 * 5.0 + 1e-9 * found.comparison.flops)
    bare = estimate(plan, {}, Rows([replace(SPEED[0], around_s=None)]), tmp_path)
    assert bare.comparison.seconds == pytest.approx(1e-9 * found.comparison.flops)


def test_a_branch_whose_trunk_kept_no_checkpoint_there_is_counted_from_its_first_step(tiny_store, tmp_path: Path):
    plan = studies.plan(tiny_store, shares=[0.5, 1.0])
    trunk, branch = plan.comparison(plan.cells[0], {})
    done = {trunk.key: Outcome(trunk.key, "finished", nats_per_token=1.0)}
    alone = estimate(plan, done, SPEED, tmp_path)
    assert alone.from_start == 1
    assert branch.trunk is not None
    (tmp_path / trunk.key / "checkpoints" / f"step_{branch.trunk[1]:08d}").mkdir(parents=True)
    kept = estimate(plan, done, SPEED, tmp_path)
    assert kept.from_start == 0
    shared = branch.trunk[1] * studies.STEP
    assert alone.comparison.tokens - kept.comparison.tokens == shared
    assert alone.comparison.flops - kept.comparison.flops == pytest.approx(trunk.flops / trunk.tokens * shared)


def test_shares_that_are_rounded_are_told(tiny_store):
    plan = studies.plan(tiny_store, shares=[0.33, 0.5, 1.0])
    assert plan.rounded() == ["share 0.33 is 0.35 of the budget at base: shares are whole twentieths of a run"]
    assert studies.plan(tiny_store, shares=[0.35, 1.0]).rounded() == []
