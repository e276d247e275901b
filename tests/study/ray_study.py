"""Run by a test: a study on the Ray of this machine, one of whose workers is killed. STORE FOLDER"""

import sys
from functools import partial
from pathlib import Path

from studied import carry_out, found, kills_a_worker_of_ray, plan_of
from studies import in_this_process

from seedbed.study.on_ray import ray_engine
from seedbed.study.work import work

if __name__ == "__main__":
    store, folder = map(Path, sys.argv[1:])
    plan = plan_of(store, 0.5, 1.0)
    expected = found(carry_out(plan, folder / "here", in_this_process(work)).outcomes)
    said = []
    state = carry_out(plan, folder / "ray", ray_engine(2, said.append), partial(kills_a_worker_of_ray, folder / "flag"))
    assert not state.failed, state.failed
    assert found(state.outcomes) == expected
    assert (folder / "flag").exists()
    assert len(said) == 1
