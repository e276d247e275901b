"""Run by a test with a small disk: a study fills it, is told so, and goes on with more room. STORE DISK"""

import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(1, str(Path(__file__).parents[1]))
    from studied import carry_out, found, plan_of
    from studies import in_this_process

    from seedbed.errors import InputError
    from seedbed.study.local import local_engine
    from seedbed.study.outcome import settled
    from seedbed.study.work import work

    store, disk = map(Path, sys.argv[1:])
    plan, runs = plan_of(store, 0.5, 0.75, 1.0, 1.25, shares=[1.0]), disk / "runs"
    try:
        carry_out(plan, runs, local_engine(1, print))
    except InputError as error:
        assert "a checkpoint needs" in str(error), error
        assert str(error).count("make room") == 1, error
    else:
        raise AssertionError("all of it fitted")
    done = {path: path.stat().st_mtime_ns for path in runs.glob("*/outcome.json") if settled(path.parent)}
    assert done
    subprocess.run(["mount", "-o", "remount,size=60m", disk], check=True)
    state = carry_out(plan, runs, local_engine(1, print))
    assert all(path.stat().st_mtime_ns == when for path, when in done.items()), "a finished run was repeated"
    assert found(state.outcomes) == found(carry_out(plan, disk / "others", in_this_process(work)).outcomes)
