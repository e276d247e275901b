"""A report is fast enough to look at while a study runs."""

import resource
from dataclasses import asdict

import pytest
from fake_study import carried_out, made_plan

from seedbed.report.results import write_results
from seedbed.report.study_page import study_page
from seedbed.report.study_rows import study_tables
from seedbed.study.plan import Plan
from seedbed.study.results import results


def seconds() -> float:
    """Of this process on a core: what other processes take does not count."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


@pytest.mark.slow
def test_a_report_on_200_runs_takes_less_than_20_seconds(tiny_store, tmp_path):
    axes = {"gamma": {"init.gamma": [0.25, 0.5, 0.75, 1.0]}, "epsilon": {"model.norm_eps": [1e-12, 1e-5]}}
    plan = made_plan(tiny_store, axes=axes, sizes={"widths": [16, 24, 32], "layers": 2, "head_dim": 8})
    outcomes = carried_out(plan)
    assert len(outcomes) >= 200
    began = seconds()
    again = Plan(plan.spec)  # as the command makes it, nothing resolved yet
    result = results(again, outcomes, tmp_path)
    write_results(tmp_path / "report", study_page(result, {}), study_tables(result), asdict(result))
    assert seconds() - began < 20
